"""Row 18: a case of two nodes in a job of a real Slurm, which ``perfgate submit`` has submitted and waits for.

The nodes are two slurmd of this machine. Launchers, agents, job steps and everything of Slurm are the real ones.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.control_group import why_no_memory_group
from tests.faults.fault import Fault, Seen, expect
from tests.faults.network import CASE, why_no_paddle
from tests.faults.slurm_shop import SlurmShop, slurm_shop, two_nodes
from tests.faults.workshop import MARKS, Finished, Running, Workshop
from tests.slurm_cluster import PACKAGES, missing_programs

# The seconds of the window where the fault ends the job, and where it must not.
_LONG, _SHORT = 60.0, 10.0
_N1 = "node n1 (127.0.0.3)"
_DEAF = """
import signal

def at_start(spec, rank):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
"""
# Rank 1 takes memory until the kernel ends it.
_GREEDY = """
def at_step(spec, rank, phase, number):
    if rank == 1 and number == 16:
        taken = [bytearray(2**29)]
        mark()
        while True:
            taken.append(bytearray(64 * 2**20))
"""
_JOB_MIB = 1200

Strike = Callable[["SlurmShop", Running], None]


@dataclass(frozen=True)
class _Fault:
    """``strike`` is made in the window. Then the case has this status with these texts in its reason, or the suite
    prints them, and the command this exit code."""

    strike: Strike
    status: str
    exit_code: int
    expected: tuple[str, ...]
    # A fault inside the job.
    fault: str = "# nothing is broken in a job\n"
    # What control groups leave the job on each node; None without them.
    memory_mib: int | None = None

    def __call__(self, workshop: Workshop) -> Seen:
        with slurm_shop(workshop, _LONG, self.memory_mib) as shop:
            took: list[float] = []

            def during(running: Running) -> None:
                running.wait_for(lambda: min(running.steps(rank=0), running.steps(rank=1)) >= 12, 90.0)
                self.strike(shop, running)
                began = time.monotonic()
                while shop.of_job() and time.monotonic() < began + 150.0:
                    time.sleep(0.02)
                took.append(time.monotonic() - began)

            done = shop.run(case=CASE, fault=self.fault, during=during)
            wrong = (*self._wrong(done), *self._resumed(shop))
            shop.cluster.wait_until_idle()
            left = len(shop.processes())
            status = "-" if done.status == "no case" else done.status
            return Seen(status, done.exit_code, done.reason, took[0] if took else None, left, shop.lost(), wrong)

    def _wrong(self, done: Finished) -> tuple[str, ...]:
        said = " ".join(done.output.split())
        return expect(
            (done.status == self.status, f"status {done.status}: {done.reason}"),
            (done.exit_code == self.exit_code, f"exit code {done.exit_code}: {done.output[-600:]}"),
            *((text in done.reason or text in said, f"{text!r} is missing: {said[-900:]}") for text in self.expected),
        )

    def _resumed(self, shop: SlurmShop) -> tuple[str, ...]:
        """Go on with the session in another job, without the fault; a job that was refused had none."""
        sessions = [path.name for path in (shop.folder / "runs").glob("pytest-*")]
        shop.resumed = next(iter(sessions), "")
        shop.configure(lambda config: two_nodes(config, _SHORT))
        again = shop.run(case=CASE)
        return expect((again.status == "NO_BASELINE", f"then {again.status}: {again.reason} {again.output[-600:]}"))


def _kill_programs(shop: SlurmShop, running: Running) -> None:
    found = shop.programs()
    assert found, "nothing to kill"
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def _wait_for_mark(shop: SlurmShop, running: Running) -> None:
    running.wait_for(lambda: (shop.folder / MARKS).exists())


def _cancel(shop: SlurmShop, running: Running) -> None:
    shop.cluster.command("scancel", shop.cluster.command("squeue", "--noheader", "--format=%i").strip())


def _why_not() -> str:
    missing = missing_programs()
    return why_no_paddle() or (f"no Slurm: apt-get install {PACKAGES}" if missing else "")


_ERROR = "INFRA_ERROR", 6
FAULTS = [
    Fault(
        18, "Slurm: node program killed", "the suite's program on the second node gets SIGKILL",
        _Fault(
            _kill_programs, *_ERROR, ("rank lost", f"{_N1} was lost:", "it exited with 137"),
        ),
        _why_not,
    ),
    Fault(
        18, "Slurm: out of memory on the second node", f"rank 1 wants more than the job's {_JOB_MIB} MiB",
        _Fault(
            _wait_for_mark, *_ERROR, ("killed by the kernel for want of memory: rank 1 on n1",), fault=_GREEDY,
            memory_mib=_JOB_MIB,
        ),
        lambda: _why_not() or why_no_memory_group(),
    ),
    Fault(
        18, "Slurm: scancel, a rank deaf to SIGTERM", "somebody cancels the job; its ranks ignore SIGTERM",
        _Fault(_cancel, "no case", 6, ("Slurm ended the job: CANCELLED",), fault=_DEAF), _why_not,
    ),
]  # fmt: skip
