"""Row 18: a case of two nodes in a job of a real Slurm, which ``perfgate submit`` has submitted and waits for.

The nodes are two slurmd of this machine. Launchers, agents, job steps and everything of Slurm are the real ones.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.clocks import clock_apart
from tests.faults.control_group import why_no_memory_group
from tests.faults.fault import Fault, Seen, expect
from tests.faults.network import CASE, why_no_paddle
from tests.faults.slurm_shop import SlurmShop, slurm_shop, two_nodes
from tests.faults.small_disk import fill, small_disk, why_no_mount
from tests.faults.workshop import MARKS, ROOT, Finished, Running, Workshop
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
_TELLS_ITS_TIME = """
import pathlib, time

def at_start(spec, rank):
    pathlib.Path({folder!r}, f"time-of-rank{{rank}}").write_text(str(time.time()))
"""
_JOB_MIB = 1200
_FAKE_TIME = tuple(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))

Strike = Callable[["SlurmShop", Running], None]


@contextlib.contextmanager
def _nothing_else(shop: SlurmShop) -> Iterator[str]:
    yield "# nothing is broken in a job\n"


Prepare = Callable[[SlurmShop], AbstractContextManager[str]]


@dataclass(frozen=True)
class _Fault:
    """``strike`` is made in the window. Then the case has this status with these texts in its reason, or the suite
    prints them, and the command this exit code."""

    strike: Strike
    status: str
    exit_code: int
    expected: tuple[str, ...]
    window_seconds: float = _LONG
    # A fault inside the job.
    fault: str = ""
    # Makes the shop ready, and names a fault inside the job.
    prepare: Prepare = _nothing_else
    # Undoes the fault when its run has ended.
    mend: Callable[[SlurmShop], None] = lambda shop: None
    # What more must be seen in the shop afterwards, before a second job.
    check: Callable[[SlurmShop], tuple[str, ...]] = lambda shop: ()
    # Whether the run of the fault is over, and with it its processes. Its end is measured.
    ends: bool = True
    # After so many seconds the suite sees the fault; they are no part of the end.
    limit_seconds: float = 0.0
    # Whether a second job must go on with the session.
    resumes: bool = False
    minutes: int = 30
    # What control groups leave the job on each node; None without them.
    memory_mib: int | None = None
    # Strikes as soon as the job runs, not in the window.
    at_once: bool = False

    def __call__(self, workshop: Workshop) -> Seen:
        with slurm_shop(workshop, self.window_seconds, self.memory_mib) as shop, self.prepare(shop) as fault:
            shop.minutes = self.minutes
            took: list[float] = []

            def during(running: Running) -> None:
                if not self.at_once:
                    running.wait_for(lambda: min(running.steps(rank=0), running.steps(rank=1)) >= 12, 90.0)
                self.strike(shop, running)
                began = time.monotonic()
                while self.ends and shop.of_job() and time.monotonic() < began + 150.0:
                    time.sleep(0.02)
                took.append(max(0.0, time.monotonic() - began - self.limit_seconds))
                self.mend(shop)

            done = shop.run(case=CASE, fault=self.fault or fault, during=during)
            wrong = (*self._wrong(done), *self.check(shop), *(self._resumed(shop) if self.resumes else ()))
            shop.cluster.wait_until_idle()
            left = len(shop.processes())
            status = "-" if done.status == "no case" else done.status
            seconds = took[0] if self.ends and took else None
            return Seen(status, done.exit_code, done.reason, seconds, left, shop.lost(), wrong)

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
        shop.resumed, shop.minutes, shop.temporary = next(iter(sessions), ""), 30, None
        shop.configure(lambda config: two_nodes(config, _SHORT))
        again = shop.run(case=CASE)
        return expect((again.status == "NO_BASELINE", f"then {again.status}: {again.reason} {again.output[-600:]}"))


def _kill(find: Callable[[SlurmShop], list[int]]) -> Strike:
    def strike(shop: SlurmShop, running: Running) -> None:
        found = find(shop)
        assert found, "nothing to kill"
        for pid in found:
            os.kill(pid, signal.SIGKILL)

    return strike


def _restart(daemon: str) -> Strike:
    def strike(shop: SlurmShop, running: Running) -> None:
        shop.cluster.kill(daemon)
        time.sleep(2.0)
        shop.cluster.start(daemon)

    return strike


def _node_goes_down(shop: SlurmShop, running: Running) -> None:
    shop.cluster.command("scontrol", "update", "nodename=n1", "state=down", "reason=test")


def _slurmd_stays_away(shop: SlurmShop, running: Running) -> None:
    """No end is measured: nobody ends the idle agent on a node without slurmd until the daemon is back."""
    shop.cluster.kill("slurmd-n1")
    running.wait_for(lambda: shop.cluster.states()["n1"].startswith("down"), 120.0)
    running.wait_for(lambda: not any((*shop.ranks(node), *shop.launchers(node)) for node in range(2)), 60.0)


def _start_daemon(shop: SlurmShop) -> None:
    shop.cluster.start("slurmd-n1")


def _cancel_step(shop: SlurmShop, running: Running) -> None:
    steps = shop.cluster.command("squeue", "--noheader", "--steps", "--format=%i").split()
    (agents,) = (step for step in steps if step.rpartition(".")[2].isdecimal())
    shop.cluster.command("scancel", agents)


def _freeze(shop: SlurmShop, running: Running) -> None:
    for pid in shop.agents():
        os.kill(pid, signal.SIGSTOP)


def _fill_disk(shop: SlurmShop, running: Running) -> None:
    assert shop.temporary is not None
    fill(shop.temporary)


def _wait_for_mark(shop: SlurmShop, running: Running) -> None:
    running.wait_for(lambda: (shop.folder / MARKS).exists())


@contextlib.contextmanager
def _small_disk(shop: SlurmShop) -> Iterator[str]:
    """The second node's files, and the first one's temporary ones, are on a disk of their own."""
    with small_disk(shop.folder / "tmp", megabytes=16) as disk:
        shop.temporary = disk.folder
        yield "# nothing is broken in a job\n"
        disk.empty()


@contextlib.contextmanager
def _another_clock(shop: SlurmShop) -> Iterator[str]:
    """All Pythons that the suite starts on the second node read a wall clock that is an hour ahead."""
    folder = shop.folder / "ahead"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        f"{clock_apart(-3600.0)}\nfrom tests.faults.inject import arm\n\narm()\n", encoding="utf-8"
    )
    # The workshop's own folder comes before the caller's, and is named by a later line.
    shop.on_second_node(f"export PERFGATE_FAULT_AHEAD={folder}")
    text = shop.interpreter.read_text(encoding="utf-8")
    shop.interpreter.write_text(
        text.replace("export PYTHONPATH=", "export PYTHONPATH=${PERFGATE_FAULT_AHEAD:+$PERFGATE_FAULT_AHEAD:}"),
        encoding="utf-8",
    )
    yield _TELLS_ITS_TIME.format(folder=str(shop.folder))


def _clocks_apart(shop: SlurmShop) -> tuple[str, ...]:
    first, second = (float((shop.folder / f"time-of-rank{rank}").read_text()) for rank in range(2))
    return expect((3500 < second - first < 3700, f"the clocks are {second - first:.0f} s apart"))


@contextlib.contextmanager
def _slurmd_ahead(shop: SlurmShop) -> Iterator[str]:
    """The second node's slurmd, and all that it starts, has such a clock."""
    shop.cluster.kill("slurmd-n1")
    shop.cluster.start("slurmd-n1", LD_PRELOAD=str(_FAKE_TIME[0]), FAKETIME="+1h", FAKETIME_DONT_FAKE_MONOTONIC="1")
    shop.cluster.wait_until_idle()
    yield "# nothing is broken in a job\n"


