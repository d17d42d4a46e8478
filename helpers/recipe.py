"""The training configuration of a case, as data: a recipe for each framework.

The trainers read the result strictly (``helpers/trainers/settings.py``) and record in the step log's header
what of it the installed build of the framework does not know. Where a value comes from stands in
``helpers/recipe_sources.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from helpers.case import Case, Framework
from helpers.errors import ConfigError
from helpers.recipe_cpu import Processor
from helpers.recipe_paddle import paddle_settings
from helpers.recipe_pytorch import pytorch_settings

Recipe = Callable[[Case, bool, Processor | None], dict[str, Any]]
RECIPES: Mapping[Framework, Recipe] = MappingProxyType(
    {Framework.PADDLE: paddle_settings, Framework.PYTORCH: pytorch_settings}
)


def settings_for(case: Case, device: str, processor: Processor | None = None) -> dict[str, Any]:
    """The settings of ``case`` on ``cpu`` or ``gpu``, JSON values throughout; ``processor`` None is this machine's.

    Raises ConfigError for a framework that has no recipe, for what its recipe refuses, or another device.
    """
    if device not in ("cpu", "gpu"):
        raise ConfigError("recipe", field="device", got=device, expected="'cpu' or 'gpu'")
    recipe = RECIPES.get(case.framework)
    if recipe is None:
        raise ConfigError(
            f"case {case.id}",
            field="framework",
            got=case.framework.value,
            expected="one of " + ", ".join(each.value for each in RECIPES),
            remedy="No other framework has a trainer so far",
        )
    return recipe(case, device == "gpu", processor)
