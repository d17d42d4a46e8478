"""The script that Slurm runs, and what Slurm says of a job."""

import subprocess
from pathlib import Path

import pytest

from helpers.commands.submission.ends import JobEnds
from helpers.commands.submission.job import (
    FORGOTTEN,
    FollowedFile,
    JobState,
    NoAnswer,
    WatchedJob,
    seconds_of,
    submit,
)
from helpers.commands.submission.needs import Shape
from helpers.commands.submission.script import JobRequest, script_of
from helpers.commands.submission.waiting import Patience, wait_for
from helpers.plan.clusters import ClusterConfig
from helpers.trainers.contract.errors import ConfigError, LaunchError

CLUSTER = ClusterConfig(
    "a100", "gpu", "perf", "gpu:a100", container="/images/perfgate", options=("--constraint=nvlink",)
)
RUNNING = (
    "JobId=7 JobName=perfgate-gate UserId=u(1) JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=0 "
    "BatchFlag=1 ExitCode=0:0 RunTime=00:01:30 TimeLimit=02:10:00 NodeList=n[0-3] BatchHost=n0"
)


def request(folder: Path, session: Path | None, *options: str) -> JobRequest:
    return JobRequest(
        name="perfgate-gate",
        shape=Shape(4, 8),
        cards=8,
        minutes=130,
        command=("/opt/python", "-m", "helpers.commands", "gate"),
        options=options,
        requeue=session is not None,
        session=session,
        folder=folder,
        log=folder / "100%.log",
    )


def test_a_script_names_what_the_job_needs_and_what_the_cluster_wants() -> None:
    folder = Path("/home/user/perf gate")
    text = script_of(request(folder, folder / "runs" / "gate-1", "--build", "paddle==3 ; rm -rf /"), CLUSTER)
    assert text.splitlines() == [
        "#!/bin/sh",
        "#SBATCH --job-name=perfgate-gate",
        "#SBATCH --nodes=4",
        "#SBATCH --ntasks-per-node=1",
        "#SBATCH --partition=gpu",
        "#SBATCH --account=perf",
        "#SBATCH --container=/images/perfgate",
        "#SBATCH --gres=gpu:a100:8",
        "#SBATCH --exclusive",
        "#SBATCH --time=130",
        "#SBATCH --signal=B:TERM@60",
        "#SBATCH --requeue",
        "#SBATCH --open-mode=append",
        "#SBATCH --output='/home/user/perf gate/100%%.log'",
        "#SBATCH --chdir='/home/user/perf gate'",
        "#SBATCH --constraint=nvlink",
        "",
        "if [ \"${SLURM_RESTART_COUNT:-0}\" -gt 0 ] && [ -d '/home/user/perf gate/runs/gate-1' ]; then",
        "  set -- --resume=gate-1",
        "else",
        "  set -- --session=gate-1",
        "fi",
        "exec /opt/python -m helpers.commands gate \"$@\" --build 'paddle==3 ; rm -rf /'",
    ]


