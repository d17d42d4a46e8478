"""Which rank is to blame when nothing goes on, and when the launchers never met. Times are the test's own."""

from pathlib import Path

import pytest

from helpers.launch.failure import HUNG, NEVER_STARTED, UNREACHABLE
from helpers.launch.launchers.launcher import LaunchCommand
from helpers.launch.nodes.node import OtherNodes
from helpers.launch.outcome import Ending, OutcomeKind
from helpers.launch.supervisor import JobLimits, _Run
from helpers.machine.watch.processes import Processes
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.steplog import (
    COMPLETE,
    PROFILE,
    WARMUP,
    WINDOW,
    Footer,
    Header,
    Heartbeat,
    Step,
    StepLogWriter,
)
from tests.helpers.launch.test_supervisor import QuietMeter

CASE = Case.parse("paddle-resnet50v1.5-fp32-bs8-1x2-synthetic-dynamic")
LIMITS = JobLimits(start_up_seconds=20.0, no_progress_seconds=3.0, run_seconds=900.0, grace_seconds=1.0)


class Watched:
    """Two ranks that show life when they are told to."""

    def __init__(self, folder: Path, rendezvous: str = "") -> None:
        self.spec = JobSpec("j", CASE, 0, str(folder), "cpu", 1, 20)
        command = LaunchCommand(("launch",), rendezvous=rendezvous)
        self.run = _Run(self.spec, command, LIMITS, QuietMeter(), None, Processes(), OtherNodes())

    def beat(self, rank: int, step: int, at: float) -> None:
        Heartbeat(self.spec.heartbeat_path(rank)).beat("window", step, at)
        self.run._look_at_ranks(at)

    def profile(self, rank: int, at: float) -> None:
        """The rank's log is complete, and it begins to profile the steps after the window."""
        header = Header("j", CASE.id, 0, rank, 2, "host", 2**22 + 1 + rank, "paddle", "3", "", "cpu")
        writer = StepLogWriter(self.spec.step_log_path(rank), header)
        writer.steps(
            Step(0, step, WARMUP if step == 1 else WINDOW, step, step + 1.0, 8, 0.0)
            for step in range(1, self.spec.steps + 1)
        )
        writer.footer(Footer(COMPLETE))
        Heartbeat(self.spec.heartbeat_path(rank)).beat(PROFILE, self.spec.steps, at)
        self.run._look_at_ranks(at)

    def ending(self, at: float) -> Ending | None:
        self.run._look_at_ranks(at)
        return self.run._given_up(at, None)


def test_launchers_that_never_met_are_told_with_where_they_wanted_to(tmp_path: Path) -> None:
    watched = Watched(tmp_path, "10.0.0.1:36000")
    assert watched.ending(19.9) is None
    ending = watched.ending(20.0)
    assert ending is not None
    assert (ending.guilty_rank, ending.failure) == (None, UNREACHABLE)
    assert "did not meet at 10.0.0.1:36000 within 20 s" in ending.reason and "nodes.port" in ending.reason


@pytest.mark.parametrize("began", [10.0, 899.0])
def test_a_profiler_that_hangs_ends_a_job_whose_measurement_is_complete(tmp_path: Path, began: float) -> None:
    watched = Watched(tmp_path)
    for rank in range(2):
        watched.profile(rank, at=began)
    # Silent for too long, or the whole job's time is over.
    end = min(began + LIMITS.no_progress_seconds, LIMITS.run_seconds)
    assert watched.ending(end - 0.1) is None
    ending = watched.ending(end)
    assert ending is not None and (ending.kind, len(ending.logs)) == (OutcomeKind.COMPLETE, 2)


@pytest.mark.parametrize(("behind_until", "guilty", "seconds"), [(10.5, 1, "2.5"), (12.9, 0, "3")])
def test_a_rank_that_waits_for_another_is_not_blamed_for_falling_silent_first(
    tmp_path: Path, behind_until: float, guilty: int, seconds: str
) -> None:
    """Rank 0 is at step 9, waits for rank 1 at step 4, and is as silent as a hanging one; rank 1 may still work."""
    watched = Watched(tmp_path)
    watched.beat(1, 4, at=9.0)
    watched.beat(0, 9, at=10.0)
    watched.beat(1, 4, at=behind_until)
    assert watched.ending(12.9) is None
    ending = watched.ending(13.0)
    assert ending is not None and (ending.failure, ending.guilty_rank) == (HUNG, guilty)
    assert ending.reason.startswith(f"rank {guilty} gave no sign of life for {seconds} s")


@pytest.mark.parametrize(("begins_last", "guilty"), [(0, 1), (1, 0)])
def test_of_two_at_the_same_step_the_one_that_has_not_begun_the_next_is_blamed(
    tmp_path: Path, begins_last: int, guilty: int
) -> None:
    watched = Watched(tmp_path)
    for rank in (0, 1):
        watched.beat(rank, 4, at=9.0)
    Heartbeat(watched.spec.heartbeat_path(begins_last)).begin(5)
    ending = (watched.ending(9.0), watched.ending(12.0))[1]
    assert ending is not None and (ending.failure, ending.guilty_rank) == (HUNG, guilty)


def test_of_two_without_a_step_the_one_that_never_showed_life_is_blamed_and_its_phase_is_named(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.beat(0, 0, at=5.0)
    ending = watched.ending(20.0)
    assert ending is not None and (ending.failure, ending.guilty_rank) == (NEVER_STARTED, 1)
    assert ending.reason == "rank 1 made no first step within 20 s: rank 0 at 'window', rank 1 at 'start'"
