"""Is the trainer's loop as fast as a bare one? ``python -m benchmarks.trainer_speed [--framework pytorch]``.

The trainer, recording everything, takes turns with a bare loop in another process (``helpers/trainers/*/bare_loop.py``:
same model, batch, precision, core and variables) and with the bare steps of its own process. Ratios are of images/s,
the trainer's over the bare loop's. Exit status 1 when the whole 95% interval of one lies below 0.99, or when the
recording takes more than 0.5% of the window.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence

from benchmarks.cores import last_core
from benchmarks.suite_overhead import RECORDING_LIMIT, SHORTEST_STEP_SECONDS
from helpers.launch.launchers import CHOICES
from helpers.plan.perf_yaml import load_config
from helpers.report.unforeseen import ended
from helpers.session.lockstep import SPEED_LIMIT, Blocks, Seat, Turns, measure_beside_bare_loop, speeds
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.blocks import TRAIN
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
    Framework.TENSORFLOW: (
        "tensorflow-resnet50v1.5-fp32-bs4-1x1-synthetic",
        "tensorflow-resnet50v1.5-bf16-bs4-1x1-synthetic",
    ),
    Framework.MXNET: (
        "mxnet-resnet50v1.5-fp32-bs4-1x1-synthetic",
        "mxnet-resnet50v1.5-amp-bs4-1x1-synthetic",
    ),
}


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
        lines, wrong = told(measure_beside_bare_loop(case, arguments.pairs, Turns(arguments.rounds), seat))
        print(f"{case_id}: the trainer's images/s over the bare loop's")
        print("\n".join(f"  {line}" for line in lines), flush=True)
        complaints += [f"{case_id}: {line}" for line in wrong]
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return 1 if complaints else 0


def interpreter_of(framework: Framework) -> str:
    """The Python that perf.yaml names, else this one."""
    return load_config(ROOT / "perf.yaml", CHOICES).frameworks[framework].interpreter or sys.executable


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
