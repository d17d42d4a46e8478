"""``perfgate trend``: finds steps and slow drift over the nights in the history. They are reported and never fail a
gate."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

from helpers.commands.loading import (
    JSON,
    Formats,
    add_file_formats,
    add_history,
    history_of,
    json_text,
    nights_option,
    say,
    text_output,
    width_of,
    write_files,
)
from helpers.history.trend import (
    LEAST_NIGHTS,
    LevelStep,
    Point,
    Sensitivity,
    Series,
    SeriesKind,
    SlowDrift,
    Trend,
    TrendError,
    change_points,
    find_trends,
    series_of,
)
from helpers.judging.wording import counted
from helpers.report.text import hanging
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK
from helpers.trainers.contract.errors import ConfigError

if TYPE_CHECKING:
    from helpers.history.history import History

NAME = "trend"
HELP = "Find steps and slow drift over the nights in the history, and name the builds between which they lie"
EXITS = {
    0: "the trends are shown",
    6: "Otava gives no answer",
}

# 1: first format.
TREND_SCHEMA_VERSION = 1

_INDENT = "    "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cases", metavar="CASE", nargs="*", help="Case ids or patterns over them. Default: all")
    add_file_formats(parser, FILES)
    parser.add_argument("--last", type=nights_option, metavar="N", help="Look only at the newest N nights")
    add_history(parser)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print the trends. Exit status 6 if Otava gives no answer. Raises SuiteError on a case that the history does not
    have."""
    output = text_output(arguments, FILES, out)
    sensitivity = Sensitivity()
    with history_of(arguments) as history:
        series = _series(history, arguments.cases, arguments.last)
        known = history.acknowledgements()
    try:
        trends = find_trends(series, known, lambda several: change_points(several, sensitivity), sensitivity)
    except TrendError as error:
        say(f"perfgate {NAME}: error: {error}")
        return EXIT_NOT_JUDGED
    write_files(arguments, FILES, (trends, sensitivity), out)
    print(render_trends(trends, sensitivity, width_of(out)), file=output)
    return EXIT_OK


def _series(history: History, patterns: Sequence[str], last: int | None) -> tuple[Series, ...]:
    """The series of the cases that match one of ``patterns`` (without patterns, of all cases). Raises ConfigError if a
    pattern matches none."""
    case_ids: dict[str, None] = {}
    for pattern in patterns or ["*"]:
        found = history.cases(pattern)
        if patterns and not found:
            raise ConfigError("perfgate trend", field="case", got=pattern, expected="a case that the history holds")
        case_ids.update((line.case_id, None) for line in found)
    excluded = {each.uuid for each in history.exclusions() if each.subject == "result"}
    return tuple(
        series for case_id in sorted(case_ids) for series in series_of(history.series(case_id), excluded, last)
    )


def render_trends(trends: Sequence[Trend], sensitivity: Sensitivity, width: int) -> str:
    """A paragraph for each series, and a summary at the end; one sentence for an empty history."""
    if not trends:
        return "The history has no nights that a trend could be found in"
    parts = ["\n".join(_lines(trend, sensitivity, width)) for trend in trends]
    return "\n\n".join([*parts, "\n".join(_wrapped(_sum(trends), width, 0))])


def trends_record(trends: Sequence[Trend], sensitivity: Sensitivity) -> dict[str, Any]:
    """All series with their points, steps and drift, for programs; effects are fractions, rates are images/s."""
    return {
        "schema_version": TREND_SCHEMA_VERSION,
        "sensitivity": asdict(sensitivity),
        "trends": [
            {
                "case_id": trend.series.case_id,
                "target": trend.series.target,
                "host": trend.series.host,
                "kind": trend.series.kind.value,
                "pinned_from": trend.series.pinned_from,
                "points": [asdict(point) for point in trend.series.points],
                "too_short": trend.too_short,
                "steps": [{**asdict(step), "open": step.known is None} for step in trend.steps],
                "drift": None if trend.drift is None else {**asdict(trend.drift), "a_night": trend.drift.a_night},
            }
            for trend in trends
        ],
    }