def _right_clock(shop: SlurmShop) -> tuple[str, ...]:
    shop.cluster.wait_until_idle(120.0)
    shop.cluster.kill("slurmd-n1")
    shop.cluster.start("slurmd-n1")
    shop.cluster.wait_until_idle()
    return ()


def _cancel(shop: SlurmShop, running: Running) -> None:
    shop.cluster.command("scancel", shop.cluster.command("squeue", "--noheader", "--format=%i").strip())


def _submitter_dies(shop: SlurmShop, running: Running) -> None:
    running.send(signal.SIGKILL)
    shop.cluster.wait_until_idle(120.0)


def _taken_up(shop: SlurmShop) -> tuple[str, ...]:
    """Another command waits for the job, which has ended meanwhile."""
    (file,) = (shop.folder / "runs" / "slurm").glob("pytest-*.json")
    words = [shop.python, "-m", "helpers.commands", "submit", f"--attach={file}"]
    done = subprocess.run(words, cwd=ROOT, env=shop.environment, capture_output=True, text=True, timeout=120.0)
    said = " ".join((done.stdout + done.stderr).split())
    return expect((done.returncode == 0 and "1 NO_BASELINE" in said, f"then {done.returncode}: {said[-600:]}"))


def _nothing(shop: SlurmShop, running: Running) -> None:
    return


def _one_address(shop: SlurmShop, running: Running) -> None:
    shop.cluster.command("scontrol", "update", "nodename=n1", "nodeaddr=127.0.0.2")


def _own_address(shop: SlurmShop) -> tuple[str, ...]:
    shop.cluster.wait_until_idle(120.0)
    shop.cluster.command("scontrol", "update", "nodename=n1", "nodeaddr=127.0.0.3")
    return ()


def _why_not() -> str:
    missing = missing_programs()
    return why_no_paddle() or (f"no Slurm: apt-get install {PACKAGES}" if missing else "")


def _why_no_clock() -> str:
    return _why_not() or ("" if _FAKE_TIME else "no libfaketime: apt-get install libfaketime")


