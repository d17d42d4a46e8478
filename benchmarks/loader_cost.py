"""What the loader costs: ``python -m benchmarks.loader_cost``.

The same case with synthetic data, through DALI and through Paddle's own loader, in processes that take
turns on one core. A process whose turn it is not is stopped, its loader's threads and workers too, so
that no image is decoded in another's turn. The images differ too, not only the way they come; so the share
of a step that waits for data stands beside the ratio.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.cores import last_core
from helpers.report.unforeseen import ended
from helpers.session.lockstep import Seat, Turns, pair_ratio, ratio_of, take_turns, trainer_arm
from helpers.trainers.contract.blocks import StepBlock
from helpers.trainers.contract.case import Case, DataSource

CASE = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"
LOADERS = (DataSource.DALI, DataSource.NATIVE)
# The batches that a loader had ready before the first turn are used up by then.
WARMUP_STEPS = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", default=CASE, help="Vary the data of this one-card CPU case")
    parser.add_argument("--pairs", type=int, default=3, help="Start N sets of processes")
    parser.add_argument("--rounds", type=int, default=2, help="Give each process N turns")
    parser.add_argument("--steps", type=int, default=3, help="Train N steps a turn")
    arguments = parser.parse_args()
    turns = Turns(arguments.rounds, arguments.steps, WARMUP_STEPS)
    case = replace(Case.parse(arguments.case), data=DataSource.SYNTHETIC)
    with tempfile.TemporaryDirectory() as folder:
        arms = [
            trainer_arm(data.value, replace(case, data=data), Path(folder), Seat((last_core(),)))
            for data in (DataSource.SYNTHETIC, *LOADERS)
        ]
        sets = [take_turns(arms if number % 2 == 0 else arms[::-1], turns) for number in range(arguments.pairs)]
    print(f"{case.id}: images/s with a loader over those with synthetic data, by the wall clock")
    for data in LOADERS:
        print(f"  {told(sets, data.value)}")
    return 0


def told(sets: Sequence[Mapping[str, Sequence[StepBlock]]], loader: str) -> str:
    """One line on a loader: its ratio, and the share of a step that waits for it."""
    ratio = ratio_of(
        pair_ratio(
            [block.step_seconds for block in blocks[DataSource.SYNTHETIC.value]],
            [block.step_seconds for block in blocks[loader]],
        )
        for blocks in sets
    )
    shares = [
        sum(block.reader_seconds for block in blocks[loader]) / sum(block.seconds for block in blocks[loader])
        for blocks in sets
    ]
    return (
        f"{loader}: {ratio}; waiting for data {statistics.median(shares):.2%} "
        f"({min(shares):.2%} to {max(shares):.2%}) of a step"
    )


if __name__ == "__main__":
    sys.exit(ended(main, "loader_cost"))
