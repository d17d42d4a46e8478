"""``perfgate submit``: its scripts, what reaches Slurm, and jobs of a real Slurm with a double as the trainer."""

from __future__ import annotations

import getpass
import json
import os
import re
import signal
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import helpers.launch.slurm.sbatch
from helpers.commands.main import main
from helpers.launch.slurm.sbatch import End
from helpers.launch.slurm.script import variables_of_job, withheld_settings
from tests.faults.gpu_shop import furnish, state_file
from tests.faults.stand_in_nvml import FOLDER_VARIABLE, STATE_VARIABLE, Card
from tests.faults.workshop import ONE_CARD, ROOT, Workshop
from tests.helpers.commands.submitted import Submitted, words
from tests.slurm_cluster import SlurmCluster

GATE = [{"cases": "*", "needs": "recorded", "target": "cpu"}]
BUILD = "http://USER:PASSW@h.example/paddlepaddle-3.0.0-cp311-cp311-linux_x86_64.whl?token=TOKEN"


def with_gate(config: dict[str, Any]) -> None:
    config["machines"] = {"node": {"host": "*", "gate": GATE}}
    config["budgets"] = {"retries": 0}


def long_window(config: dict[str, Any]) -> None:
    with_gate(config)
    config["protocols"]["cpu"]["window_steps"] = 2000
    config["limits"]["run_seconds"] = 600


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    with Workshop(tmp_path) as found:
        found.configure(with_gate)
        (tmp_path / "fault.py").touch()
        yield found


# ---- what is asked of Slurm


def test_the_script_asks_for_what_the_options_and_the_cluster_say(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = {"partition": "gpu", "account": "perf", "gres": "gpu:a100", "options": ["--constraint=nvlink"]}
    workshop.configure(lambda config: config.update(clusters={"a": cluster, "b": {"exclusive": False}}))
    dry = ("--dry-run", "--shape=4x8", "--time=1:30", "--exclude=n7")
    assert main(words(workshop, "calibrate", ONE_CARD, submit=(*dry, "--cluster=a"))) == 0
    script = capsys.readouterr().out
    asked = set(re.findall("#SBATCH (.*)", script))
    assert asked > {
        "--nodes=4", "--ntasks-per-node=1", "--partition=gpu", "--account=perf", "--exclude=n7", "--time=90",
        "--gres=gpu:a100:8", "--exclusive", "--signal=B:TERM@60", "--no-requeue", "--constraint=nvlink",
    }  # fmt: skip
    assert re.search(rf"^exec env PYTHONPATH=.* -m helpers.commands calibrate .*{ONE_CARD}$", script, re.MULTILINE)
    assert main(words(workshop, "calibrate", ONE_CARD, submit=("--dry-run", "--cluster=b"))) == 0
    assert not re.search("--(time|gres|partition|exclusive)", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["submit"], "got 'no command'"),
        (["submit", "--", "submit"], "got 'submit', expected a command behind --"),
        (["submit", "--cluster=x", "--", "gate"], "--cluster: got 'x'"),
    ],
)
def test_what_cannot_be_a_job_is_refused(argv: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 4
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("limit", ["2", "0:01"])
def test_a_limit_in_which_nothing_can_be_measured_is_refused(limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["submit", f"--time={limit}", "--", "gate"])
    assert ended.value.code == 4
    assert f"'{limit}': expected 3 minutes or more" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["nothing"], ["gate", "--no-such-option"]])
def test_a_wrong_command_line_does_not_wait_in_a_queue(command: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["submit", "--", *command])
    assert ended.value.code == 4


# ---- secrets


def test_no_variable_with_a_password_reaches_slurm() -> None:
    kept = {
        "PATH": "/bin", "PIP_INDEX_URL": "https://pypi.example/simple", "SLURM_CONF": "/etc/slurm.conf", "PGHOST": "db",
    }  # fmt: skip
    secret = {
        "UV_INDEX_URL": "https://me:hidden@pypi.example/simple", "PGPASSWORD": "hid", "PERFGATE_TOKEN": "hidden",
        "PIP_TOKEN": "hidden", "DATABASE": "postgresql://me:hidden@db/x", "EDITOR": "vi",
    }  # fmt: skip
    assert variables_of_job({**kept, **secret}) == kept
    assert withheld_settings({**kept, **secret}) == ["PGPASSWORD", "PIP_TOKEN", "UV_INDEX_URL"]


SBATCH = """#!/bin/sh
env > {folder}/env
cat > {folder}/script
ls -l {folder}/runs/slurm/*.sh > {folder}/listed
cp {folder}/runs/slurm/*.sh {folder}/command
{end}
"""


