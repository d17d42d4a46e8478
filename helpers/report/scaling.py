"""Speed-up and efficiency over cards and nodes, relative to the 1-card median of the same configuration.

There are two forms, as in the published documents: DLPerf's (nodes, cards, samples/s, speed-up), one table for each
configuration, and FleetX's (batch size x nodes). All figures are samples/s by ``wall-clock``, or by the rule of the
recorded 1-card figure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from helpers.history.results import CONTENDED
from helpers.judging.case.verdict import Status
from helpers.judging.rules.own import MEDIAN_STEP, WALL_CLOCK
from helpers.judging.rules.rates import rate_unit, to_record
from helpers.judging.statistics import number
from helpers.machine.environment import differences
from helpers.plan.recorded import RecordedEntry
from helpers.report.row import CaseRow
from helpers.report.table import Align, Column, Table
from helpers.report.text import hanging
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import BaselineError, ConfigError, printable

THIS_SESSION = "this session"
# What a speed-up is measured against, and by which rule.
AGAINST = "against the 1-card median of the same configuration, by wall-clock"

# Takes target and case id, returns this machine's recorded entry (None without one). May raise BaselineError.
FindRecorded = Callable[[str, str], "RecordedEntry | None"]

_SUSPECT = (Status.INFRA_ERROR.value, Status.INVALID.value, Status.INCONCLUSIVE.value)
# Keys of a segment in which a run on one card always differs from one on several.
_CARDS, _CARD_IDS, _NODES = "cards", "card ids", "nodes"
_COUNT = re.compile(r"(?:^|(?<= \+ ))\d+ x ")
_FLEETX_CORNER = "batch / node"
_EMPTY = "-"
_AUTO = (
    "automatic parallel: the strategy may choose otherwise for one card than for several, so its speed-up is no "
    "reference (FleetX VGG16)"
)


@dataclass(frozen=True)
class Reference:
    """The 1-card figure of a speed-up."""

    case_id: str
    # The median of its runs; None if ``reason`` says why.
    samples_per_s: float | None
    # THIS_SESSION, or the recorded entry's date and commit.
    origin: str = ""
    # Reasons to doubt the figure.
    marks: tuple[str, ...] = ()
    reason: str = ""
    # The rule of both figures.
    rule: str = WALL_CLOCK


@dataclass(frozen=True)
class ScalingRow:
    """One case compared with the 1-card case."""

    case_id: str
    nodes: int
    # On all nodes together.
    cards: int
    samples_per_s: float | None
    runs: int
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
    reference: Reference
    rows: tuple[ScalingRow, ...]
    auto: bool = False
    rule: str = WALL_CLOCK

    def to_record(self) -> dict[str, Any]:
        return dict(to_record(self))


def scalings(rows: Sequence[CaseRow], find_recorded: FindRecorded) -> tuple[Scaling, ...]:
    """One Scaling for each configuration of which this session measured a case with several cards, in the order of the
    rows.

    The reference is the 1-card case's median in this session, else this machine's recorded figure, if that was recorded
    in the same segment (apart from the cards). Without a reference there is no speed-up.
    """
    groups: dict[tuple[str, str], list[tuple[Case, CaseRow]]] = {}
    for row in rows:
        try:
            case = Case.parse(row.case_id)
        except ConfigError:
            # Not a case of the matrix.
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
    """The recorded figure of the 1-card case if it can be used, else why there is no reference."""
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
    """How two segments differ besides the number of cards. The one card must be one of the several cards, or of their
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
    for each in scaling_tables(found):
        if each.table is None:
            notes = "; ".join(note.removeprefix("* ") for note in each.notes)
            lines += ["", *_wrapped(f"{each.title}: {notes}", width)]
            continue
        # FleetX's documents do not pad their cells.
        lines += ["", each.title, *each.table.markdown(padded=each.scaling is not None)]
        lines += [line for note in each.notes for line in _wrapped(note, width)]
    return "\n".join(lines)


@dataclass(frozen=True)
class ScalingTable:
    """The speed-ups of one configuration as a table."""

    title: str
    # None for a single case without a reference, of which ``notes`` say all.
    table: Table | None
    notes: tuple[str, ...]
    # What a table in DLPerf's form shows; None for one in FleetX's form.
    scaling: Scaling | None = None


def scaling_tables(found: Sequence[Scaling]) -> tuple[ScalingTable, ...]:
    """The tables in DLPerf's form, then those in FleetX's form."""
    shown = [each for each in found if _needs_table(each)]
    return (
        *(
            ScalingTable(_title(each), dlperf_table(each) if each in shown else None, tuple(_notes(each)), each)
            for each in found
        ),
        *(
            ScalingTable(f"{_place(group[0])}: {_unit(group[0])}", fleetx_table(group), ())
            for group in _by_configuration(shown)
        ),
    )


