"""Is the static trainer as fast as PaddleClas's own? ``python -m benchmarks.paddleclas FOLDER --interpreter PYTHON``.

FOLDER is a copy of PaddleClas, PYTHON an interpreter with Paddle 2.6 and what PaddleClas needs; nothing is fetched.
The suite's trainer takes turns with ``ppcls/static/train.py`` in another process: same case, images, cores and
variables, both recording and printing as they do. Ratios are of images/s, the trainer's over PaddleClas's. Exit status
1 when the whole 95% interval lies below 1.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from helpers.plan.recipes.recipe import settings_for
from helpers.plan.small_dataset import make_small_dataset
from helpers.report.unforeseen import ended
from helpers.session.lockstep import Arm, PairedRatio, Seat, Turns, pair_ratio, ratio_of, take_turns, trainer_arm
from helpers.session.suite import SMALL_DATASET
from helpers.trainers.contract.blocks import BARE, TRAIN, StepBlock
from helpers.trainers.contract.case import Case, DataSource, Execution
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.models import Model

CASE = "paddle-resnet50v1.5-fp32-bs8-1x1-native-static"
TRAIN_PROGRAM = Path("ppcls/static/train.py")
# The batches that a loader had ready before the first turn are used up by then.
WARMUP_STEPS = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="Compare with this copy of PaddleClas")
    parser.add_argument("--interpreter", default=sys.executable, metavar="PYTHON", help="Train both with this one")
    parser.add_argument("--case", default=CASE, help="Compare this one-card CPU case; static, native images")
    parser.add_argument("--cores", type=int, default=2, help="Give both N cores, the last ones")
    parser.add_argument("--pairs", type=int, default=4, help="Start N pairs of processes")
    parser.add_argument("--rounds", type=int, default=8, help="Give each N turns")
    parser.add_argument("--steps", type=int, default=1, help="Train N steps a turn")
    arguments = parser.parse_args()
    case, turns = Case.parse(arguments.case), Turns(arguments.rounds, arguments.steps, WARMUP_STEPS)
    cores = tuple(sorted(os.sched_getaffinity(0))[-arguments.cores :])
    seat = Seat(cores, interpreter=arguments.interpreter)
    sets = measure(case, arguments.folder.resolve(), arguments.pairs, turns, seat)
    print("\n".join(told(case, sets)))
    return 1 if speed(sets).lies_below(1.0) else 0


def measure(case: Case, folder: Path, pairs: int, turns: Turns, seat: Seat) -> list[Mapping[str, Sequence[StepBlock]]]:
    """The blocks of both, from ``pairs`` pairs of fresh processes. Raises LaunchError, and ConfigError for a case or a
    folder that is none of PaddleClas's."""
    with tempfile.TemporaryDirectory() as jobs:
        arms = (trainer_arm(TRAIN, case, Path(jobs), seat), paddleclas_arm(case, folder, seat))
        return [take_turns(arms if number % 2 == 0 else arms[::-1], turns) for number in range(pairs)]


def paddleclas_arm(case: Case, folder: Path, seat: Seat) -> Arm:
    """PaddleClas's static training of the same case, in the same place."""
    if (case.framework, case.model, case.execution, case.data) != (
        Framework.PADDLE,
        Model.RESNET50,
        Execution.STATIC,
        DataSource.NATIVE,
    ):
        raise ConfigError(f"case {case.id}", got="another training", expected="Paddle, ResNet50, static, native images")
    if not (folder / TRAIN_PROGRAM).is_file():
        raise ConfigError(str(folder), got=f"no {TRAIN_PROGRAM}", expected="a copy of PaddleClas")
    settings = settings_for(case, seat.device)
    argv = (
        seat.interpreter, "-m", "benchmarks.paddleclas_worker", str(folder),
        "--data", str(make_small_dataset(SMALL_DATASET).root),
        "--batch-size", str(case.batch_size_per_card),
        "--learning-rate", str(settings["learning_rate"]),
        "--cores", *map(str, seat.cores),
    )  # fmt: skip
    return Arm(BARE, argv, BARE, {**settings["environment"], **seat.variables})


def speed(sets: Sequence[Mapping[str, Sequence[StepBlock]]], *, cpu: bool = False) -> PairedRatio:
    """The trainer's images/s over PaddleClas's, by the wall clock or by the time on the cores, the loaders' processes
    included: one observation a pair of processes."""

    def seconds(block: StepBlock) -> float:
        return block.cpu_seconds if cpu else block.seconds

    return ratio_of(
        pair_ratio([seconds(block) for block in blocks[BARE]], [seconds(block) for block in blocks[TRAIN]])
        for blocks in sets
    )


def told(case: Case, sets: Sequence[Mapping[str, Sequence[StepBlock]]]) -> list[str]:
    """What was found, in lines."""
    rounds = [
        bare.seconds / train.seconds for blocks in sets for bare, train in zip(blocks[BARE], blocks[TRAIN], strict=True)
    ]
    lines = [
        f"{case.id}: the trainer's images/s over those of {TRAIN_PROGRAM}",
        f"  by the wall clock: {speed(sets)}; median of {len(rounds)} turns {statistics.median(rounds):.4f}",
        f"  by the time on the cores: {speed(sets, cpu=True)}",
    ]
    for name, title in ((TRAIN, "the trainer"), (BARE, "PaddleClas")):
        every = [block for blocks in sets for block in blocks[name]]
        rate = case.batch_size_per_card / statistics.median(block.step_seconds for block in every)
        own = statistics.median(block.step_cpu_seconds for block in every)
        waited = statistics.median(block.reader_seconds / block.seconds for block in every)
        lines.append(f"  {title}: {rate:.2f} images/s, {own:.3f} s on the cores a step, {waited:.2%} waiting for data")
    return lines


if __name__ == "__main__":
    sys.exit(ended(main, "paddleclas"))
