"""The nodes, cards and time of a job follow from its cases."""

from dataclasses import replace

import pytest

from helpers.commands.submission.needs import Shape, by_shape, case_seconds, minutes_for, parse_minutes, parse_shape
from helpers.history.results import RunResult
from helpers.judging.evidence import Budget
from helpers.plan.case_plan import SuiteCase
from helpers.plan.matrix import MeasuringProtocol
from helpers.plan.perf_yaml import load_config
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError

CONFIG = load_config(ROOT / "perf.yaml")
PROTOCOL = MeasuringProtocol("gpu", warmup_steps=60, window_steps=60, runs=1, most_warmup_steps=200)


def case(shape: str, target: str = "a100") -> SuiteCase:
    return SuiteCase(Case.parse(f"paddle-resnet50v1.5-fp32-bs128-{shape}-dali-static"), target, PROTOCOL)


def test_a_job_has_the_nodes_of_its_largest_case_and_the_cards_of_its_fullest() -> None:
    assert Shape.for_all([case("1x8"), case("4x1"), case("1x1")]) == Shape(4, 8)
    assert {str(shape): len(cases) for shape, cases in by_shape([case("1x8"), case("1x1"), case("1x8")]).items()} == {
        "1x1": 1,
        "1x8": 2,
    }


def test_a_case_takes_as_long_as_its_last_run_says(make_run: object, make_plan: object) -> None:
    before = make_run(make_plan(), wall_seconds=100.0)  # type: ignore[operator]
    assert isinstance(before, RunResult)
    # 6 screening runs, and 12 more in one case of ten.
    assert case_seconds(case("1x1"), CONFIG, before) == pytest.approx(7.2 * 100)
    few = replace(CONFIG, budgets=replace(CONFIG.budgets, general=Budget(screen_runs=1)))
    assert case_seconds(case("1x1"), few, before) == pytest.approx(2.2 * 100)
    assert minutes_for([case("1x1"), case("1x8")], CONFIG, lambda each: before) == 36


def test_the_time_of_a_case_about_which_nothing_is_known_is_not_guessed() -> None:
    with pytest.raises(ConfigError, match="State the job's time: --time"):
        case_seconds(case("1x1", "cpu"), CONFIG, None)


def test_shapes_and_times_as_a_user_writes_them() -> None:
    assert (parse_shape("4x8"), parse_minutes("90"), parse_minutes("2:05")) == (Shape(4, 8), 90, 125)
    for parse, text in ((parse_shape, "4"), (parse_shape, "0x8"), (parse_minutes, "1h"), (parse_minutes, "0")):
        with pytest.raises(ValueError, match="expected"):
            parse(text)
