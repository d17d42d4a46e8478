"""Configurations of several frameworks, their nearest published row, and the paired ratio."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from helpers.judging.rates import to_record
from helpers.judging.statistics import student_t_95
from helpers.plan.case_plan import SuiteCase
from helpers.plan.matrix import MeasuringProtocol
from helpers.plan.published import PublishedFigure, load_published
from helpers.session.frameworks.comparison import Cell, ConfigurationOutcome, PublishedCell, Ratio, paired_ratio
from helpers.session.frameworks.configurations import (
    Configuration,
    configuration_of,
    configurations,
    named,
    nearest,
    precision_class,
    twin_of,
)
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError, SuiteError
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.frameworks_double import is_one_of_two

PUBLISHED = Path(__file__).parents[4] / "baselines/published"
FIGURES = tuple(
    figure for target in ("a100", "v100") for figure in load_published(PUBLISHED / f"{target}.json").figures
)
# A framework that is added later is in none of these comparisons.
FOUR = (Framework.PADDLE, Framework.PYTORCH, Framework.TENSORFLOW, Framework.MXNET)
PROTOCOL = MeasuringProtocol("cpu", warmup_steps=2, window_steps=5, runs=1)


def suite_case(case_id: str, target: str = "cpu", figures: tuple[PublishedFigure, ...] = ()) -> SuiteCase:
    return SuiteCase(Case.parse(case_id), target, PROTOCOL, figures=figures)


def published_cases() -> list[SuiteCase]:
    by_key: dict[tuple[str, str], list[PublishedFigure]] = {}
    for figure in FIGURES:
        by_key.setdefault((figure.target, figure.case.id), []).append(figure)
    return [suite_case(case_id, target, tuple(found)) for (target, case_id), found in by_key.items()]


PADDLE = suite_case("paddle-resnet50v1.5-fp32-bs4-1x1-native-dynamic")
STATIC = suite_case("paddle-resnet50v1.5-fp32-bs4-1x1-native-static")
PYTORCH = suite_case("pytorch-resnet50v1.5-fp32-bs4-1x1-native")


@pytest.fixture(autouse=True)
def two_have_trainers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.session.frameworks.configurations.has_trainer", is_one_of_two)


def test_a_configuration_is_a_case_without_framework_and_execution() -> None:
    assert configuration_of(PADDLE.case) == configuration_of(PYTORCH.case) == "resnet50v1.5-fp32-bs4-1x1-native"
    compiled = Case.parse("pytorch-resnet50v1.5-fp32-bs4-1x1-native-compile-graphs")
    assert configuration_of(compiled) == "resnet50v1.5-fp32-bs4-1x1-native"
    auto = Case.parse("paddle-vgg16-fp32-bs4-1x2-dali-dynamic-auto")
    assert configuration_of(auto) == "vgg16-fp32-bs4-1x2-dali-auto"


def test_only_what_paddle_and_another_framework_have_is_a_comparison() -> None:
    alone = suite_case("paddle-vgg16-fp32-bs1-1x1-dali-dynamic")
    others = [suite_case(f"{name}-vgg16-fp32-bs2-1x1-native") for name in ("pytorch", "mxnet")]
    (found,) = configurations([alone, STATIC, PYTORCH, *others, PADDLE])
    assert found.members == (PADDLE, PYTORCH), "dynamic before static"
    assert found.name == "cpu-resnet50v1.5-fp32-bs4-1x1-native"


def test_the_documents_tables_are_configurations() -> None:
    """Document 001 has 10 rows of Paddle beside another framework of the same batch; FleetX's VGG16 stands alone."""
    found = configurations(published_cases())
    assert len(found) == 10 and all(each.documented for each in found)
    row = next(each for each in found if each.name == "v100-resnet50v1.5-amp_o2-bs256-1x8-dali")
    assert [each.case.id for each in row.members] == [
        "paddle-resnet50v1.5-amp_o2-bs256-1x8-dali-static",
        "pytorch-resnet50v1.5-amp-bs256-1x8-dali_cpu",
        "tensorflow-resnet50v1.5-amp-bs256-1x8-native-xla",
        "mxnet-resnet50v1.5-amp-bs256-1x8-dali",
    ]
    members = [case.key for each in found for case in each.members]
    assert len(members) == len(set(members)), "a case's runs belong to one row"


def test_a_named_case_brings_its_configuration_whatever_its_framework() -> None:
    matrix = [STATIC, PADDLE, PYTORCH]
    assert [each.members for each in named(matrix, [PYTORCH])] == [(PADDLE, PYTORCH)]
    assert [each.members for each in named(matrix, [STATIC])] == [(STATIC, PYTORCH)]
    assert [each.members for each in named(matrix, [PYTORCH, STATIC])] == [(STATIC, PYTORCH)]
    compiled = suite_case(f"{PYTORCH.case.id}-compile")
    assert [each.members for each in named(matrix, [compiled])] == [(PADDLE, compiled)], "no flag of it goes to Paddle"
    assert [each.members for each in named(matrix, [compiled, STATIC])] == [(STATIC, compiled)]
    assert [each.members for each in configurations([compiled, *matrix])] == [(PADDLE, PYTORCH)]
    with pytest.raises(ConfigError, match="one execution"):
        named(matrix, [STATIC, PADDLE])


