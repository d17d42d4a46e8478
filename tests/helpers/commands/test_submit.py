"""``perfgate submit`` with a real Slurm, and the suite with a double in the trainer's place."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.commands.main import main
from helpers.commands.submission.job import JobState
from helpers.commands.submission.needs import parse_shape
from helpers.commands.submit import gate_line
from tests.faults.workshop import ONE_CARD, ROOT, Workshop
from tests.slurm_cluster import SlurmCluster

DEAF = """
import signal

def at_start(spec, rank):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
"""
SHAPES = ("1x1", "1x2")
GATE = [{"cases": "*", "needs": "recorded", "target": "cpu"}]


def with_gate(config: dict[str, Any]) -> None:
    config["machines"] = {"node": {"host": "*", "gate": GATE}}
    config["budgets"] = {"retries": 0}


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
        f"--config={folder / 'perf.yaml'}",
        f"--baselines={folder / 'baselines'}",
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
    assert f' -m helpers.commands calibrate "$@" --config={workshop.folder / "perf.yaml"}' in script


def test_a_gate_of_several_sizes_is_a_job_for_each(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    def change(config: dict[str, Any]) -> None:
        with_gate(config)
        config["clusters"] = {"c": {"gres": "gpu", "target": "cpu"}}

    workshop.configure(change)
    argv = words(workshop, "gate", "--output=/g", "--", "--share-machine", "-n", "4", submit=("--dry-run", "--time=9"))
    scripts = printed(argv, capsys).split("#!/bin/sh\n")[1:]
    assert [[line for line in script.splitlines() if "--gres" in line] for script in scripts] == [
        ["#SBATCH --gres=gpu:4"],
        ["#SBATCH --gres=gpu:8"],
    ]
    for script, shape in zip(scripts, ("1x1", "1x2"), strict=True):
        case = ONE_CARD.replace("-1x1-", f"-{shape}-")
        assert f"--output=/g --output=/g/{shape} -- --share-machine -n 4 -k {case}\n" in script


def test_the_jobs_of_a_gate_do_not_share_a_session(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    workshop.configure(lambda config: (with_gate(config), config.update(clusters={"c": {"target": "cpu"}})))
    assert "--shape makes one job of them" in refusal(words(workshop, "gate", "--resume=s", submit=()), capsys)
    assert "#SBATCH --nodes=1\n" in printed(
        words(workshop, "gate", "--resume=s", submit=("--dry-run", "--time=9", "--shape=1x2")), capsys
    )


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
        (["submit", "--", "doctor"], "got 'doctor', expected a command that measures behind --: gate, calibrate"),
        (["submit"], "got 'no command'"),
        (["submit", "--", "prove-gpu"], "got 'no case by which nodes, cards and time are known'"),
        (["submit", "--cluster=x", "--", "prove-gpu"], "--cluster: got 'x'"),
    ],
)
def test_what_cannot_be_a_job_is_refused(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told in refusal(argv, capsys)


def test_a_gate_in_several_jobs_passes_where_each_has_passed(tmp_path: Path) -> None:
    for name, failed in (("1x1", "[]"), ("1x8", '["x"]')):
        (tmp_path / name).mkdir()
        line = "GATE FAILED: 1 REGRESSION of 4"
        text = f'{{"gate": {{"passed": 3, "cases": 4, "quarantined": [1], "failed": {failed}, "line": "{line}"}}}}'
        (tmp_path / name / "results.json").write_text(text)
    one, eight, missing = (tmp_path / name for name in ("1x1", "1x8", "4x8"))
    assert gate_line([one, one], [0, 0]) == ("GATE PASSED: 6 of 8 in 2 jobs; 2 in quarantine", True)
    assert gate_line([one, eight, missing], [0, 1, 6]) == (
        "GATE FAILED in 2 of 3 jobs: 1x8: FAILED: 1 REGRESSION of 4; 4x8: no verdict, exit status 6",
        False,
    )


def test_a_gate_in_several_jobs_without_a_verdict_is_no_success_and_an_earlier_one_does_not_count(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each job ends at once with 0, and its gate wrote nothing."""
    output = tmp_path / "gate"
    monkeypatch.setattr(
        "helpers.commands.submit.by_shape", lambda cases: dict.fromkeys(map(parse_shape, SHAPES), cases)
    )
    monkeypatch.setattr("helpers.commands.submit.submit", lambda script: "7")
    monkeypatch.setattr(
        "helpers.commands.submit.wait_for",
        lambda jobs, show, say: [setattr(job, "state", JobState("COMPLETED")) for job in jobs],
    )
    for shape in SHAPES:
        (output / shape).mkdir(parents=True)
        earlier = {"passed": 1, "cases": 1, "quarantined": [], "failed": [], "line": "GATE PASSED: 1 of 1"}
        (output / shape / "results.json").write_text(json.dumps({"gate": earlier}))
    assert main(words(workshop, "gate", f"--output={output}", submit=("--time=30",))) == 6
    assert "GATE FAILED in 2 of 2 jobs: 1x1: no verdict, exit status 0" in capsys.readouterr().out


