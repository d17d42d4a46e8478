import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress

import pytest

from helpers.machine.watch.processes import (
    JOB_VARIABLE,
    JobProcesses,
    Process,
    Processes,
    parse_stat,
)
from tests.job_processes import processes_of_job

# Not the suite's own: a job that starts beside these tests ends all orphans of its kind.
SUPERVISOR = f"TEST_SUPERVISOR_{os.getpid()}"
JOB = f"job-{os.getpid()}"

# Starts a grandchild in a session of its own with an emptied environment, tells its id, and waits.
PARENT = """
import os, subprocess, sys
env = {} if sys.argv[1] == "clean" else None
child = subprocess.Popen(["sleep", "60"], env=env, start_new_session=True)
# The kernel shows arguments and environment a moment after the program has replaced the old one.
while not open(f"/proc/{child.pid}/cmdline").read().startswith("sleep"):
    pass
print(child.pid, flush=True)
if sys.argv[2] == "stay":
    child.wait()
"""


@contextmanager
def family(variables: Mapping[str, str], environment: str, then: str) -> Generator[tuple[int, int], None, None]:
    """Ids of a real process and its child; both are gone afterwards."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, environment, then], env={**os.environ, **variables}, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    if then != "stay":
        parent.wait()
    try:
        yield parent.pid, child
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def pids(found: list[Process] | tuple[Process, ...]) -> set[int]:
    return {process.pid for process in found}


def test_a_stat_line_is_read_whatever_the_process_is_called() -> None:
    line = "4242 (a) b (c) S 7 " + " ".join(str(number) for number in range(5, 53))
    process = parse_stat(line)
    tick = os.sysconf("SC_CLK_TCK")
    assert (process.pid, process.parent, process.name, process.state) == (4242, 7, "a) b (c", "S")
    assert (process.cpu_seconds, process.started_ticks, process.processor) == ((14 + 15) / tick, 22, 39)


def test_a_job_is_found_by_its_environment_in_every_session() -> None:
    with family({JOB_VARIABLE: JOB}, "kept", "stay") as members:
        assert pids(processes_of_job(JOB)) == set(members)
        assert processes_of_job(JOB[:-1]) == []


def test_an_orphan_of_the_job_is_still_found() -> None:
    with family({JOB_VARIABLE: JOB}, "kept", "go") as (_, child):
        assert pids(JobProcesses(Processes(), JOB).find()) == {child}


def test_a_child_that_cleared_its_environment_is_found_and_remembered_as_an_orphan() -> None:
    job = JobProcesses(Processes(), JOB)
    with family({JOB_VARIABLE: JOB}, "clean", "stay") as (parent, child):
        mine, others = job.survey()
        assert pids(mine) == {parent, child}
        assert os.getpid() in pids(others) and not {parent, child} & pids(others)
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        assert pids(job.find()) == {child}


def test_a_job_whose_supervisor_lives_has_no_orphans() -> None:
    processes = Processes(supervisor_variable=SUPERVISOR)
    marks = processes.marks(JOB)
    with family(marks, "kept", "stay") as members:
        assert set(members) <= pids(processes_of_job(JOB))
        assert not pids(processes.orphans()) & set(members)


@pytest.mark.parametrize("change", ["dead", "reused"])
def test_processes_of_a_killed_supervisor_are_orphans(change: str) -> None:
    processes = Processes(supervisor_variable=SUPERVISOR)
    where, pid, started = processes.marks(JOB)[SUPERVISOR].rsplit("/", 2)
    owner = f"{where}/{2**22 + 5}/{started}" if change == "dead" else f"{where}/{pid}/{int(started) - 1}"
    with family({JOB_VARIABLE: JOB, SUPERVISOR: owner}, "kept", "stay") as members:
        assert set(members) <= pids(processes.orphans())


@pytest.mark.parametrize("owner", ["pid:[1]/4194309/5", "nonsense", "pid:[1]/x/y"])
def test_marks_of_another_container_or_none_of_ours_are_left_alone(owner: str) -> None:
    with family({SUPERVISOR: owner}, "kept", "stay") as members:
        assert not pids(Processes(supervisor_variable=SUPERVISOR).orphans()) & set(members)
