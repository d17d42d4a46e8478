"""Starts jobs on several cards with ``python -m paddle.distributed.launch``: NCCL on GPUs, gloo on CPU.

This was tried with Paddle 3.3.1. The launcher picks free ports itself, gives each rank a session of its own, and ends
the other ranks of its node when one fails. For several nodes, one launcher runs on each node. They meet at
``--master``, which the launcher of node 0 serves because its ``--host`` is the same address.
"""

from __future__ import annotations

from helpers.launch.launchers.launcher import (
    LaunchCommand,
    Place,
    card_variables,
    interface_variables,
    log_folder,
    trainer_argv,
)
from helpers.trainers.contract.job import JobSpec


def paddle_command(spec: JobSpec, interpreter: str, place: Place | None) -> LaunchCommand:
    ranks = spec.ranks_per_node
    folder = log_folder(spec, place)
    kept = folder.relative_to(spec.run_folder)
    on_cpu = spec.device == "cpu"
    argv = (
        interpreter, "-u", "-m", "paddle.distributed.launch",
        "--nproc_per_node", str(ranks),
        "--devices", _cpu_devices(ranks) if on_cpu else ",".join(spec.cards),
        *_where(place),
        "--job_id", spec.job_id,
        "--log_dir", str(folder),
        # Otherwise nvidia-smi would run every 5 s during the measurement.
        "--enable_gpu_log", "0",
        # A "script" that does not end in .py is run as a command. So the trainer runs as a module, and its own
        # folder does not come first on sys.path.
        *trainer_argv(spec, interpreter, place),
    )  # fmt: skip
    variables = {"PADDLE_DISTRI_BACKEND": "gloo"} if on_cpu else {}
    if place is not None:
        variables.update(_node_variables(place))
    return LaunchCommand(
        argv=argv,
        environment={**card_variables(spec), **variables},
        rank_logs=tuple(str(folder / f"workerlog.{rank}") for rank in range(ranks)),
        discard=tuple(f"{kept}/{name}" for name in ("envlog.*", "backup_env.*.json", f"{spec.job_id}.*.log")),
        rendezvous="" if place is None else place.master,
    )


def _where(place: Place | None) -> tuple[str, ...]:
    if place is None:
        # Host names do not resolve on every machine, and a single machine does not need them.
        return ("--host", "127.0.0.1")
    return (
        "--nnodes", str(place.nodes), "--rank", str(place.node), "--master", place.master, "--host", place.address,
    )  # fmt: skip


def _node_variables(place: Place) -> dict[str, str]:
    # The launchers meet over HTTP, which the caller's proxy would redirect.
    variables = dict.fromkeys(("NO_PROXY", "no_proxy"), place.master.partition(":")[0])
    return {**variables, **interface_variables(place.interface)}


def _cpu_devices(ranks: int) -> str:
    """One empty name for each rank. Without them, and without a visible GPU, the launcher would assume one device for
    all ranks."""
    return "," * (ranks - 1)
