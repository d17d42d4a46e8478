"""The tables of ``scaling`` in the source documents' forms, as Markdown, which a terminal can show too."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from operator import itemgetter

from helpers.judging.rates import rate_unit
from helpers.judging.statistics import number
from helpers.report.scaling import THIS_SESSION, Scaling, ScalingRow
from helpers.report.table import Align, Column, Table
from helpers.trainers.contract.errors import printable

_FLEETX_CORNER = "batch / node"
_EMPTY = "-"
_AUTO = (
    "automatic parallel: the strategy may choose otherwise for one card than for several, so its speed-up is no "
    "reference (FleetX VGG16)"
)


def to_text(found: Sequence[Scaling], width: int) -> str:
    """Both forms for a terminal ``width`` columns wide; an empty string for nothing found."""
    if not found:
        return ""
    lines = ["speed-up and efficiency against the 1-card median of the same configuration, by wall-clock"]
    for each in found:
        if _tells(each):
            lines += ["", _title(each), *dlperf_table(each), *_wrapped(_notes(each), width)]
        else:
            lines += ["", *_wrapped([_untold(each)], width)]
    for group in _by_configuration(filter(_tells, found)):
        lines += ["", f"{_place(group[0])}: {_unit(group[0])}", *fleetx_table(group)]
    return "\n".join(lines)


def to_markdown(found: Sequence[Scaling]) -> str:
    """Both forms as a Markdown section, each table under its own heading."""
    if not found:
        return ""
    parts = ["## Speed-up and efficiency", "Against the 1-card median of the same configuration, by wall-clock."]
    for each in found:
        if not _tells(each):
            parts.append(_escaped(_untold(each)))
            continue
        parts += [f"### {_title(each)}", "\n".join(dlperf_table(each))]
        parts += ["\n".join(f"- {_escaped(note)}" for note in _notes(each))] if _notes(each) else []
    for group in _by_configuration(filter(_tells, found)):
        parts += [f"### {_place(group[0])}, {_unit(group[0])}", "\n".join(fleetx_table(group))]
    return "\n\n".join(parts) + "\n"


def dlperf_table(scaling: Scaling) -> list[str]:
    """DLPerf's form: one line a number of nodes and cards (of all nodes), speed-up with two decimals.

    A star marks what a note explains. The 1-card line is there whenever its figure is known.
    """
    cells = [_dlperf_cells(row) for row in scaling.rows]
    reference = scaling.reference
    if reference.samples_per_s is not None and all(row.cards > 1 or row.samples_per_s is None for row in scaling.rows):
        cells = [cell for cell, row in zip(cells, scaling.rows, strict=True) if row.cards > 1]
        cells.insert(0, ("1", "1", f"{_rate(reference.samples_per_s)}*", "1.00", "100.0%"))
    headings = ("nodes", "cards", _unit(scaling), "speed-up", "efficiency")
    columns = tuple(Column[Sequence[str]](heading, itemgetter(place)) for place, heading in enumerate(headings))
    return Table.of(columns, cells).markdown(padded=True)


def fleetx_table(group: Sequence[Scaling]) -> list[str]:
    """FleetX's form: batch size per card down, ``nodes x cards per node`` across, samples/s in the cells."""
    shapes = sorted({_shape(row) for each in group for row in each.rows} | {(1, 1)})
    columns: list[Column[Scaling]] = [
        Column(_FLEETX_CORNER, lambda each: str(each.batch_size_per_card), Align.CENTRE),
        *(_fleetx_column(shape) for shape in shapes),
    ]
    return Table.of(columns, sorted(group, key=lambda each: each.batch_size_per_card)).markdown()


def _fleetx_column(shape: tuple[int, int]) -> Column[Scaling]:
    def cell(scaling: Scaling) -> str:
        reference = scaling.reference
        if shape == (1, 1) and reference.samples_per_s is not None and reference.origin != THIS_SESSION:
            return f"{_rate(reference.samples_per_s)}*"
        found = [_fleetx_cell(row) for row in scaling.rows if _shape(row) == shape]
        return found[-1] if found else "not measured"

    return Column("{} x {}".format(*shape), cell, Align.CENTRE)


def _tells(scaling: Scaling) -> bool:
    """Whether a table says more than a sentence: not for a single case without a reference."""
    return len(scaling.rows) > 1 or any(row.speed_up is not None for row in scaling.rows)


def _untold(scaling: Scaling) -> str:
    return f"{_title(scaling)}: " + "; ".join(note.removeprefix("* ") for note in _notes(scaling))


def _dlperf_cells(row: ScalingRow) -> tuple[str, ...]:
    star = "*" if row.marks else ""
    rate = row.status if row.samples_per_s is None else f"{_rate(row.samples_per_s)}{star}"
    speed_up = f"{_EMPTY}*" if row.speed_up is None else f"{row.speed_up:.2f}{star}"
    efficiency = f"{_EMPTY}*" if row.efficiency is None else f"{row.efficiency:.1%}{star}"
    return str(row.nodes), str(row.cards), rate, speed_up, efficiency


def _fleetx_cell(row: ScalingRow) -> str:
    return row.status if row.samples_per_s is None else f"{_rate(row.samples_per_s)}{'*' if row.marks else ''}"


def _notes(scaling: Scaling) -> list[str]:
    """What the stars stand for, each thing once."""
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
    """Two decimals as DLPerf and FleetX print, four significant digits below 100."""
    return f"{samples_per_s:.2f}" if samples_per_s >= 100 else number(samples_per_s)


def _wrapped(notes: Iterable[str], width: int) -> list[str]:
    return [
        line
        for note in notes
        for line in textwrap.wrap(
            note, max(width, 40), subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
        )
    ]


def _escaped(note: str) -> str:
    """A note that no name of a process can turn into markup."""
    return note.replace("&", "&amp;").replace("<", "&lt;").replace("*", "\\*").replace("|", "\\|").replace("`", "\\`")
