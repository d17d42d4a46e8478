"""``perfgate compare A B``: says whether B is slower than A, by the runs of both in the history."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from helpers.commands.loading import add_history, add_json, history_of, load_suite, print_answer, width_of
from helpers.commands.selection import Selection, Selector, baseline_runs, select
from helpers.common.words import counted
from helpers.judging.case.compare import CaseComparison, compare
from helpers.judging.case.compare_sides import Pairing, Side, pair_up, runs_of_nights, side_of
from helpers.judging.case.noise import Noise, learn
from helpers.judging.case.verdict import Reason, Standing, Status
from helpers.judging.finding import Finding
from helpers.judging.rules.own import MEDIAN_STEP, WALL_CLOCK
from helpers.judging.rules.rates import rate_unit, to_record
from helpers.judging.statistics import number
from helpers.logs.record import HONEST
from helpers.report.reasons import evidence_text, reason_text
from helpers.report.table import Align, Column, Table
from helpers.report.text import hanging
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK, EXIT_SLOWER
from helpers.session.suite import Suite
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError, printable

if TYPE_CHECKING:
    from helpers.history.history import History
    from helpers.history.stored import StoredNight
    from helpers.judging.case.level import Level

NAME = "compare"
HELP = "Compare a commit, date, build or session with another or with the recorded baseline; fail on what is slower"
EXITS = {
    0: "nothing is slower",
    1: "a case is REGRESSION or SLOWER",
    6: "no case could be compared; with --gate: a case is left undecided",
}

# 1: first format.
COMPARE_SCHEMA_VERSION = 1

_GREEN = (Status.PASS, Status.IMPROVEMENT)
# Statuses of a night that do not answer whether the case is slower than its recorded figure.
_NO_ANSWER = (Status.NO_BASELINE, Status.BELOW_PUBLISHED, Status.NOT_RUN)

_INDENT = "    "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = "commit (4 or more digits), YYYY-MM-DD, FIRST..LAST, build version, session or log:FILE"
    parser.add_argument("a", metavar="A", help=f"Compare with this {what}, or 'baseline'")
    parser.add_argument(
        "b",
        metavar="B",
        help="Judge this one, given like A. A prefix says which is meant: commit:, date:, build:, session:, log:",
    )
    parser.add_argument("--case", default="*", metavar="CASE", help="Compare the cases whose ids match. Default: all")
    parser.add_argument("--gate", action="store_true", help="Fail also on what is neither PASS nor IMPROVEMENT")
    parser.add_argument(
        "--allow-contention", action="store_true", help="Compare also runs that other processes disturbed"
    )
    add_json(parser)
    add_history(parser)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print the comparisons. Exit status 1 if a case is REGRESSION or SLOWER; 6 if no case could be compared or, with
    ``--gate``, a case is left undecided.

    Raises ConfigError if A and B are the same runs, and HistoryError if one of them matches nothing.
    """
    suite = load_suite(arguments)
    a, b = Selector.parse(arguments.a), Selector.parse(arguments.b)
    with history_of(arguments) as history:
        rule, why, chosen = _sides(suite, history, (a, b), arguments.case, arguments.allow_contention)
        found = _compared(suite, history, *chosen, rule)
    about = [
        f"{name}: {given}, {_counted(side)}{''.join(f'; {each}' for each in side.left_out)}"
        for name, given, side in zip("AB", (arguments.a, arguments.b), chosen, strict=True)
    ]
    if a.is_of_logs or b.is_of_logs:
        about.append(f"compared by {rule}{why}")
    record = comparison_record(arguments.a, arguments.b, about, found)
    print_answer(arguments, out, render_comparisons(found, about, width_of(out)), record)
    return exit_status(found, arguments.gate)


def _counted(side: Selection) -> str:
    runs, sessions = len(side.runs), len({run.session for run in side.runs})
    if side.selector.is_baseline:
        cases = len({run.key for run in side.runs})
        return f"recorded here for {cases} of the cases" if cases else "nothing recorded here of these cases"
    return f"{counted(runs, 'run')} in {counted(sessions, 'session')}"


def exit_status(found: Sequence[CaseComparison], gate: bool) -> int:
    if any(each.status in (Status.REGRESSION, Status.SLOWER) for each in found):
        return EXIT_SLOWER
    if not any(each.basis for each in found) or (gate and any(each.status not in _GREEN for each in found)):
        return EXIT_NOT_JUDGED
    return EXIT_OK


