"""``perfgate history CASE``: the nights of a case, one line each, as text, JSON or a plot."""

from __future__ import annotations

import argparse
import datetime
import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from helpers.commands.loading import (
    JSON,
    TEXT,
    Formats,
    add_history,
    add_printed_formats,
    find_cases,
    history_of,
    json_text,
    load_suite,
    nights_option,
    print_answer,
    write_answer,
)
from helpers.history.results import LOG_FACT, RunResult
from helpers.history.stored import Acknowledgement, KnownCase, SegmentStart, StoredNight
from helpers.judging.compare import evidence_text
from helpers.judging.evidence import Build
from helpers.judging.rates import rate_unit, to_record
from helpers.judging.rules import run_figure
from helpers.judging.statistics import number
from helpers.judging.verdict import Status
from helpers.machine.environment import differences
from helpers.plan.matrix import TARGETS
from helpers.report.table import Align, Column, Table
from helpers.report.text import hanging
from helpers.session.gate import EXIT_OK
from helpers.trainers.contract.errors import ConfigError, HistoryError, printable

if TYPE_CHECKING:
    from helpers.history.history import History

NAME = "history"
HELP = "Show a case's nights: throughput, verdict, effect, segments, exclusions and acknowledgements"
EXITS = {
    0: "the nights are shown",
}
# 1: first format.
# 2: "imported" holds the results that were read from logs.
HISTORY_SCHEMA_VERSION = 2

_IMPORTED = "imported from logs; no run is ever compared with them"
_INDENT = "    "
_BARS = "▁▂▃▄▅▆▇█"
_NO_BAR, _EXCLUDED_BAR = "·", "×"
_SHOWN_DIFFERENCES = 3

Rates = Callable[[StoredNight], Sequence[float]]
_REGRESSION = "#c62828"
_SLOWER = "#6a1b9a"
_EXCLUDED = "#9e9e9e"
# Colour-blind safe (Okabe and Ito), without the reds that mean a regression here.
_SEGMENTS = ("#0072b2", "#009e73", "#e69f00", "#56b4e9", "#cc79a7")
_SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL)
# More labels than this would overlap.
_MOST_LABELS = 12
_LONGEST_TEXT = 200
# The axis spans at least this share of the median: noise of a few tenths of a percent must not fill the picture.
_LEAST_SPAN = 0.06


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="CASE", help="Case id, as perfgate cases lists them")
    parser.add_argument("--target", choices=TARGETS, help="Show only this target's nights")
    parser.add_argument("--last", type=nights_option, metavar="N", help="Show the newest N nights. Default: all")
    parser.add_argument("--all-segments", action="store_true", help="Show nights of earlier segments too")
    parser.add_argument("--plot", type=_svg, metavar="FILE.svg", help="Draw the nights into FILE.svg, too")
    add_printed_formats(parser, FORMATS)
    add_history(parser)


