"""Configurations of several frameworks, and the ratio of their pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.plan.case_plan import SuiteCase
from helpers.plan.matrix import MeasuringProtocol
from helpers.plan.published import PublishedFigure, load_published
from helpers.session.side_by_side.comparison import ratio_of
from helpers.session.side_by_side.configurations import configuration_of, configurations
from helpers.trainers.contract.case import Case

PUBLISHED = Path(__file__).parents[4] / "baselines/published"
PROTOCOL = MeasuringProtocol("cpu", warmup_steps=2, window_steps=5, runs=1)


def suite_case(case_id: str, target: str = "cpu", figures: tuple[PublishedFigure, ...] = ()) -> SuiteCase:
    return SuiteCase(Case.parse(case_id), target, PROTOCOL, figures=figures)


def published_cases() -> list[SuiteCase]:
    by_key: dict[tuple[str, str], list[PublishedFigure]] = {}
    for target in ("a100", "v100"):
        for figure in load_published(PUBLISHED / f"{target}.json").figures:
            by_key.setdefault((figure.target, figure.case.id), []).append(figure)
    return [suite_case(case_id, target, tuple(found)) for (target, case_id), found in by_key.items()]


PADDLE = suite_case("paddle-resnet50v1.5-fp32-bs4-1x1-native-dynamic")
STATIC = suite_case("paddle-resnet50v1.5-fp32-bs4-1x1-native-static")
PYTORCH = suite_case("pytorch-resnet50v1.5-fp32-bs4-1x1-native")


def test_a_configuration_is_a_case_without_framework_and_execution() -> None:
    assert configuration_of(PADDLE.case) == configuration_of(PYTORCH.case) == "resnet50v1.5-fp32-bs4-1x1-native"
    compiled = Case.parse("pytorch-resnet50v1.5-fp32-bs4-1x1-native-compile-graphs")
    assert configuration_of(compiled) == "resnet50v1.5-fp32-bs4-1x1-native"
    auto = Case.parse("paddle-vgg16-fp32-bs4-1x2-dali-dynamic-auto")
    assert configuration_of(auto) == "vgg16-fp32-bs4-1x2-dali-auto"


def test_only_what_paddle_and_another_framework_have_is_a_comparison() -> None:
    alone = suite_case("paddle-vgg16-fp32-bs1-1x1-dali-dynamic")
    others = [suite_case(f"{name}-vgg16-fp32-bs2-1x1-native") for name in ("pytorch", "mxnet")]
    compiled = suite_case(f"{PYTORCH.case.id}-compile")
    (found,) = configurations([alone, STATIC, compiled, PYTORCH, *others, PADDLE])
    assert found.members == (PADDLE, PYTORCH), "dynamic before static, and no compiler"
    assert found.name == "cpu-resnet50v1.5-fp32-bs4-1x1-native"


@pytest.mark.parametrize(("target", "taken"), [("cpu", "to_static"), ("gpu", "dynamic")])
def test_mixed_precision_of_paddle_is_taken_in_the_execution_that_has_it(target: str, taken: str) -> None:
    """On a CPU its dynamic execution has none."""
    name = "resnet50v1.5-bf16-bs4-1x1-dali"
    paddle = [suite_case(f"paddle-{name}-{each}", target) for each in ("dynamic", "static", "to_static")]
    (found,) = configurations([*paddle, suite_case(f"pytorch-{name}", target)])
    assert found.first.id == f"paddle-{name}-{taken}"


def test_the_documents_tables_are_configurations() -> None:
    """Document 001 has 10 rows of Paddle beside another framework of the same batch; FleetX's VGG16 stands alone."""
    found = configurations(published_cases())
    assert len(found) == 10 and all(each.figures for each in found)
    row = next(each for each in found if each.name == "v100-resnet50v1.5-amp_o2-bs256-1x8-dali")
    assert [each.case.id for each in row.members] == [
        "paddle-resnet50v1.5-amp_o2-bs256-1x8-dali-static",
        "pytorch-resnet50v1.5-amp-bs256-1x8-dali_cpu",
        "tensorflow-resnet50v1.5-amp-bs256-1x8-native-xla",
        "mxnet-resnet50v1.5-amp-bs256-1x8-dali",
    ]
    members = [case.key for each in found for case in each.members]
    assert len(members) == len(set(members)), "a case's runs belong to one row"


def test_a_ratio_is_that_of_the_pairs_whatever_the_machine_does_meanwhile() -> None:
    drift = [1.0, 2.0, 5.0]
    found = ratio_of([110.0 * each for each in drift], [100.0 * each for each in drift])
    assert found.low <= found.centre <= found.high
    assert found.centre == pytest.approx(1.1)
    wider = ratio_of([110.0, 130.0, 90.0], [100.0, 100.0, 100.0])
    assert wider.low < 1 < wider.high