def _sides(
    suite: Suite, history: History, given: tuple[Selector, Selector], pattern: str, allow_marked: bool
) -> tuple[str, str, tuple[Selection, Selection]]:
    """The rule of the comparison, why it is not the usual one, and the sides. It is the median step, or samples /
    seconds if a log has no median step. The baseline is recorded by the median step alone."""
    a, b = given
    if a.is_baseline and b.is_baseline:
        raise ConfigError("what to compare", got="baseline twice", expected="nights on one side")

    def found_by(rule: str) -> list[Selection]:
        return [
            Selection(each)
            if each.is_baseline
            else select(history, each, other, pattern, allow_marked=allow_marked, rule=rule)
            for each, other in ((a, b), (b, a))
        ]

    rule, why, found = MEDIAN_STEP, "", found_by(MEDIAN_STEP)
    lacks = next((each.lacks for each in found if each.lacks), "")
    if lacks and not (a.is_baseline or b.is_baseline):
        rule, why, found = HONEST, f" (of a session's runs: {WALL_CLOCK}); {lacks}", found_by(HONEST)
    runs = [run for side in found for run in side.runs]
    left, right = (baseline_runs(runs, suite.recorded_entry) if side.selector.is_baseline else side for side in found)
    left, right = left.beside(right), right.beside(left)
    if both := {run.uuid for run in left.runs} & {run.uuid for run in right.runs}:
        raise ConfigError(
            "what to compare",
            got=f"{len(both)} runs that are on both sides",
            expected="A and B that share no run",
            remedy="Narrow one of them to its dates or its session",
        )
    return rule, why, (left, right)


def _compared(suite: Suite, history: History, a: Selection, b: Selection, rule: str) -> tuple[CaseComparison, ...]:
    refused = {**a.refused, **b.refused}
    pairings = pair_up(a.runs, b.runs)
    by_pairs = sum(bool(each.pairs) for each in pairings)
    by_nights = sum(each.is_compared for each in pairings if each.key not in refused) - by_pairs
    found = []
    for each in pairings:
        tolerance = suite.config.tolerances.of(each.case_id).recorded
        nights = _nights(history, each) if a.selector.is_baseline or each.is_beside_good else ()
        if (decided := _decided(suite, history, each, nights)) is not None:
            found.append(decided)
            continue
        if each.key in refused:
            reason = Reason("no-usable-baseline", refused[each.key])
            sides = side_of(each.a), side_of(each.b)
            found.append(CaseComparison(*each.key[::-1], Status.INCOMPARABLE, reason, *sides, MEDIAN_STEP, tolerance))
            continue
        cases = max(1, by_pairs if each.pairs else by_nights)
        band = suite.config.tolerances.of(each.case_id).unconfirmed
        noise = _noise(history, each, rule)
        level = _level(nights) if each.is_beside_good else None
        found.append(compare(each, noise, tolerance=tolerance, band=band, rule=rule, cases=cases, level=level))
    return tuple(found)


def _nights(history: History, pairing: Pairing) -> tuple[StoredNight, ...]:
    """The nights of B's sessions, oldest first; empty if one of them is not kept."""
    if pairing.is_with_logs:
        return ()
    found = [
        night
        for session in pairing.sessions
        for night in history.nights_of(f"session:{session}", pairing.case_id)
        if night.record.target == pairing.target
    ]
    return tuple(found) if len(found) == len(pairing.sessions) else ()


def _decided(suite: Suite, history: History, pairing: Pairing, nights: Sequence[StoredNight]) -> CaseComparison | None:
    """The verdict of the one night that B is, if that night compared the case with A and nothing of it was excluded
    since; else None."""
    if len(nights) != 1:
        return None
    record, standing = nights[0].record, nights[0].record.standing
    entry = None if pairing.is_beside_good else suite.recorded_entry(pairing.target, pairing.case_id)
    is_of_other = not _by_pairs(standing) if entry is None else entry.provenance.begins > record.created
    runs = history.results_of(session=record.session, case_id=pairing.case_id, target=pairing.target)
    status = Status(record.status)
    # A calibration, for one, is green and has compared nothing.
    compared_nothing = standing is None and status in _GREEN
    if is_of_other or compared_nothing or status in _NO_ANSWER or any(each.exclusion is not None for each in runs):
        return None
    tolerance = _tolerance(record.findings)
    if tolerance is None and entry is not None:
        tolerance = entry.tolerance
    return CaseComparison(
        pairing.case_id,
        pairing.target,
        status,
        Reason(record.code, record.reason, record.findings),
        side_of(pairing.a),
        side_of(pairing.b),
        MEDIAN_STEP if entry is None else entry.rule,
        suite.config.tolerances.of(pairing.case_id).recorded if tolerance is None else tolerance,
    ).of_standing(standing)


def _tolerance(findings: Iterable[Finding]) -> float | None:
    """The tolerance by which a night judged, if its reason states it."""
    for each in findings:
        if isinstance(stated := each.figures.get("tolerance"), float):
            return stated
        if (stated := _tolerance(each.details)) is not None:
            return stated
    return None