def _svg(text: str) -> Path:
    if not text.endswith(".svg"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a name that ends in .svg, which every browser shows")
    return Path(text).expanduser().absolute()


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print the nights of the case on each target, and the results that were imported from logs.

    Raises ConfigError on an unknown case, HistoryError on one without nights.
    """
    # Not at the top: every command would load the readers of logs, and numpy, with it.
    from helpers.logs.results import stored_of

    with history_of(arguments) as history:
        imported = stored_of(history, arguments.case, arguments.target)
        known = history.cases(arguments.case, arguments.target)
        if not known and (not imported or arguments.plot is not None):
            raise _nothing_known(arguments)
        if arguments.plot is not None and len(known) > 1:
            raise ConfigError("--plot", got=f"{len(known)} targets", expected="one", remedy="Choose it with --target")
        shown = tuple(_shown(history, each, arguments) for each in known)
    print_answer(arguments, FORMATS, CaseHistory(shown, imported), out)
    if arguments.plot is not None:
        write_answer(
            "--plot", arguments.plot, plot_history(shown[0].title, shown[0].lines, rate_unit(shown[0].case_id))
        )
        if not arguments.json:
            print("\n" + printable(f"drawn into {arguments.plot}"), file=out)
    return EXIT_OK


def _nothing_known(arguments: argparse.Namespace) -> HistoryError:
    """Of a case without nights (one may have left perf.yaml and still have its own); ConfigError for no case."""
    find_cases(load_suite(arguments).cases, arguments.case, arguments.target)
    return HistoryError(
        f"history of {arguments.case}", got="no nights", expected="one", remedy="Measure it: pytest perf_tests -k CASE"
    )


def _shown(history: History, case: KnownCase, arguments: argparse.Namespace) -> ShownSeries:
    every = [
        night
        for night in history.series(case.case_id, case.target)
        if night.record.segment.get("host", "") == case.host
    ]
    chosen = [night for night in every if arguments.all_segments or night.current]
    lines = night_lines(
        chosen if arguments.last is None else chosen[-arguments.last :],
        lambda night: _rates(history, night),
        history.acknowledgements(case.case_id),
        history.segment_starts(case.case_id, case.target),
    )
    title = f"{case.case_id} [{case.target}] on {case.host}: {case.nights} nights"
    return ShownSeries(case.case_id, case.target, title, lines, len(every) - len(chosen))


def _rates(history: History, night: StoredNight) -> Sequence[float]:
    """The log rates that it was judged by, else those of its runs, from which later nights learn nothing."""
    if night.record.log_rates or not night.record.run_uuids:
        return night.record.log_rates
    runs = [each.result for each in history.results_of(uuids=night.record.run_uuids)]
    return [
        run.log_rate for run in runs if run.measured and run.role == Build.CANDIDATE.value and run.log_rate is not None
    ]


@dataclass(frozen=True)
class NightLine:
    """One night of a case, ready to be shown."""

    uuid: str
    created: str
    session: str
    build: str
    # The median of its screening runs.
    samples_per_s: float | None
    runs: int
    status: str
    reason: str
    # A fraction, against its reference.
    effect: float | None
    # What it carried on for a drop.
    evidence: float | None
    # The case's segments count from 1.
    segment: int
    excluded: bool = False
    # A new segment, why nothing is learned from the night, an exclusion, an acknowledgement.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShownSeries:
    """The nights of a case on one target and host."""

    case_id: str
    target: str
    title: str
    lines: tuple[NightLine, ...]
    # Nights of earlier segments that are not shown.
    left_out: int


@dataclass(frozen=True)
class CaseHistory:
    """What ``perfgate history`` answers with."""

    series: tuple[ShownSeries, ...]
    # Results that were read from logs.
    imported: Sequence[RunResult]


def night_lines(
    nights: Sequence[StoredNight],
    rates: Rates,
    acknowledgements: Sequence[Acknowledgement] = (),
    starts: Sequence[SegmentStart] = (),
) -> tuple[NightLine, ...]:
    """Lines for ``nights``, oldest first. ``rates`` gives the log rates of a night's runs."""
    lines = []
    numbers: dict[tuple[str, int], int] = {}
    before: StoredNight | None = None
    for night in nights:
        begun = [each for each in starts if _since(each, night)]
        segment = numbers.setdefault((night.segment_digest, len(begun)), len(numbers) + 1)
        found = list(rates(night))
        record, standing = night.record, night.record.standing
        lines.append(
            NightLine(
                uuid=night.uuid,
                created=record.created,
                session=record.session,
                build=build_text(record.build),
                samples_per_s=math.exp(statistics.median(found)) if found else None,
                runs=len(found),
                status="calibrated" if record.code == "calibrated" else record.status,
                reason=record.reason,
                effect=standing.effect if standing else None,
                evidence=standing.evidence if standing else None,
                segment=segment,
                excluded=night.exclusion is not None,
                notes=tuple(_notes(night, before, begun, acknowledgements)),
            )
        )
        before = night
    return tuple(lines)


def render_case(case: CaseHistory, width: int) -> str:
    parts = [render_history(each, width) for each in case.series]
    return "\n\n".join([*parts, *([render_stored(case.imported, width)] if case.imported else [])])


def render_json(case: CaseHistory, _width: int) -> str:
    record = {
        "schema_version": HISTORY_SCHEMA_VERSION,
        "cases": [
            {"case_id": each.case_id, "target": each.target, "left_out": each.left_out,
             "nights": [to_record(line) for line in each.lines]}
            for each in case.series
        ],
        "imported": [_stored_record(each) for each in case.imported],
    }  # fmt: skip
    return json_text(record)


FORMATS: Formats[CaseHistory] = {TEXT: render_case, JSON: render_json}


def render_history(series: ShownSeries, width: int) -> str:
    """The series as text."""
    lines, left_out, unit = series.lines, series.left_out, rate_unit(series.case_id)
    grid = Table.of(_columns(unit), lines).grid()
    shown_lines = [*_wrapped(series.title, width, ""), ""]
    if bars := sparkline(lines, unit):
        shown_lines += [bars, ""]
    shown_lines += [grid.heading, "-" * min(width, grid.width)]
    for line, shown in zip(lines, grid.lines, strict=True):
        shown_lines.append(shown)
        for note in line.notes:
            shown_lines += _wrapped(note, width, _INDENT)
    if left_out:
        shown_lines += [
            "",
            *_wrapped(f"{left_out} nights of other segments left out (--all-segments shows them)", width, ""),
        ]
    return "\n".join(shown_lines)


def sparkline(lines: Sequence[NightLine], unit: str) -> str:
    """A bar for each night from the slowest to the fastest, a dot for one without a figure, a cross for an excluded
    one; empty below 2 bars."""
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


def build_text(build: Mapping[str, str]) -> str:
    """``3.3.1 @0123456``; a dash where the build is not known."""
    commit = f"@{build['commit'][:7]}" if build.get("commit") else ""
    return " ".join(each for each in (build.get("version", ""), commit) if each) or "-"


def _notes(
    night: StoredNight,
    before: StoredNight | None,
    begun: Sequence[SegmentStart],
    acknowledgements: Sequence[Acknowledgement],
) -> list[str]:
    record, notes = night.record, []
    if before is not None and before.segment_digest != night.segment_digest:
        apart = differences(before.record.segment, record.segment)
        more = len(apart) - _SHOWN_DIFFERENCES
        shown = "; ".join(apart[:_SHOWN_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")
        notes.append(f"other segment: {shown}")
    notes += [f"new segment: {each.reason}" for each in begun if before is None or not _since(each, before)]
    if record.standing is not None and record.standing.new_segment:
        notes.append(f"new segment from here: {record.standing.segment_reason}")
    if record.standing is not None and record.standing.machine_slow:
        notes.append("the machine was slow: the reference build was as slow as the new one")
    if night.unlearned and night.exclusion is None:
        notes.append(f"not learned from: {night.unlearned}")
    if (out := night.exclusion) is not None:
        notes.append(f"excluded by {out.who} on {out.created[:10]}: {out.reason}")
    for each in acknowledgements:
        if each.covers(record.case_id, record.created):
            commit = f"{each.commit}, " if each.commit else ""
            notes.append(f"acknowledged by {each.who}: {commit}{each.reason}")
    return notes


def _since(start: SegmentStart, night: StoredNight) -> bool:
    return _is_before(start.created, night.record.created) and dict(start.segment) == dict(night.record.segment)


def _is_before(one: str, other: str) -> bool:
    """Whether ``one`` is not after ``other``: moments or days, ISO 8601 in UTC, with or without microseconds."""
    return _moment(one) <= _moment(other)


def _moment(text: str) -> datetime.datetime:
    moment = datetime.datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)


def _columns(unit: str) -> tuple[Column[NightLine], ...]:
    return (
        Column("date", lambda line: line.created[:10]),
        Column("session", lambda line: printable(line.session)),
        Column("build", lambda line: printable(line.build)),
        Column(unit, lambda line: "-" if line.samples_per_s is None else number(line.samples_per_s), Align.RIGHT),
        Column("runs", lambda line: str(line.runs), Align.RIGHT),
        Column("effect", lambda line: "-" if line.effect is None else f"{line.effect:+.2%}", Align.RIGHT),
        Column("evidence", lambda line: evidence_text(line.evidence), Align.RIGHT),
        Column("status", lambda line: f"{line.status}{' (excluded)' if line.excluded else ''}"),
    )


def render_stored(results: Sequence[RunResult], width: int) -> str:
    """For each result its figure by its publisher's rule and by the honest one, and its log."""
    # Not at the top: every command would load numpy with them.
    from helpers.logs.record import HONEST
    from helpers.logs.results import USUAL_RULE_FACT

    lines = hanging(f"{_IMPORTED}: {len(results)}", width, "", "")
    for each in results:
        rule = each.facts.get(USUAL_RULE_FACT, "")
        figures = "; ".join(f"{_figure(each, name)} by {name}" for name in dict.fromkeys((rule, HONEST)) if name)
        first = f"{each.created[:10]}  {each.case_id} [{each.target}] ({each.origin})  {figures}"
        lines += hanging(first, width, "", "    ")
        lines += hanging(f"{each.uuid[:12]}  {each.facts.get(LOG_FACT, '')}", width, "    ", "    ")
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


def plot_history(title: str, lines: Sequence[NightLine], unit: str) -> str:
    """The series as SVG text: one point a night, a colour for each segment, regressions and exclusions marked.

    ``unit`` is that of the lines' samples/s. A browser that shows it fetches nothing.
    """
    # It takes a quarter of a second to import, which no other command should wait for.
    import pygal
    from pygal.style import Style

    groups = [group for group in _groups(lines) if any(group.points)]
    chart = pygal.Line(
        title=_shortened(title),
        x_title="night",
        y_title=unit,
        width=1000,
        height=480,
        js=[],
        legend_at_bottom=True,
        truncate_legend=-1,
        show_minor_x_labels=False,
        x_label_rotation=30,
        dots_size=4,
        allow_interruptions=True,
        value_formatter=number,
        no_prefix=True,
        range=_range(lines),
        disable_xml_declaration=True,
        style=Style(
            background="white",
            plot_background="white",
            colors=tuple(group.colour for group in groups),
            font_family="DejaVu Sans, Helvetica, Arial, sans-serif",
            title_font_size=16,
            label_font_size=12,
            major_label_font_size=12,
            legend_font_size=12,
        ),
    )
    chart.x_labels = [printable(line.created[:10]) for line in lines]
    chart.x_labels_major_every = max(1, -(-len(lines) // _MOST_LABELS))
    for group in groups:
        chart.add(group.name, group.points, **group.look)
    svg: str = chart.render(is_unicode=True)
    # The script repeats the settings, with the title in them, for a program that is not there.
    return _SCRIPT.sub("", svg)


def _shortened(text: str) -> str:
    """Short enough for pygal, which searches without end where a title leaves no room for the picture."""
    shown = printable(text)
    return shown if len(shown) <= _LONGEST_TEXT else f"{shown[:_LONGEST_TEXT]}…"


@dataclass(frozen=True)
class _Group:
    """Points of one colour, None for the nights that are not in it."""

    name: str
    colour: str
    points: list[dict[str, Any] | None]
    look: Mapping[str, Any]


def _groups(lines: Sequence[NightLine]) -> Iterator[_Group]:
    """A line for each segment, and over them points for the regressions and the excluded nights."""
    segments = sorted({line.segment for line in lines})
    for segment in segments:
        yield _Group(
            f"segment {segment}" if len(segments) > 1 else "nights",
            _SEGMENTS[(segment - 1) % len(_SEGMENTS)],
            [_point(line, line.segment == segment and not line.excluded) for line in lines],
            {},
        )
    for status, colour in ((Status.REGRESSION, _REGRESSION), (Status.SLOWER, _SLOWER)):
        fallen = [_point(line, line.status == status.value and not line.excluded) for line in lines]
        yield _Group(status.value, colour, fallen, {"stroke": False, "dots_size": 7})
    excluded = [_point(line, line.excluded) for line in lines]
    yield _Group("excluded", _EXCLUDED, excluded, {"stroke": False, "dots_size": 5})


def _range(lines: Sequence[NightLine]) -> tuple[float, float] | None:
    known = [line.samples_per_s for line in lines if line.samples_per_s is not None]
    if not known:
        return None
    half = statistics.median(known) * _LEAST_SPAN / 2
    middle = (min(known) + max(known)) / 2
    return min(min(known), middle - half), max(max(known), middle + half)


def _point(line: NightLine, shown: bool) -> dict[str, Any] | None:
    if not shown or line.samples_per_s is None:
        return None
    return {"value": line.samples_per_s, "label": _shortened(f"{line.session}, {line.build}: {line.status}")}
