"""A workshop whose suite runs in a job of two nodes of a real Slurm."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helpers.machine.watch.processes import GUARD_VARIABLE, JOB_VARIABLE
from tests.faults.network import CASE
from tests.faults.workshop import LIMITS, Workshop
from tests.slurm_cluster import SlurmCluster, slurm_cluster

_STEP_SECONDS = 0.05
_PROGRAM = b"helpers.launch.nodes.share"


class SlurmShop(Workshop):
    """A workshop whose suite runs in a job of two nodes."""

    cluster: SlurmCluster
    resumed = ""

    @property
    def environment(self) -> dict[str, str]:
        named = {name: self.cluster.variables[name] for name in ("PATH", "SLURM_CONF")}
        return {**super().environment, **named}

    def argv(self, *options: str, case: str = CASE, session: str = "") -> list[str]:
        """The same session as a job; its name is left to ``perfgate submit``."""
        submit = [self.python, "-m", "helpers.commands", "submit", "--shape=2x1", "--time=30"]
        submit += [f"--config={self.folder / 'perf.yaml'}", f"--runs-dir={self.folder / 'runs'}", "--"]
        resumed = [f"--resume={self.resumed}"] if self.resumed else []
        # Without the Python and its -m.
        return [*submit, *super().argv(*options, *resumed, case=case, session="")[2:]]

    def programs(self) -> list[int]:
        """The suite's program on the second node, which is no process of a job."""
        return [
            each.pid for each in self.processes() if _is_python(each.pid) and _PROGRAM in read_proc(each.pid, "cmdline")
        ]

    def of_job(self) -> list[int]:
        """All processes of the job on both nodes, with their guards and programs."""
        return [*self._marked(0), *self._marked(1), *self.programs()]

    def _marked(self, node: int) -> list[int]:
        names = tuple(f"{name}=".encode() for name in (JOB_VARIABLE, GUARD_VARIABLE))
        found = []
        for each in self.processes():
            marks = [word for word in read_proc(each.pid, "environ").split(b"\0") if word.startswith(names)]
            if any(mark.endswith(b".node1") == bool(node) and not mark.endswith(b"=") for mark in marks):
                found.append(each.pid)
        return found


def read_proc(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _is_python(pid: int) -> bool:
    """srun's own command line names the program, too."""
    return b"python" in read_proc(pid, "cmdline").split(b"\0")[0]


@contextlib.contextmanager
def slurm_shop(workshop: Workshop, window_seconds: float, memory_mib: int | None = None) -> Iterator[SlurmShop]:
    """The shop with its Slurm. ``memory_mib`` is what control groups leave the job on each node."""
    folder = workshop.folder / "slurm"
    folder.mkdir()
    with slurm_cluster(folder, control_groups=memory_mib is not None) as cluster:
        shop = SlurmShop(workshop.folder / "gate")
        shop.cluster = cluster
        with shop:
            shop.configure(lambda config: two_nodes(config, window_seconds, memory_mib))
            yield shop


def two_nodes(config: dict[str, Any], window_seconds: float, memory_mib: int | None = None) -> None:
    if memory_mib is not None:
        config["clusters"] = {"test": {"options": [f"--mem={memory_mib}M"]}}
    config["matrix"]["cpu"][0] |= {"nodes": 2, "cards": 1}
    config["short"] = [CASE]
    config["budgets"] = {"retries": 0}
    config["protocols"]["cpu"]["window_steps"] = round(window_seconds / _STEP_SECONDS)
    config["limits"] = {**LIMITS, "start_up_seconds": 60, "no_progress_seconds": 10, "run_seconds": 300}