def test_a_named_case_gets_a_peer_that_the_matrix_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "helpers.session.frameworks.configurations.has_trainer", lambda framework: framework in FOUR[:3]
    )
    (found,) = named([PADDLE], [PADDLE])
    assert [each.case.id for each in found.members] == [
        PADDLE.case.id, PYTORCH.case.id, "tensorflow-resnet50v1.5-fp32-bs4-1x1-native",
    ]  # fmt: skip
    assert found.members[1].protocol == PADDLE.protocol


@pytest.mark.parametrize(
    ("target", "pytorch", "paddle"),
    [
        ("cpu", "bf16-bs4-1x1-dali", "bf16-bs4-1x1-dali-to_static"),
        ("cpu", "amp_o1-bs4-1x1-synthetic", "amp_o1-bs4-1x1-synthetic-to_static"),
        ("cpu", "fp32-bs4-1x1-synthetic-compile", "fp32-bs4-1x1-synthetic-dynamic"),
        ("gpu", "bf16-bs4-1x1-dali", "bf16-bs4-1x1-dali-dynamic"),
        # Paddle has no precision of that name: the documents pair its O2 with it.
        ("cpu", "amp-bs4-1x1-dali_cpu", "amp_o2-bs4-1x1-dali_cpu-to_static"),
        ("gpu", "amp-bs4-1x1-synthetic", "amp_o2-bs4-1x1-synthetic-dynamic"),
    ],
)
def test_paddles_peer_is_one_that_its_trainer_takes(target: str, pytorch: str, paddle: str) -> None:
    """Its dynamic execution has no mixed precision on a CPU."""
    wanted = suite_case(f"pytorch-resnet50v1.5-{pytorch}", target)
    (found,) = named([wanted], [wanted])
    assert [each.case.id for each in found.members] == [f"paddle-resnet50v1.5-{paddle}", wanted.case.id]
    assert found.documented == ("amp-" in pytorch)


def test_every_framework_has_the_configuration_in_its_own_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.session.frameworks.configurations.has_trainer", lambda framework: framework in FOUR)
    rest = "bs4-1x2-dali"
    wanted = suite_case(f"paddle-resnet50v1.5-amp_o1-{rest}-to_static")
    (found,) = named([wanted], [wanted])
    assert [each.case.id for each in found.members] == [
        wanted.case.id, f"pytorch-resnet50v1.5-amp_o1-{rest}", f"tensorflow-resnet50v1.5-amp-{rest}",
        f"mxnet-resnet50v1.5-amp-{rest}",
    ]  # fmt: skip
    theirs = suite_case(f"tensorflow-resnet50v1.5-amp-{rest}-xla")
    (found,) = named([theirs], [theirs])
    assert [each.case.framework for each in found.members] == list(FOUR)
    assert found.first.id == f"paddle-resnet50v1.5-amp_o2-{rest}-to_static"


def test_a_framework_that_has_nothing_for_a_case_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.session.frameworks.configurations.has_trainer", lambda framework: framework in FOUR)
    nodes = suite_case("paddle-resnet50v1.5-fp32-bs4-2x1-dali-dynamic")
    (found,) = named([nodes], [nodes])
    assert [each.case.framework.value for each in found.members] == ["paddle", "pytorch", "tensorflow"]
    auto = suite_case("paddle-vgg16-fp32-bs1-1x2-dali-dynamic-auto")
    assert [each.members for each in named([auto], [auto])] == [(auto,)]


def test_the_matrix_own_peer_is_taken_in_the_execution_that_works() -> None:
    pytorch, dynamic, compiled, static = (
        suite_case(f"{name}-resnet50v1.5-{precision}-bs4-1x1-dali{execution}")
        for name, precision, execution in (
            ("pytorch", "amp", ""),
            ("paddle", "amp_o2", "-dynamic"),
            ("paddle", "amp_o2", "-to_static"),
            ("paddle", "amp_o2", "-static"),
        )
    )
    assert named([pytorch, dynamic, static, compiled], [pytorch])[0].members == (compiled, pytorch)
    assert named([pytorch, dynamic, static], [pytorch])[0].members == (static, pytorch)


def test_a_case_is_in_one_row_of_a_comparison() -> None:
    """Its runs are kept by its id: two rows would take each other's."""
    amp, pure = (suite_case(f"pytorch-resnet50v1.5-{each}-bs4-1x1-dali") for each in ("amp", "amp_o2"))
    with pytest.raises(ConfigError, match="amp_o2-bs4-1x1-dali-to_static in 2 rows"):
        named([amp, pure], [amp, pure])


def test_a_twin_has_the_protocol_of_its_configuration_and_no_figures() -> None:
    twin = twin_of([PADDLE], PYTORCH.case, None)
    assert twin == PYTORCH
    assert twin_of([PADDLE], Case.parse("pytorch-vgg16-fp32-bs4-1x1-native"), None) is None
    assert twin_of([PADDLE], PYTORCH.case, "v100") is None


