"""A suite in its own process, to be killed: ``lone_suite.py FOLDER JOB_ID VARIABLE BEHAVIOUR ... [grace=SECONDS]``.

Runs one job of the stand-ins (stand_in.py) and prints ``LOOK STEP`` at every look and, at the end, the outcome.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from helpers.launch.launchers.launcher import LaunchCommand
from helpers.launch.supervisor import JobLimits, run_job
from helpers.launch.tail import Progress
from helpers.machine.watch.contention import CpuMeter
from helpers.machine.watch.processes import Processes
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec

LIMITS = JobLimits(
    start_up_seconds=30.0, no_progress_seconds=30.0, run_seconds=60.0, rank_death_seconds=0.3, grace_seconds=1.0,
    poll_seconds=0.02, survey_seconds=0.2,
)  # fmt: skip


def main(folder: str, job_id: str, variable: str, *behaviours: str) -> None:
    cards = sum("=" not in word for word in behaviours)
    case = Case.parse(f"paddle-resnet50v1.5-fp32-bs8-1x{cards}-synthetic-dynamic")
    spec = JobSpec(job_id, case, 0, folder, "cpu", warmup_steps=2, window_steps=5)
    limits = LIMITS
    if behaviours[-1].startswith("grace="):
        limits = replace(LIMITS, grace_seconds=float(behaviours[-1].removeprefix("grace=")))
        behaviours = behaviours[:-1]
    words = [word if "=" in word else f"{rank}={word}" for rank, word in enumerate(behaviours)]
    argv = (sys.executable, str(Path(__file__).with_name("stand_in.py")), str(spec.spec_path), *words)

    def tell(progress: Progress) -> None:
        print(f"LOOK {progress.step}", flush=True)

    outcome = run_job(
        spec,
        LaunchCommand(argv),
        limits,
        CpuMeter(()),
        on_progress=tell,
        processes=Processes(supervisor_variable=variable),
    )
    print(outcome.kind.value, outcome.reason, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
