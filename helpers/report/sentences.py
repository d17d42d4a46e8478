"""The text of a session that is read first: the verdict, the cases that need attention, and a sentence for each. The
full reasons, with every number, follow below it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from helpers.common.words import counted
from helpers.judging.case.evidence import Build, CaseKey
from helpers.judging.case.verdict import Standing, Status
from helpers.judging.rules.rates import rate_unit
from helpers.judging.statistics import EffectSize, number
from helpers.report.nights import build_text
from helpers.report.reasons import claim_text
from helpers.report.row import CaseRow, ReferenceAnswer
from helpers.report.shown_figures import shown_published
from helpers.session.gate import SLOWER
from helpers.session.gate_verdict import GateCase, GateState, GateVerdict
from helpers.session.outcome import OUT_OF_TIME, CaseEffect
from helpers.session.side_by_side.comparison import ConfigurationOutcome

if TYPE_CHECKING:
    from helpers.report.results import SessionReport

# The sentence for a case of the gate that has no outcome.
NO_RESULT = "The session has no result of this case."
_LONGEST = 220
# The statuses of a case that is slower than it was, or that may be.
_DROPS = (Status.REGRESSION.value, Status.SLOWER.value, Status.INCONCLUSIVE.value)
_UNCHANGED = 0.0005
_NEEDS = (CaseEffect.FAIL.value, CaseEffect.ERROR.value, CaseEffect.WARN.value)
_ORDER = [each.value for each in (*SLOWER, *(each for each in Status if each not in SLOWER))]


def needs_someone(row: CaseRow) -> bool:
    """Whether the case failed, or could not be judged."""
    return row.effect in _NEEDS


def badness(status: str) -> int:
    """A sort key; 0 is the worst. Slow cases come before cases that could not be judged, as in the gate's verdict."""
    return _ORDER.index(status) if status in _ORDER else len(_ORDER)


def urgent(rows: Iterable[CaseRow], gate: GateVerdict | None) -> list[CaseRow]:
    """The cases that need attention, the worst first. A case that only lacked a baseline, and has one now, is none."""
    recorded = {each.key for each in (gate.recorded if gate else ())}
    needed = (row for row in rows if needs_someone(row) and (row.target, row.case_id) not in recorded)
    return sorted(needed, key=lambda row: badness(row.status))


def lost_cases(rows: Iterable[CaseRow], gate: GateVerdict | None) -> tuple[GateCase, ...]:
    """Cases that fail the gate because the session has no result of them."""
    known = {(row.target, row.case_id) for row in rows}
    return tuple(each for each in (gate.failed if gate else ()) if each.key not in known)


def in_short(report: SessionReport) -> Iterator[str]:
    """Machine, build, time and name of the session."""
    yield report.machine["host"]
    for outcome in report.outcomes:
        build = next((run.build for run in outcome.runs if run.role == Build.CANDIDATE.value and run.build), None)
        if build is not None:
            named = f" ({build['source']})" if build.get("source") else ""
            yield f"{build.get('framework', '')} {build_text(build)}{named}"
            break
    created = max((run.created for outcome in report.outcomes for run in outcome.runs), default="")
    if report.began:
        yield f"{report.began[:16].replace('T', ' ')} (UTC{report.began[19:]})"
    elif created:
        yield f"{created.replace('T', ' ')[:16]} UTC"
    yield report.session
    if later := sum(row.code == OUT_OF_TIME for row in report.rows):
        yield f"{counted(later, 'case')} not tonight"


