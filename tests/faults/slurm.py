"""Row 18: a gate's case of two nodes in a job of a real Slurm, which ``perfgate submit`` has submitted and waits for.

The nodes are two slurmd of this machine. Launchers, agents, job steps and everything of Slurm are the real ones.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.machine.watch.processes import GUARD_VARIABLE, JOB_VARIABLE
from tests.faults.fault import Fault, Seen, expect
from tests.faults.network import CASE, why_no_paddle
from tests.faults.workshop import LIMITS, Finished, Running, Workshop
from tests.slurm_cluster import PACKAGES, SlurmCluster, missing_programs, slurm_cluster

# The seconds of the window where the fault ends the job, and where it must not.
_LONG, _SHORT = 60.0, 10.0
_STEP_SECONDS = 0.05
_N1 = "node n1 (127.0.0.3)"
_DEAF = """
import signal

def at_start(spec, rank):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
"""
_LAUNCHER = b"paddle.distributed.launch"
_TRAINER = b"helpers.trainers.paddle.trainer"
_AGENT = b"helpers.launch.nodes.agent"

Strike = Callable[["SlurmShop", Running], None]


class SlurmShop(Workshop):
    """A workshop whose suite runs as a gate in a job of two nodes."""

    cluster: SlurmCluster
    minutes = 30
    resumed = ""

    @property
    def environment(self) -> dict[str, str]:
        named = {name: self.cluster.variables[name] for name in ("PATH", "SLURM_CONF")}
        return {**super().environment, **named}

    def argv(self, *options: str, case: str = CASE, session: str = "") -> list[str]:
        folder = self.folder
        submit = [
            self.python,
            "-m",
            "helpers.commands",
            "submit",
            "--shape=2x1",
            f"--time={self.minutes}",
            "--",
            "gate",
        ]
        places = [f"--config={folder / 'perf.yaml'}", f"--baselines={folder / 'baselines'}"]
        places += [f"--runs-dir={folder / 'runs'}", f"--output={folder}"]
        return [
            *submit,
            *places,
            *([f"--resume={self.resumed}"] if self.resumed else []),
            "--",
            "--allow-contention",
            "-k",
            case,
        ]

    def ranks(self, node: int) -> list[int]:
        return [
            pid for pid in self._marked(node) if _TRAINER in (line := _read(pid, "cmdline")) and _LAUNCHER not in line
        ]

    def launchers(self, node: int) -> list[int]:
        return [pid for pid in self._marked(node) if _LAUNCHER in _read(pid, "cmdline")]

    def agents(self) -> list[int]:
        """The agent of the second node, which is no process of a job."""
        return [each.pid for each in self.processes() if _is_python(each.pid) and _AGENT in _read(each.pid, "cmdline")]

    def of_job(self) -> list[int]:
        """All processes of the job on both nodes, with their guards and agents."""
        return [*self._marked(0), *self._marked(1), *self.agents()]

    def _marked(self, node: int) -> list[int]:
        names = tuple(f"{name}=".encode() for name in (JOB_VARIABLE, GUARD_VARIABLE))
        found = []
        for each in self.processes():
            marks = [word for word in _read(each.pid, "environ").split(b"\0") if word.startswith(names)]
            if any(mark.endswith(b".node1") == bool(node) and not mark.endswith(b"=") for mark in marks):
                found.append(each.pid)
        return found


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _is_python(pid: int) -> bool:
    """srun's own command line names the agent, too."""
    return b"python" in _read(pid, "cmdline").split(b"\0")[0]


@contextlib.contextmanager
def _shop(workshop: Workshop, window_seconds: float) -> Iterator[SlurmShop]:
    folder = workshop.folder / "slurm"
    folder.mkdir()
    with slurm_cluster(folder) as cluster:
        shop = SlurmShop(workshop.folder / "gate", real=workshop.real)
        shop.cluster = cluster
        with shop:
            shop.configure(lambda config: _two_nodes(config, window_seconds))
            yield shop


def _two_nodes(config: dict[str, Any], window_seconds: float) -> None:
    config["matrix"]["cpu"][0] |= {"nodes": 2, "cards": 1}
    config["short"] = [CASE]
    config["nodes"] = "slurm"
    config["budgets"] = {"retries": 0}
    # The gate judges other cases than this one, which may therefore run on a busy machine.
    config["machines"] = {"node": {"host": "*", "gate": [{"cases": "*", "needs": "recorded", "target": "a100"}]}}
    config["protocols"]["cpu"]["window_steps"] = round(window_seconds / _STEP_SECONDS)
    config["limits"] = {**LIMITS, "start_up_seconds": 60, "no_progress_seconds": 10, "run_seconds": 300}


