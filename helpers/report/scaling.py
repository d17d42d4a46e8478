"""Speed-up and efficiency over cards and nodes, relative to the 1-card median of the same configuration in the same
session, in DLPerf's form. All figures are by ``wall-clock``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from helpers.history.results import CONTENDED
from helpers.judging.case.verdict import Status
from helpers.judging.rules.own import WALL_CLOCK
from helpers.judging.rules.rates import rate_unit, to_record
from helpers.judging.statistics import number
from helpers.report.row import CaseRow
from helpers.report.table import Table
from helpers.report.text import hanging
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError, printable

# What a speed-up is measured against, and by which rule.
AGAINST = "against the 1-card median of the same configuration, by wall-clock"
_SUSPECT = (Status.INFRA_ERROR.value, Status.INVALID.value, Status.INCONCLUSIVE.value)
_AUTO = (
    "automatic parallel: the strategy may choose otherwise for one card than for several, so its speed-up is no "
    "reference (FleetX VGG16)"
)


@dataclass(frozen=True)
class ScalingRow:
    """One case compared with the 1-card case."""

    case_id: str
    nodes: int
    # On all nodes together.
    cards: int
    samples_per_s: float | None
    status: str
    # samples/s / the 1-card median; None if ``reason`` says why.
    speed_up: float | None = None
    # Speed-up / cards: 1.0 is perfect scaling.
    efficiency: float | None = None
    # Reasons to doubt the figure.
    marks: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class Scaling:
    """One configuration over cards and nodes."""

    # The case id without batch and cards.
    configuration: str
    target: str
    batch_size_per_card: int
    rows: tuple[ScalingRow, ...]
    auto: bool = False

    @property
    def title(self) -> str:
        return f"{self.configuration} [{self.target}], batch size = {self.batch_size_per_card}"

    @property
    def notes(self) -> tuple[str, ...]:
        """The explanations of the stars, each once."""
        notes = []
        for row in self.rows:
            shape = f"{row.nodes} x {row.cards // row.nodes}"
            notes += [f"* {shape}: {printable(mark)}" for mark in row.marks]
            if row.reason:
                notes.append(f"* {shape}: no speed-up: {printable(row.reason)}")
        return (*notes, _AUTO) if self.auto else tuple(notes)

    @property
    def table(self) -> Table:
        """A line for each number of nodes and cards; a star refers to a note."""
        headings = ("nodes", "cards", rate_unit(*(row.case_id for row in self.rows)), "speed-up", "efficiency")
        return Table.of_texts(headings, map(_cells, self.rows))

    def to_record(self) -> dict[str, Any]:
        return dict(to_record(self))


def scalings(rows: Sequence[CaseRow]) -> tuple[Scaling, ...]:
    """One Scaling for each configuration of which this session measured a case with several cards, in the order of the
    rows."""
    groups: dict[tuple[str, str], list[tuple[Case, CaseRow]]] = {}
    for row in rows:
        try:
            case = Case.parse(row.case_id)
        except ConfigError:
            # Not a case of the matrix.
            continue
        groups.setdefault((row.target, replace(case, nodes=1, cards_per_node=1).id), []).append((case, row))
    return tuple(
        _scaling(one_card_id, target, sorted(members, key=lambda member: (member[0].nodes, member[0].cards)))
        for (target, one_card_id), members in groups.items()
        if any(case.cards > 1 and row.samples_per_s is not None for case, row in members)
    )


def _scaling(one_card_id: str, target: str, members: Sequence[tuple[Case, CaseRow]]) -> Scaling:
    one_card = next((row for case, row in members if case.cards == 1 and row.rule == WALL_CLOCK), None)
    case = members[0][0]
    return Scaling(
        one_card_id.replace(f"-bs{case.batch_size_per_card}-1x1-", "-", 1),
        target,
        case.batch_size_per_card,
        tuple(_row(case, row, one_card.samples_per_s if one_card else None, one_card_id) for case, row in members),
        case.auto,
    )


def _row(case: Case, row: CaseRow, one_card: float | None, one_card_id: str) -> ScalingRow:
    shown = ScalingRow(row.case_id, case.nodes, case.cards, row.samples_per_s, row.status, marks=marks_of(row))
    if row.samples_per_s is None:
        return replace(shown, reason=f"{row.status}: {row.reason}")
    if row.rule != WALL_CLOCK:
        return replace(shown, reason=f"measured by {row.rule}, not by {WALL_CLOCK}")
    if one_card is None:
        return replace(shown, reason=f"{one_card_id} has no figure in this session; measure it too")
    speed_up = row.samples_per_s / one_card
    return replace(shown, speed_up=speed_up, efficiency=speed_up / case.cards)


def _cells(row: ScalingRow) -> tuple[str, ...]:
    star = "*" if row.marks else ""
    rate = row.status if row.samples_per_s is None else f"{number(row.samples_per_s)}{star}"
    speed_up = "-*" if row.speed_up is None else f"{row.speed_up:.2f}{star}"
    efficiency = "-*" if row.efficiency is None else f"{row.efficiency:.1%}{star}"
    return str(row.nodes), str(row.cards), rate, speed_up, efficiency


def marks_of(row: CaseRow) -> tuple[str, ...]:
    """Reasons to doubt a figure: a bad status, contention or another mark, changed settings.

    The processes that disturbed it are named in the case's own row.
    """
    marks = [row.status] if row.status in _SUSPECT else []
    marks += [each.partition(": ")[0].replace(CONTENDED, CONTENDED.upper(), 1) for each in row.marks]
    if row.overrides:
        marks.append(f"OVERRIDDEN: {', '.join(row.overrides)}")
    return tuple(marks)


def to_text(found: Sequence[Scaling], width: int) -> str:
    """The tables for a terminal of ``width`` columns; an empty string if nothing was found."""
    if not found:
        return ""
    lines = [f"speed-up and efficiency {AGAINST}"]
    for each in found:
        lines += ["", each.title, *each.table.markdown(padded=True)]
        lines += [line for note in each.notes for line in hanging(note, max(width, 40), "", "  ")]
    return "\n".join(lines)