def _of(name: str, what: str, fault: _Fault, needs: Callable[[], str] = _why_not) -> Fault:
    return Fault(18, name, what, fault, needs=needs)


_KILLED = ("killed by a signal", "rank 1 on n1 (127.0.0.3) ended without a footer")
_ERROR, _MEASURED = ("INFRA_ERROR", 6), ("NO_BASELINE", 0)
FAULTS = [
    _of(
        "Slurm: rank on the second node killed", "rank 1 of two nodes in a job gets SIGKILL in the window",
        _Fault(_kill(lambda shop: shop.ranks(1)), *_ERROR, _KILLED, resumes=True),
    ),
    _of(
        "Slurm: launcher on the second node killed", "the launcher there gets SIGKILL",
        _Fault(_kill(lambda shop: shop.launchers(1)), *_ERROR, _KILLED, resumes=True),
    ),
    _of(
        "Slurm: node program killed", "the agent on the second node gets SIGKILL",
        _Fault(
            _kill(SlurmShop.agents), *_ERROR, ("rank lost", f"{_N1} was lost: its agent exited with 137"), resumes=True,
        ),
    ),
    _of(
        "Slurm: node program frozen", "the agent on the second node gets SIGSTOP; 10 s without progress count as hung",
        _Fault(_freeze, *_ERROR, ("hung: rank 1 on n1",), limit_seconds=10.0, resumes=True),
    ),
    _of(
        "Slurm: step cancelled, deaf to SIGTERM", "somebody cancels the second node's step; its rank ignores SIGTERM",
        _Fault(_cancel_step, *_ERROR, ("rank lost", f"{_N1} was lost"), fault=_DEAF, resumes=True),
    ),
    _of(
        "Slurm: out of memory on the second node", f"rank 1 wants more than the job's {_JOB_MIB} MiB",
        _Fault(
            _wait_for_mark, *_ERROR, ("killed by the kernel for want of memory: rank 1 on n1",), fault=_GREEDY,
            memory_mib=_JOB_MIB, resumes=True,
        ),
        lambda: _why_not() or why_no_memory_group(),
    ),
    _of(
        "Slurm: disk of the second node full", "the disk of the second node's files is filled in the window",
        _Fault(_fill_disk, *_ERROR, ("disk full",), prepare=_small_disk, resumes=True),
        lambda: _why_not() or why_no_mount(),
    ),
    _of(
        "Slurm: clocks an hour apart", "all that the suite starts on the second node has a clock an hour ahead",
        _Fault(
            _nothing, *_MEASURED, (), window_seconds=_SHORT, prepare=_another_clock, check=_clocks_apart, ends=False,
        ),
    ),
    _of(
        "Slurm: slurmd's clock an hour ahead", "the clock of the second node's slurmd is an hour ahead",
        _Fault(
            _nothing, *_ERROR, (_N1, "Job credential expired"), prepare=_slurmd_ahead, check=_right_clock, at_once=True,
            ends=False, resumes=True,
        ), _why_no_clock,
    ),
    _of(
        "Slurm: slurmd killed and started again", "slurmd of the second node is away for 2 s",
        _Fault(_restart("slurmd-n1"), *_MEASURED, (), window_seconds=_SHORT, ends=False),
    ),
    _of(
        "Slurm: slurmd killed", "slurmd of the second node stays away for SlurmdTimeout; then it is there again",
        _Fault(
            _slurmd_stays_away, *_MEASURED, ("start 2",), window_seconds=40.0, mend=_start_daemon, ends=False,
        ),
    ),
    _of(
        "Slurm: slurmctld killed and started again", "the controller is away for 2 s",
        _Fault(_restart("slurmctld"), *_MEASURED, (), window_seconds=_SHORT, ends=False),
    ),
    _of(
        "Slurm: node goes down", "scontrol sets the second node down; the job starts again when it is back",
        _Fault(_node_goes_down, *_MEASURED, ("start 2",), window_seconds=20.0),
    ),
    _of(
        "Slurm: scancel, a rank deaf to SIGTERM", "somebody cancels the job; its ranks ignore SIGTERM",
        _Fault(_cancel, "no case", 6, ("Slurm ended the job: CANCELLED",), fault=_DEAF, resumes=True),
    ),
    _of(
        "Slurm: time over in the window", "the job has 2 minutes, and its window would take longer",
        _Fault(
            _nothing, "no case", 2, ("min are over; --time gives it more",), window_seconds=200.0, minutes=2,
            ends=False, resumes=True,
        ),
    ),
    _of(
        "Slurm: the submitting command killed", "perfgate submit gets SIGKILL; the job goes on",
        _Fault(_submitter_dies, "NO_BASELINE", -9, (), window_seconds=_SHORT, check=_taken_up, ends=False),
    ),
    _of(
        "Slurm: a node under two names", "the second node gets the address of the first",
        _Fault(
            _one_address, "no case", 4, ("the address of node n0",), check=_own_address, at_once=True, ends=False,
            resumes=True,
        ),
    ),
]  # fmt: skip
