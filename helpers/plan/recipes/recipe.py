"""The training configuration of a case as data, by a recipe for each framework.

The trainers read the result strictly (``helpers/trainers/common/settings.py``), and record in the step log's header
which of the settings the installed build does not know. Each setting has its source where its value is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from helpers.plan.recipes import Fixed, Setting, SettingsTable, Source, plain_values
from helpers.plan.recipes.mxnet import mxnet_fixed, mxnet_settings
from helpers.plan.recipes.paddle import paddle_fixed, paddle_settings
from helpers.plan.recipes.publishers import DOCUMENTS, published_recipe
from helpers.plan.recipes.pytorch import pytorch_fixed, pytorch_settings
from helpers.plan.recipes.tensorflow import tensorflow_fixed, tensorflow_settings
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import entry_of
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import LAUNCHER_SETTING


@dataclass(frozen=True)
class Recipe:
    """A framework's recipe: the settings of a case, on a GPU or not, and what its trainer does whatever they are."""

    settings: Callable[[Case, bool], SettingsTable]
    fixed: Callable[[Case, bool], tuple[Fixed, ...]]


RECIPES: Mapping[Framework, Recipe] = MappingProxyType(
    {
        Framework.PADDLE: Recipe(paddle_settings, paddle_fixed),
        Framework.PYTORCH: Recipe(pytorch_settings, pytorch_fixed),
        Framework.TENSORFLOW: Recipe(tensorflow_settings, tensorflow_fixed),
        Framework.MXNET: Recipe(mxnet_settings, mxnet_fixed),
    }
)


def settings_for(case: Case, device: str, *, launcher: str = "") -> dict[str, Any]:
    """The values of ``sourced_settings``: JSON values, with nested groups."""
    return plain_values(sourced_settings(case, device, launcher=launcher))


def sourced_settings(case: Case, device: str, *, launcher: str = "") -> SettingsTable:
    """The settings of ``case`` on ``cpu`` or ``gpu``, with their sources.

    ``launcher`` is the one that perf.yaml chooses; empty means the framework's
    own, which is no setting. Raises ConfigError for a framework without a recipe, and for anything that its recipe
    refuses.
    """
    settings = _recipe(case).settings(case, device == "gpu")
    table = {key: replace(each, source=_cited(case, each.source)) for key, each in settings.items()}
    if not launcher:
        return table
    return {
        **table,
        LAUNCHER_SETTING: Setting(launcher, Source(f"perf.yaml, frameworks.{case.framework.value}.launcher")),
    }


def fixed_of(case: Case, device: str) -> tuple[Fixed, ...]:
    """What the trainer does for this case, whatever its settings are."""
    return tuple(replace(each, source=_cited(case, each.source)) for each in _recipe(case).fixed(case, device == "gpu"))


def _cited(case: Case, source: Source) -> Source:
    """The source, with the documented model in it if the case has another one that merely follows its publisher."""
    documented = published_recipe(case).documented
    if case.model is documented or not source.where.startswith(DOCUMENTS):
        return source
    return replace(source, where=f"{source.where}, as for {documented.spec.title}")


def _recipe(case: Case) -> Recipe:
    return entry_of(RECIPES, case.framework, f"case {case.id}", "RECIPES of helpers/plan/recipes/recipe.py")