FILES: Formats[tuple[Sequence[Trend], Sensitivity]] = {JSON: lambda found, _: json_text(trends_record(*found))}


def next_command(series: Series, step: LevelStep) -> str:
    """The command that helps to find the cause of a drop: a bisection of the commits, a comparison of the builds, or a
    look at the machine."""
    before, after = step.before, step.after
    if (before.build, before.commit) == (after.build, after.commit):
        nights = [shlex.quote(f"session:{each.session}") for each in (before, after)]
        return f".venv/bin/perfgate compare {' '.join(nights)} (the build is the same: look at the machine)"
    judge = f".venv/bin/python -m pytest perf_tests -k {_word(series.case_id)} --reference-env GOOD"
    good = before.commit[:12] or before.build or "the build before"
    if before.commit and after.commit and before.commit != after.commit:
        builds = f"{shlex.quote(after.commit[:12])} {shlex.quote(good)}"
        first = f"git bisect start {builds} (in the framework's sources), each build judged by"
        return f"{first} {judge} (GOOD: an environment with {good})"
    return f"{judge} (GOOD: an environment with {good})"


def _word(case_id: str) -> str:
    """A case id for a shell: in double quotes, as usual for ``-k``, unless it contains characters with a meaning in
    these."""
    quoted = shlex.quote(case_id)
    return f'"{case_id}"' if quoted == case_id else quoted


def _lines(trend: Trend, sensitivity: Sensitivity, width: int) -> list[str]:
    series, points = trend.series, trend.series.points
    span = f" from {points[0].day} to {points[-1].day}" if points else ""
    lines = _wrapped(
        f"{series.case_id} [{series.target}]: {series.kind.value}, {counted(len(points), 'night')}{span}", width, 0
    )
    if trend.too_short:
        return [*lines, *_wrapped(f"too few nights to find a step in: {LEAST_NIGHTS} are needed", width, 1)]
    if not trend.steps and trend.drift is None:
        lines += _wrapped(f"no step and no drift of {sensitivity.min_magnitude:.1%} or more", width, 1)
    for step in trend.steps:
        lines += _wrapped(_step(step), width, 1)
        if step.effect < 0 and step.known is None and not step.part_of_drift:
            lines += _wrapped(f"next: {next_command(series, step)}", width, 2)
    if trend.drift is not None:
        lines += _wrapped(_drift(trend.drift, series), width, 1)
    return lines


def _step(step: LevelStep) -> str:
    text = f"step {step.effect:+.2%} (p {step.p:.1g}) between {_night(step.before)} and {_night(step.after)}: "
    if step.known is not None:
        known = step.known
        return f"{text}acknowledged by {known.who} on {known.created[:10]}, {known.commit[:12]}: {known.reason}"
    return text + ("part of the drift" if step.part_of_drift else "OPEN")


def _drift(drift: SlowDrift, series: Series) -> str:
    since = series.points[drift.first].day
    interval = f"95%: {drift.low:+.2%} to {drift.high:+.2%}"
    text = (
        f"drift {drift.effect:+.2%} ({interval}) in {drift.nights} nights since {since}, {drift.a_night:+.3%} a night"
    )
    whole = "a slope fits these nights better than steps" if drift.explains_steps else "beside the steps, if any"
    against = " against the pinned build" if series.kind is SeriesKind.PAIRS else ""
    return f"{text}{against}: {whole}"


def _sum(trends: Sequence[Trend]) -> str:
    steps = [step for trend in trends for step in trend.steps if not step.part_of_drift]
    open_ones = sum(step.known is None for step in steps)
    drifts = sum(trend.drift is not None for trend in trends)
    text = f"series: {len(trends)}; steps: {len(steps)}, open: {open_ones}; drifts: {drifts}; never a gate"
    if open_ones:
        text += ". A step that is known: .venv/bin/perfgate acknowledge CASE --at NIGHT --commit HASH --reason TEXT"
    return text


def _night(point: Point) -> str:
    return f"{point.day} ({point.build})" if point.build else point.day


def _wrapped(text: str, width: int, depth: int) -> list[str]:
    indent = _INDENT * depth
    return hanging(text, width, indent, indent + (_INDENT if depth else ""))
