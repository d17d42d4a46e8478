"""Prepares the section of one case on the page: its sentences, tables and drawings."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from helpers.common.words import counted
from helpers.history.results import RunResult
from helpers.history.stored import CaseNights
from helpers.judging.case.evidence import Build, Stage
from helpers.judging.rules.own import MEDIAN_STEP, run_figure
from helpers.judging.rules.rates import rate_unit
from helpers.judging.statistics import number
from helpers.report.explanation import about, headline, tables_of
from helpers.report.explanation_drawing import draw_step
from helpers.report.html.marks import picture
from helpers.report.html.night_drawings import LevelLine, draw_nights, draw_small
from helpers.report.html.run_drawings import DrawnRun, draw_pairs, draw_steps
from helpers.report.next_steps import after_a_drop
from helpers.report.nights import NightLine, lines_of_nights
from helpers.report.reasons import evidence_text
from helpers.report.row import CaseRow, ReferenceAnswer, reader_note
from helpers.report.sentences import sentence_of
from helpers.report.shown_figures import shown_published
from helpers.report.table import Align, Column, Table
from helpers.report.text import rules_line
from helpers.session.case_details import CaseDetails, environment_changes, environment_of, steps_of
from helpers.session.explain.case import CaseExplanation
from helpers.session.outcome import CaseOutcome

# With more runs the picture would be confusing.
_MOST_RUNS_DRAWN = 3
# Facts of a run that a page shows elsewhere.
_ELSEWHERE = ("loader", "images", "images made")


@dataclass(frozen=True)
class Fact:
    """A name, its value, and a remark."""

    name: str
    value: str
    remark: str = ""


def case_view(
    place: int,
    row: CaseRow,
    outcome: CaseOutcome | None,
    details: CaseDetails,
    explained: CaseExplanation | None,
    machine: Mapping[str, Any],
    gate_rule: str = "",
) -> dict[str, Any]:
    """What the template of a case is given. ``place`` is the number of its section, from 1; ``gate_rule`` is the gate's
    rule if it changes the case's effect; ``machine`` are the environment tables that the page shows once for all
    cases."""
    unit = rate_unit(row.case_id)
    runs = outcome.runs if outcome is not None else ()
    known = details.nights
    rates = dict(zip((each.uuid for each in known.nights), known.log_rates, strict=True))
    lines = lines_of_nights(known.nights, lambda night: rates[night.uuid], known.starts)
    levels = levels_of(row, lines)
    screened = [run for run in runs if run.stage == Stage.SCREEN.value and run.measured]
    drawn, unknown = _drawn_runs(runs, row.run_folders)
    newest = screened[-1] if screened else next(iter(reversed(runs)), None)
    environment = environment_of(newest) if newest is not None else {}
    return {
        "anchor": f"case-{place}",
        "row": row,
        "unit": unit,
        "sentence": sentence_of(row),
        "gate_rule": gate_rule,
        "notes": list(_notes(row)),
        "facts": list(_facts(row)),
        "small": picture(draw_small, row.case_id, lines, levels),
        "nights": picture(draw_nights, row.case_id, lines, levels),
        "lines": lines,
        "levels": levels,
        # Why the nights are not known; empty if they are.
        "unknown": known.unknown,
        "pairs": picture(draw_pairs, row.pairs, row.status, unit),
        "steps": picture(draw_steps, drawn),
        "drawn": drawn,
        # Why the warm-up is not drawn; empty if it is.
        "steps_unknown": unknown,
        "runs": Table.of(_run_columns(row.rule, unit), runs),
        "rules": rules_line(row).removeprefix("by rule: "),
        "health": [] if newest is None else list(_health(newest)),
        "settings": Table.of_texts(
            ("setting", "value", "source"), [] if newest is None else _settings(newest, details.sources)
        ),
        "changes": environment_changes(known.before, newest) if known.before and newest else (),
        # Date and session of the night with which the environment was compared; empty if there is none.
        "compared_with": _night_text(known),
        "environment": {name: table for name, table in environment.items() if machine.get(name) != table},
        "command": details.command,
        "next": () if outcome is None else after_a_drop(outcome),
        "explained": None if explained is None else _explained(explained),
    }


def _night_text(known: CaseNights) -> str:
    """The date and the session of the night before; empty without one."""
    if known.before is None:
        return ""
    session = known.before.session
    dates = [each.record.date for each in known.nights if each.record.session == session]
    return f"{', '.join([*dates[-1:], f'session {session}'])}"


def _explained(found: CaseExplanation) -> Mapping[str, Any]:
    steps = None if found.explanation is None else picture(draw_step, found.explanation)
    return {"sentence": headline(found), "measured": about(found), "steps": steps, "tables": tables_of(found)}


def levels_of(row: CaseRow, lines: Sequence[NightLine]) -> tuple[LevelLine, ...]:
    """The lines to draw, as far as they are known: the recorded level, the reference build's level, and the published
    figure, with a star if it is only shown."""
    found = []
    if row.recorded is not None and row.recorded.reference_samples_per_s is not None:
        found.append(_level("recorded", "recorded", row.recorded))
    measured = [(each.good_samples_per_s, each.date) for each in lines if each.good_samples_per_s is not None]
    if row.pairs:
        measured.append((statistics.geometric_mean(each.reference_samples_per_s for each in row.pairs), "tonight"))
    if measured:
        good, when = measured[-1]
        name = row.reference_build or "the reference build"
        found.append(LevelLine("good", "reference build", f"{name}: {number(good)} by {MEDIAN_STEP}, {when}", good))
    published = shown_published(row)
    if published is not None and published.reference_samples_per_s is not None:
        found.append(_level("published", "published", published))
    return tuple(found)


def _level(kind: str, name: str, answer: ReferenceAnswer) -> LevelLine:
    rate = answer.reference_samples_per_s
    assert rate is not None
    starred = name if answer.sets_status else f"{name}*"
    return LevelLine(kind, starred, f"{answer.label}: {number(rate)} by {answer.rule}", rate)


def _notes(row: CaseRow) -> Iterator[str]:
    yield from row.marks
    yield from row.warnings
    if (note := reader_note(row)) is not None:
        yield note
    if row.overrides:
        yield f"settings changed with --set: {', '.join(row.overrides)}"
    if row.quarantine:
        yield f"in quarantine: {row.quarantine}"
    if not row.judged:
        yield "outside the gate: it cannot fail the session"


def _facts(row: CaseRow) -> Iterator[Fact]:
    unit = rate_unit(row.case_id)
    if row.samples_per_s is not None:
        spread = "" if row.spread is None else f" ± {row.spread:.1%}"
        interval = "" if row.low is None or row.high is None else f", 95% {number(row.low)} to {number(row.high)}"
        yield Fact(
            "tonight",
            f"{number(row.samples_per_s)} {unit}{spread} by {row.rule}",
            f"{counted(row.runs, 'run')}{interval}",
        )
    elif row.invalid_samples_per_s is not None:
        yield Fact("invalid", f"{number(row.invalid_samples_per_s)} {unit} by {row.rule}", "compared with nothing")
    standing = row.standing
    if standing is not None and standing.effect is not None:
        effect, pairs = standing.effect, standing.pair_count
        by = f"{counted(pairs, 'pair')} with the reference build" if pairs else "by the nights before"
        interval = f"95% {effect.low:+.2%} to {effect.high:+.2%}, {by}"
        yield Fact("change", f"{effect.point:+.2%}", f"{interval}; evidence {evidence_text(standing.evidence)}")
    if standing is not None and standing.smallest_drop is not None:
        yield Fact("smallest drop", f"{standing.smallest_drop:.2%}", "tonight would have found it with 80% power")
    for answer in (*([row.recorded] if row.recorded else []), *row.published):
        yield _reference(answer, row)
    if row.utilisation is not None:
        found = row.utilisation
        yield Fact("share of peak", f"{found.share:.1%}", f"of {found.limit}, by the data sheet of {found.chip}")
    yield Fact("reference build", row.reference_build or "none", row.why_no_reference)
    if row.framework:
        named = [row.framework.get(name, "") for name in ("framework", "version", "source")]
        commit = row.framework.get("commit", "")
        yield Fact("build", " ".join(filter(None, (*named[:2], commit and f"@{commit[:12]}"))), named[2])


def _reference(answer: ReferenceAnswer, row: CaseRow) -> Fact:
    name = "recorded" if answer is row.recorded else "published"
    rate = answer.reference_samples_per_s
    if rate is None:
        return Fact(name, "none", answer.label)
    ratio = ""
    if answer.measured_samples_per_s is not None and answer.ratio is not None:
        ratio = f"tonight {number(answer.measured_samples_per_s)} by the same rule, ratio {answer.ratio:.3f}; "
    only = "" if answer.sets_status else "; shown only"
    return Fact(
        name,
        f"{number(rate)} {rate_unit(row.case_id)} by {answer.rule}",
        f"{ratio}{answer.label}: {answer.status}{only}",
    )


def _drawn_runs(runs: Sequence[RunResult], folders: Sequence[str]) -> tuple[tuple[DrawnRun, ...], str]:
    """The first screening runs of the build under test and the first run of the reference build; and why a warm-up is
    not known (empty if all are known)."""
    placed = [(run, folder) for run, folder in zip(runs, folders, strict=False) if run.step_seconds]
    new = [each for each in placed if each[0].role == Build.CANDIDATE.value][:_MOST_RUNS_DRAWN]
    good = [each for each in placed if each[0].role == Build.REFERENCE.value][:1]
    drawn, why = [], ""
    for at, (run, folder) in enumerate((*new, *good)):
        steps = steps_of(run, folder)
        why = why or steps.unknown
        of_good = run.role == Build.REFERENCE.value
        name = f"run {run.replicate}{', reference build' if of_good else ''}"
        drawn.append(DrawnRun(name, steps, "of-good" if of_good else f"run{at}"))
    return tuple(drawn), why


def _run_columns(rule: str, unit: str) -> tuple[Column[RunResult], ...]:
    """The table of tonight's runs."""

    def rate(run: RunResult) -> str:
        figure = run_figure(rule, run.figures) if run.failure is None else "-"
        return "-" if isinstance(figure, str) else number(figure)

    return (
        Column("run", lambda run: str(run.replicate), Align.RIGHT),
        Column("build", lambda run: "good" if run.role == Build.REFERENCE.value else "new"),
        Column("for", lambda run: run.stage),
        Column(unit, rate, Align.RIGHT),
        Column("data wait", lambda run: "-" if run.reader_share is None else f"{run.reader_share:.1%}", Align.RIGHT),
        Column("others", lambda run: "-" if run.foreign_share is None else f"{run.foreign_share:.1%}", Align.RIGHT),
        Column("seconds", lambda run: f"{run.wall_seconds:.0f}", Align.RIGHT),
        Column("set aside, why", lambda run: run.failure or run.invalid or run.refusal or ""),
    )


def _health(run: RunResult) -> Iterator[Fact]:
    """Contention and the device's condition in the newest screening run."""
    if run.contention:
        yield Fact("contention", run.contention)
    yield Fact("start-up", f"{run.start_up_seconds:.1f} s", "until the first step")
    if run.peak_host_bytes:
        yield Fact("peak memory", f"{run.peak_host_bytes / 2**30:.2f} GiB", "of the host")
    if run.peak_device_bytes:
        yield Fact("peak device memory", f"{run.peak_device_bytes / 2**30:.2f} GiB")
    for name, value in sorted(run.facts.items()):
        if name not in _ELSEWHERE and value:
            yield Fact(name.replace("_", " "), value)


def _settings(run: RunResult, sources: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """The key, the value and the source of each setting."""
    for key, value in _flat(run.settings):
        changed = any(key == each or key.startswith(f"{each}.") for each in run.overrides)
        source = "--set" if changed else sources.get(key, sources.get(key.partition(".")[0], ""))
        yield key, json.dumps(value), source


def _flat(settings: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping) and value and not above:
            yield from _flat(value, f"{name}.")
        else:
            yield f"{above}{name}", value
