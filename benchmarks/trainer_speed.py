"""Is the trainer's loop as fast as a bare one? ``python -m benchmarks.trainer_speed [--framework pytorch]``.

The trainer, recording everything, takes turns with a bare loop in another process (``benchmarks.bare_loop``: same
model, batch, precision, core and variables) and with the bare steps of its own process. Ratios are of images/s,
the trainer's over the bare loop's. Exit status 1 when the whole 95% interval of one lies below 0.99, or when the
recording takes more than 0.5% of the window.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.blocks import BARE, FOR, TRAIN, StepBlock
from benchmarks.cores import last_core
from benchmarks.lockstep import (
    NO_GPU,
    Arm,
    Blocks,
    PairedRatio,
    Seat,
    Turns,
    pair_ratio,
    ratio_of,
    take_turns,
    trainer_arm,
)
from benchmarks.suite_overhead import RECORDING_LIMIT, SHORTEST_STEP_SECONDS
from helpers.launch.launchers import CHOICES
from helpers.machine.environment import CPU
from helpers.plan.perf_yaml import load_config
from helpers.plan.recipes.common import read_processor
from helpers.plan.recipes.recipe import settings_for
from helpers.report.unforeseen import ended
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case, Precision
from helpers.trainers.contract.frameworks import Framework

CASES = {
    Framework.PADDLE: (
        "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic",
        "paddle-resnet50v1.5-amp_o1-bs4-1x1-synthetic-to_static",
    ),
    Framework.PYTORCH: (
        "pytorch-resnet50v1.5-fp32-bs4-1x1-synthetic",
        "pytorch-resnet50v1.5-bf16-bs4-1x1-synthetic",
    ),
    Framework.TENSORFLOW: (
        "tensorflow-resnet50v1.5-fp32-bs4-1x1-synthetic",
        "tensorflow-resnet50v1.5-bf16-bs4-1x1-synthetic",
    ),
    Framework.MXNET: (
        "mxnet-resnet50v1.5-fp32-bs4-1x1-synthetic",
        "mxnet-resnet50v1.5-amp-bs4-1x1-synthetic",
    ),
}
# Their trainers refuse bfloat16 without it.
NEEDS_AVX512 = (Framework.PADDLE, Framework.MXNET)

# The trainer fails if it is known to be below this share of the bare loop's speed.
SPEED_LIMIT = 0.99


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.splitlines()[0])
    names = [each.value for each in CASES]
    parser.add_argument("--framework", choices=names, default=names[0], help="Compare this framework's two cases")
    parser.add_argument("--pairs", type=int, default=4, help="Start N pairs of processes for each case")
    parser.add_argument("--rounds", type=int, default=4, help="Give each loop N turns of one step")
    arguments = parser.parse_args()
    has_avx512 = "avx512f" in read_processor().instructions
    complaints = []
    for case_id in CASES[Framework(arguments.framework)]:
        case = Case.parse(case_id)
        if case.framework in NEEDS_AVX512 and case.precision is not Precision.FP32 and not has_avx512:
            print(f"{case_id}: left out, since this CPU lacks AVX-512", flush=True)
            continue
        seat = Seat((last_core(),), interpreter_of(case.framework))
        lines, wrong = told(measure(case, arguments.pairs, Turns(arguments.rounds), seat))
        print(f"{case_id}: the trainer's images/s over the bare loop's")
        print("\n".join(f"  {line}" for line in lines), flush=True)
        complaints += [f"{case_id}: {line}" for line in wrong]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def interpreter_of(framework: Framework) -> str:
    """The Python that perf.yaml names, else this one."""
    return load_config(ROOT / "helpers/plan/defaults.yaml", CHOICES).frameworks[framework].interpreter or sys.executable


def measure(case: Case, pairs: int, turns: Turns, seat: Seat) -> list[Blocks]:
    """The blocks of the trainer, of its bare steps and of the bare loop, from ``pairs`` pairs of fresh processes.

    Raises LaunchError.
    """
    with tempfile.TemporaryDirectory() as folder:
        train = trainer_arm(case, Path(folder), seat)
        arms = (train, replace(train, name=FOR, loop=FOR), bare_arm(case, seat))
        return [take_turns(arms if number % 2 == 0 else arms[::-1], turns) for number in range(pairs)]


def bare_arm(case: Case, seat: Seat) -> Arm:
    """The bare loop over the batch and precision of one of CASES."""
    settings = settings_for(case, CPU)
    argv = [seat.interpreter, "-m", "benchmarks.bare_loop", case.framework.value]
    argv += ["--batch-size", str(case.batch_size_per_card), "--learning-rate", str(settings["learning_rate"])]
    argv += ["--cores", *map(str, seat.cores), *(["--bf16"] if settings["amp_dtype"] == "bfloat16" else [])]
    return Arm(BARE, tuple(argv), BARE, {**settings["environment"], **NO_GPU})


def speeds(sets: Sequence[Blocks]) -> dict[str, PairedRatio]:
    """The trainer's speed over the two bare loops', by both clocks."""
    return {
        "another process, wall clock": _speed(sets, BARE, cpu=False),
        "another process, time on the core": _speed(sets, BARE, cpu=True),
        "its own process, wall clock": _speed(sets, FOR, cpu=False),
        "its own process, time on the core": _speed(sets, FOR, cpu=True),
    }


def _speed(sets: Sequence[Blocks], other: str, *, cpu: bool) -> PairedRatio:
    def seconds(block: StepBlock) -> float:
        return block.step_cpu_seconds if cpu else block.step_seconds

    return ratio_of(
        pair_ratio([seconds(block) for block in blocks[other]], [seconds(block) for block in blocks[TRAIN]])
        for blocks in sets
    )


def told(sets: Sequence[Blocks]) -> tuple[list[str], list[str]]:
    """What was found, in lines, and what of it fails."""
    ratios = speeds(sets)
    lines = [f"{name}: {ratio}" for name, ratio in ratios.items()]
    wrong = [f"slower, {name}: {ratio}" for name, ratio in ratios.items() if ratio.lies_below(SPEED_LIMIT)]
    shares = [
        sum(block.recording_seconds for block in blocks[TRAIN]) / sum(block.seconds for block in blocks[TRAIN])
        for blocks in sets
    ]
    # The median over turns: where another process takes the core meanwhile, a step of 84 ms is soon filled.
    shortest = [
        statistics.median(block.recording_seconds / block.steps for block in blocks[TRAIN]) / SHORTEST_STEP_SECONDS
        for blocks in sets
    ]
    for name, values in (("the window", shares), ("the shortest published step", shortest)):
        lines.append(f"recording: {_share(values)} of {name}")
        if not statistics.median(values) <= RECORDING_LIMIT:
            wrong.append(f"recording takes {_share(values)} of {name}; at most {RECORDING_LIMIT:.1%} is accepted")
    return lines, wrong


def _share(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.4%} ({min(values):.4%} to {max(values):.4%}, n={len(values)})"


if __name__ == "__main__":
    sys.exit(ended(main, "trainer_speed"))