def dlperf_table(scaling: Scaling) -> Table:
    """DLPerf's form: one line for each number of nodes and cards (of all nodes); speed-up with two decimals.

    A star refers to a note. The line for 1 card is there whenever its figure is known.
    """
    cells = [_dlperf_cells(row) for row in scaling.rows]
    reference = scaling.reference
    if reference.samples_per_s is not None and all(row.cards > 1 or row.samples_per_s is None for row in scaling.rows):
        cells = [cell for cell, row in zip(cells, scaling.rows, strict=True) if row.cards > 1]
        cells.insert(0, ("1", "1", f"{_rate(reference.samples_per_s)}*", "1.00", "100.0%"))
    headings = ("nodes", "cards", _unit(scaling), "speed-up", "efficiency")
    columns = tuple(Column[Sequence[str]](heading, itemgetter(place)) for place, heading in enumerate(headings))
    return Table.of(columns, cells)


def fleetx_table(group: Sequence[Scaling]) -> Table:
    """FleetX's form: rows are batch sizes per card, columns are ``nodes x cards per node``, cells are samples/s."""
    shapes = sorted({_shape(row) for each in group for row in each.rows} | {(1, 1)})
    columns: list[Column[Scaling]] = [
        Column(_FLEETX_CORNER, lambda each: str(each.batch_size_per_card), Align.CENTRE),
        *(_fleetx_column(shape) for shape in shapes),
    ]
    return Table.of(columns, sorted(group, key=lambda each: each.batch_size_per_card))


def _fleetx_column(shape: tuple[int, int]) -> Column[Scaling]:
    def cell(scaling: Scaling) -> str:
        reference = scaling.reference
        if shape == (1, 1) and reference.samples_per_s is not None and reference.origin != THIS_SESSION:
            return f"{_rate(reference.samples_per_s)}*"
        found = [_fleetx_cell(row) for row in scaling.rows if _shape(row) == shape]
        return found[-1] if found else "not measured"

    return Column("{} x {}".format(*shape), cell, Align.CENTRE)


def _needs_table(scaling: Scaling) -> bool:
    """Whether a table is useful; a single case without a reference needs only a sentence."""
    return len(scaling.rows) > 1 or any(row.speed_up is not None for row in scaling.rows)


def _dlperf_cells(row: ScalingRow) -> tuple[str, ...]:
    star = "*" if row.marks else ""
    rate = row.status if row.samples_per_s is None else f"{_rate(row.samples_per_s)}{star}"
    speed_up = f"{_EMPTY}*" if row.speed_up is None else f"{row.speed_up:.2f}{star}"
    efficiency = f"{_EMPTY}*" if row.efficiency is None else f"{row.efficiency:.1%}{star}"
    return str(row.nodes), str(row.cards), rate, speed_up, efficiency


def _fleetx_cell(row: ScalingRow) -> str:
    return row.status if row.samples_per_s is None else f"{_rate(row.samples_per_s)}{'*' if row.marks else ''}"


def _notes(scaling: Scaling) -> list[str]:
    """The explanations of the stars, each once."""
    reference, notes = scaling.reference, []
    if reference.samples_per_s is not None and reference.origin != THIS_SESSION:
        notes.append(f"* 1 x 1: {reference.origin}; not measured in this session")
    for row in scaling.rows:
        shape = "{} x {}".format(*_shape(row))
        notes += [f"* {shape}: {printable(mark)}" for mark in row.marks]
        if row.reason:
            notes.append(f"* {shape}: no speed-up: {printable(row.reason)}")
    if reference.samples_per_s is not None and reference.marks:
        notes.append("every speed-up here rests on the marked 1-card figure")
    return [*notes, _AUTO] if scaling.auto else notes


def _title(scaling: Scaling) -> str:
    return f"{_place(scaling)}, batch size = {scaling.batch_size_per_card}"


def _unit(scaling: Scaling) -> str:
    return rate_unit(*(row.case_id for row in scaling.rows))


def _place(scaling: Scaling) -> str:
    return f"{scaling.configuration} [{scaling.target}]"


def _by_configuration(found: Iterable[Scaling]) -> list[list[Scaling]]:
    groups: dict[tuple[str, str], list[Scaling]] = {}
    for each in found:
        groups.setdefault((each.configuration, each.target), []).append(each)
    return list(groups.values())


def _shape(row: ScalingRow) -> tuple[int, int]:
    return row.nodes, row.cards // row.nodes


def _rate(samples_per_s: float) -> str:
    """Two decimals, as DLPerf and FleetX print; below 100, four significant digits."""
    return f"{samples_per_s:.2f}" if samples_per_s >= 100 else number(samples_per_s)


def _wrapped(text: str, width: int) -> list[str]:
    return hanging(text, max(width, 40), "", "  ")
