"""Starts jobs on several cards with ``python -m torch.distributed.run`` (torchrun): NCCL on GPUs, gloo on CPU.

This was tried with PyTorch 2.13. On a single node the launcher picks a free port itself. Several nodes meet at the
job's own rendezvous, which node 0 serves, and keep their order. When one rank fails, the launcher ends the other ranks
of its node and restarts none, since a run that began twice is not a measurement.
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

# The module that redirects a rank's output to a file of its own and then becomes the trainer.
RANK_LOG = "helpers.trainers.common.rank_log"
_HOME = "127.0.0.1"


def torch_command(spec: JobSpec, interpreter: str, place: Place | None) -> LaunchCommand:
    ranks = spec.ranks_per_node
    folder = log_folder(spec, place)
    argv = (
        interpreter, "-u", "-m", "torch.distributed.run",
        "--nproc-per-node", str(ranks),
        *_where(place, spec.job_id),
        "--max-restarts", "0",
        # The seconds between two checks of the ranks; each check takes processor time during the measurement.
        "--monitor-interval", "1",
        # Otherwise it would leave a folder in /tmp at every start.
        "--log-dir", str(folder),
        "--no-python",
        interpreter, "-u", "-m", RANK_LOG, str(folder),
        *trainer_argv(spec, interpreter, place),
    )  # fmt: skip
    # On a single node no host name should be needed. Without ``lo``, gloo uses the interface to which the host's
    # name resolves.
    interface = "lo" if place is None and spec.device == "cpu" else None if place is None else place.interface
    return LaunchCommand(
        argv=argv,
        # The launcher warns if OMP_NUM_THREADS is not set. The trainer sets it to its number of cores.
        environment={**card_variables(spec), **interface_variables(interface), "OMP_NUM_THREADS": "1"},
        rank_logs=tuple(str(folder / f"rank{rank}.log") for rank in range(ranks)),
        rendezvous="" if place is None else place.master,
    )


def _where(place: Place | None, job_id: str) -> tuple[str, ...]:
    if place is None:
        return (
            "--nnodes", "1", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{_HOME}:0", "--rdzv-id", job_id,
            "--local-addr", _HOME,
        )  # fmt: skip
    host, _, port = place.master.rpartition(":")
    # The backend c10d would number the nodes in the order in which they connect.
    return (
        "--nnodes", str(place.nodes), "--node-rank", str(place.node), "--rdzv-backend", "static", "--rdzv-id", job_id,
        "--master-addr", host, "--master-port", port, "--local-addr", place.address,
    )  # fmt: skip
