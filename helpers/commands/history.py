"""``perfgate history CASE``: shows the nights of a case, one line each, as text, JSON or a plot."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from helpers.commands.loading import add_history, add_json, find_cases, history_of, load_suite, print_answer, width_of
from helpers.commands.option_types import count_of
from helpers.common.words import counted
from helpers.history.results import LOG_FACT, RunResult
from helpers.history.stored import SegmentStart, StoredNight
from helpers.judging.case.evidence import Build
from helpers.judging.rules.own import run_figure
from helpers.judging.rules.rates import rate_unit, to_record
from helpers.judging.statistics import number
from helpers.plan.matrix import TARGETS
from helpers.report.nights import NightLine, by_machine, lines_of_nights, recorded_from, slope_text
from helpers.report.reasons import evidence_text
from helpers.report.table import Align, Column, Table
from helpers.report.text import hanging
from helpers.session.gate import EXIT_OK
from helpers.trainers.contract.errors import HistoryError, printable

if TYPE_CHECKING:
    from helpers.history.history import History

NAME = "history"
HELP = "Show a case's nights: throughput, verdict, effect, segments and exclusions"
EXITS = {
    0: "the nights are shown",
}
# 1: first format.
HISTORY_SCHEMA_VERSION = 1

_IMPORTED = "imported from logs; no night is compared with them"
_INDENT = "    "
_BARS = "▁▂▃▄▅▆▇█"
_NO_BAR, _EXCLUDED_BAR = "·", "×"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="CASE", help="Case id, as perfgate cases lists them")
    parser.add_argument("--target", choices=TARGETS, help="Show only this target's nights")
    parser.add_argument(
        "--last", type=count_of("nights", 1, 100_000), metavar="N", help="Show the newest N nights. Default: all"
    )
    parser.add_argument("--all-segments", action="store_true", help="Show nights of earlier segments too")
    add_json(parser)
    add_history(parser)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print the nights of the case on each target, and the results that were imported from logs.

    Raises ConfigError on an unknown case, and HistoryError on a case without nights.
    """
    # Not imported at the top: every command would load the readers of logs and numpy.
    from helpers.logs.results import stored_of

    with history_of(arguments) as history:
        imported = stored_of(history, arguments.case, arguments.target)
        known = history.cases(arguments.case, arguments.target)
        if not known and not imported:
            raise _nothing_known(arguments, history)
        shown = tuple(
            _shown(history, arguments, host, every)
            for case_id, target in known
            for host, every in by_machine(history.series(case_id, target)).items()
        )
    width = width_of(out)
    parts = [render_history(each, width) for each in shown] + ([render_stored(imported, width)] if imported else [])
    print_answer(arguments, out, "\n\n".join(parts), case_record(shown, imported))
    return EXIT_OK


def _nothing_known(arguments: argparse.Namespace, history: History) -> HistoryError:
    """The error for a case without nights. Raises ConfigError if there is no such case. (A case that is no longer in
    perf.yaml may still have nights.)"""
    # Not imported at the top: every command would load the readers of logs and numpy.
    from helpers.logs.results import stored_of

    logs = {each.case_id for each in stored_of(history, None, arguments.target)}
    find_cases(load_suite(arguments).cases, arguments.case, arguments.target, sorted(logs))
    return HistoryError(
        f"history of {arguments.case}", got="no nights", expected="one", remedy="Measure it: pytest perf_tests -k CASE"
    )


def _shown(history: History, arguments: argparse.Namespace, host: str, every: Sequence[StoredNight]) -> ShownSeries:
    case_id, target = every[0].record.case_id, every[0].record.target
    starts = history.segment_starts(case_id, target)
    chosen = every if arguments.all_segments else _newest_segment(every, starts)
    lines = lines_of_nights(
        chosen if arguments.last is None else chosen[-arguments.last :],
        lambda night: _rates(history, night),
        starts,
    )
    title = f"{case_id} [{target}] on {host or 'an unknown machine'}: {counted(len(every), 'night')}"
    return ShownSeries(case_id, target, title, lines, len(every) - len(chosen))


def _newest_segment(every: Sequence[StoredNight], starts: Sequence[SegmentStart]) -> Sequence[StoredNight]:
    """The nights of the newest segment, with the night before them where recording it began the segment. A night on
    which nothing ran belongs to the segment of the nights around it."""
    measured = [night for night in every if night.record.segment]
    first = next((place for place, night in enumerate(measured) if night.current), len(measured))
    if first == 0:
        return every
    begins = every.index(measured[first]) if first < len(measured) else len(every)
    chosen = [night for night in every[begins:] if night.current]
    before = measured[first - 1]
    return [before, *chosen] if recorded_from([before, *chosen[:1]], starts) else chosen