# ---- what Slurm does with it


class Submitted:
    """``perfgate submit`` in a process of its own."""

    def __init__(self, slurm: SlurmCluster, workshop: Workshop, argv: list[str]) -> None:
        self.slurm = slurm
        self.workshop = workshop
        self._output = (workshop.folder / "submit.txt").open("w+")
        named = {name: slurm.variables[name] for name in ("PATH", "SLURM_CONF")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "helpers.commands", *argv], cwd=ROOT, env={**workshop.environment, **named},
            stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    @property
    def text(self) -> str:
        return (self.workshop.folder / "submit.txt").read_text(errors="replace")

    def steps(self) -> int:
        """Steps in the newest log of rank 0."""
        logs = sorted((self.workshop.folder / "runs").glob("*/*/r*/rank0.jsonl"), key=lambda path: path.stat().st_mtime)
        return max(0, len(logs[-1].read_text(errors="replace").splitlines()) - 1) if logs else 0

    def wait_for(self, what: Callable[[], Any], seconds: float = 90.0) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, f"{self.text}\n{self.slurm.logs()}"
            time.sleep(0.05)

    def ended(self, seconds: float = 120.0) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"{self.text}\n{self.slurm.logs()}") from None
        finally:
            self._output.close()

    def nothing_left(self) -> bool:
        """Whether neither Slurm nor this machine has anything of the job any more."""
        self.slurm.wait_until_idle(60.0)
        deadline = time.monotonic() + 10.0
        while self.workshop.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self.workshop.processes()


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
    # Whether the case has no baseline or the machine is busy.
    assert re.search(r"GATE FAILED: .* of 2, 1 not selected\njob \d+: FAILED", found.text)
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
def test_after_a_lost_node_the_session_goes_on(slurm: SlurmCluster, workshop: Workshop) -> None:
    def change(config: dict[str, Any]) -> None:
        with_gate(config)
        config["protocols"]["cpu"]["window_steps"] = 100

    workshop.configure(change)
    found = submitted(slurm, workshop, "calibrate", ONE_CARD, "--runs=4", "--allow-contention")
    found.wait_for(lambda: len(uuids(workshop)) == 1 and found.steps() >= 2)
    first = uuids(workshop)
    node = slurm.command("squeue", "--noheader", "--format=%N").strip()
    slurm.command("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    assert found.ended(240.0) == 0, found.text
    assert ", start 2" in found.text
    # One session has all runs, and the first of them was not made again.
    assert len(uuids(workshop)) == 4 and uuids(workshop) > first
    assert workshop.lost() == 0
    assert found.nothing_left()


@pytest.mark.slow
def test_a_job_outlives_slurms_controller(slurm: SlurmCluster, workshop: Workshop) -> None:
    found = submitted(slurm, workshop, "calibrate", ONE_CARD, "--runs=4", "--allow-contention")
    found.wait_for(lambda: found.steps() >= 2)
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
    assert found.nothing_left()