def _by_pairs(standing: Standing | None) -> bool:
    """Whether a night decided by pairs. A search for a bad build, for one, makes pairs and compares them with no
    earlier night."""
    return standing is not None and standing.pairs is not None


def _level(nights: Sequence[StoredNight]) -> Level | None:
    """The level of the nights before the first of B's against A, if all of B's compared pairs with it; else None, and A
    itself counts."""
    first = nights[0].record.standing if nights else None
    if first is None or first.pairs is None or not all(_by_pairs(each.record.standing) for each in nights):
        return None
    # Imported here because it loads numpy, which takes longer than most commands take to answer.
    from helpers.judging.case.level import Level

    known = first.pairs.level is not None
    return Level(known, first.pairs.level or 0.0, first.pairs.level_error or 0.0)


def _noise(history: History, pairing: Pairing, rule: str) -> Noise:
    """The case's noise in the segment of the comparison: from all its accepted nights, else from those of A, or of B
    if A was the reference build beside it or is of logs, which are of no segment.

    The nights are judged by the median step, so by another rule the noise is that of the runs themselves."""
    runs = pairing.b if pairing.is_beside_good or not pairing.a or pairing.a[-1].is_log else pairing.a
    if not runs or runs[-1].is_log:
        return learn(runs_of_nights(pairing.a or pairing.b))
    if rule != MEDIAN_STEP:
        return learn(runs_of_nights(runs))
    cards = Case.parse(pairing.case_id).cards
    past = history.past(pairing.case_id, pairing.target, runs[-1].segment, cards, session="")
    nights: Iterable[Sequence[float]] = [night.log_rates for night in past.nights if night.accepted and night.log_rates]
    return learn(tuple(nights) or runs_of_nights(runs), past.siblings)


def render_comparisons(found: Sequence[CaseComparison], about: Sequence[str], width: int) -> str:
    """The comparisons as text; ``about`` are lines on A and B and on what was left out."""
    grid = Table.of(_columns(found), found).grid(_INDENT)
    lines = [line for text in about for line in hanging(text, width, "", _INDENT)]
    lines += ["", "case", grid.heading, "-" * width]
    for each, line in zip(found, grid.lines, strict=True):
        lines += [printable(f"{each.case_id} [{each.target}]"), line]
        lines += hanging(reason_text(each.reason), width, _INDENT, _INDENT)
    return "\n".join([*lines, "", comparison_summary(found)])


def comparison_summary(found: Sequence[CaseComparison]) -> str:
    """Such as ``2 of 3 cases compared: 1 REGRESSION, 1 PASS, 1 INCOMPARABLE``, worst first."""
    counts = Counter(each.status for each in found)
    parts = [f"{counts[status]} {status.value}" for status in Status if counts[status]]
    compared = sum(bool(each.basis) for each in found)
    return f"{compared} of {counted(len(found), 'case')} compared: {', '.join(parts) or 'none'}"


def comparison_record(a: str, b: str, about: Sequence[str], found: Sequence[CaseComparison]) -> dict[str, object]:
    """The answer as plain values; ``a`` and ``b`` are as the user gave them."""
    return {
        "schema_version": COMPARE_SCHEMA_VERSION,
        "a": a,
        "b": b,
        "about": about,
        "cases": [
            {**to_record(each), "status": each.status.value, "sentence": reason_text(each.reason)} for each in found
        ],
    }


def _interval(each: CaseComparison) -> str:
    return "-" if each.effect is None else f"{each.effect.low:+.2%} … {each.effect.high:+.2%}"


def _by(each: CaseComparison) -> str:
    return {"pairs": f"{each.pairs} pairs", "nights": "nights apart"}.get(each.basis, "-")


def _evidence(each: CaseComparison) -> str:
    return evidence_text(max((each.e_drop, each.e_gain), key=lambda value: value or 0.0))


def _side(side: Side) -> str:
    if side.samples_per_s is None:
        return "-"
    return f"{number(side.samples_per_s)} (n={side.runs}/{side.nights})"


def _columns(found: Sequence[CaseComparison]) -> tuple[Column[CaseComparison], ...]:
    unit = rate_unit(*(each.case_id for each in found))
    return (
        Column(f"A {unit}", lambda each: _side(each.a), Align.RIGHT),
        Column(f"B {unit}", lambda each: _side(each.b), Align.RIGHT),
        Column("effect", lambda each: "-" if each.change is None else f"{each.change:+.2%}", Align.RIGHT),
        Column("95% interval", _interval, Align.RIGHT),
        Column("by", _by, Align.RIGHT),
        Column("evidence", _evidence, Align.RIGHT),
        Column("status", lambda each: each.status.value),
    )
