from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.watching import Cost
from benchmarks.watching_arms import Arms
from benchmarks.watching_session import (
    WARMUP_STEPS,
    Observed,
    Sampler,
    cpu_seconds,
    kind_of,
    observe,
    spent_within,
    value_at,
)
from helpers.launch.steplog_reader import read_step_log
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.steplog import COMPLETE, WINDOW, Footer, Header, Step, StepLogWriter
from tests.faults.workshop import ONE_CARD, Workshop

QUIET = Observed(60.0, 24, 1, {"pytest": 0.2, "guard": 0.01}, 0.03, 48)


def test_the_share_is_all_cpu_seconds_and_the_time_in_the_loop_over_the_core_seconds() -> None:
    cost = Cost(QUIET)
    assert cost.supervising == pytest.approx(0.21 / 60)
    assert cost.recording == pytest.approx(0.03 / 60)
    assert cost.share == pytest.approx(0.004)
    assert cost.accepted
    assert Cost(replace(QUIET, cores=2)).share == pytest.approx(0.002)
    assert cost.lines()[-1] == "watching: 0.400% of the window's core seconds; at most 0.5% is accepted"


@pytest.mark.parametrize("seconds", [0.28, float("nan")])
def test_more_than_half_a_percent_and_no_number_at_all_are_not_accepted(seconds: float) -> None:
    assert not Cost(replace(QUIET, cpu_seconds={"pytest": seconds})).accepted


def test_a_counter_is_read_between_its_samples() -> None:
    samples = [(10.0, 1.0), (12.0, 2.0), (14.0, 2.5)]
    assert [value_at(samples, at) for at in (9.0, 10.0, 11.0, 13.0, 20.0)] == [0.0, 1.0, 1.5, 2.25, 2.5]


def test_only_what_lies_within_the_window_is_counted() -> None:
    spans = [(0.0, 1.0), (1.5, 2.5), (3.0, 3.25), (4.5, 6.0), (7.0, 8.0)]
    assert spent_within(spans, 2.0, 5.0) == (pytest.approx(0.5 + 0.25 + 0.5), 3)


def test_the_jobs_own_processes_are_not_the_suites() -> None:
    assert kind_of(b"A=1\0PERFGATE_JOB_ID=x\0") is None
    assert kind_of(b"A=1\0PERFGATE_GUARD_OF=x\0") == "guard"
    assert kind_of(b"A=PERFGATE_JOB_ID=x\0") == "pytest"


def test_cpu_seconds_of_a_process_are_those_of_the_kernel() -> None:
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    used = os.times()
    assert cpu_seconds(Path("/proc/self/stat").read_text()) == pytest.approx(used.user + used.system, abs=0.03)
    assert cpu_seconds("1 (a) b) S " + " ".join(["0"] * 10) + " 100 50 7 7") == 150 / os.sysconf("SC_CLK_TCK")


def test_a_session_that_was_not_seen_around_its_window_is_no_measurement(tmp_path: Path) -> None:
    sampler = Sampler(Workshop(tmp_path))
    sampler.samples = {("pytest", 1): [(10.0, 1.0), (20.0, 1.5)], ("guard", 2): [(5.0, 0.1), (30.0, 0.1)]}
    assert sampler.within(12.0, 16.0) == {"pytest": pytest.approx(0.2), "guard": pytest.approx(0.0)}
    for start, end in ((9.0, 12.0), (12.0, 21.0)):
        with pytest.raises(LaunchError, match="looks before and after the window"):
            sampler.within(start, end)


class Written:
    """An arm that writes a log of so many seconds a step."""

    def __init__(self, name: str, step_seconds: float, order: list[str]) -> None:
        self._name, self._step_seconds, self._order = name, step_seconds, order

    def __call__(self, spec: JobSpec) -> None:
        self._order.append(self._name)
        Path(spec.run_folder).mkdir(parents=True)
        header = Header(spec.job_id, spec.case.id, spec.replicate, 0, 1, "host", 1, "paddle", "0", "", "cpu")
        log = StepLogWriter(spec.step_log_path(0), header)
        for number in range(3):
            log.step(
                Step(0, number + 1, WINDOW, number * self._step_seconds, (number + 1) * self._step_seconds, 1, 0.0)
            )
        log.footer(Footer(COMPLETE))


def test_the_arm_that_goes_first_changes_from_pair_to_pair(tmp_path: Path) -> None:
    order: list[str] = []
    watched, bare = Written("watched", 0.5, order), Written("bare", 0.4, order)
    arms = Arms(Case.parse(ONE_CARD), tmp_path, 3, watched=watched, bare=bare)
    assert arms.pairs(3) == [(pytest.approx(2.0), pytest.approx(2.5))] * 3
    assert order == ["watched", "bare", "bare", "watched", "watched", "bare"]


@pytest.mark.slow
def test_a_session_is_observed_and_both_arms_run_with_the_trainers_double(tmp_path: Path) -> None:
    case = Case.parse(ONE_CARD)
    with Workshop(tmp_path / "shop") as workshop:
        seen = observe(workshop, case, window_steps=60)
        assert seen.window_seconds == pytest.approx(60 * 0.05, rel=0.02)
        assert seen.window_steps == 60
        run = workshop.folder / "runs" / "night" / case.id / "r0"
        spans = json.loads((run / "spans.json").read_text())
        # A record and a life sign of each step, and the life sign before the first one.
        assert len(spans) == 2 * (WARMUP_STEPS + 60) + 1
        # On a busy machine the double is behind the seconds that it writes: then fewer of them lie in the window.
        window = read_step_log(run / "rank0.jsonl").window
        before = sum(span[1] <= window[0].start for span in spans)
        after = sum(span[0] >= window[-1].end for span in spans)
        assert seen.in_loop_calls == len(spans) - before - after
        assert 0 < seen.in_loop_seconds < 0.5
        assert set(seen.cpu_seconds) == {"pytest", "guard"}
        assert 0 < seen.cpu_seconds["pytest"] < 1.5
        (workshop.folder / "fault.py").write_text("")
        rates = Arms(case, tmp_path, 3, interpreter=str(workshop.interpreter)).pairs(1)
    assert rates[0] == (pytest.approx(20.0, rel=0.01), pytest.approx(20.0, rel=0.01))