def sentence_of(row: CaseRow) -> str:
    """One sentence on the case: its own reason, without the gate's rule."""
    status, standing = row.status, row.standing
    pairs = None if standing is None else standing.pairs
    if status in (Status.REGRESSION.value, Status.IMPROVEMENT.value) and standing is not None and pairs is not None:
        return f"{_beside(standing)}, confirmed by {counted(pairs.count, 'pair')} of runs in turn."
    if status == Status.INCONCLUSIVE.value and standing is not None and pairs is not None and row.pairs:
        why = claim_text(row.findings[0]) if row.findings else _first_part(row.reason)
        return f"{_beside(standing)}: {pairs_in_short(row)}. Not decided: {why}."
    if status == Status.SLOWER.value and row.recorded is not None and row.recorded.ratio is not None:
        below = f"{1 - row.recorded.ratio:.1%} below what this machine recorded ({_rate(row.recorded, row)})"
        return f"{below}; no reference build was there to tell the build from the machine."
    if status == Status.INVALID.value and (shown := _only_shown(row)):
        return f"{_first_part(row.reason)}. Not judged, only shown: {shown}."
    published = shown_published(row)
    if status == Status.BELOW_PUBLISHED.value and published is not None and published.ratio is not None:
        within = "" if published.tolerance is None else f"; {published.tolerance:.0%} below it would pass"
        return f"{published.ratio:.1%} of the published figure ({_rate(published, row)}){within}."
    if status == Status.PASS.value and standing is not None and standing.effect is not None:
        found = f"a drop of {standing.smallest_drop:.1%} would have been found" if standing.smallest_drop else ""
        moved = f"No slower than its reference: {change(standing.effect.point)}{_interval(standing.effect)}"
        return f"{moved}; {found}." if found else f"{moved}."
    return _first_part(row.reason)


def pairs_in_short(row: CaseRow) -> str:
    """How many pairs were slower than the reference build at the level of the nights before, such as ``slower in 8 of 9
    pairs``."""
    standing = row.standing
    level = standing.pairs.level or 0.0 if standing is not None and standing.pairs is not None else 0.0
    slower = sum(math.log1p(each.difference) < level for each in row.pairs)
    return f"slower in {slower} of {counted(len(row.pairs), 'pair')}"


def gate_rules(report: SessionReport) -> dict[CaseKey, str]:
    """The gate's rule for each case whose effect it changes, by SuiteCase.key, as a sentence."""
    return {each.key: f"{rule[0].upper()}{rule[1:]}." for each in report.outcomes if (rule := each.gating.rule)}


def doubts_of(row: CaseRow) -> str:
    """Why the figure of the case is to be doubted, such as ``contended in 4 of 4 runs``, without who disturbed it."""
    return "; ".join(each.partition(": ")[0] for each in row.marks)


def change(fraction: float) -> str:
    """The change in words, such as ``5.4% slower``, ``1.0% faster`` or ``unchanged``."""
    if abs(fraction) < _UNCHANGED:
        return "unchanged"
    return f"{abs(fraction):.1%} {'slower' if fraction < 0 else 'faster'}"


def headline(
    rows: Sequence[CaseRow],
    gate: GateVerdict | None,
    exit_code: int,
    compared: Sequence[ConfigurationOutcome] = (),
    not_reached: int = 0,
    busy: str = "",
) -> tuple[str, str]:
    """The verdict in words, and whether it is good, doubtful or bad (``pass``, ``warn``, ``fail``).

    ``not_reached`` is the number of selected cases without a row; ``busy`` says who used the machine, so that none was
    begun. Without a gate a session is good only if every selected case was measured; with one, the gate says which
    cases count. The largest drop of a case that did not pass is part of the words.
    """
    if busy:
        return f"{'The gate failed: n' if gate else 'N'}othing was measured, the machine was busy", "fail"
    words, tone = _of_gate(gate) if gate is not None else _of_cases(rows, exit_code, compared, not_reached)
    return words if tone == "pass" else f"{words}{_largest_drop(rows)}", tone


def _largest_drop(rows: Iterable[CaseRow]) -> str:
    """The largest drop among the cases that need someone; empty if none is slower."""
    drops = [
        (row.standing.effect.point, row.status == Status.INCONCLUSIVE.value)
        for row in rows
        if row.judged and needs_someone(row) and row.status in _DROPS and row.standing and row.standing.effect
    ]
    effect, unconfirmed = min(drops, default=(0.0, False))
    if effect > -_UNCHANGED:
        return ""
    return f"; the largest drop is {-effect:.1%}{', not confirmed' if unconfirmed else ''}"


