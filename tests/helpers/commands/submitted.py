"""A command that submits jobs to a real Slurm, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.faults.workshop import ROOT, Workshop
from tests.slurm_cluster import SlurmCluster


def words(workshop: Workshop, *command: str, submit: tuple[str, ...] = ()) -> list[str]:
    """The command line of ``perfgate submit`` without the Python; its places and the command's are the workshop's."""
    folder = workshop.folder
    config, runs = f"--config={folder / 'perf.yaml'}", f"--runs-dir={folder / 'runs'}"
    places = [config, f"--baselines={folder / 'baselines'}", runs]
    if command[0] == "pytest":
        places = [f"--perf-config={folder / 'perf.yaml'}", f"--baselines-dir={folder / 'baselines'}", runs]
    return ["submit", config, runs, *submit, "--", command[0], *places, *command[1:]]


class Submitted:
    """``perfgate submit`` or ``perfgate fleet`` in a process of its own."""

    def __init__(
        self, slurm: SlurmCluster, workshop: Workshop, argv: list[str], variables: dict[str, str] | None = None
    ) -> None:
        self.slurm = slurm
        self.workshop = workshop
        self._output = (workshop.folder / "submit.txt").open("w+")
        named = {name: slurm.variables[name] for name in ("PATH", "SLURM_CONF")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "helpers.commands", *argv],
            cwd=ROOT,
            env={**workshop.environment, **named, **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    @property
    def text(self) -> str:
        return (self.workshop.folder / "submit.txt").read_text(errors="replace")

    def steps(self) -> int:
        """Steps in the newest log of rank 0."""
        logs = sorted((self.workshop.folder / "runs").glob("*/*/r*/rank0.jsonl"), key=lambda path: path.stat().st_mtime)
        return max(0, len(logs[-1].read_text(errors="replace").splitlines()) - 1) if logs else 0

    def wait_for(self, what: Callable[[], Any], seconds: float = 90.0) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, f"{self.text}\n{self.slurm.logs()}"
            time.sleep(0.05)

    def ended(self, seconds: float = 120.0) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"{self.text}\n{self.slurm.logs()}") from None
        finally:
            self._output.close()

    def nothing_left(self) -> bool:
        """Whether neither Slurm nor this machine has anything of the job any more."""
        self.slurm.wait_until_idle(60.0)
        deadline = time.monotonic() + 10.0
        while self.workshop.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self.workshop.processes()
