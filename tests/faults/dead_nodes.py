"""Row 9, a dead node among two: its agent, its connection or all of it is killed, or frozen, in the window."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from helpers.launch.nodes.stream import SILENCE_SECONDS
from helpers.machine.watch.processes import JOB_VARIABLE
from tests.faults.fault import Fault, Seen
from tests.faults.handled import infra_error
from tests.faults.network import CASE, N1, two_nodes, why_no_paddle
from tests.faults.workshop import LIMITS, Running, Workshop

# Longer than any row here takes.
_LONG_WINDOW = 1200


def _agents(workshop: Workshop) -> list[int]:
    return [each.pid for each in workshop.processes() if b"helpers.launch.nodes.agent" in _read(each.pid, "cmdline")]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _relays(workshop: Workshop) -> list[int]:
    """The near end of the connection alone: an agent's own command line holds no such word."""
    lines = {each.pid: _read(each.pid, "cmdline").split(b"\0") for each in workshop.processes()}
    return [pid for pid, words in lines.items() if b"relay.py" in b"".join(words[1:2])]


def _all_of_it(workshop: Workshop) -> list[int]:
    own = f"{JOB_VARIABLE}=".encode()
    return _agents(workshop) + [
        each.pid
        for each in workshop.processes()
        if any(v.startswith(own) and v.endswith(b".node1") for v in _read(each.pid, "environ").split(b"\0"))
    ]


@dataclass(frozen=True)
class _Strike:
    """Sends a signal in the window to what ``find`` finds of the second node. ``limit_seconds`` later the suite sees it
    and ends the job on both nodes, and the reason has the ``expected`` texts."""

    find: Callable[[Workshop], list[int]]
    number: int
    expected: tuple[str, ...] = ("rank lost", f"node {N1}")
    limit_seconds: float = 0.0
    no_progress_seconds: float = LIMITS["no_progress_seconds"]
    connect: tuple[str, ...] = ("env",)

    def __call__(self, workshop: Workshop) -> Seen:
        workshop.configure(self._configure)
        moments: list[float] = []

        def during(running: Running) -> None:
            running.wait_for(lambda: running.steps(rank=1) >= 2)
            found = self.find(workshop)
            moments.append(time.monotonic())
            for pid in found:
                os.kill(pid, self.number)
            job = running.run_folders()[-1]
            # A result is written when the last process of the job, on both nodes, is gone.
            running.wait_for(lambda: (job / "result.json").exists(), self.limit_seconds + 60)
            moments.append(time.monotonic())

        done = workshop.run(case=CASE, during=during)
        seen = infra_error(workshop, done, *self.expected, words=False)
        return replace(seen, seconds=max(0.0, moments[1] - moments[0] - self.limit_seconds))

    def _configure(self, config: dict[str, Any]) -> None:
        two_nodes({"connect": list(self.connect)})(config)
        config["protocols"]["cpu"] |= {"window_steps": _LONG_WINDOW}
        config["limits"] |= {"no_progress_seconds": self.no_progress_seconds}


FAULTS = [
    Fault(
        9, "agent of a node killed", "the second node's agent gets SIGKILL in the window",
        _Strike(_agents, signal.SIGKILL), needs=why_no_paddle,
    ),
    Fault(
        9, "node dead", "everything on the second node gets SIGKILL in the window",
        _Strike(_all_of_it, signal.SIGKILL), needs=why_no_paddle,
    ),
    Fault(
        9, "connection to a node cut", "the connection to the second node gets SIGKILL in the window",
        _Strike(_relays, signal.SIGKILL, connect=(sys.executable, str(Path(__file__).with_name("relay.py")))),
        needs=why_no_paddle,
    ),
    Fault(
        9, "node frozen", "everything on the second node gets SIGSTOP; 3 s without progress count as hung",
        _Strike(_all_of_it, signal.SIGSTOP, ("hung", f"rank 1 on {N1}"), LIMITS["no_progress_seconds"]),
        needs=why_no_paddle,
    ),
    Fault(
        9, "node silent", f"the same where {SILENCE_SECONDS:g} s of its agent's silence are noticed first",
        _Strike(
            _all_of_it, signal.SIGSTOP, ("rank lost", f"node {N1}", "no sign of life from its agent"), SILENCE_SECONDS,
            no_progress_seconds=100,
        ), needs=why_no_paddle,
    ),
]  # fmt: skip
