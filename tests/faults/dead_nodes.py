"""Row 9, a dead node among two: the suite's program there, or all of the node, is killed or frozen in the window."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from helpers.launch.nodes.link import SILENCE_SECONDS
from helpers.machine.watch.processes import JOB_VARIABLE
from tests.faults.fault import Fault, Seen
from tests.faults.handled import infra_error
from tests.faults.network import CASE, N1, two_nodes, why_no_paddle
from tests.faults.slurm_shop import read_proc
from tests.faults.workshop import Running, Workshop

# Longer than any row here takes.
_LONG_WINDOW = 1200


def _programs(workshop: Workshop) -> list[int]:
    return [
        each.pid for each in workshop.processes() if b"helpers.launch.nodes.share" in read_proc(each.pid, "cmdline")
    ]


def _all_of_it(workshop: Workshop) -> list[int]:
    own = f"{JOB_VARIABLE}=".encode()
    return _programs(workshop) + [
        each.pid
        for each in workshop.processes()
        if any(v.startswith(own) and v.endswith(b".node1") for v in read_proc(each.pid, "environ").split(b"\0"))
    ]


@dataclass(frozen=True)
class _Strike:
    """Sends a signal in the window to what ``find`` finds of the second node. ``limit_seconds`` later the suite sees it
    and ends the job on both nodes, and the reason has the ``expected`` texts."""

    find: Callable[[Workshop], list[int]]
    number: int
    expected: tuple[str, ...] = ("rank lost", f"node {N1}")
    limit_seconds: float = 0.0

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
        two_nodes()(config)
        config["protocols"]["cpu"] |= {"window_steps": _LONG_WINDOW}


FAULTS = [
    Fault(
        9, "node dead", "everything on the second node gets SIGKILL in the window",
        _Strike(_all_of_it, signal.SIGKILL), needs=why_no_paddle,
    ),
    Fault(
        9, "node silent", f"the program there gets SIGSTOP; {SILENCE_SECONDS:g} s of its silence are noticed",
        _Strike(_programs, signal.SIGSTOP, ("rank lost", f"node {N1}", "no sign of life"), SILENCE_SECONDS),
        needs=why_no_paddle,
    ),
]  # fmt: skip
