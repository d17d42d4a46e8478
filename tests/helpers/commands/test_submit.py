"""``perfgate submit`` with a real Slurm, and the suite with a double in the trainer's place."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.commands.main import main
from helpers.commands.submission.job import JobState, WatchedJob, unfinished
from helpers.commands.submission.split import SplitGate, WholeGate
from helpers.history import open_history
from helpers.history.run_folders import ResultStore
from helpers.history.session_file import SessionRecord
from helpers.session.gate_verdict import GateState, GateVerdict
from helpers.trainers.contract.errors import LaunchError
from tests.faults.gpu_shop import furnish, state_file
from tests.faults.stand_in_nvml import FOLDER_VARIABLE, STATE_VARIABLE, Card
from tests.faults.workshop import ONE_CARD, ROOT, Workshop
from tests.helpers.commands.submitted import Submitted
from tests.slurm_cluster import SlurmCluster

DEAF = """
import signal

def at_start(spec, rank):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
"""
# Steps of the double take as long as it says, on a busy machine too.
SLOW_ON_TWO_NODES = """
import sys

def at_step(spec, rank, phase, number):
    if spec.case.nodes == 2:
        sys.modules["__main__"].STEP_SECONDS = 0.1
"""
SHAPES = ("1x1", "2x1")
GATE = [{"cases": "*", "needs": "recorded", "target": "cpu"}]


def with_gate(config: dict[str, Any]) -> None:
    config["machines"] = {"node": {"host": "*", "gate": GATE}}
    config["budgets"] = {"retries": 0}


def two_sizes(config: dict[str, Any]) -> None:
    """A gate of one case of 1x1 and one of 2x1, which are judged alike on a busy machine."""
    (block,) = config["matrix"]["cpu"]
    config["matrix"]["cpu"] = [{**block, "cards": 1, "nodes": nodes} for nodes in (1, 2)]
    with_gate(config)
    config |= {"nodes": "slurm", "clusters": {"c": {"target": "cpu"}}}
    config["budgets"] |= {"screen_runs": 3, "first_runs": 3}
    config["tolerances"] |= {"recorded": 0.2, "unconfirmed": 0.4}
    config["limits"] |= {"start_up_seconds": 60, "no_progress_seconds": 10, "run_seconds": 300}


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    with Workshop(tmp_path) as found:
        found.configure(with_gate)
        (tmp_path / "fault.py").touch()
        yield found


def words(workshop: Workshop, *command: str, submit: tuple[str, ...] = ("--shape=1x1", "--time=30")) -> list[str]:
    """The command line without the Python; the command's places are the workshop's."""
    folder = workshop.folder
    places = [
        f"--perf-config={folder / 'perf.yaml'}",
        f"--baselines-dir={folder / 'baselines'}",
        f"--runs-dir={folder / 'runs'}",
    ]
    return ["submit", *submit, "--", command[0], *places, *command[1:]]


def printed(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(argv) == 0
    return capsys.readouterr().out


def refusal(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(argv) == 4
    return capsys.readouterr().err


# ---- what is planned


def test_the_job_of_a_command_has_the_size_of_its_largest_case(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = words(workshop, "calibrate", "paddle-*", "--target=cpu", submit=("--dry-run", "--time=0:22"))
    script = printed(argv, capsys)
    assert "#SBATCH --nodes=1\n" in script and "#SBATCH --requeue\n" in script
    assert "#SBATCH --time=22\n" in script
    assert f' -m helpers.commands calibrate "$@" --perf-config={workshop.folder / "perf.yaml"}' in script


def test_a_gate_of_several_sizes_is_a_job_for_each_that_uses_its_cards(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(config: dict[str, Any]) -> None:
        with_gate(config)
        (block,) = config["matrix"]["cpu"]
        config["matrix"]["cpu"] = [block, {**block, "nodes": 2, "cards": [4]}]
        config["clusters"] = {"c": {"gres": "gpu", "target": "cpu"}}

    workshop.configure(change)
    options = ("gate", "--output=/g", "--", "-n", "3", "--share-machine", "-x")
    argv = words(workshop, *options, submit=("--dry-run", "--time=9"))
    scripts = printed(argv, capsys).split("#!/bin/sh\n")[1:]
    assert [[line for line in script.splitlines() if "--gres" in line] for script in scripts] == [
        ["#SBATCH --gres=gpu:4"],
        ["#SBATCH --gres=gpu:4"],
        ["#SBATCH --gres=gpu:4"],
    ]
    at_once = {"1x1": "--share-machine -n 4 -x", "1x2": "--share-machine -n 2 -x", "2x4": "-x"}
    for script, (shape, kept) in zip(scripts, at_once.items(), strict=True):
        case = ONE_CARD.replace("-1x1-", f"-{shape}-")
        assert f" --output=/g --output=/g/{shape} -- --results=/g/{shape}/gate.part {kept} -k {case}\n" in script


@pytest.mark.slow
def test_cases_side_by_side_have_as_many_cards_as_workers(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop.configure(lambda config: (with_gate(config), config.update(clusters={"c": {"gres": "gpu"}})))
    options = (f"-k={ONE_CARD}", "--share-machine", "-n4")
    for command in (("gate", "--", *options), ("pytest", str(ROOT / "perf_tests"), *options)):
        script = printed(words(workshop, *command, submit=("--dry-run", "--time=9")), capsys)
        assert "#SBATCH --gres=gpu:4\n" in script


@pytest.mark.slow
def test_a_job_of_pytest_is_as_large_as_the_cases_that_it_collects(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop.configure(lambda config: (with_gate(config), config.update(clusters={"c": {"gres": "gpu"}})))
    argv = words(workshop, "pytest", str(ROOT / "perf_tests"), "-k", "1x1 or nothing", submit=("--dry-run", "--time=9"))
    script = printed(argv, capsys)
    assert "#SBATCH --gres=gpu:1\n" in script and "#SBATCH --requeue\n" in script
    assert f' -u -m pytest "$@" --perf-config={workshop.folder / "perf.yaml"}' in script
    assert "pytest: got 'no tests collected" in refusal([*argv[:-1], "nothing"], capsys)


def test_each_job_of_a_gate_has_a_session_of_its_own_with_which_it_goes_on(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop.configure(two_sizes)
    dry = ("--dry-run", "--time=9")
    new = printed(words(workshop, "gate", "--session=s", submit=dry), capsys).split("#!/bin/sh\n")[1:]
    for shape, script in zip(SHAPES, new, strict=True):
        assert f"set -- --session=s-{shape}\n" in script and f"set -- --resume=s-{shape}\n" in script
        assert "--session=s " not in script
    (workshop.folder / "runs" / "s-1x1").mkdir(parents=True)
    again = printed(words(workshop, "gate", "--resume", "s", submit=dry), capsys).split("#!/bin/sh\n")[1:]
    # The second job had not begun.
    assert " --resume=s-1x1 " in again[0] and "set --" not in again[0]
    assert "set -- --session=s-2x1\n" in again[1] and "--resume=s-1x1" not in again[1] and "--resume s" not in again[1]
    assert all("#SBATCH --requeue\n" in script for script in again)
    one = printed(words(workshop, "gate", "--resume=s", submit=("--dry-run", "--time=9", "--shape=1x2")), capsys)
    assert "#SBATCH --nodes=1\n" in one and " --resume=s\n" in one


@pytest.mark.parametrize("command", ["gate", "pytest"])
def test_one_job_goes_on_with_the_session_that_was_newest_when_it_was_submitted(
    workshop: Workshop, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other sessions may have begun by the time at which the job begins."""
    given = ("gate", "--resume", "--", "-x") if command == "gate" else ("pytest", "-x", "--resume")
    argv = words(workshop, *given, submit=("--dry-run", "--time=9", "--shape=1x1"))
    assert "--resume: got 'no name', expected a night in" in refusal(argv, capsys)
    for name, kind in (("monday", "night"), ("tuesday", "night"), ("later", "bisect")):
        ResultStore(workshop.folder / "runs", name, SessionRecord(kind)).begin()
    # What perfgate submit itself keeps is no session.
    (workshop.folder / "runs" / "slurm").mkdir(parents=True)
    assert main(argv) == 0
    said = capsys.readouterr()
    assert "--resume: the newest night is tuesday" in said.err
    assert " --resume=tuesday --" in said.out and "--resume " not in said.out and "#SBATCH --requeue\n" in said.out


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--resume=t", "--resume: got 't', expected the session of an earlier gate in several jobs"),
        ("--resume", "--resume: got 'no name'"),
        ("--session=s", "expected a name without s-1x1"),
    ],
)
def test_a_session_that_no_gate_in_several_jobs_had_is_refused(
    workshop: Workshop, option: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop.configure(two_sizes)
    (workshop.folder / "runs" / "s-1x1").mkdir(parents=True)
    assert told in refusal(words(workshop, "gate", option, submit=("--time=9",)), capsys)


@pytest.mark.parametrize(("options", "minutes"), [((), 55), (("--", "-k", "resnet"), None)])
def test_a_gate_that_follows_a_nights_plan_asks_for_its_minutes_and_ten_more(
    workshop: Workshop, options: tuple[str, ...], minutes: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(config: dict[str, Any]) -> None:
        with_gate(config)
        config["clusters"] = {"c": {"target": "cpu"}}
        config["budgets"]["night_minutes"] = 44.5

    workshop.configure(change)
    argv = words(workshop, "gate", *options, submit=("--dry-run", "--shape=1x2"))
    if minutes is None:
        # Cases that the command line chooses are all measured, and nobody knows how long they take.
        assert "State the job's time: --time" in refusal(argv, capsys)
    else:
        assert f"#SBATCH --time={minutes}\n" in printed(argv, capsys)


def test_the_time_limit_of_each_job_has_room_for_its_explanations(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop.configure(lambda config: (two_sizes(config), config.update(explain={"night_minutes": 30})))
    monkeypatch.setattr("helpers.commands.submit.minutes_for", lambda cases, config, before: 20)
    times = {
        command: re.findall(r"--time=(\d+)", printed(words(workshop, *command, submit=("--dry-run",)), capsys))
        for command in (("gate",), ("gate", "--", "-k", "1x1"), ("calibrate", ONE_CARD))
    }
    assert list(times.values()) == [["50", "50"], ["50"], ["20"]]


def test_the_gate_is_that_of_the_clusters_machine(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    def change(config: dict[str, Any]) -> None:
        config["machines"] = {
            "one": {"host": "a", "gate": [{"cases": "*-1x1-*", "needs": "recorded"}]},
            "two": {"host": "b", "gate": [{"cases": "*-1x2-*", "needs": "recorded"}]},
        }
        config["clusters"] = {"c": {"gres": "gpu", "machine": "two", "target": "cpu"}, "d": {}}

    workshop.configure(change)
    script = printed(words(workshop, "gate", submit=("--dry-run", "--time=9", "--cluster=c")), capsys)
    assert "#SBATCH --gres=gpu:2\n" in script
    assert "field 'clusters': got 'c, d', expected one" in refusal(words(workshop, "gate", submit=()), capsys)
    assert "clusters.d.machine" in refusal(words(workshop, "gate", submit=("--cluster=d",)), capsys)


@pytest.mark.parametrize(
    ("command", "again"),
    [
        (("calibrate", ONE_CARD), True),
        (("calibrate", ONE_CARD, "--resume=s"), True),
        (("calibrate", ONE_CARD, "--session=s"), False),
        (("bisect", "--case", ONE_CARD), False),
    ],
)
def test_a_job_is_started_again_where_its_command_can_go_on(
    workshop: Workshop, capsys: pytest.CaptureFixture[str], command: tuple[str, ...], again: bool
) -> None:
    script = printed(words(workshop, *command, submit=("--dry-run", "--shape=1x1", "--time=30")), capsys)
    assert ("#SBATCH --requeue\n" in script, "#SBATCH --no-requeue\n" in script) == (again, not again)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["submit", "--", "doctor"], "got 'doctor', expected a command that measures behind --: gate, pytest"),
        (["submit"], "got 'no command'"),
        (["submit", "--", "prove-gpu"], "got 'no case by which nodes, cards and time are known'"),
        (["submit", "--cluster=x", "--", "prove-gpu"], "--cluster: got 'x'"),
    ],
)
def test_what_cannot_be_a_job_is_refused(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told in refusal(argv, capsys)


def test_a_gate_in_several_jobs_without_a_verdict_is_no_success_and_an_earlier_one_does_not_count(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each job ends at once with 0, and its gate wrote nothing."""
    output = tmp_path / "gate"
    workshop.configure(two_sizes)
    monkeypatch.setattr("helpers.commands.submission.split.PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr("helpers.commands.submit.submit", lambda script: "7")
    monkeypatch.setattr(
        "helpers.commands.submit.wait_for",
        lambda jobs, show, say, patience: [setattr(job, "state", JobState("COMPLETED")) for job in jobs],
    )
    for folder in (output, *(output / shape for shape in SHAPES)):
        folder.mkdir(parents=True, exist_ok=True)
        earlier = {"passed": 1, "cases": 1, "quarantined": [], "failed": [], "line": "GATE PASSED: 1 of 1"}
        (folder / "results.json").write_text(json.dumps({"gate": earlier}))
        (folder / "gate.part").write_text("{}")
    assert main(words(workshop, "gate", f"--output={output}", submit=("--time=30",))) == 6
    line = "GATE FAILED: 1x1: no verdict, exit status 6; 2x1: no verdict, exit status 6; 2 not reached of 2"
    said = capsys.readouterr()
    assert line in said.out
    assert json.loads((output / "results.json").read_text())["gate"]["line"] == line
    # Another command, begun elsewhere, waits for the same jobs and judges them alike.
    (output / "results.json").unlink()
    (attach,) = re.findall(r"perfgate submit (--attach=\S+)", said.err)
    monkeypatch.chdir(tmp_path)
    assert main(["submit", attach]) == 6
    assert line in capsys.readouterr().out
    assert json.loads((output / "results.json").read_text())["gate"]["line"] == line
    assert "the file alone" in refusal(["submit", attach, "--", "gate"], capsys)
    assert "expected a file that perfgate submit wrote" in refusal(["submit", "--attach=perf.yaml"], capsys)


def test_reports_that_cannot_be_written_are_no_success(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workshop.configure(two_sizes)
    passed = GateVerdict(GateState.PASSED, 2, 0, (), ())
    monkeypatch.setattr("helpers.commands.submission.split.PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr("helpers.commands.submit.submit", lambda script: "7")
    monkeypatch.setattr(
        "helpers.commands.submit.wait_for",
        lambda jobs, show, say, patience: [setattr(job, "state", JobState("COMPLETED")) for job in jobs],
    )
    monkeypatch.setattr(WholeGate, "verdict", lambda whole: passed)
    monkeypatch.setattr(WholeGate, "exit_status", lambda whole, verdict: 0)
    (tmp_path / "gate" / "night.html").mkdir(parents=True)
    monkeypatch.setattr(SplitGate, "forget_earlier", lambda split: None)
    assert main(words(workshop, "gate", f"--output={tmp_path / 'gate'}", submit=("--time=30",))) == 6
    assert "GATE FAILED: its reports were not written; 2 PASS of 2" in capsys.readouterr().out


@pytest.mark.parametrize(("answers", "told"), [(True, "7 (1x1): cancelled"), (False, "when Slurm answers: scancel 7")])
def test_when_slurm_refuses_one_job_of_a_gate_the_others_are_cancelled(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answers: bool, told: str
) -> None:
    cancelled, ids = [], ["7"]

    def submit(script: str) -> str:
        if not ids:
            raise LaunchError("sbatch", got="QOSMaxNodePerJobLimit", expected="a job")
        return ids.pop()

    def cancel(job: WatchedJob) -> None:
        cancelled.append(job.job)
        if not answers:
            raise LaunchError("scancel", got="no answer", expected="an answer")

    waited: list[str] = []

    def wait(jobs: list[WatchedJob], *_: object, cancelling: bool) -> bool:
        # A job that Slurm shows late is cancelled when it comes.
        waited.extend(job.name for job in jobs if cancelling)
        return True

    workshop.configure(two_sizes)
    monkeypatch.setattr("helpers.commands.submit.submit", submit)
    monkeypatch.setattr("helpers.commands.submit.wait_for", wait)
    monkeypatch.setattr(WatchedJob, "cancel", cancel)
    said = refusal(words(workshop, "gate", submit=("--time=30",)), capsys)
    assert cancelled == ["7"] and waited == ["job 7 (1x1)"]
    assert told in said and "QOSMaxNodePerJobLimit" in said


@pytest.mark.parametrize("state", ["RUNNING", "PENDING", "COMPLETED"])
def test_a_session_on_which_a_job_is_at_work_is_not_gone_on_with(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], state: str
) -> None:
    """The first perfgate submit was killed. When its jobs are over, all sizes are submitted again, also those that
    passed: the command line may name another build."""
    workshop.configure(two_sizes)
    scripts: list[str] = []
    monkeypatch.setattr("helpers.commands.submit.submit", lambda script: scripts.append(script) or str(len(scripts)))
    monkeypatch.setattr("helpers.commands.submit._waited", lambda *_: 0)
    assert main(words(workshop, "gate", "--session=s", submit=("--time=30",))) == 0
    (attach,) = re.findall(r"perfgate submit (--attach=\S+)", capsys.readouterr().err)
    ResultStore(workshop.folder / "runs", "s-1x1").begin()
    log = workshop.folder / "runs" / "slurm" / "s-1x1.log"
    log.write_text("the first night's\n")
    asked: list[str] = []

    def ask(*argv: str, seconds: float) -> str:
        asked.extend(argv)
        return f"1 {state}\n2 COMPLETED\n"

    monkeypatch.setattr("helpers.commands.submit.unfinished", lambda names: unfinished(names, ask))
    again = words(workshop, "gate", "--resume=s", submit=("--time=30",))
    if state != "COMPLETED":
        # Without a name it is the newest night.
        one_job = [
            words(workshop, "gate", each, submit=("--time=30", "--shape=1x1"))
            for each in ("--resume=s-1x1", "--resume")
        ]
        for argv in (again, *one_job):
            said = refusal(argv, capsys)
            assert "s-1x1" in said and "on which job 1 of Slurm is still at work" in said
            assert f"perfgate submit {attach}" in said
        assert len(scripts) == 2
        return
    first = Path(attach.removeprefix("--attach=")).read_text()
    assert main(again) == 0
    assert len(scripts) == 4 and sum("--resume=s-1x1 " in script for script in scripts[2:]) == 1
    names = re.findall(r"--job-name=(\S+)", "".join(scripts))
    assert f"--name={','.join(names[:2])}" in asked
    assert Path(attach.removeprefix("--attach=")).read_text() == first
    # The output of the first night is in another file, and is not shown again.
    assert f"--output='{log}'" in scripts[0] and f"--output='{log}'" not in scripts[2]


# ---- what Slurm does with it


def uuids(workshop: Workshop) -> set[str]:
    """The runs that are on disk, of the one session."""
    found = list((workshop.folder / "runs").glob("*/*/r*/result.json"))
    assert len({path.parents[2] for path in found}) <= 1
    return {str(json.loads(path.read_text())["uuid"]) for path in found}


def submitted(slurm: SlurmCluster, workshop: Workshop, *command: str, **given: Any) -> Submitted:
    return Submitted(slurm, workshop, words(workshop, *command, **given))


def long_window(config: dict[str, Any]) -> None:
    with_gate(config)
    config["protocols"]["cpu"]["window_steps"] = 2000
    config["limits"]["run_seconds"] = 600


@pytest.mark.slow
def test_a_submitted_command_is_seen_at_work(slurm: SlurmCluster, workshop: Workshop) -> None:
    found = submitted(slurm, workshop, "calibrate", ONE_CARD, "--runs=4", "--allow-contention")
    assert found.ended() == 0, found.text
    assert "RUNNING on n" in found.text and "run 1" in found.text
    assert found.nothing_left()


@pytest.mark.slow
def test_the_exit_status_is_that_of_the_command(slurm: SlurmCluster, workshop: Workshop) -> None:
    found = submitted(slurm, workshop, "gate", f"--output={workshop.folder / 'gate'}", "--", f"-k={ONE_CARD}")
    assert found.ended() == 6, found.text
    # Whether the case has no baseline or the machine is busy. Slurm may be seen while it completes the job.
    over = r"GATE FAILED: .* of 2, 1 not selected\n(job \d+: COMPLETING on n\d\n)?job \d+: FAILED"
    assert re.search(over, found.text), found.text
    assert found.nothing_left()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_cancelling_ends_the_job_and_all_it_started(slurm: SlurmCluster, workshop: Workshop, number: int) -> None:
    workshop.configure(long_window)
    found = submitted(slurm, workshop, "calibrate", ONE_CARD, "--allow-contention")
    found.wait_for(lambda: found.steps() >= 2)
    began = time.monotonic()
    found.process.send_signal(number)
    assert found.ended() == 130, found.text
    assert time.monotonic() - began < 20.0
    assert found.nothing_left()


@pytest.mark.slow
def test_a_job_goes_on_without_the_command_that_submitted_it(slurm: SlurmCluster, workshop: Workshop) -> None:
    found = submitted(slurm, workshop, "calibrate", ONE_CARD, "--runs=4", "--allow-contention")
    found.wait_for(lambda: found.steps() >= 2)
    found.process.kill()
    found.ended()
    assert found.nothing_left()
    assert len(uuids(workshop)) == 4
    assert workshop.lost() == 0


@pytest.mark.slow
def test_a_job_outlives_slurms_controller(slurm: SlurmCluster, workshop: Workshop) -> None:
    # Long enough for saving: the end of a job that a controller heard of and has not saved is lost with it.
    found = submitted(slurm, workshop, "calibrate", ONE_CARD, "--runs=10", "--allow-contention")
    found.wait_for(lambda: found.steps() >= 2)
    slurm.wait_until_saved()
    slurm.kill("slurmctld")
    found.wait_for(lambda: "Slurm does not answer" in found.text)
    slurm.start("slurmctld")
    assert found.ended() == 0, found.text
    assert found.nothing_left()


@pytest.mark.slow
def test_a_trainer_that_ignores_sigterm_is_ended_with_its_job(slurm: SlurmCluster, workshop: Workshop) -> None:
    workshop.configure(long_window)
    (workshop.folder / "fault.py").write_text(DEAF)
    found = submitted(slurm, workshop, "calibrate", ONE_CARD, "--allow-contention")
    found.wait_for(lambda: found.steps() >= 2)
    job = slurm.command("squeue", "--noheader", "--format=%i").strip()
    slurm.command("scancel", job)
    assert found.ended() == 6, found.text
    assert "Slurm ended the job: CANCELLED" in found.text
    assert found.text.count("Slurm keeps no accounting here") == 1
    assert found.nothing_left()


@pytest.mark.slow
def test_a_gate_of_two_sizes_is_one_gate(slurm: SlurmCluster, workshop: Workshop) -> None:
    """Recorded, cut off in its second job, resumed until it passes, and slower in the case of two nodes."""
    workshop.configure(two_sizes)
    folder = workshop.folder
    plugin = ("-p", "tests.helpers.commands.neighbours_allowed")

    def gate(*options: str, of_pytest: tuple[str, ...] = ()) -> Submitted:
        given = ("gate", f"--output={folder / 'gate'}", *options, "--", *plugin, *of_pytest)
        return submitted(slurm, workshop, *given, submit=("--time=30",))

    def results() -> dict[str, Any]:
        return dict(json.loads((folder / "gate" / "results.json").read_text()))

    first = gate(of_pytest=("--update-baselines",))
    assert first.ended(300.0) == 6, first.text
    assert first.text.splitlines()[-1] == "GATE FAILED: 2 NO_BASELINE of 2"

    cut = gate("--session=night")
    cut.wait_for(lambda: "2x1 | " in cut.text and cut.steps() >= 2, 180.0)
    slurm.command("scancel", slurm.command("squeue", "--noheader", "--format=%i").strip())
    assert cut.ended(300.0) == 6, cut.text
    assert "perfgate submit -- gate --resume=night " in cut.text
    line = cut.text.splitlines()[-1]
    assert line.startswith("GATE FAILED: ") and "CANCELLED" in line and "1 not reached of 2" in line
    assert results()["not_reached"] == 1 and results()["gate"]["passed"] == 1
    finished, finished_of_first = uuids_of(workshop, "night-*"), uuids_of(workshop, "night-1x1")

    on = gate("--resume=night")
    assert on.ended(300.0) == 0, on.text
    # The job of the size that passed is submitted again, and makes no run again.
    assert "1x1 | " in on.text
    assert uuids_of(workshop, "night-1x1") == finished_of_first
    assert on.text.splitlines()[-1] == "GATE PASSED: 2 of 2"
    assert uuids_of(workshop, "night-*") > finished
    assert (results()["session"], results()["exit_code"]) == ("night", 0)
    # 1x1 is the reference of the speed-up, and another job has measured it.
    assert results()["scaling"][0]["rows"][1]["speed_up"] == pytest.approx(2.0, rel=0.2)
    page = (folder / "gate" / "night.html").read_text()
    assert "<h1>The gate passed: 2 cases</h1>" in page and page.count("night-1x1") and page.count("night-2x1")

    (folder / "fault.py").write_text(SLOW_ON_TWO_NODES)
    slow = gate()
    assert slow.ended(300.0) == 1, slow.text
    assert slow.text.splitlines()[-1] == "GATE FAILED: 1 SLOWER of 2"
    with open_history(f"sqlite:///{folder / 'runs' / 'history.sqlite'}") as history:
        sessions = {each.result.session for each in history.results_of(target="cpu")}
    # All sessions of all gates are in one history.
    assert sessions == {path.name for path in (folder / "runs").glob("*-[12]x1")} and len(sessions) == 6
    assert workshop.lost() == 0
    assert slow.nothing_left()


def uuids_of(workshop: Workshop, sessions: str) -> set[str]:
    found = (workshop.folder / "runs").glob(f"{sessions}/*/r*/result.json")
    return {str(json.loads(path.read_text())["uuid"]) for path in found}


@pytest.mark.slow
def test_cases_of_one_card_are_measured_side_by_side_on_the_cards_that_slurm_granted(
    slurm: SlurmCluster, tmp_path: Path
) -> None:
    """A node with two V100s, which a stand-in for NVML shows; Slurm grants both, by Gres of two devices."""
    with Workshop(tmp_path) as workshop:
        furnish(workshop, Card(count=2))

        def change(config: dict[str, Any]) -> None:
            (block,) = config["matrix"].pop("cpu")
            config["matrix"]["v100"] = [{**block, "cards": 1, "batch_size_per_card": [1, 2]}]
            config |= {"short": [], "clusters": {"c": {"gres": "gpu", "target": "v100"}}}
            config["protocols"]["cpu"] |= {"window_steps": 200}

        workshop.configure(change)
        (workshop.folder / "fault.py").touch()
        other = ONE_CARD.replace("-bs1-", "-bs2-")
        options = ("-q", "-m", "v100", "-p", "tests.faults.stand_in_nvml", "-p", "no:cacheprovider")
        argv = words(
            workshop, "pytest", str(ROOT / "perf_tests"), "-k", f"{ONE_CARD} or {other}", "--share-machine", "-n", "2",
            "--allow-contention", *options, submit=("--time=30",),
        )  # fmt: skip
        variables = {STATE_VARIABLE: str(state_file(workshop)), FOLDER_VARIABLE: str(workshop.folder / "nvml")}
        found = Submitted(slurm, workshop, argv, variables)
        assert found.ended() == 0, found.text
        assert found.nothing_left()
        results = [
            json.loads(path.read_text()) for path in (workshop.folder / "runs").glob("*/paddle-*-1x1-*/r0/result.json")
        ]
        assert sorted(each["environment"]["card_ids"][-1] for each in results) == ["0", "1"]
        spans = [span(path) for path in (workshop.folder / "runs").glob("*/paddle-*-1x1-*/r0/rank0.jsonl")]
        assert max(start for start, _ in spans) < min(end for _, end in spans)


def span(log: Path) -> tuple[float, float]:
    """The first and last moment of a log's steps, in seconds of this machine's clock."""
    ends = [float(record["end"]) for line in log.read_text().splitlines() if "end" in (record := json.loads(line))]
    return min(ends), max(ends)