def _rates(history: History, night: StoredNight) -> Sequence[float]:
    """The log rates by which the night was judged; if there are none, those of its runs."""
    if night.record.log_rates or not night.record.run_uuids:
        return night.record.log_rates
    runs = [each.result for each in history.results_of(uuids=night.record.run_uuids)]
    return [
        run.log_rate for run in runs if run.measured and run.role == Build.CANDIDATE.value and run.log_rate is not None
    ]


@dataclass(frozen=True)
class ShownSeries:
    """The nights of a case on one target and host."""

    case_id: str
    target: str
    title: str
    lines: tuple[NightLine, ...]
    # Nights of earlier segments that are not shown.
    left_out: int


def case_record(series: Sequence[ShownSeries], imported: Sequence[RunResult]) -> dict[str, Any]:
    return {
        "schema_version": HISTORY_SCHEMA_VERSION,
        "cases": [
            {"case_id": each.case_id, "target": each.target, "left_out": each.left_out,
             "nights": [to_record(line) for line in each.lines]}
            for each in series
        ],
        "imported": [_stored_record(each) for each in imported],
    }  # fmt: skip


def render_history(series: ShownSeries, width: int) -> str:
    """The series as text."""
    lines, left_out, unit = series.lines, series.left_out, rate_unit(series.case_id)
    grid = Table.of(_columns(unit), lines).grid()
    shown_lines = [*_wrapped(series.title, width, ""), ""]
    if bars := sparkline(lines, unit):
        shown_lines += [bars, ""]
    shown_lines += [grid.heading, "-" * min(width, grid.text_width)]
    for line, shown in zip(lines, grid.lines, strict=True):
        shown_lines.append(shown)
        for note in line.notes:
            shown_lines += _wrapped(note, width, _INDENT)
    if slope := slope_text(lines):
        shown_lines += ["", *_wrapped("slope {}, {}".format(*slope), width, "")]
    if left_out:
        shown_lines += [
            "",
            *_wrapped(f"{left_out} nights of other segments left out (--all-segments shows them)", width, ""),
        ]
    return "\n".join(shown_lines)


def sparkline(lines: Sequence[NightLine], unit: str) -> str:
    """For each night a bar, whose height is its rate between the slowest and the fastest night; a dot for a night
    without a figure, a cross for an excluded one. Empty for fewer than 2 bars."""
    known = [line.samples_per_s for line in lines if line.samples_per_s is not None and not line.excluded]
    if len(known) < 2:
        return ""
    low, high = min(known), max(known)
    step = (high - low) or 1.0

    def bar(line: NightLine) -> str:
        if line.excluded:
            return _EXCLUDED_BAR
        if line.samples_per_s is None:
            return _NO_BAR
        return _BARS[round((line.samples_per_s - low) / step * (len(_BARS) - 1))]

    return f"{''.join(map(bar, lines))}  {number(low)} … {number(high)} {unit}"


def _columns(unit: str) -> tuple[Column[NightLine], ...]:
    return (
        Column("date", lambda line: line.date),
        Column("session", lambda line: printable(line.session)),
        Column("build", lambda line: printable(line.build)),
        Column(unit, lambda line: "-" if line.samples_per_s is None else number(line.samples_per_s), Align.RIGHT),
        Column("runs", lambda line: str(line.runs), Align.RIGHT),
        Column("effect", lambda line: "-" if line.effect is None else f"{line.effect:+.2%}", Align.RIGHT),
        Column("evidence", lambda line: evidence_text(line.evidence), Align.RIGHT),
        Column("status", lambda line: f"{line.status}{' (excluded)' if line.excluded else ''}"),
    )


def render_stored(results: Sequence[RunResult], width: int) -> str:
    """For each result its figures by its publisher's rule and by the honest rule, and its log."""
    # Not imported at the top: every command would load numpy.
    from helpers.logs.record import HONEST
    from helpers.logs.results import USUAL_RULE_FACT

    lines = hanging(f"{_IMPORTED}: {len(results)}", width, "", "")
    for each in results:
        rule = each.facts.get(USUAL_RULE_FACT, "")
        figures = "; ".join(f"{_figure(each, name)} by {name}" for name in dict.fromkeys((rule, HONEST)) if name)
        first = f"{each.created[:10]}  {each.case_id} [{each.target}] ({each.origin})  {figures}"
        lines += hanging(first, width, "", _INDENT)
        lines += hanging(f"{each.uuid[:12]}  {each.facts.get(LOG_FACT, '')}", width, _INDENT, _INDENT)
    return "\n".join(lines)


def _stored_record(result: RunResult) -> dict[str, Any]:
    """The result for JSON, without the empty fields that only a measured run fills."""
    names = ("uuid", "case_id", "target", "created", "origin", "build", "figures", "facts", "reader_share")
    record = result.to_record()
    return {name: dict(record[name]) if isinstance(record[name], dict) else record[name] for name in names}


def _figure(result: RunResult, rule: str) -> str:
    figure = run_figure(rule, result.figures)
    return "no figure" if isinstance(figure, str) else f"{number(figure)} {rate_unit(result.case_id)}"


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    return hanging(text, width, indent, indent)
