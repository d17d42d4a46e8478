"""Several cards of one machine with ``python -m paddle.distributed.launch``: NCCL on GPUs, gloo on CPU.

Tried with Paddle 3.3.1. The launcher picks free ports itself, gives each rank a session of its own, and
ends the others when one fails.
"""

from __future__ import annotations

from pathlib import Path

from helpers.job import JobSpec
from helpers.launch.launcher import LaunchCommand, card_variables, trainer_argv

LOG_FOLDER = "launch_logs"


class PaddleLauncher:
    def command(self, spec: JobSpec, interpreter: str) -> LaunchCommand:
        ranks = spec.case.cards_per_node
        folder = Path(spec.run_folder) / LOG_FOLDER
        on_cpu = spec.device == "cpu"
        argv = (
            interpreter, "-u", "-m", "paddle.distributed.launch",
            "--nproc_per_node", str(ranks),
            "--devices", _cpu_devices(ranks) if on_cpu else ",".join(spec.cards),
            # Names do not resolve on every machine, and one machine needs none.
            "--host", "127.0.0.1",
            "--job_id", spec.job_id,
            "--log_dir", str(folder),
            # Else nvidia-smi runs every 5 s beside what is measured.
            "--enable_gpu_log", "0",
            # A "script" that does not end in .py is run as it stands: so the trainer runs as a module,
            # and its own folder is not first on sys.path.
            *trainer_argv(spec, interpreter),
        )  # fmt: skip
        backend = {"PADDLE_DISTRI_BACKEND": "gloo"} if on_cpu else {}
        return LaunchCommand(
            argv=argv,
            environment={**card_variables(spec), **backend},
            rank_logs=tuple(str(folder / f"workerlog.{rank}") for rank in range(ranks)),
            discard=tuple(f"{LOG_FOLDER}/{name}" for name in ("envlog.*", "backup_env.*.json", f"{spec.job_id}.*.log")),
        )


def _cpu_devices(ranks: int) -> str:
    """One empty name a rank: with no GPU visible the launcher would otherwise find one device for all ranks."""
    return "," * (ranks - 1)
