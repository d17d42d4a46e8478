"""Makes a case ready to run on the machine: build, settings, images, references, budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helpers.machine.devices import Machine, environment_of
from helpers.machine.surroundings import LOOPBACK_REMEDY, SHARED_MEMORY_REMEDY, refuse_home
from helpers.plan.case_plan import CPU, CasePlan, SuiteCase, published_references
from helpers.plan.overrides import effective, with_overrides
from helpers.plan.recipes.recipe import settings_for
from helpers.plan.recorded import RecordedEntry
from helpers.session.measuring.job_runner import inherited_variables
from helpers.session.suite import Suite
from helpers.trainers.contract.case import Case, DataSource
from helpers.trainers.contract.errors import DeviceError
from helpers.trainers.contract.frameworks import Framework

# The part of a run's environment that is known before it. The rest comes from its own log.
_KNOWN_BEFORE = (
    "host_id", "machine", "pool", "cpu_model", "logical_cores", "cards", "driver", "power_limit_watts", "flags",
)  # fmt: skip


def plan_of(suite: Suite, suite_case: SuiteCase) -> CasePlan | str:
    """The case's plan, or why it cannot run here. Raises SuiteError on data, baselines and settings."""
    if reason := suite.why_not(suite_case):
        return reason
    case, config, machine = suite_case.case, suite.config, suite.machine
    _refuse_surroundings(case, machine)
    build = suite.installed.build(suite_case)
    if isinstance(build, str):
        return build
    entry = suite.recorded_entry(suite_case.target, case.id)
    reference, why_no_reference = _reference(suite, suite_case, entry)
    cards = machine.cards_of(suite_case.target)
    usual = settings_for(case, suite_case.device, launcher=config.launcher_for(case))
    overrides = effective(usual, suite.options.overrides, case.id)
    settings = with_overrides(usual, overrides, case.id)
    if why_no_memory := _no_shared_memory(suite_case, settings, machine.shared_memory_problem):
        return why_no_memory
    environment = environment_of(
        machine,
        cards[: case.cards_per_node],
        framework=case.framework.value,
        framework_version=build.version,
        variables=inherited_variables(settings),
    ).to_mapping()
    tolerances = config.tolerances.of(case.id)
    images = suite.images.of(suite_case)
    if isinstance(images, str):
        return images
    return CasePlan(
        suite_case,
        build=suite.installed.record(build),
        settings=settings,
        overrides=overrides,
        published=published_references(suite_case.figures, cards[0].name, tolerances.published),
        recorded=entry,
        tolerance=tolerances.recorded,
        band=tolerances.unconfirmed,
        data=case.data.value if images is None else images.describe(),
        images=images,
        environment={name: environment[name] for name in _KNOWN_BEFORE},
        reference=reference,
        why_no_reference=why_no_reference,
        budget=config.budgets.of(case.id),
        to_record=suite.options.to_record,
    )


def _refuse_surroundings(case: Case, machine: Machine) -> None:
    """Raise DeviceError if the case would break off, or hang until a limit, for a fault of this machine."""
    refuse_home(case.framework, machine.home_problem)
    if machine.loopback_problem and case.cards > 1:
        expected = f"a port at which the ranks of {case.cards} cards can meet"
        raise DeviceError("ports", got=machine.loopback_problem, expected=expected, remedy=LOOPBACK_REMEDY)


def _no_shared_memory(suite_case: SuiteCase, settings: Mapping[str, Any], problem: str) -> str:
    """Why a case that shares memory through /dev/shm cannot run; empty if it can or does not."""
    case = suite_case.case
    if not problem:
        return ""
    # TensorFlow's own reader has threads.
    forks = case.read_from is DataSource.NATIVE and case.framework is not Framework.TENSORFLOW
    workers = settings.get("native", {}).get("workers", 0) if forks else 0
    if workers:
        needs = f"{workers} reader worker{'s' if workers > 1 else ''}"
    elif suite_case.device != CPU and case.cards_per_node > 1:
        needs = f"NCCL on {case.cards_per_node} cards"
    else:
        return ""
    return f"{problem}, and {needs} share memory through it. {SHARED_MEMORY_REMEDY}"


def _reference(suite: Suite, suite_case: SuiteCase, entry: RecordedEntry | None) -> tuple[dict[str, str], str]:
    """The reference build's identity, or why this case has none; one of them is empty."""
    found = suite.installed.reference(suite_case)
    if isinstance(found, str):
        return {}, found
    record = suite.installed.record(found, of_reference=True)
    why = suite.installed.why_no_pairs(suite_case, record, entry.environment if entry else None)
    return ({}, why) if why else (record, "")
