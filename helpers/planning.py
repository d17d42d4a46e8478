"""A case made ready to run on this machine: build, settings, images, references, budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from helpers.case import DataSource
from helpers.config import Config
from helpers.dataset import DatasetFacts
from helpers.devices import Machine, environment_of
from helpers.installed import Installed, build_record
from helpers.overrides import effective, with_overrides
from helpers.plan import CasePlan, SuiteCase, published_references
from helpers.recipe import settings_for
from helpers.recording import RecordedBaselines
from helpers.runner import inherited_variables

# Of a run's environment, what is known before it; the rest comes from its own log.
_KNOWN_BEFORE = ("host_id", "cpu_model", "logical_cores", "cards", "driver", "power_limit_watts", "flags")


@dataclass(frozen=True)
class Planner:
    """Plans cases for ``machine``. ``overrides`` are the changed settings; ``to_record``: whether what is measured
    may become the recorded figure; ``data`` gives the images, which are looked at when a case needs them."""

    config: Config
    machine: Machine
    installed: Installed
    baselines: RecordedBaselines
    data: Callable[[], DatasetFacts]
    overrides: Mapping[str, Any]
    to_record: bool = False

    def plan(self, suite_case: SuiteCase) -> CasePlan | str:
        """The plan, or why the case cannot run here. Raises SuiteError on data, baselines and settings."""
        if reason := self.installed.why_not(suite_case):
            return reason
        build = self.installed.build(suite_case)
        if isinstance(build, str):
            return build
        reference = self.installed.reference(suite_case)
        case, config = suite_case.case, self.config
        cards = self.machine.cards_of(suite_case.target)
        usual = settings_for(case, suite_case.device)
        overrides = effective(usual, self.overrides, case.id)
        settings = with_overrides(usual, overrides, case.id)
        environment = environment_of(
            self.machine,
            cards[: case.cards_per_node],
            framework=case.framework.value,
            framework_version=build.version,
            variables=inherited_variables(settings),
        ).to_mapping()
        published = published_references(suite_case.figures, cards[0].name, config.tolerances.published_for(case.id))
        return CasePlan(
            suite_case,
            build=build_record(build),
            settings=settings,
            overrides=overrides,
            published=published,
            recorded=self.baselines.load(suite_case.device).entries.get(case.id),
            tolerance=config.tolerances.recorded_for(case.id),
            data=case.data.value if case.data is DataSource.SYNTHETIC else self.data().describe(),
            environment={name: environment[name] for name in _KNOWN_BEFORE},
            reference={} if isinstance(reference, str) else build_record(reference),
            why_no_reference=reference if isinstance(reference, str) else "",
            budget=config.budgets.budget_for(case.id),
            to_record=self.to_record,
        )
