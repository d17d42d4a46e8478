"""Which sessions a busy machine stops, and what they are told to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.verdict import Reason, Status, Verdict
from helpers.plan.case_plan import CasePlan, SuiteCase, matrix
from helpers.plan.perf_yaml import Config, GateRule, load_config
from helpers.session.disturbance import disturbance_of
from helpers.session.examination import ExaminationIO
from helpers.session.gate import Gate
from helpers.session.suite import SuiteOptions
from tests.helpers.session.test_quick_look import TWO_CARDS, looking

ROOT = Path(__file__).parents[3]
ONE_CARD = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"
GATED = Gate(True, (GateRule("*", "recorded"),))


@pytest.fixture(scope="module")
def config() -> Config:
    return load_config(ROOT / "perf.yaml")


@pytest.fixture
def case(config: Config) -> SuiteCase:
    (found,) = [each for each in matrix(config, {}) if each.key == ("cpu", ONE_CARD)]
    return found


@pytest.fixture
def busy(tmp_path: Path) -> ExaminationIO:
    """Others have both cores."""
    return looking(tmp_path, 1.0, 1.0).io


@pytest.fixture
def told(tmp_path: Path, config: Config, case: SuiteCase, busy: ExaminationIO) -> Callable[..., str]:
    def ask(gate: Gate | None = None, **changes: Any) -> str:
        options = replace(SuiteOptions(tmp_path, tmp_path, tmp_path / "runs", "s"), **changes)
        store = ResultStore(tmp_path / "runs", "s")
        return disturbance_of([case], options, config, TWO_CARDS, gate or Gate(False), store, busy)

    return ask


def test_a_busy_machine_is_told_with_who_uses_it_and_how_to_go_on(told: Callable[..., str]) -> None:
    message = told()
    assert message.startswith("The machine is busy, nothing was measured: in the last 2.0 s 100.0%")
    assert "cc1 (pid 4711, user ann" in message
    assert "more than 5%" in message
    assert message.endswith(
        "measure anyway with --allow-contention, which marks the figures and keeps them out of baselines"
    )


def test_where_contention_is_allowed_nothing_is_asked(told: Callable[..., str]) -> None:
    assert told(allow_contention=True) == ""


@pytest.mark.parametrize("allowed", [True, False])
def test_a_gate_judges_no_disturbed_run_whatever_is_allowed(told: Callable[..., str], allowed: bool) -> None:
    assert told(GATED, allow_contention=allowed).endswith("a gate judges no disturbed run, whatever is allowed")


def test_without_a_case_to_run_nothing_is_asked(config: Config, busy: ExaminationIO, tmp_path: Path) -> None:
    options = SuiteOptions(tmp_path, tmp_path, tmp_path / "runs", "s")
    assert disturbance_of([], options, config, TWO_CARDS, Gate(False), ResultStore(tmp_path, "s"), busy) == ""


@pytest.mark.parametrize(
    ("resume", "finished", "stops"), [(True, True, False), (True, False, True), (False, True, True)]
)
def test_a_resumed_session_is_stopped_only_for_what_is_left_to_measure(
    told: Callable[..., str], tmp_path: Path, case: SuiteCase, make_run: Callable[..., RunResult],
    resume: bool, finished: bool, stops: bool,
) -> None:  # fmt: skip
    store = ResultStore(tmp_path / "runs", "s")
    run = make_run(CasePlan(case))
    store.new_run_folder(case.case.id, 0)
    store.write(run)
    if finished:
        store.add_verdict((run,), Verdict(Status.PASS, Reason("no-drop", "no drop")))
    assert bool(told(resume=resume)) is stops
