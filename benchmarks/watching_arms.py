"""The same trainer process under the suite's supervisor and without: images/s of each, in pairs."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from benchmarks.cores import last_core
from helpers.judging.rules import median_step
from helpers.launch.launchers import launcher_for
from helpers.launch.launchers.launcher import job_environment
from helpers.launch.outcome import OutcomeKind
from helpers.launch.steplog_reader import read_step_log
from helpers.launch.supervisor import JobLimits, run_job
from helpers.machine.devices import CpuCard
from helpers.machine.watch.meters import meter_for
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec

_WARMUP_STEPS = 3
_LIMITS = JobLimits(start_up_seconds=300, no_progress_seconds=200, run_seconds=1800, grace_seconds=5)

Arm = Callable[[JobSpec], None]


@dataclass(frozen=True)
class Arms:
    """One-card runs of ``case`` on one core, ``window_steps`` measured in each, by the median step."""

    case: Case
    folder: Path
    window_steps: int
    interpreter: str = sys.executable
    watched: Arm | None = None
    bare: Arm | None = None

    def pairs(self, number: int) -> list[tuple[float, float]]:
        """Images/s watched and unwatched, ``number`` times; the one that goes first changes. Raises LaunchError."""
        arms = (self.watched or self._watched, self.bare or self._bare)
        numbers, found = count(), []
        for pair in range(number):
            order = (0, 1) if pair % 2 == 0 else (1, 0)
            rates = {which: self._rate(arms[which], next(numbers)) for which in order}
            found.append((rates[0], rates[1]))
        return found

    def _rate(self, arm: Arm, number: int) -> float:
        spec = self._spec(number)
        arm(spec)
        return median_step([read_step_log(spec.step_log_path(0), spec.job_id)])

    def _spec(self, number: int) -> JobSpec:
        settings = settings_for(self.case, "cpu")
        return JobSpec(
            job_id=uuid.uuid4().hex,
            case=self.case,
            replicate=number,
            run_folder=str(self.folder / f"arm{number}"),
            device="cpu",
            warmup_steps=_WARMUP_STEPS,
            window_steps=self.window_steps,
            data_root=None,
            settings=settings,
            environment={str(name): str(value) for name, value in settings.get("environment", {}).items()},
            cores=((last_core(),),),
        )

    def _watched(self, spec: JobSpec) -> None:
        command = launcher_for(spec).command(spec, self.interpreter)
        outcome = run_job(spec, command, _LIMITS, meter_for([CpuCard(0, spec.cores[0])]), on_progress=lambda _: None)
        if outcome.kind is not OutcomeKind.COMPLETE:
            raise LaunchError("the watched trainer", got=outcome.reason, expected="a complete run")

    def _bare(self, spec: JobSpec) -> None:
        """Nobody looks at it until it ends."""
        command = launcher_for(spec).command(spec, self.interpreter)
        folder = Path(spec.run_folder)
        folder.mkdir(parents=True)
        spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
        with (folder / "output.log").open("wb") as output:
            done = subprocess.run(
                command.argv, env=job_environment(os.environ, spec, command, {}), cwd=folder, check=False,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip
        if done.returncode != 0:
            raise LaunchError("the bare trainer", got=f"exit code {done.returncode}", expected="a complete run")
