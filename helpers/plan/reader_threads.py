"""How many threads or workers of a GPU's reader are started: as many as the publisher had, else at most as many as the
rank's share of the machine has CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helpers.machine.environment import GPU
from helpers.plan.case_plan import CasePlan
from helpers.plan.overrides import leaves, with_overrides
from helpers.plan.perf_yaml import Config
from helpers.plan.recipes import OWN
from helpers.plan.recipes.recipe import sourced_settings

READERS = ("dali.threads", "native.workers")


def within_share(plan: CasePlan, cpus: int, config: Config) -> Mapping[str, Any]:
    """The settings of the plan, with the suite's own numbers of readers lowered to ``cpus``, those of a card.

    Numbers of the publisher and of the user stay. The result keeps the plan's settings, so that results of the case
    stay comparable; the fact ``loader`` has the numbers that ran.
    """
    if plan.suite_case.device != GPU:
        return plan.settings
    table = sourced_settings(plan.case, GPU, launcher=config.launcher_for(plan.case))
    planned = {key: value for key, value in leaves(plan.settings) if key in READERS and key not in plan.overrides}
    lower = {key: cpus for key, value in planned.items() if table[key].source.where == OWN and value > cpus}
    return with_overrides(plan.settings, lower, plan.case.id)