@pytest.mark.parametrize(
    ("pytorch", "target", "row", "ratio", "differs"),
    [
        # The documents' own rows.
        ("fp32-bs256-1x1-dali_cpu", "v100", "V100-FP32 comparison, GPU=1,BS=256", 370.194 / 393.561, ()),
        ("amp-bs256-1x8-dali_cpu", "a100", "A100-AMP comparison, GPU=8,BS=256", 10744.6 / 17587.654, ()),
        # Class, then cards, then batch, then card model, then the words.
        ("bf16-bs4-1x1-synthetic", "a100", "A100-AMP comparison, GPU=1,BS=256", 1449.65 / 2602.629, None),
        ("tf32-bs4-1x2-synthetic", "cpu", "A100-FP32 comparison, GPU=1,BS=256", 924.989 / 908.244, None),
        ("fp32-bs4-1x3-synthetic", "cpu", "V100-FP32 comparison, GPU=8,BS=256", 2791.98 / 3019.361, None),
        ("fp32-bs64-4x8-synthetic", "a100", "V100-FP32 comparison, GPU=32,BS=256", 10523.32 / 10984.436, None),
    ],
)
def test_the_nearest_published_row(
    pytorch: str, target: str, row: str, ratio: float, differs: tuple[str, ...] | None
) -> None:
    mine = suite_case(f"pytorch-resnet50v1.5-{pytorch}", target)
    documented = {each.members[1].key: each for each in configurations(published_cases())}
    configuration = documented.get(mine.key) or Configuration(
        (suite_case(f"paddle-resnet50v1.5-{pytorch}-dynamic", target), mine)
    )
    found = nearest(configuration, Framework.PYTORCH, FIGURES)
    assert found is not None
    assert (found.row, found.ratio) == (row, pytest.approx(ratio))
    if differs is not None:
        assert found.differs == differs
    assert found == nearest(configuration, Framework.PYTORCH, reversed(FIGURES)), "whatever the order of the files"


def test_a_disputed_row_is_named_so() -> None:
    mine = Configuration((PADDLE, suite_case("pytorch-resnet50v1.5-fp32-bs256-4x8-native")))
    found = nearest(mine, Framework.PYTORCH, FIGURES)
    assert found is not None and found.disputed


def test_a_model_that_no_document_compares_has_no_published_ratio() -> None:
    vgg = Configuration(
        (suite_case("paddle-vgg16-fp32-bs1-1x1-native-dynamic"), suite_case("pytorch-vgg16-fp32-bs1-1x1-native"))
    )
    assert nearest(vgg, Framework.PYTORCH, FIGURES) is None


@pytest.mark.parametrize(
    ("precision", "expected"),
    [("fp32", "FP32"), ("tf32", "FP32"), ("bf16", "AMP"), ("amp", "AMP"), ("amp_o2", "AMP"), ("unstated", "unstated")],
)
def test_the_classes_are_the_documents_two_tables(precision: str, expected: str) -> None:
    assert precision_class(Case.parse(f"pytorch-vgg16-{precision}-bs1-1x1-native").precision) == expected


def test_a_paired_ratio_has_students_interval_over_the_pairs_logarithms() -> None:
    found = paired_ratio([110.0, 220.0, 440.0], [100.0, 200.0, 500.0])
    logs = [math.log(1.1), math.log(1.1), math.log(0.88)]
    mean = sum(logs) / 3
    half = student_t_95(2) * math.sqrt(sum((each - mean) ** 2 for each in logs) / 2 / 3)
    assert found.pairs == 3
    assert (found.centre, found.low, found.high) == pytest.approx([math.exp(mean + d) for d in (0, -half, half)])


def test_one_pair_has_no_interval() -> None:
    assert paired_ratio([2.0], [1.0]) == Ratio(2.0, None, None, 1)


@pytest.mark.parametrize("sides", [([], []), ([1.0], [1.0, 2.0])])
def test_what_is_no_pairs_has_no_ratio(sides: tuple[list[float], list[float]]) -> None:
    with pytest.raises(SuiteError, match="pairs of runs"):
        paired_ratio(*sides)


def test_an_outcome_comes_back_from_json_as_it_was() -> None:
    """It travels so from xdist's workers."""
    outcome = ConfigurationOutcome(
        "n", "cpu", "vgg16", "fp32", 4, 1, 1, "native", "dynamic",
        (Cell("paddle", "p", (1.0, 2.0), 1.5, 1.0, 2.0, runs_here=True, marks=("contended",), run_folders=("r0",)),
         Cell("pytorch", ratio=Ratio(1.1, 1.0, 1.2, 2))),
        (PublishedCell("pytorch", 0.9, differs=("card",)),),
        unlike={"amp_level": {"paddle": "O2", "pytorch": None}},
    )  # fmt: skip
    assert ConfigurationOutcome.from_record(json.loads(json.dumps(to_record(outcome)))) == outcome
