"""A case made ready to run on this machine: build, settings, images, references, budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from helpers.machine.devices import Machine, environment_of
from helpers.plan.case_plan import CasePlan, SuiteCase, published_references
from helpers.plan.image_folder import DatasetFacts, images_needed
from helpers.plan.installed import Installed
from helpers.plan.overrides import effective, with_overrides
from helpers.plan.perf_yaml import Config
from helpers.plan.recipes.recipe import settings_for
from helpers.plan.recorded import RecordedEntry
from helpers.session.recording import RecordedBaselines
from helpers.session.run_job import inherited_variables
from helpers.trainers.contract.case import DataSource

# Of a run's environment, what is known before it; the rest comes from its own log.
_KNOWN_BEFORE = (
    "host_id", "machine", "pool", "cpu_model", "logical_cores", "cards", "driver", "power_limit_watts", "flags",
)  # fmt: skip


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
        entry = self.baselines.load(suite_case.device).entries.get(suite_case.case.id)
        reference, why_no_reference = self._reference(suite_case, entry)
        case, config = suite_case.case, self.config
        cards = self.machine.cards_of(suite_case.target)
        usual = settings_for(case, suite_case.device, launcher=config.launcher_for(case))
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
        needed = images_needed(case, (reference.rule for reference in published))
        if needed is not None and (too_few := needed.why_not(self.data())):
            return too_few
        return CasePlan(
            suite_case,
            build=self.installed.record(build),
            settings=settings,
            overrides=overrides,
            published=published,
            recorded=entry,
            tolerance=config.tolerances.recorded_for(case.id),
            band=config.tolerances.unconfirmed_for(case.id),
            data=case.data.value if case.data is DataSource.SYNTHETIC else self.data().describe(),
            environment={name: environment[name] for name in _KNOWN_BEFORE},
            reference=reference,
            why_no_reference=why_no_reference,
            budget=config.budgets.budget_for(case.id),
            to_record=self.to_record,
        )

    def _reference(self, suite_case: SuiteCase, entry: RecordedEntry | None) -> tuple[dict[str, str], str]:
        """The good build's record, empty without one, and why this case has none."""
        found = self.installed.reference(suite_case)
        if isinstance(found, str):
            return {}, found
        record = self.installed.record(found, of_reference=True)
        why = self.installed.why_no_pairs(suite_case, record, entry.environment if entry else None)
        return ({}, why) if why else (record, "")
