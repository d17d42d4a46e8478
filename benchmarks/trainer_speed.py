"""Is the trainer's loop as fast as a bare one? ``python -m benchmarks.trainer_speed [--framework pytorch]``.

The trainer, recording everything, takes turns with a bare loop in another process (``bare_paddle_loop``,
``bare_pytorch_loop``: same model, batch, precision, core and variables) and with the bare steps of its own process.
Ratios are of images/s, the trainer's over the bare loop's. Exit status 1 when the whole 95% interval of one lies below
0.99, or when the recording takes more than 0.5% of the window.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.arms import Seat, bare_arm, interpreter_of, last_core, trainer_arm
from benchmarks.blocks import BARE, FOR, TRAIN, Block
from benchmarks.lockstep import Plan, take_turns
from benchmarks.paired import Ratio, pair_ratio, ratio_of
from benchmarks.suite_overhead import RECORDING_LIMIT, SHORTEST_STEP_SECONDS
from helpers.plan.recipes.recipe import settings_for
from helpers.report.unforeseen import ended
from helpers.trainers.contract.case import Case
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
}
# The share of the bare loop's speed that the trainer must not be known to miss.
SPEED_LIMIT = 0.99
OTHER_PROCESS = "another process, wall clock"

Sets = Sequence[Mapping[str, Sequence[Block]]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [each.value for each in CASES]
    parser.add_argument("--framework", choices=names, default=names[0], help="Compare this framework's two cases")
    parser.add_argument("--case", nargs="*", metavar="ID", help="Compare these one-card CPU cases instead")
    parser.add_argument("--pairs", type=int, default=4, help="Start N pairs of processes for each case")
    parser.add_argument("--rounds", type=int, default=4, help="Give each loop N turns of one step")
    arguments = parser.parse_args()
    complaints = []
    for case_id in arguments.case or CASES[Framework(arguments.framework)]:
        case = Case.parse(case_id)
        seat = Seat((last_core(),), interpreter=interpreter_of(case.framework))
        lines, wrong = told(measure(case, arguments.pairs, Plan(arguments.rounds), seat))
        print(f"{case_id}: the trainer's images/s over the bare loop's")
        print("\n".join(f"  {line}" for line in lines), flush=True)
        complaints += [f"{case_id}: {line}" for line in wrong]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def measure(case: Case, pairs: int, plan: Plan, seat: Seat) -> list[Mapping[str, Sequence[Block]]]:
    """The blocks of the three loops, from ``pairs`` pairs of fresh processes. Raises LaunchError."""
    with tempfile.TemporaryDirectory() as folder:
        train = trainer_arm(TRAIN, case, Path(folder), seat)
        bare = bare_arm(BARE, case, seat, settings_for(case, seat.device))
        arms = (train, replace(train, name=FOR, loop=FOR), bare)
        return [take_turns(arms if number % 2 == 0 else arms[::-1], plan) for number in range(pairs)]


def told(sets: Sets) -> tuple[list[str], list[str]]:
    """What was found, in lines, and what of it fails."""
    ratios = speeds(sets)
    lines = [f"{name}: {ratio}" for name, ratio in ratios.items()]
    wrong = [f"slower, {name}: {ratio}" for name, ratio in ratios.items() if ratio.lies_below(SPEED_LIMIT)]
    shares = [_recording_seconds(blocks) / sum(block.seconds for block in blocks[TRAIN]) for blocks in sets]
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


def speeds(sets: Sets) -> dict[str, Ratio]:
    """The trainer's speed over the two bare loops', by both clocks."""
    return {
        OTHER_PROCESS: _speed(sets, BARE, cpu=False),
        "another process, time on the core": _speed(sets, BARE, cpu=True),
        "its own process, wall clock": _speed(sets, FOR, cpu=False),
        "its own process, time on the core": _speed(sets, FOR, cpu=True),
    }


def _speed(sets: Sets, other: str, *, cpu: bool) -> Ratio:
    def seconds(block: Block) -> float:
        return block.step_cpu_seconds if cpu else block.step_seconds

    return ratio_of(
        pair_ratio([seconds(block) for block in blocks[other]], [seconds(block) for block in blocks[TRAIN]])
        for blocks in sets
    )


def _recording_seconds(blocks: Mapping[str, Sequence[Block]]) -> float:
    return sum(block.recording_seconds for block in blocks[TRAIN])


def _share(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.4%} ({min(values):.4%} to {max(values):.4%}, n={len(values)})"


if __name__ == "__main__":
    sys.exit(ended(main, "trainer_speed"))
