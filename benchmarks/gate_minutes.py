"""Computes what a gate costs: minutes a case on an ordinary night, when it is recorded, and where it looks slower.

``python -m benchmarks.gate_minutes TARGET PATTERN...`` takes a run's length from the published figure of the case: its
protocol's steps, and the start-up that is assumed. With ``--runs FOLDER`` it is the median of the runs that a session
left there, with ``--run-seconds`` as given. No other run and no pause is counted.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from helpers.plan.case_plan import SuiteCase
from helpers.plan.matrix import TARGETS
from helpers.plan.recorded import LEAST_RUNS
from helpers.report.unforeseen import ended
from helpers.session import SuiteOptions
from helpers.session.suite import Suite
from helpers.trainers.contract import ROOT

# Above the runs that a case makes in any case; docs/accuracy.md, "How good it is": about 1.95 runs a case of one run.
MORE_RUNS = 0.95
# The pairs of a case that looks slower: mostly 2 to 6 settle it (perf.yaml, budgets.pairs).
PAIRS = 6


@dataclass(frozen=True)
class Cost:
    """A case's minutes; ``run_seconds`` is the length of one run."""

    case_id: str
    run_seconds: float
    planned_runs: int

    @property
    def recording(self) -> float:
        return self.run_seconds * max(self.planned_runs, LEAST_RUNS) / 60

    @property
    def ordinary(self) -> float:
        return self.run_seconds * (self.planned_runs + MORE_RUNS) / 60

    @property
    def slower(self) -> float:
        return self.run_seconds * (self.planned_runs + MORE_RUNS + 2 * PAIRS) / 60


def costs(
    cases: Iterable[SuiteCase],
    start_up_seconds: float,
    measured: Mapping[str, Sequence[float]],
    each_seconds: float | None = None,
) -> list[Cost]:
    """Raises ValueError for a case that has no measured runs (seconds, by case id) and no published figure, unless
    ``each_seconds`` says how long a run of any case takes."""
    found = []
    for each in cases:
        case, protocol = each.case, each.protocol
        if each_seconds is not None:
            run_seconds = each_seconds
        elif seconds := measured.get(case.id):
            run_seconds = statistics.median(seconds)
        elif each.figures:
            images = (protocol.warmup_steps + protocol.window_steps) * case.batch_size_per_card * case.cards
            run_seconds = start_up_seconds + images / min(figure.samples_per_s for figure in each.figures)
        else:
            raise ValueError(f"{case.id}: nothing is published of it, and --runs has no run of it")
        # A case with a published figure makes all runs of its protocol each night.
        found.append(Cost(case.id, run_seconds, protocol.runs if each.figures else 1))
    return found


def measured_runs(folder: Path) -> dict[str, list[float]]:
    """The seconds of a session's runs, by case id."""
    found: dict[str, list[float]] = {}
    for path in sorted(folder.glob("*/r*/result.json")):
        record = json.loads(path.read_text())
        found.setdefault(record["case_id"], []).append(float(record["wall_seconds"]))
    return found


def lines(found: Sequence[Cost]) -> list[str]:
    """The table, minutes rounded to tenths."""
    heading = f"{'case':58}{'s a run':>9}{'recording':>11}{'ordinary':>10}{'slower':>8}"
    rows = [
        f"{each.case_id:58}{each.run_seconds:9.0f}{each.recording:11.1f}{each.ordinary:10.1f}{each.slower:8.1f}"
        for each in found
    ]
    ordinary = sum(each.ordinary for each in found)
    worst = max(each.slower - each.ordinary for each in found)
    return [
        heading,
        *rows,
        f"minutes to record them: {sum(each.recording for each in found):.0f}; of an ordinary night: {ordinary:.0f}; "
        f"with one slower case: up to {ordinary + worst:.0f}",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, prog="python -m benchmarks.gate_minutes", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("patterns", nargs="+", metavar="PATTERN")
    parser.add_argument("--config", type=Path, default=ROOT / "helpers/plan/defaults.yaml")
    parser.add_argument("--start-up", type=float, default=60.0, metavar="SECONDS")
    parser.add_argument("--runs", type=Path, metavar="FOLDER", help="a session's folder")
    parser.add_argument("--run-seconds", type=float, metavar="SECONDS", help="of any case")
    given = parser.parse_args(arguments)
    suite = Suite.load(SuiteOptions(given.config, ROOT / "baselines", ROOT / "runs", "gate-minutes"))
    chosen = [
        each
        for each in suite.cases
        if each.target == given.target and any(fnmatchcase(each.case.id, pattern) for pattern in given.patterns)
    ]
    if not chosen:
        parser.error("no case matches")
    try:
        measured = measured_runs(given.runs) if given.runs else {}
        print(*lines(costs(chosen, given.start_up, measured, given.run_seconds)), sep="\n")
    except ValueError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(ended(main, "gate_minutes"))