@pytest.mark.parametrize(
    ("restarts", "made", "chosen"), [("", False, "session"), ("1", True, "resume"), ("1", False, "session")]
)
def test_a_later_start_goes_on_with_the_session_that_the_first_has_made(
    tmp_path: Path, restarts: str, made: bool, chosen: str
) -> None:
    session = tmp_path / "s1"
    if made:
        session.mkdir()
    asked = JobRequest("j", Shape(1, 1), 1, 10, ("echo",), ("x",), True, session, tmp_path, tmp_path / "log")
    done = subprocess.run(
        ["sh", "-c", script_of(asked, ClusterConfig())], env={"SLURM_RESTART_COUNT": restarts} if restarts else {},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"--{chosen}=s1 x\n"


def test_a_command_without_sessions_is_not_started_again() -> None:
    text = script_of(request(Path("/w"), None), ClusterConfig(exclusive=False))
    assert "--no-requeue" in text and "--exclusive" not in text and "--gres" not in text
    assert text.endswith("\nexec /opt/python -m helpers.commands gate\n")


def test_a_folder_that_sbatch_could_read_otherwise_is_refused() -> None:
    with pytest.raises(ConfigError, match="a path without quotes"):
        script_of(request(Path("/home/o'neill"), None), ClusterConfig())


# ---- what Slurm says


def test_a_running_job_is_not_over() -> None:
    state = JobState.of(RUNNING)
    assert (state.text, state.is_over, state.limit_seconds) == ("RUNNING on n[0-3]", False, 7800)


@pytest.mark.parametrize(
    ("changed", "status", "why"),
    [
        ({"JobState=RUNNING": "JobState=COMPLETED"}, 0, ""),
        ({"JobState=RUNNING": "JobState=FAILED", "ExitCode=0:0": "ExitCode=1:0"}, 1, ""),
        ({"JobState=RUNNING": "JobState=FAILED", "ExitCode=0:0": "ExitCode=0:9"}, 6, "FAILED, signal 9"),
        ({"JobState=RUNNING": "JobState=TIMEOUT", "ExitCode=0:0": "ExitCode=0:15"}, 6, "TIMEOUT, signal 15"),
        ({"JobState=RUNNING": "JobState=NODE_FAIL", "Reason=None": "Reason=NodeDown"}, 6, "NODE_FAIL (NodeDown)"),
    ],
)
def test_the_exit_status_is_the_commands_own_unless_slurm_ended_the_job(
    changed: dict[str, str], status: int, why: str
) -> None:
    text = RUNNING
    for old, new in changed.items():
        text = text.replace(old, new)
    state = JobState.of(text)
    assert state.is_over
    assert state.exit_status()[0] == status
    assert state.exit_status()[1].endswith(why)


@pytest.mark.parametrize(
    ("run", "code", "over"), [("02:08:30", 2, True), ("01:00:00", 2, False), ("02:09:00", 0, False)]
)
def test_a_job_whose_command_failed_at_its_end_ran_out_of_time(run: str, code: int, over: bool) -> None:
    text = RUNNING.replace("00:01:30", run).replace("RUNNING", "FAILED").replace("ExitCode=0", f"ExitCode={code}")
    assert JobState.of(text).out_of_time is over


def test_times_of_slurm() -> None:
    assert [seconds_of(text) for text in ("1-00:00:01", "00:10:00", "UNLIMITED")] == [86401, 600, None]


def test_a_controller_that_does_not_answer_changes_nothing(tmp_path: Path) -> None:
    answers = [RUNNING, LaunchError("scontrol", got="Unable to contact slurm controller"), RUNNING]

    def ask(*words: str, seconds: float) -> str:
        answer = answers.pop(0)
        if isinstance(answer, str):
            return answer
        raise answer

    job = WatchedJob("7", FollowedFile(tmp_path / "log"))
    assert job.look(ask) == "job 7: RUNNING on n[0-3]"
    assert job.look(ask).startswith("job 7: Slurm does not answer (Unable to contact")
    assert not job.is_over
    assert job.look(ask) == ""


def test_a_job_that_slurm_has_forgotten_is_not_waited_for(tmp_path: Path) -> None:
    def ask(*words: str, seconds: float) -> str:
        raise LaunchError("scontrol", got="slurm_load_jobs error: Invalid job id specified")

    job = WatchedJob("7", FollowedFile(tmp_path / "log"))
    job.look(ask)
    assert job.is_over and job.state is not None and job.state.exit_status()[0] == 6


@pytest.mark.parametrize(
    ("said", "lost"),
    [
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", True),
        ("sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received", True),
        ("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)", False),
        ("sbatch: error: Batch job submission failed: Requested node configuration is not available", False),
    ],
)
def test_only_a_submission_that_slurm_may_have_received_is_looked_for(said: str, lost: bool) -> None:
    with pytest.raises(LaunchError) as caught:
        submit("#!/bin/sh\n", lambda words, **_: subprocess.CompletedProcess(words, 1, "", said))
    assert isinstance(caught.value, NoAnswer) is lost


def test_a_job_that_slurm_never_got_is_no_longer_looked_for_when_slurm_has_settled(tmp_path: Path) -> None:
    now = [0.0]
    job = WatchedJob("", FollowedFile(tmp_path / "log"), slurm_name="perfgate-gate-1", clock=lambda: now[0])
    assert job.look(lambda *words, seconds: "") == "" and not job.is_over
    now[0] = 10.0
    assert job.look(lambda *words, seconds: "") == "job perfgate-gate-1: Slurm does not have it"
    assert job.state is not None
    status, why = job.state.exit_status()
    assert status == 6 and why.endswith("if it comes later: scancel --name=perfgate-gate-1)")


def test_a_character_that_is_not_written_whole_is_shown_later(tmp_path: Path) -> None:
    file = FollowedFile(tmp_path / "log")
    assert file.read() == ""
    (tmp_path / "log").write_bytes("±".encode()[:1])
    assert file.read() == ""
    with (tmp_path / "log").open("ab") as more:
        more.write("±".encode()[1:] + b"5\n")
    assert file.read() == "±5\n"


def test_the_lines_of_one_of_several_jobs_are_labelled_and_whole(tmp_path: Path) -> None:
    job = WatchedJob("7", FollowedFile(tmp_path / "log"), "4x8", JobState("RUNNING"))
    (tmp_path / "log").write_text("one\ntw")
    assert job.printed() == "4x8 | one\n"
    job.state = JobState("COMPLETED")
    assert list(job.last_printed()) == ["4x8 | tw\n"]


def test_all_output_of_a_job_that_is_over_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.commands.submission.job._MOST_BYTES", 4)
    (tmp_path / "log").write_text("one\ntwo and three\nfour")
    job = WatchedJob("7", FollowedFile(tmp_path / "log"), "4x8", JobState("COMPLETED"))
    shown: list[str] = []
    assert wait_for([job], shown.append, shown.append, Patience(1.0))
    assert "".join(shown) == "4x8 | one\n4x8 | two and three\n4x8 | four\n"


@pytest.mark.parametrize("state", ["RESV_DEL_HOLD", "A_STATE_OF_A_LATER_SLURM"])
def test_a_job_that_slurm_holds_or_of_an_unknown_state_is_not_over(state: str) -> None:
    assert not JobState.of(RUNNING.replace("RUNNING", state)).is_over


def test_a_job_whose_output_is_there_was_submitted_although_slurm_does_not_have_it(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("at work\n")
    now = [0.0]
    job = WatchedJob("", FollowedFile(tmp_path / "log"), slurm_name="perfgate-gate-1", clock=lambda: now[0])
    job.look(lambda *words, seconds: "")
    now[0] = 10.0
    job.look(lambda *words, seconds: "")
    assert job.state is not None and job.state.state == FORGOTTEN
    assert JobEnds(lambda *words, seconds: pytest.fail("asks")).of(job)[0].exit_status()[0] == 6


def test_who_keeps_the_jobs_is_told_as_soon_as_an_id_is_found(tmp_path: Path) -> None:
    ids: list[str] = []
    job = WatchedJob("", FollowedFile(tmp_path / "log"), slurm_name="perfgate-gate-1")
    job.found = lambda: ids.append(job.job)
    job.look(lambda *words, seconds: "12\n")
    assert ids == ["12"]
