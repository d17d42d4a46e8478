"""What ``perfgate submit`` and a case's report say of an end by a real slurmdbd."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.control_group import why_no_memory_group
from tests.faults.workshop import ONE_CARD, ROOT, Workshop
from tests.helpers.commands.submitted import Submitted
from tests.helpers.commands.test_submit import uuids, with_gate, words
from tests.slurm_cluster import SlurmCluster

pytestmark = pytest.mark.slow
GREEDY = """
def at_step(spec, rank, phase, number):
    if number == 4:
        taken = []
        while True:
            taken.append(bytearray(2**26))
"""


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    with Workshop(tmp_path) as found:
        found.configure(with_gate)
        (tmp_path / "fault.py").touch()
        yield found


def long(config: dict[str, Any]) -> None:
    with_gate(config)
    config["protocols"]["cpu"]["window_steps"] = 100


def little_memory(config: dict[str, Any]) -> None:
    long(config)
    config["clusters"] = {"c": {"options": ["--mem=600M"]}}
    # A busy machine takes seconds to give a process so much.
    config["limits"]["no_progress_seconds"] = 60


def test_after_a_lost_node_the_session_goes_on(accounted_slurm: SlurmCluster, workshop: Workshop) -> None:
    workshop.configure(long)
    found = Submitted(
        accounted_slurm, workshop, words(workshop, "calibrate", ONE_CARD, "--runs=4", "--allow-contention")
    )
    found.wait_for(lambda: len(uuids(workshop)) == 1 and found.steps() >= 2)
    first = uuids(workshop)
    node = accounted_slurm.command("squeue", "--noheader", "--format=%N").strip()
    accounted_slurm.command("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    assert found.ended(240.0) == 0, found.text
    assert ", start 2" in found.text
    assert f"Slurm's accounting: start 1 ended with NODE_FAIL on {node}" in found.text
    # One session has all runs, and the first of them was not made again.
    assert len(uuids(workshop)) == 4 and uuids(workshop) > first
    assert workshop.lost() == 0
    assert found.nothing_left()


def test_a_job_that_the_kernel_or_another_job_ended_is_told_so(
    accounted_slurm: SlurmCluster, workshop: Workshop
) -> None:
    """The first job needs more memory than it has; a job of the urgent partition takes the second one's nodes."""
    command = words(workshop, "calibrate", ONE_CARD, "--runs=4", "--allow-contention")
    if not why_no_memory_group():
        (workshop.folder / "fault.py").write_text(GREEDY)
        workshop.configure(little_memory)
        found = Submitted(accounted_slurm, workshop, command)
        assert found.ended() == 6, found.text
        assert "a process of the job was killed for want of memory, and Slurm does not say how" in found.text
        assert re.search(r"Slurm's accounting: step \d+\.batch ended with OUT_OF_MEMORY on n\d", found.text)
        assert found.nothing_left()
    (workshop.folder / "fault.py").write_text("")
    workshop.configure(long)
    found = Submitted(accounted_slurm, workshop, command)
    found.wait_for(lambda: "RUNNING on" in found.text)
    accounted_slurm.command("srun", "--partition=urgent", "--nodes=2", "--exclusive", "true")
    assert found.ended() == 6, found.text
    assert re.search(r"Slurm ended the job: PREEMPTED", found.text), found.text
    # Accounting says no more than that.
    assert "accounting" not in found.text
    assert found.nothing_left()


def test_a_job_that_the_controller_has_forgotten_is_known_to_accounting(
    accounted_slurm: SlurmCluster, workshop: Workshop
) -> None:
    nothing = ("pytest", str(ROOT / "perf_tests"), "-k", "no-such-case", "-p", "no:cacheprovider")
    found = Submitted(accounted_slurm, workshop, words(workshop, *nothing))
    assert found.ended() == 5, found.text
    (file,) = re.findall(r"--attach=(\S+)", found.text)
    accounted_slurm.kill("slurmctld")
    for path in (accounted_slurm.folder / "state").glob("job_state*"):
        path.unlink()
    accounted_slurm.start("slurmctld")
    accounted_slurm.wait_until_idle()
    later = Submitted(accounted_slurm, workshop, ["submit", f"--attach={file}"])
    assert later.ended() == 5, later.text
    assert "FORGOTTEN" in later.text and "nobody knows" not in later.text
