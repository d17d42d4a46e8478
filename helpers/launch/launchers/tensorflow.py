"""Starts TensorFlow's jobs of several processes, on one or several nodes: one process for each card, or one for all
cards of a node.

TensorFlow has no launcher: tf.distribute reads the number of each process and the addresses of all from TF_CONFIG. The
suite's ``start_ranks`` finds the ports, connects the nodes if there are several, and starts the ranks.
"""

from __future__ import annotations

from pathlib import Path

from helpers.launch.launchers.launcher import (
    LOG_FOLDER,
    LaunchCommand,
    Place,
    card_variables,
    interface_variables,
    log_folder,
    trainer_argv,
)
from helpers.trainers.contract.job import JobSpec

START_RANKS = "helpers.trainers.common.start_ranks"


def tensorflow_command(spec: JobSpec, interpreter: str, place: Place | None) -> LaunchCommand:
    ranks = spec.ranks_per_node
    folder = log_folder(spec, place)
    return LaunchCommand(
        argv=(
            interpreter, "-u", "-m", START_RANKS,
            "--ranks", str(ranks),
            *_where(place, spec),
            "--logs", str(folder),
            "--", *trainer_argv(spec, interpreter, place),
        ),
        environment={**card_variables(spec), **interface_variables(None if place is None else place.interface)},
        rank_logs=tuple(str(folder / f"rank{rank}.log") for rank in range(ranks)),
    )  # fmt: skip


def _where(place: Place | None, spec: JobSpec) -> tuple[str, ...]:
    if place is None:
        # Host names do not resolve on every machine, and a single machine does not need them.
        return ("--address", "127.0.0.1")
    return (
        "--address", place.address, "--nodes", str(place.nodes), "--node", str(place.node),
        "--meet", str(Path(spec.run_folder) / LOG_FOLDER),
    )  # fmt: skip