def with_sbatch(folder: Path, end: str, squeue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Slurm of two programs of sh."""
    (folder / "bin").mkdir()
    for name, text in {
        "sbatch": SBATCH.format(folder=folder, end=end),
        "squeue": f"#!/bin/sh\n{squeue}\n",
        "scancel": f'#!/bin/sh\necho "$@" >> {folder}/cancelled\n',
    }.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


@pytest.mark.slow
def test_the_secret_of_a_command_is_in_a_file_of_its_owner_alone_until_the_job_ends(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = workshop.folder
    with_sbatch(folder, "echo 7", "echo 'COMPLETED|0|None|0:09|1-00:00:00|'", monkeypatch)
    monkeypatch.setenv("MY_SECRET", "hidden")
    monkeypatch.setenv("PIP_INDEX_URL", "https://me:hidden@pypi.example")
    assert main(words(workshop, "gate", f"--build={BUILD}")) == 0
    assert f"--build={BUILD}" in (folder / "command").read_text()
    assert (folder / "listed").read_text().startswith("-rw-------")
    said = "".join(capsys.readouterr())
    for text in (said, (folder / "script").read_text(), (folder / "env").read_text()):
        assert not re.search("PASSW@|TOKEN|hidden", text)
    assert "PIP_INDEX_URL is not passed to the job" in said
    assert not list((folder / "runs" / "slurm").glob("*.sh"))
    assert main(words(workshop, "gate", f"--build={BUILD}", submit=("--dry-run",))) == 0
    assert not re.search("PASSW@|TOKEN", capsys.readouterr().out)


# ---- how it ends


@pytest.mark.parametrize(
    ("end", "status", "why"),
    [
        (End("COMPLETED"), 0, ""),
        (End("FAILED", 6 << 8), 6, ""),
        (End("FAILED", 9), None, "FAILED (signal 9)"),
        (End("TIMEOUT", 1 << 8, limit=14400), None, "its time was over (limit: 240 minutes)"),
        # Slurm asks a command to end up to two minutes before its limit; gate then ends with 2, calibrate with 130.
        (End("FAILED", 2 << 8, used=60, limit=180), None, "its time was over (limit: 3 minutes)"),
        (End("FAILED", 130 << 8, used=130, limit=180), None, "its time was over"),
        (End("FAILED", 15, used=100, limit=180), None, "its time was over"),
        (End("FAILED", 2 << 8, used=59, limit=180), 2, ""),
        (End("FAILED", 2 << 8, used=59), 2, ""),
        (End("FAILED", 1 << 8, used=179, limit=180), 1, ""),
        (End("COMPLETED", used=179, limit=180), 0, ""),
        (End("CANCELLED", 15), None, "CANCELLED (signal 15)"),
        (End("COMPLETING", 1 << 8), None, "COMPLETING"),
    ],
)
def test_only_an_end_of_the_command_itself_has_its_exit_status(end: End, status: int | None, why: str) -> None:
    assert end.status == status and why in end.why and bool(end.why) == bool(why)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "squeue", "status", "told"),
    [
        ("echo 7; exit 1", "echo 'FAILED|1536|NonZeroExitCode|59:59|1:00:00|'", 6, "job 7 of Slurm"),
        ("echo 7; exit 1", "echo 'FAILED|512|NonZeroExitCode|1:01:00|1-00:00:00|'", 2, "job 7 of Slurm"),
        ("echo 7; exit 1", "echo 'FAILED|512|NonZeroExitCode|23:58:00|1-00:00:00|'", 6, "(limit: 1440 minutes)"),
        ("echo 7; exit 1", "echo 'FAILED|512|NonZeroExitCode|0:09|UNLIMITED|'", 2, "job 7 of Slurm"),
        # sbatch ends with 1 if a signal ended the job, and with 0 if Slurm has forgotten it.
        ("echo 7; exit 1", "echo 'CANCELLED|15|None|0:09|UNLIMITED|'", 6, "Slurm ended the job: CANCELLED"),
        ("echo 7", "exit 1", 6, "Slurm does not say how it ended"),
        ("exit 1", "exit 1", 4, "sbatch: got 'exit status 1', expected a job"),
    ],
)
def test_the_exit_status_is_never_sbatch_s_own(
    workshop: Workshop, end: str, squeue: str, status: int, told: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    with_sbatch(workshop.folder, end, squeue, monkeypatch)
    assert main(words(workshop, "gate")) == status
    said = capsys.readouterr().err
    assert told in said and "cancelled" not in said


# ---- a real Slurm


@pytest.mark.slow
def test_a_job_that_waits_in_the_queue_says_why_once(
    slurm: SlurmCluster, workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, slurm.variables[name])
    monkeypatch.setattr(helpers.launch.slurm.sbatch, "_QUEUE_SECONDS", 0.5)
    slurm.command("scontrol", "update", "partitionname=perf", "state=down")
    ended = threading.Event()

    def cancel() -> None:
        while not ended.wait(6.0):
            slurm.command("scancel", "--state=PENDING", f"--user={getpass.getuser()}")

    cancelling = threading.Thread(target=cancel)
    cancelling.start()
    try:
        assert main(words(workshop, "calibrate", ONE_CARD)) == 6
    finally:
        ended.set()
        cancelling.join()
        slurm.command("scontrol", "update", "partitionname=perf", "state=up")
    assert capsys.readouterr().err.count("waiting in the queue: PartitionDown\n") == 1


def submitted(slurm: SlurmCluster, workshop: Workshop, *command: str) -> Submitted:
    return Submitted(slurm, workshop, words(workshop, *command, submit=("--time=30",)))


@pytest.mark.slow
def test_a_command_s_output_and_exit_status_are_those_of_its_job(slurm: SlurmCluster, workshop: Workshop) -> None:
    found = submitted(slurm, workshop, "gate", f"--output={workshop.folder / 'gate'}", "--", f"-k={ONE_CARD}")
    assert found.ended() == 6, found.text
    # Whether the case has no baseline or the machine is busy.
    assert re.search("GATE FAILED: .* of 2, 1 not selected\n$", found.text), found.text
    (log,) = (workshop.folder / "runs" / "slurm").iterdir()
    assert log.suffix == ".log" and not stat.S_IMODE(log.stat().st_mode) & 0o002
    assert found.nothing_left()


@pytest.mark.slow
def test_cancelling_ends_the_job_and_all_it_started(slurm: SlurmCluster, workshop: Workshop) -> None:
    workshop.configure(long_window)
    found = submitted(slurm, workshop, "calibrate", ONE_CARD, "--allow-contention")
    found.wait_for(lambda: found.steps() >= 2)
    began = time.monotonic()
    found.process.send_signal(signal.SIGTERM)
    assert found.ended() == 130, found.text
    assert time.monotonic() - began < 60.0
    assert found.nothing_left()


@pytest.mark.slow
def test_a_gate_whose_time_was_over_says_so_in_its_last_line(slurm: SlurmCluster, workshop: Workshop) -> None:
    workshop.configure(long_window)
    found = submitted(slurm, workshop, "gate", f"--output={workshop.folder / 'gate'}", "--", f"-k={ONE_CARD}")
    found.wait_for(lambda: found.steps() >= 2)
    # A shorter limit, so that Slurm sends SIGTERM as soon as it looks, not in half an hour.
    job = slurm.command("squeue", "--noheader", "--format=%i").strip()
    slurm.command("scontrol", "update", f"jobid={job}", "timelimit=1")
    assert found.ended() == 6, found.text
    assert "GATE FAILED: interrupted" in found.text
    last = found.text.splitlines()[-1]
    assert last.startswith("Slurm ended the job: its time was over (limit: 1 minute)"), found.text
    assert found.nothing_left()


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
            config |= {"short": [], "clusters": {"c": {"gres": "gpu"}}}
            config["protocols"]["cpu"] |= {"window_steps": 200}

        workshop.configure(change)
        (workshop.folder / "fault.py").touch()
        chosen = f"{ONE_CARD} or {ONE_CARD.replace('-bs1-', '-bs2-')}"
        options = ("--share-machine", "-n", "2", "--allow-contention", "-q", "-m", "v100")
        plugins = ("-p", "tests.faults.stand_in_nvml", "-p", "no:cacheprovider")
        command = ("pytest", str(ROOT / "perf_tests"), "-k", chosen, *options, *plugins)
        variables = {STATE_VARIABLE: str(state_file(workshop)), FOLDER_VARIABLE: str(workshop.folder / "nvml")}
        argv = words(workshop, *command, submit=("--time=30", "--shape=1x2"))
        found = Submitted(slurm, workshop, argv, variables)
        assert found.ended() == 0, found.text
        assert found.nothing_left()
        runs = [path.parent for path in (workshop.folder / "runs").glob("*/paddle-*-1x1-*/r0/result.json")]
        results = [json.loads((run / "result.json").read_text()) for run in runs]
        assert sorted(each["environment"]["card_ids"][-1] for each in results) == ["0", "1"]
        spans = [span(run / "rank0.jsonl") for run in runs]
        assert max(start for start, _ in spans) < min(end for _, end in spans)


def span(log: Path) -> tuple[float, float]:
    """The first and last moment of a log's steps, in seconds of this machine's clock."""
    ends = [float(record["end"]) for line in log.read_text().splitlines() if "end" in (record := json.loads(line))]
    return min(ends), max(ends)