def _of_cases(
    rows: Sequence[CaseRow], exit_code: int, compared: Sequence[ConfigurationOutcome], not_reached: int
) -> tuple[str, str]:
    bad = sum(row.effect in ("fail", "error") for row in rows)
    doubtful = sum(row.effect == "warn" for row in rows)
    measured = sum(row.status != Status.NOT_RUN.value for row in rows)
    if bad:
        return f"{bad} of {counted(measured, 'case')} did not pass", "fail"
    if doubtful:
        return f"{doubtful} of {counted(measured, 'case')} could not be judged", "warn"
    if compared and not measured:
        return _of_comparisons(compared)
    if exit_code:
        return f"The session ended with exit code {exit_code}", "fail"
    if not measured:
        return "Nothing was measured", "warn"
    if left := len(rows) - measured + not_reached:
        return f"{counted(measured, 'case')} passed, but {left} of {measured + left} selected did not run", "warn"
    return f"All {counted(measured, 'case')} passed", "pass"


def _of_comparisons(compared: Sequence[ConfigurationOutcome]) -> tuple[str, str]:
    done = sum(each.measured > 1 for each in compared)
    lost = sum(cell.missing for each in compared for cell in each.cells)
    words = f"Frameworks were compared in {counted(done, 'configuration')}"
    if lost:
        return f"{words}; {counted(lost, 'figure')} of installed frameworks missing", "fail"
    return words, "pass" if done else "warn"


def _of_gate(gate: GateVerdict) -> tuple[str, str]:
    if gate.state is GateState.PASSED:
        return f"The gate passed: {counted(gate.passed, 'case')}", "pass"
    if gate.state is GateState.PARTLY_PASSED:
        return f"The gate passed in part: {gate.passed} of {counted(gate.cases, 'case')}", "warn"
    if gate.state is GateState.RECORDED:
        return f"The gate recorded {len(gate.recorded)} of {counted(gate.cases, 'case')}", "warn"
    if gate.failed:
        return f"The gate failed: {len(gate.failed)} of {counted(gate.cases, 'case')} did not pass", "fail"
    return f"The gate failed: {'; '.join(gate.other) or gate.line}", "fail"


def _beside(standing: Standing) -> str:
    """What the pairs show, such as ``3.1% slower than the reference build (95%: -3.7% to -2.5%)``."""
    at_level = standing.pairs is not None and bool(standing.pairs.level)
    against = "the nights before, beside the reference build" if at_level else "the reference build"
    effect = standing.effect or EffectSize(0.0, 0.0, 0.0)
    return f"{_moved(effect.point, against).capitalize()}{_interval(effect)}"


def _moved(fraction: float, against: str) -> str:
    moved = change(fraction)
    return f"{moved} {'against' if moved == 'unchanged' else 'than'} {against}"


def _only_shown(row: CaseRow) -> str:
    """What the usable runs of a case that was not judged show against what is recorded, and its pairs; empty without
    either."""
    shown = []
    if row.recorded is not None and row.recorded.ratio is not None:
        shown.append(_moved(row.recorded.ratio - 1, f"the recorded {_rate(row.recorded, row)}"))
    if row.pairs:
        shown.append(f"{pairs_in_short(row)} with the reference build")
    return "; ".join(shown)


def _interval(effect: EffectSize) -> str:
    return f" (95%: {effect.low:+.1%} to {effect.high:+.1%})"


def _rate(answer: ReferenceAnswer, row: CaseRow) -> str:
    rate = answer.reference_samples_per_s
    return answer.label if rate is None else f"{number(rate)} {rate_unit(row.case_id)} by {answer.rule}, {answer.label}"


def _first_part(reason: str) -> str:
    """The reason up to its first semicolon, shortened."""
    first = reason.split("; ")[0]
    return first if len(first) <= _LONGEST else f"{first[:_LONGEST]}…"
