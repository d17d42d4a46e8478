"""``perfgate submit`` and ``perfgate fleet`` while the controller of a real Slurm is stopped or killed."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.workshop import ONE_CARD, ROOT, Workshop
from tests.helpers.commands.submitted import Submitted
from tests.helpers.commands.test_submit import long_window, uuids, with_gate, words
from tests.slurm_cluster import SlurmCluster

pytestmark = pytest.mark.slow
# A command whose job ends at once, with pytest's status for "no tests".
NOTHING = ("pytest", str(ROOT / "perf_tests"), "-k", "no-such-case", "-p", "no:cacheprovider")


def soon(config: dict[str, Any]) -> None:
    """Slurm is waited for until its first question without an answer."""
    with_gate(config)
    config["clusters"] = {"c": {"away_minutes": 0.01}}


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    with Workshop(tmp_path) as found:
        found.configure(with_gate)
        (tmp_path / "fault.py").touch()
        yield found


@pytest.fixture
def slurm(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    yield slurm
    # Whatever a test left of its controller.
    if slurm.daemons["slurmctld"].poll() is None:
        slurm.daemons["slurmctld"].send_signal(signal.SIGCONT)
    else:
        slurm.start("slurmctld")


def again(text: str) -> list[str]:
    """The command that waits for the jobs again, as the lines on standard error say it."""
    (found,) = {match[1] for match in re.finditer(r"to wait for (?:it|them) again: perfgate (.*)", text, re.IGNORECASE)}
    return shlex.split(found)


def test_a_submission_whose_answer_was_lost_is_one_job_which_another_command_takes_up(
    slurm: SlurmCluster, workshop: Workshop
) -> None:
    workshop.configure(soon)
    controller = slurm.daemons["slurmctld"]
    controller.send_signal(signal.SIGSTOP)
    found = Submitted(slurm, workshop, words(workshop, *NOTHING))
    assert found.ended() == 6, found.text
    controller.send_signal(signal.SIGCONT)
    assert "Slurm did not answer (sbatch: error: Batch job submission failed: Socket timed out" in found.text
    assert "Slurm has not answered for 0.01 min (clusters.NAME.away_minutes in perf.yaml)" in found.text
    (name,) = set(re.findall(r"job (perfgate-pytest-\S+):", found.text))
    later = Submitted(slurm, workshop, again(found.text))
    # The job's own status; its whole output is shown again.
    assert later.ended() == 5, later.text
    assert f"job {name}: Slurm has it, as job " in later.text and " deselected" in later.text
    jobs = slurm.command("squeue", "--noheader", "--states=all", f"--name={name}", "--format=%i").split()
    assert len(jobs) == 1
    assert later.nothing_left()


def test_a_controller_that_stays_away_is_not_waited_for_and_the_job_is_taken_up_later(
    slurm: SlurmCluster, workshop: Workshop
) -> None:
    workshop.configure(soon)
    # Long enough for saving: the end of a job that a controller heard of and has not saved is lost with it.
    found = Submitted(slurm, workshop, words(workshop, "calibrate", ONE_CARD, "--runs=10", "--allow-contention"))
    found.wait_for(lambda: found.steps() >= 2)
    slurm.wait_until_saved()
    slurm.kill("slurmctld")
    assert found.ended() == 6, found.text
    assert re.search(r"job \d+: Slurm has not answered for 0.01 min .* what runs goes on without it", found.text)
    slurm.start("slurmctld")
    workshop.configure(with_gate)
    later = Submitted(slurm, workshop, again(found.text))
    assert later.ended() == 0, later.text
    assert "run 1" in later.text
    assert len(uuids(workshop)) == 10 and workshop.lost() == 0
    assert later.nothing_left()


def test_an_interrupt_that_slurm_did_not_hear_cancels_the_job_when_slurm_answers(
    slurm: SlurmCluster, workshop: Workshop
) -> None:
    workshop.configure(long_window)
    found = Submitted(slurm, workshop, words(workshop, "calibrate", ONE_CARD, "--allow-contention"))
    found.wait_for(lambda: found.steps() >= 2)
    controller = slurm.daemons["slurmctld"]
    controller.send_signal(signal.SIGSTOP)
    found.process.send_signal(signal.SIGINT)
    found.wait_for(lambda: "NOT cancelled" in found.text)
    controller.send_signal(signal.SIGCONT)
    assert found.ended() == 130, found.text
    assert re.search(r"job \d+: cancelled; its command ends what runs", found.text)
    assert found.nothing_left()


def test_a_fleet_is_not_waited_for_without_a_controller(slurm: SlurmCluster, workshop: Workshop) -> None:
    workshop.configure(soon)
    folder = workshop.folder
    places = [
        f"--config={folder / 'perf.yaml'}",
        f"--baselines={folder / 'baselines'}",
        f"--runs-dir={folder / 'runs'}",
    ]
    argv = ["fleet", *places, "--nodes=n*", ONE_CARD, "--target=cpu", "--time=30", "--allow-contention"]
    found = Submitted(slurm, workshop, argv)
    found.wait_for(lambda: found.steps() >= 1)
    slurm.wait_until_saved()
    slurm.kill("slurmctld")
    assert found.ended() == 6, found.text
    assert re.search(r"when its tasks have ended: perfgate fleet --report fleet-\S+", found.text)
    slurm.start("slurmctld")
    slurm.mend()
    assert found.nothing_left()
