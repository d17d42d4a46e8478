"""Where the settings of a case come from, and what its trainer does whatever they say."""

from __future__ import annotations

from helpers.plan.recipes.recipe import RECIPES, sourced_settings
from helpers.plan.recipes.setting import OWN, Fixed, Source
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError

__all__ = ["OWN", "Fixed", "Source", "fixed_of", "source_of"]


def source_of(case: Case, device: str, key: str) -> Source:
    """The source of one key of ``settings_for(case, device)``, dots reaching into groups.

    Raises ConfigError on a key that the settings do not have, and as ``settings_for`` does.
    """
    table = sourced_settings(case, device)
    if key not in table:
        raise ConfigError(
            f"settings of {case.id}",
            field=key,
            got="no such setting",
            expected="one of " + ", ".join(table),
            remedy="'perfgate show CASE' lists them",
        )
    return table[key].source


def fixed_of(case: Case, device: str) -> tuple[Fixed, ...]:
    """What the trainer does for this case whatever its settings say; nothing where no trainer is."""
    recipe = RECIPES.get(case.framework)
    return recipe.fixed(case, device == "gpu") if recipe else ()