@dataclass(frozen=True)
class _Fault:
    """``strike`` is made in the window. Then the case has this status with these texts in its reason, or the suite
    prints them, and the command this exit code."""

    strike: Strike
    status: str
    exit_code: int
    expected: tuple[str, ...]
    window_seconds: float = _LONG
    fault: str = "# nothing is broken\n"
    # Whether the run of the fault is over, and with it its processes. Its end is measured.
    ends: bool = True
    # Whether a second job must go on with the session.
    resumes: bool = False
    minutes: int = 30
    # Strikes as soon as the job runs, not in the window.
    at_once: bool = False

    def __call__(self, workshop: Workshop) -> Seen:
        with _shop(workshop, self.window_seconds) as shop:
            shop.minutes = self.minutes
            took: list[float] = []

            def during(running: Running) -> None:
                if not self.at_once:
                    running.wait_for(lambda: min(running.steps(rank=0), running.steps(rank=1)) >= 12, 90.0)
                self.strike(shop, running)
                began = time.monotonic()
                while self.ends and shop.of_job() and time.monotonic() < began + 150.0:
                    time.sleep(0.02)
                took.append(time.monotonic() - began)

            done = shop.run(case=CASE, fault=self.fault, during=during)
            wrong = (*self._wrong(done), *(self._resumed(shop, done) if self.resumes else ()))
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

    def _resumed(self, shop: SlurmShop, done: Finished) -> tuple[str, ...]:
        """Go on with the session, as the last job said, and without the fault."""
        told = re.search(r"--resume=(\S+)", done.output)
        if told is None:
            return (f"no word on how to go on: {done.output[-600:]}",)
        shop.resumed, shop.minutes = told[1], 30
        shop.configure(lambda config: _two_nodes(config, _SHORT))
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
    shop.cluster.kill("slurmd-n1")
    running.wait_for(lambda: "start 2" in (shop.folder / "output.txt").read_text(), 120.0)
    shop.cluster.start("slurmd-n1")


def _cancel(shop: SlurmShop, running: Running) -> None:
    shop.cluster.command("scancel", shop.cluster.command("squeue", "--noheader", "--format=%i").strip())


def _submitter_dies(shop: SlurmShop, running: Running) -> None:
    running.send(signal.SIGKILL)
    shop.cluster.wait_until_idle(120.0)


def _nothing(shop: SlurmShop, running: Running) -> None:
    return


def _one_address(shop: SlurmShop, running: Running) -> None:
    shop.cluster.command("scontrol", "update", "nodename=n1", "nodeaddr=127.0.0.2")


def _why_not() -> str:
    missing = missing_programs()
    return why_no_paddle() or (f"no Slurm: apt-get install {PACKAGES}" if missing else "")


def _of(name: str, what: str, fault: _Fault) -> Fault:
    return Fault(18, name, what, fault, needs=_why_not)


_KILLED = ("killed by a signal", "rank 1 on n1 (127.0.0.3) ended without a footer")
_ERROR, _MEASURED = ("INFRA_ERROR", 6), ("NO_BASELINE", 6)
FAULTS = [
    _of(
        "Slurm: rank on the second node killed", "rank 1 of two nodes in a job gets SIGKILL in the window",
        _Fault(_kill(lambda shop: shop.ranks(1)), *_ERROR, _KILLED),
    ),
    _of(
        "Slurm: launcher on the second node killed", "the launcher there gets SIGKILL",
        _Fault(_kill(lambda shop: shop.launchers(1)), *_ERROR, _KILLED),
    ),
    _of(
        "Slurm: node program killed", "the agent on the second node gets SIGKILL",
        _Fault(_kill(SlurmShop.agents), *_ERROR, ("rank lost", f"{_N1} was lost: its agent exited with 137")),
    ),
    _of(
        "Slurm: slurmd killed and started again", "slurmd of the second node is away for 2 s",
        _Fault(_restart("slurmd-n1"), *_MEASURED, (), window_seconds=_SHORT, ends=False),
    ),
    _of(
        "Slurm: slurmd killed", "slurmd of the second node stays away for SlurmdTimeout; then it is there again",
        _Fault(_slurmd_stays_away, *_MEASURED, ("start 2",), window_seconds=20.0, ends=False),
    ),
    _of(
        "Slurm: slurmctld killed and started again", "the controller is away for 2 s",
        _Fault(_restart("slurmctld"), *_MEASURED, (), window_seconds=_SHORT, ends=False),
    ),
    _of(
        "Slurm: node goes down", "scontrol sets the second node down; the job starts again when it is back",
        _Fault(_node_goes_down, *_MEASURED, ("start 2",), window_seconds=20.0, ends=False),
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
        _Fault(_submitter_dies, "NO_BASELINE", -9, (), window_seconds=_SHORT, ends=False),
    ),
    _of(
        "Slurm: a node under two names", "the second node gets the address of the first",
        _Fault(_one_address, "no case", 4, ("the address of node n0",), at_once=True, ends=False),
    ),
]  # fmt: skip
