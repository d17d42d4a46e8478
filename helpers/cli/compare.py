"""``perfgate compare A B``: is B slower than A, by what history keeps of both?"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from helpers.case import Case
from helpers.cli.loading import add_history, history_of, load_suite, width_of, write_answer
from helpers.cli.selecting import Selection, Selector, baseline_runs, select
from helpers.compare import Comparison, compare
from helpers.compare_sides import Pairing, pair_up, runs_of_nights, side_of
from helpers.errors import ConfigError
from helpers.judging.noise import Noise, learn
from helpers.policy import EXIT_NOT_JUDGED, EXIT_OK, EXIT_SLOWER
from helpers.report.compare_text import comparison_record, render_comparisons
from helpers.rules import MEDIAN_STEP
from helpers.suite import Suite
from helpers.verdict import Reason, Status

if TYPE_CHECKING:
    from helpers.history import History

NAME = "compare"
HELP = "Hold a commit, date, build or session against another, or against the recorded baseline; fail on a regression"

# 1: first format.
COMPARE_SCHEMA_VERSION = 1

_OPEN = (Status.INCONCLUSIVE, Status.INCOMPARABLE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "commit (4 or more digits), YYYY-MM-DD, FIRST..LAST, build version or session"
    parser.add_argument("a", metavar="A", help=f"Compare with this {what}, or 'baseline'")
    parser.add_argument(
        "b", metavar="B", help="Judge this one, given alike. commit:, date:, build: and session: before it say which"
    )
    parser.add_argument("--case", default="*", metavar="PATTERN", help="Compare the cases with such ids. Default: all")
    parser.add_argument("--gate", action="store_true", help="Fail on what stays open too")
    parser.add_argument("--allow-contention", action="store_true", help="Compare disturbed runs too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the comparisons to FILE too")
    add_history(parser)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print the comparisons; 1 with a regression, 6 where nothing could be compared or, as a gate, something is open.

    Raises ConfigError on selectors that mean the same runs, HistoryError on one that matches nothing.
    """
    suite = load_suite(arguments)
    a, b = Selector.parse(arguments.a), Selector.parse(arguments.b)
    with history_of(arguments) as history:
        chosen = _sides(suite, history, (a, b), arguments.case, arguments.allow_contention)
        found = _compared(suite, history, *chosen)
    about = [
        f"{name}: {given}, {_counted(side)}{''.join(f'; {each}' for each in side.left_out)}"
        for name, given, side in zip("AB", (arguments.a, arguments.b), chosen, strict=True)
    ]
    print(render_comparisons(found, about, width_of(out)), file=out)
    if arguments.json is not None:
        record = {
            "schema_version": COMPARE_SCHEMA_VERSION,
            "a": arguments.a,
            "b": arguments.b,
            "about": about,
            "cases": [comparison_record(each) for each in found],
        }
        text = json.dumps(record, indent=1, sort_keys=True, allow_nan=False) + "\n"
        write_answer("--json", arguments.json, text)
    return exit_status(found, arguments.gate)


def _counted(side: Selection) -> str:
    runs, sessions = len(side.runs), len({run.session for run in side.runs})
    if side.selector.is_baseline:
        cases = len({run.key for run in side.runs})
        return f"recorded here for {cases} of the cases" if cases else "nothing recorded here of these cases"
    return f"{runs} run{'' if runs == 1 else 's'} in {sessions} session{'' if sessions == 1 else 's'}"


def exit_status(found: Sequence[Comparison], gate: bool) -> int:
    if any(each.status is Status.REGRESSION for each in found):
        return EXIT_SLOWER
    if not any(each.basis for each in found) or (gate and any(each.status in _OPEN for each in found)):
        return EXIT_NOT_JUDGED
    return EXIT_OK


def _sides(
    suite: Suite, history: History, given: tuple[Selector, Selector], pattern: str, allow_marked: bool
) -> tuple[Selection, Selection]:
    a, b = given
    if a.is_baseline and b.is_baseline:
        raise ConfigError("what to compare", got="baseline twice", expected="nights on one side")
    found = [
        Selection(each) if each.is_baseline else select(history, each, other, pattern, allow_marked=allow_marked)
        for each, other in ((a, b), (b, a))
    ]
    keys = {run.key for side in found for run in side.runs}
    left, right = (
        baseline_runs(sorted(keys), suite.recorded_entry) if side.selector.is_baseline else side for side in found
    )
    if both := {run.uuid for run in left.runs} & {run.uuid for run in right.runs}:
        raise ConfigError(
            "what to compare",
            got=f"{len(both)} runs that are on both sides",
            expected="A and B that share no run",
            remedy="Narrow one of them to its dates or its session",
        )
    return left, right


def _compared(suite: Suite, history: History, a: Selection, b: Selection) -> tuple[Comparison, ...]:
    refused = {**a.refused, **b.refused}
    pairings = pair_up(a.runs, b.runs)
    by_pairs = sum(bool(each.differences) for each in pairings if each.key not in refused)
    by_nights = sum(each.is_compared for each in pairings if each.key not in refused) - by_pairs
    found = []
    for each in pairings:
        tolerance = suite.config.tolerances.recorded_for(each.case_id)
        if each.key in refused:
            reason = Reason("no-usable-baseline", refused[each.key])
            sides = side_of(each.a), side_of(each.b)
            found.append(Comparison(*each.key[::-1], Status.INCOMPARABLE, reason, *sides, MEDIAN_STEP, tolerance))
            continue
        cases = max(1, by_pairs if each.differences else by_nights)
        found.append(compare(each, _noise(history, each), tolerance=tolerance, rule=MEDIAN_STEP, cases=cases))
    return tuple(found)


def _noise(history: History, pairing: Pairing) -> Noise:
    """The case's noise in the segment of the comparison: from all its accepted nights, else from A's own."""
    runs = pairing.a or pairing.b
    cards = Case.parse(pairing.case_id).cards
    past = history.past(pairing.case_id, pairing.target, runs[-1].segment, cards, session="")
    nights: Iterable[Sequence[float]] = [night.log_rates for night in past.nights if night.accepted and night.log_rates]
    return learn(tuple(nights) or runs_of_nights(runs), past.siblings)
