"""Reports the comparison of frameworks: a line for each framework of each configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby

from helpers.judging.case.verdict import Status
from helpers.judging.rules.rates import rate_unit
from helpers.judging.statistics import number
from helpers.report.reasons import reason_text
from helpers.report.table import Align, Column, Table
from helpers.report.text import hanging
from helpers.session.side_by_side.comparison import Cell, ConfigurationOutcome
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import printable
from helpers.trainers.contract.frameworks import FRAMEWORKS, Framework

NAMES = {framework: spec.title for framework, spec in FRAMEWORKS.items()}
_LEGEND = (
    "over Paddle: by pairs of runs made in turn, with its 95% interval, as in a confirmation",
    "published: the same ratio in the document whose row this is; * its own logs contradict it",
)

# A configuration's name, and the cell of one of its frameworks.
_Row = tuple[str, Cell]


def frameworks_table(outcomes: Sequence[ConfigurationOutcome]) -> tuple[Table, tuple[str, ...]]:
    """The table of what was measured, and the notes below it: what its columns mean, why cells are empty, what was not
    trained alike, and the builds."""
    rows = [(each.name, cell) for each in outcomes for cell in each.cells if cell.measured]
    return Table.of(_columns(rows), rows), tuple(_notes(outcomes, [cell for _, cell in rows]))


def render_frameworks(outcomes: Sequence[ConfigurationOutcome], width: int) -> str:
    """The table for a terminal, each configuration with a line of its own, and the notes below."""
    rows = [(each.name, cell) for each in outcomes for cell in each.cells if cell.measured]
    grid = Table.of(_columns(rows)[1:], rows).grid("    ")
    lines: list[str] = [grid.heading, "-" * width] if rows else []
    for name, found in groupby(zip(rows, grid.lines, strict=True), key=lambda each: each[0][0]):
        lines += [name, *(line for _, line in found)]
    for note in _notes(outcomes, [cell for _, cell in rows]):
        lines += hanging(note, width, "", "    ")
    return "\n".join(map(printable, lines))


def _columns(rows: Sequence[_Row]) -> tuple[Column[_Row], ...]:
    unit = rate_unit(*(cell.case_id for _, cell in rows))
    return (
        Column("configuration", lambda row: row[0]),
        Column("framework", lambda row: NAMES[row[1].framework]),
        Column(unit, lambda row: _rate(row[1]), Align.RIGHT),
        Column("over Paddle", lambda row: _ratio(row[1]), Align.RIGHT),
        Column("published", lambda row: _published(row[1]), Align.RIGHT),
    )


def _rate(cell: Cell) -> str:
    """In the form of the documents: 1438.518(compile)."""
    if cell.samples_per_s is None or cell.low is None or cell.high is None:
        return ""
    case = Case.parse(cell.case_id)
    how = ",".join([*([case.execution.value] if case.execution else []), *case.compilers])
    star = "*" if cell.marks else ""
    return f"{number(cell.samples_per_s)}{f'({how})' if how else ''}{star} [{number(cell.low)}, {number(cell.high)}]"


def _ratio(cell: Cell) -> str:
    if cell.ratio is None:
        return ""
    centre, low, high = (f"{each:.3f}" if each < 1000 else "over 999" for each in _ends(cell))
    return f"{centre} [{low}, {high}]"


def _ends(cell: Cell) -> tuple[float, float, float]:
    assert cell.ratio is not None
    return cell.ratio.centre, cell.ratio.low, cell.ratio.high


def _published(cell: Cell) -> str:
    return "" if cell.published is None else f"{cell.published:.3f}{'*' if cell.disputed else ''}"


def _notes(outcomes: Sequence[ConfigurationOutcome], measured: Sequence[Cell]) -> Iterator[str]:
    if measured:
        yield from _LEGEND
    yield from _reasons(outcomes)
    for each in outcomes:
        for setting, values in each.unlike.items():
            told = (f"{json.dumps(value).strip(chr(34))} ({NAMES[Framework(of)]})" for of, value in values.items())
            yield f"{each.name}: not trained alike: {setting} {', '.join(told)}"
    if marks := dict.fromkeys(mark for cell in measured for mark in cell.marks):
        yield f"* measured nevertheless; do not rely on these figures: {', '.join(marks)}"
    if measured:
        yield f"builds: {', '.join(dict.fromkeys(cell.build for cell in measured))}"


def _reasons(outcomes: Sequence[ConfigurationOutcome]) -> Iterator[str]:
    """Why cells are empty: one line for each reason, with frameworks and rows."""
    found: dict[str, list[_Row]] = {}
    for each in outcomes:
        for cell in each.cells:
            if not cell.measured:
                status = "" if cell.status == Status.NOT_RUN.value else f"{cell.status}: "
                found.setdefault(status + reason_text(cell.reason), []).append((each.name, cell))
    for reason, rows in found.items():
        names = dict.fromkeys(NAMES[cell.framework] for _, cell in rows)
        places = dict.fromkeys(name for name, _ in rows)
        where = next(iter(places)) if len(places) == 1 else f"{len(places)} configurations"
        yield f"{', '.join(names)}: not measured, {where}: {reason}"
