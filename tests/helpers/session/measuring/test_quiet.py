"""Waiting for a quiet machine, before cases and after disturbed runs; what each line of progress says of its run."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import helpers.session.measuring.measurer
from fixtures.progress import format_progress
from helpers.history.results import RunResult
from helpers.judging.case.evidence import Build, Stage
from helpers.launch.tail import Progress
from helpers.plan.case_plan import CasePlan
from helpers.session.measuring.examination import ExaminationIO
from helpers.session.measuring.quiet import QuietWait
from tests.helpers.session.measuring.test_disturbance import Meter, looking
from tests.helpers.session.measuring.test_examination import Clock
from tests.helpers.session.workshop import CPU_MACHINE, SYNTHETIC, Bench, FakeRunner, case_of

BUSY, STILL_BUSY, QUIET = (0.9, 0.9), (0.6, 0.6), (0.01,)


def looks_of(io: ExaminationIO) -> int:
    assert isinstance(io.meter, Meter)
    return io.meter.answered


def test_a_session_waits_until_others_are_through_and_says_so(bench: Bench, tmp_path: Path) -> None:
    io = looking(tmp_path, *BUSY, *STILL_BUSY, *QUIET).io
    suite = bench.suite(real_runner=True, quiet_minutes=20.0)
    suite.io = io
    said: list[str] = []
    assert suite.measurer.disturbance([case_of(suite, SYNTHETIC)], said.append) == ""
    assert [each.partition(", load")[0][:95] for each in said] == [
        "waiting for a quiet machine, 0 of at most 20 min: in the last 2.0 s 90.0% of the leased cards' ",
        "waiting for a quiet machine, 1 of at most 20 min: in the last 2.0 s 60.0% of the leased cards' ",
    ]
    assert "cc1 (pid 4711, user ann" in said[0]


def test_the_minutes_are_those_of_the_session_however_often_it_waits() -> None:
    clock, said = Clock(), []
    quiet = QuietWait(1.0, clock, clock.sleep)
    first = iter(["busy", ""])
    assert quiet.wait(lambda: next(first), said.append) == ""
    told = "busy; it did not become quiet in 1 of at most 1 min (--wait-for-quiet)"
    assert quiet.wait(lambda: "busy", said.append) == told
    assert clock() == 160.0
    assert len(said) == 2


@pytest.fixture
def leased(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The real way of a run, with a runner that reports one step of each."""
    tell: list[Any] = []

    @dataclass
    class Reporting(FakeRunner):
        cards: Any = CPU_MACHINE.cpu_cards[:1]

        def run(self, plan: CasePlan, replicate: int, build: Build, stage: Stage) -> RunResult:
            if tell:
                tell[-1](Progress(plan.case.id, replicate, "window", 1, 3, None, None))
            return super().run(plan, replicate, build, stage)

    bench.runner = Reporting(bench.runner.make_run, bench.runner.store)

    def runner_of(*given: Any) -> Any:
        tell.append(given[-1])
        return nullcontext(bench.runner)

    monkeypatch.setattr(helpers.session.measuring.measurer, "leased_runner", runner_of)
    return tell


@pytest.mark.usefixtures("leased")
def test_a_run_after_a_disturbed_one_waits_until_others_are_through(bench: Bench, tmp_path: Path) -> None:
    bench.runner.answers = [{"invalid": "contended: cc1 (pid 4711)"}]
    # Before the case, and after its disturbed run; not before the second run of its protocol.
    io = looking(tmp_path, *QUIET, *BUSY, *QUIET).io
    suite = bench.suite(real_runner=True, quiet_minutes=20.0)
    suite.io = io
    lines: list[str] = []
    outcome = suite.measurer.measure(case_of(suite, SYNTHETIC), lambda each: lines.append(format_progress(each, 2)))
    assert (outcome.status.value, len(outcome.runs), looks_of(io)) == ("NO_BASELINE", 3, 4)
    assert [line.split("  ")[1][:29] for line in lines] == [
        "run 1/2",
        "run 1 is made again: contended: cc1 (pid 4711)"[:29],
        "waiting for a quiet machine, ",
        "run 2/2",
        "run 3",
    ]


def test_each_line_says_which_build_runs_and_why(bench: Bench, leased: list[Any]) -> None:
    """It was "run 32  start"."""
    recording = bench.suite(real_runner=True, to_record=True)
    alone: list[str] = []
    recorded = recording.measurer.measure(
        case_of(recording, SYNTHETIC), lambda each: alone.append(format_progress(each, 2))
    )
    # With one build there is no new one, and the number of a planned run says why it is made.
    assert alone[0] == f"{SYNTHETIC}  run 1/2  window  step 1/3  build 3.0.0"
    recording.recorder.write([recorded], recording.recorder.propose([recorded]))
    leased.clear()
    bench.runner.usual = {"samples_per_s": 85.0}
    suite = bench.suite(real_runner=True, builds=bench.good)
    lines: list[str] = []
    outcome = suite.measurer.measure(case_of(suite, SYNTHETIC), lambda each: lines.append(format_progress(each, 2)))
    assert (outcome.status.value, len(leased)) == ("REGRESSION", 1)
    told = [line.removeprefix(f"{SYNTHETIC}  ").replace("  window  step 1/3", "") for line in lines]
    assert told[0] == "run 1/2  new build 3.0.0"
    pair = r"pair 1 of at most 40: a drop is suspected (evidence "
    assert sorted(each.partition("build")[0].split()[-1] for each in told[1:3]) == ["new", "reference"]
    assert all(f" build 3.0.0  {pair}" in each for each in told[1:3]), told
    assert "pair 2 of at most 40: a drop is suspected" in told[3]
