"""Speed-up and efficiency over cards and nodes, against the 1-card median of the same configuration.

Two forms, as the source documents print them: DLPerf's (nodes, cards, samples/s, speed-up), one table a
configuration, and FleetX's (batch size x nodes). Both sides are samples/s by ``wall-clock``, or by the rule
that the recorded 1-card figure was made by.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from helpers.history.results import CONTENDED
from helpers.judging.rates import to_record
from helpers.judging.rules import MEDIAN_STEP, WALL_CLOCK
from helpers.judging.verdict import Status
from helpers.machine.environment import differences
from helpers.plan.recorded import RecordedEntry
from helpers.report.row import CaseRow
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import BaselineError, ConfigError

THIS_SESSION = "this session"

# Takes target and case id; gives what this machine has recorded. May raise BaselineError.
FindRecorded = Callable[[str, str], "RecordedEntry | None"]

_SUSPECT = (Status.INFRA_ERROR.value, Status.INVALID.value, Status.INCONCLUSIVE.value)
# By these a run on one card always differs from one on several.
_CARDS, _CARD_IDS, _NODES = "cards", "card ids", "nodes"
_COUNT = re.compile(r"(?:^|(?<= \+ ))\d+ x ")


@dataclass(frozen=True)
class Reference:
    """The 1-card side of a speed-up."""

    case_id: str
    # The median of its runs; None where ``reason`` says why.
    samples_per_s: float | None
    # THIS_SESSION, or the recorded entry's date and commit.
    origin: str = ""
    # Why the figure is to be doubted.
    marks: tuple[str, ...] = ()
    reason: str = ""
    # Both sides' figures are by this rule.
    rule: str = WALL_CLOCK


@dataclass(frozen=True)
class ScalingRow:
    """One case beside the 1-card case."""

    case_id: str
    nodes: int
    # Of all nodes.
    cards: int
    samples_per_s: float | None
    runs: int
    status: str
    # samples/s over the 1-card median; None where ``reason`` says why.
    speed_up: float | None = None
    # The speed-up over the cards, as a fraction.
    efficiency: float | None = None
    # Why the figure is to be doubted.
    marks: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Scaling:
    """One configuration over cards and nodes."""

    # The case id without batch and cards.
    configuration: str
    target: str
    batch_size_per_card: int
    reference: Reference
    rows: tuple[ScalingRow, ...]
    auto: bool = False
    rule: str = WALL_CLOCK

    def to_record(self) -> dict[str, Any]:
        return dict(to_record(self))


def scalings(rows: Sequence[CaseRow], find_recorded: FindRecorded) -> tuple[Scaling, ...]:
    """One for each configuration of which this session measured a case with several cards, in the rows' order.

    The reference is the 1-card case's median of this session, else this machine's recorded figure, if that was recorded
    in the same segment, cards aside. Where both are missing there is no speed-up.
    """
    groups: dict[tuple[str, str], list[tuple[Case, CaseRow]]] = {}
    for row in rows:
        try:
            case = Case.parse(row.case_id)
        except ConfigError:
            # Not a case of the matrix, so no configuration of it either.
            continue
        groups.setdefault((row.target, replace(case, nodes=1, cards_per_node=1).id), []).append((case, row))
    found = []
    for (target, one_card_id), members in groups.items():
        if any(case.cards > 1 and row.samples_per_s is not None for case, row in members):
            ordered = sorted(members, key=lambda member: (member[0].nodes, member[0].cards))
            found.append(_scaling(one_card_id, target, ordered, find_recorded))
    return tuple(found)


def _scaling(
    one_card_id: str, target: str, members: Sequence[tuple[Case, CaseRow]], find_recorded: FindRecorded
) -> Scaling:
    one_card = next((row for case, row in members if case.cards == 1), None)
    measured = next(row for case, row in members if case.cards > 1 and row.samples_per_s is not None)
    if one_card is not None and one_card.samples_per_s is not None and one_card.rule == WALL_CLOCK:
        reference = Reference(one_card_id, one_card.samples_per_s, THIS_SESSION, marks_of(one_card))
    else:
        reference = _recorded(one_card_id, target, one_card, measured, find_recorded)
    case = members[0][0]
    lines = [_row(case, row, reference, one_card) for case, row in members]
    return Scaling(
        one_card_id.replace(f"-bs{case.batch_size_per_card}-1x1-", "-", 1),
        target,
        case.batch_size_per_card,
        reference,
        tuple(lines),
        case.auto,
    )


def _row(case: Case, row: CaseRow, reference: Reference, one_card: CaseRow | None) -> ScalingRow:
    shown = ScalingRow(
        row.case_id, case.nodes, case.cards, row.samples_per_s, row.runs, row.status, marks=marks_of(row)
    )
    if row.samples_per_s is None:
        return replace(shown, reason=f"{row.status}: {row.reason}")
    if row.rule != WALL_CLOCK:
        return replace(shown, reason=f"measured by {row.rule}, the 1-card median by {WALL_CLOCK}")
    if reference.samples_per_s is None:
        return replace(shown, reason=reference.reason)
    if reference.origin == THIS_SESSION and one_card is not None:
        apart = apart_from_cards(one_card.segment, row.segment)
        shown = replace(shown, marks=(*shown.marks, *(f"other segment: {each}" for each in apart)))
    measured = row.samples_per_s
    if reference.rule != row.rule:
        found = next((each for each in row.figures if each.rule == reference.rule), None)
        if found is None or found.samples_per_s is None:
            return replace(shown, reason=f"no figure by {reference.rule}, which the 1-card median is by")
        measured = found.samples_per_s
    speed_up = measured / reference.samples_per_s
    return replace(shown, speed_up=speed_up, efficiency=speed_up / case.cards)


def _recorded(
    one_card_id: str, target: str, one_card: CaseRow | None, measured: CaseRow, find_recorded: FindRecorded
) -> Reference:
    """The recorded figure of the 1-card case where it may serve, else why there is no reference."""
    why = "not measured in this session" if one_card is None else f"{one_card.status} in this session"
    about = f"the 1-card case {one_card_id} is {why}"
    try:
        entry = find_recorded(target, one_card_id)
    except BaselineError as error:
        return Reference(one_card_id, None, reason=f"{about}, and what is recorded cannot be read: {error}")
    if entry is None:
        return Reference(one_card_id, None, reason=f"{about} and not recorded on this machine; measure it too")
    label = f"recorded {entry.provenance.date[:10]}, {entry.provenance.commit[:12]}"
    if entry.rule == MEDIAN_STEP:
        label = f"{label}, by {entry.rule}"
    elif entry.rule != WALL_CLOCK:
        return Reference(one_card_id, None, reason=f"{about}, and {label} by {entry.rule}, not by {WALL_CLOCK}")
    if measured.overrides:
        changed = ", ".join(measured.overrides)
        return Reference(one_card_id, None, reason=f"{about}, and {label} without the changed settings ({changed})")
    if apart := apart_from_cards(entry.segment, measured.segment):
        reason = f"{about}, and {label} in another segment ({'; '.join(apart)})"
        return Reference(one_card_id, None, reason=reason)
    return Reference(one_card_id, entry.samples_per_s, label, rule=entry.rule)


def apart_from_cards(one_card: Mapping[str, str], several: Mapping[str, str]) -> tuple[str, ...]:
    """How two segments differ besides the number of cards; the one card must be among the several, or of their
    model."""
    models = [sorted(_COUNT.sub("", each.get(_CARDS, "")).split(" + ")) for each in (one_card, several)]
    ids = [each.get(_CARD_IDS, "").split() for each in (one_card, several)]
    apart = differences(_without_cards(one_card), _without_cards(several))
    if not set(models[0]) <= set(models[1]):
        apart = (*apart, f"{_CARDS}: {' + '.join(models[0])} → {' + '.join(models[1])}")
    if not set(ids[0]) <= set(ids[1]):
        apart = (*apart, f"{_CARD_IDS}: {' '.join(ids[0])} is not among {' '.join(ids[1]) or 'none'}")
    return apart


def _without_cards(segment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in segment.items() if name not in (_CARDS, _CARD_IDS, _NODES)}


def marks_of(row: CaseRow) -> tuple[str, ...]:
    """Why a figure is to be doubted: a bad status, logs instead of runs, contention or another mark, changed settings.

    The case's own row names who contended.
    """
    marks = [row.status] if row.status in _SUSPECT else []
    if not row.is_measured:
        marks.append(row.origin)
    marks += [each.partition(": ")[0].replace(CONTENDED, CONTENDED.upper(), 1) for each in row.marks]
    if row.overrides:
        marks.append(f"OVERRIDDEN: {', '.join(row.overrides)}")
    return tuple(marks)
