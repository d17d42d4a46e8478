"""What is said of the end of jobs."""

from collections.abc import Callable
from pathlib import Path

from helpers.commands.submission.ends import JobEnds
from helpers.commands.submission.job import FORGOTTEN, FollowedFile, JobState, WatchedJob
from helpers.launch.nodes.accounting import NO_ACCOUNTING
from helpers.trainers.contract.errors import LaunchError


def job(state: str, exit_code: int = 0) -> WatchedJob:
    log = FollowedFile(Path("log"))
    return WatchedJob("7", log, state=JobState(state, exit_code=exit_code), slurm_name="perfgate-x")


def answers(sacct: str, storage: str = "accounting_storage/slurmdbd") -> Callable[..., str]:
    config = f"AccountingStorageType   = {storage}\n"
    return lambda *words, seconds: sacct if words[0] == "sacct" else config


def test_that_nothing_is_kept_is_said_once_and_only_of_a_job_that_slurm_ended() -> None:
    ends = JobEnds(answers("", "accounting_storage/none"))
    assert [ends.of(job("COMPLETED"))[1], ends.of(job("FAILED", 1))[1]] == ["", ""]
    ends = JobEnds(answers("", "accounting_storage/none"))
    assert [ends.of(job("NODE_FAIL"))[1] for _ in range(2)] == [NO_ACCOUNTING, ""]


def test_only_what_the_state_does_not_say_is_said() -> None:
    shown = "7|CANCELLED by 77777|0:0||n0|perfgate-x\n7.batch|CANCELLED|0:15|1024|n0|batch\n"
    assert JobEnds(answers(shown)).of(job("CANCELLED"))[1] == (
        "Slurm's accounting: the job ended with CANCELLED by user 77777 on n0"
    )
    assert JobEnds(answers("7|TIMEOUT|0:0||n0|perfgate-x\n")).of(job("TIMEOUT"))[1] == ""


def test_a_forgotten_job_has_the_end_that_accounting_has() -> None:
    shown = "7|COMPLETED|0:0||n0|other\n7|NODE_FAIL|0:0||n0|perfgate-x\n7|FAILED|1:0||n1|perfgate-x\n"
    state, text = JobEnds(answers(shown)).of(job(FORGOTTEN))
    assert (state.exit_status(), state.restarts) == ((1, ""), 1)
    assert text == "Slurm's accounting: start 1 ended with NODE_FAIL on n0"


def test_an_end_that_is_late_or_unreadable_is_said_and_never_guessed() -> None:
    clock = iter(range(0, 1000, 6))
    late = JobEnds(answers("7|RUNNING|0:0||n0|perfgate-x\n"), lambda seconds: None, lambda: float(next(clock)))
    state, text = late.of(job(FORGOTTEN))
    assert (state.state, text) == (FORGOTTEN, "Slurm's accounting does not have its end yet")

    def broken(*words: str, seconds: float) -> str:
        raise LaunchError("sacct", got="Connection refused")

    assert JobEnds(broken).of(job("NODE_FAIL"))[1].startswith("Slurm's accounting cannot be read (sacct: ")
