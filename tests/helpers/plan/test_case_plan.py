"""The plan: which cases there are, by which protocol, and what each is held against on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from helpers.history.results import RunResult
from helpers.judging.case.evidence import PublishedReference
from helpers.judging.rules.own import MEDIAN_STEP
from helpers.machine.environment import Environment
from helpers.plan.baseline_files import FigureStatus
from helpers.plan.case_plan import (
    CasePlan,
    SuiteCase,
    build_id,
    longest_protocol,
    matrix,
    published_references,
    recorded_reference,
)
from helpers.plan.matrix import ByCase, MeasuringProtocol, Tolerances
from helpers.plan.overrides import segment_of
from helpers.plan.perf_yaml import Config, ContentionConfig, DataConfig, MatrixCase, TimeLimits
from helpers.plan.published import PublishedFigure
from helpers.plan.recorded import Provenance, RecordedEntry
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError

MakePlan = Callable[..., CasePlan]
MakeRun = Callable[..., RunResult]

CPU_CASE = Case.parse("paddle-vgg16-fp32-bs8-1x1-dali-static")
V100_CASE = Case.parse("paddle-resnet50v1.5-amp_o2-bs256-4x8-dali-static")
OPEN_CASE = Case.parse("paddle-vgg16-unstated-bs32-1x8-unstated-static-auto")

PROTOCOLS = {
    "cpu": MeasuringProtocol("cpu", 2, 5, 2),
    "short": MeasuringProtocol("short", 20, 100, 7, ("fleetx-20-100-median7",)),
    "long": MeasuringProtocol("long", 100, 220, 1, ("paddleclas-trimmed",)),
}
CONFIG = Config(
    path=Path("perf.yaml"),
    frameworks={},
    data=DataConfig(),
    protocols=MappingProxyType(PROTOCOLS),
    tolerances=ByCase(Tolerances()),
    limits=TimeLimits(),
    contention=ContentionConfig(),
    matrix=(MatrixCase(CPU_CASE, "cpu", "cpu", short=True),),
    machines={},
)
FIGURE = PublishedFigure(
    case=V100_CASE,
    target="v100",
    gpu="V100-SXM2-32GB",
    source="doc.txt",
    table="table 1",
    rule="paddleclas-trimmed",
    framework_version="2.5.0",
    precision_printed="FP16",
    strategy=None,
    samples_per_s=39972.131,
    status=FigureStatus.GATE,
    note="",
    environment="e",
)


def suite_case(case: Case, target: str = "cpu", **values: Any) -> SuiteCase:
    return SuiteCase(case, target, PROTOCOLS["cpu"], **values)


# --- the matrix


def test_the_matrix_holds_the_files_own_cases_first_then_the_published_by_target_and_id() -> None:
    other = replace(FIGURE, case=CPU_CASE)
    cases = matrix(CONFIG, {"v100": (FIGURE, other), "a100": (replace(FIGURE, target="a100"),)})
    assert [each.key for each in cases] == [
        ("cpu", CPU_CASE.id), ("a100", V100_CASE.id), ("v100", V100_CASE.id), ("v100", CPU_CASE.id),
    ]  # fmt: skip
    assert [each.short for each in cases] == [True, False, False, False]
    assert cases[0].protocol is PROTOCOLS["cpu"]
    assert cases[1].protocol == PROTOCOLS["long"]


def test_the_protocol_of_a_case_is_the_longest_its_figures_need() -> None:
    figures = (replace(FIGURE, rule="fleetx-20-100-median7"), FIGURE)
    long, short = PROTOCOLS["long"], PROTOCOLS["short"]
    assert longest_protocol(CONFIG, figures) == replace(long, runs=max(long.runs, short.runs))
    assert longest_protocol(CONFIG, figures[:1]) == short


def test_a_case_that_a_published_file_has_for_the_same_target_is_refused() -> None:
    with pytest.raises(ConfigError, match="baselines/published does not have"):
        matrix(CONFIG, {"cpu": (replace(FIGURE, case=CPU_CASE),)})


@pytest.mark.parametrize(
    ("case", "markers"),
    [
        (suite_case(CPU_CASE), {"cpu", "paddle", "vgg16", "fp32"}),
        (
            suite_case(V100_CASE, "v100", figures=(FIGURE,)),
            {"v100", "paddle", "resnet50", "amp", "multi_card", "multi_node", "published"},
        ),
        (suite_case(OPEN_CASE, "v100"), {"v100", "paddle", "vgg16", "multi_card"}),
        (suite_case(replace(CPU_CASE, cards_per_node=2)), {"cpu", "paddle", "vgg16", "fp32", "multi_card"}),
    ],
)
def test_markers_say_target_framework_model_precision_and_size(case: SuiteCase, markers: set[str]) -> None:
    assert set(case.markers) == markers
    assert len(case.markers) == len(markers)


# --- published references


@pytest.mark.parametrize(
    ("status", "gates"), [(FigureStatus.GATE, True), (FigureStatus.REFERENCE, False), (FigureStatus.DISPUTED, False)]
)
def test_only_gate_rows_gate(status: FigureStatus, gates: bool) -> None:
    (reference,) = published_references((replace(FIGURE, status=status),), "Tesla V100-SXM2-32GB", 0.05)
    assert reference.gates is gates


# --- recorded references


@pytest.fixture
def plan(make_plan: MakePlan, make_run: MakeRun) -> CasePlan:
    plan = make_plan(tolerance=0.07)
    environment = Environment.from_mapping(make_run(plan).environment)
    entry = RecordedEntry(
        case_id=plan.case.id,
        samples_per_s=3.5,
        rule=MEDIAN_STEP,
        replicates=(3.5,),
        tolerance=None,
        environment=environment.to_mapping(),
        segment=segment_of(environment.to_mapping(), plan.settings, plan.case.id),
        provenance=Provenance("0123456789abcdef", "2024-05-06T07:08:09+00:00", "h", "first"),
    )
    return replace(plan, recorded=entry)


def test_a_recorded_entry_in_the_same_segment_has_no_differences(plan: CasePlan, make_run: MakeRun) -> None:
    reference = recorded_reference(plan, make_run(plan).environment)
    assert reference is not None
    assert (reference.samples_per_s, reference.rule, reference.gates) == (3.5, MEDIAN_STEP, True)
    assert (reference.differences, reference.label) == ((), "recorded 2024-05-06, 0123456789ab")
    banded = recorded_reference(replace(plan, band=0.1), make_run(plan).environment)
    assert banded is not None and (reference.band, banded.band) == (0.05, 0.1)


@pytest.mark.parametrize(
    ("recorded_digest", "good_digest", "same"),
    [
        ("", "", True),
        ("", "d" * 64, True),
        ("d" * 64, "", True),
        ("d" * 64, "d" * 64, True),
        ("e" * 64, "d" * 64, False),
    ],
)
def test_an_entry_names_the_build_that_it_was_recorded_with_as_the_good_build_is_named(
    plan: CasePlan, make_run: MakeRun, recorded_digest: str, good_digest: str, same: bool
) -> None:
    assert plan.recorded is not None
    facts = {"framework": "paddle", "framework_version": "3.3.1", "framework_commit": "ABC"}
    entry = replace(plan.recorded, environment={**facts, "framework_digest": recorded_digest})
    good = {"framework": "paddle", "version": "3.3.1", "commit": "abc", "digest": good_digest}
    planned = replace(plan, recorded=entry, reference=good)
    reference = recorded_reference(planned, make_run(plan).environment)
    assert reference is not None and planned.reference_id
    assert (reference.build == planned.reference_id) is same
    other = recorded_reference(replace(planned, reference={**good, "commit": "abd"}), make_run(plan).environment)
    assert other is not None and other.build != build_id({**good, "commit": "abd"})
    assert build_id({}) == CasePlan(plan.suite_case).reference_id == ""


def test_a_recorded_entry_says_in_what_tonight_differs(plan: CasePlan, make_run: MakeRun) -> None:
    reference = recorded_reference(plan, {**make_run(plan).environment, "threads": "8"})
    assert reference is not None
    assert len(reference.differences) == 1
    assert "threads" in reference.differences[0]


def _with_settings(plan: CasePlan, **settings: object) -> CasePlan:
    return replace(plan, settings={**plan.settings, **settings})


def test_a_recipe_that_changed_is_another_segment_and_says_where(plan: CasePlan, make_run: MakeRun) -> None:
    changed = _with_settings(plan, environment={"MKL_DEBUG_CPU_TYPE": "7"})
    reference = recorded_reference(changed, make_run(changed).environment)
    assert reference is not None
    assert 'setting environment.MKL_DEBUG_CPU_TYPE: not recorded → "7"' in reference.differences


def test_a_setting_that_no_throughput_depends_on_is_no_other_segment(plan: CasePlan, make_run: MakeRun) -> None:
    reference = recorded_reference(_with_settings(plan, learning_rate=0.02), make_run(plan).environment)
    assert reference is not None
    assert reference.differences == ()


def test_the_users_own_change_is_not_told_as_another_segment_too(plan: CasePlan, make_run: MakeRun) -> None:
    changed = replace(_with_settings(plan, layout="NHWC"), overrides={"layout": "NHWC"})
    reference = recorded_reference(changed, make_run(plan).environment)
    assert reference is not None
    assert reference.differences == ()


@pytest.mark.parametrize(("own", "counts"), [(None, 0.07), (0.01, 0.01), (0.0, 0.0)])
def test_an_entrys_own_tolerance_counts_before_the_files(
    plan: CasePlan, make_run: MakeRun, own: float | None, counts: float
) -> None:
    assert plan.recorded is not None
    reference = recorded_reference(
        replace(plan, recorded=replace(plan.recorded, tolerance=own)), make_run(plan).environment
    )
    assert reference is not None
    assert reference.tolerance == counts


# --- how many runs are made whatever they say


FIGURES = (PublishedReference(100.0, "paddleclas-trimmed", "table 1", gates=True, tolerance=0.05),)


@pytest.mark.parametrize(
    ("recorded", "changes", "runs"),
    [
        (False, {}, 3),
        (True, {}, 1),
        (True, {"published": FIGURES}, 3),
        (True, {"to_record": True}, 3),
        (True, {"overrides": {"layout": "NHWC"}}, 3),
    ],
)
def test_one_run_screens_a_case_that_was_recorded_unless_more_rests_on_it(
    make_plan: MakePlan, plan: CasePlan, recorded: bool, changes: dict[str, Any], runs: int
) -> None:
    case = make_plan(runs=3, recorded=plan.recorded if recorded else None, **changes)
    assert case.planned_runs == runs
