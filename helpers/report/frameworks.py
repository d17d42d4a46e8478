"""Reports the comparison of frameworks in the form of the published documents: a row for each configuration, a column
for each framework, in samples/s."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from helpers.judging.rates import rate_unit, to_record
from helpers.judging.statistics import number
from helpers.judging.verdict import Status
from helpers.plan.case_plan import CPU
from helpers.plan.published import title_of
from helpers.report.table import Align, Column, Table, markdown_list, markdown_text
from helpers.report.text import hanging
from helpers.session.frameworks.comparison import Cell, ConfigurationOutcome, PublishedCell
from helpers.session.frameworks.configurations import REFERENCE
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.frameworks import FRAMEWORKS, Framework

# 1: first format.
FRAMEWORKS_SCHEMA_VERSION = 1

NAMES = {framework: spec.title for framework, spec in FRAMEWORKS.items()}
_PARAMETERS, _PUBLISHED = "parameters", "published"
_LEGEND = (
    "{unit}: the median over runs, with its 95% interval",
    "ratio to Paddle: the geometric mean over pairs of runs made in turn, with its 95% interval",
    "published: the same ratio in the documents' nearest row that has both: of the same model, then of the same "
    "precision class, then nearest in cards, then in batch size, then of the same card model, then with the fewest "
    "other differences",
)


@dataclass(frozen=True)
class FrameworksReport:
    """The results of a comparison of frameworks."""

    outcomes: Sequence[ConfigurationOutcome]
    # Lines for the beginning of the report, by name: machine, session, runs.
    about: Mapping[str, str] = field(default_factory=dict)
    # How many runs of each framework were requested.
    pairs: int = 0
    exit_code: int = 0


@dataclass(frozen=True)
class _Titled:
    """The table of one target, model, precision and execution, with its title.

    Its columns are the parameters, samples/s of each of ``frameworks``, then ratio and published ratio of each except
    Paddle.
    """

    title: str
    frameworks: tuple[Framework, ...]
    table: Table


@dataclass
class _Notes:
    """The notes below the tables, each once."""

    # Notes with a number.
    published: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def number_of(self, note: str) -> int:
        if note not in self.published:
            self.published.append(note)
        return self.published.index(note) + 1

    def lines(self) -> list[str]:
        return [*(f"({place}) {note}" for place, note in enumerate(self.published, 1)), *self.others]


def render_frameworks(report: FrameworksReport, width: int) -> str:
    """The tables for a terminal, with the notes below. If a table is too wide, each framework has a line of its own.

    A configuration that ran in no framework appears only in the reasons.
    """
    tables, notes = _contents(report.outcomes)
    lines: list[str] = []
    for titled in tables:
        lines += hanging(titled.title, width, "", "    ")
        lines += [*_grid(titled, width), ""]
    for note in notes:
        lines += hanging(note, width, "", "    ")
    return "\n".join(lines)


def render_frameworks_markdown(report: FrameworksReport, _width: int = 0) -> str:
    """The lines about the session, the tables and the notes as Markdown."""
    tables, notes = _contents(report.outcomes)
    parts = ["\n".join(f"- {name}: {markdown_text(value)}" for name, value in report.about.items())]
    for titled in tables:
        parts.append(f"**{markdown_text(titled.title)}**")
        parts.append("\n".join(titled.table.markdown(markdown_text)))
    parts.append(markdown_list(notes))
    return "\n\n".join(parts) + "\n"


def frameworks_tables(
    outcomes: Sequence[ConfigurationOutcome],
) -> tuple[tuple[tuple[str, Table], ...], tuple[str, ...]]:
    """The tables, each with its title, and the notes below them."""
    tables, notes = _contents(outcomes)
    return tuple((titled.title, titled.table) for titled in tables), tuple(notes)


def frameworks_json(report: FrameworksReport, _width: int = 0) -> str:
    """All numbers behind the tables as JSON; ``configurations`` has a record of each ConfigurationOutcome. Raises
    ValueError on a number that is not finite."""
    record = {
        "schema_version": FRAMEWORKS_SCHEMA_VERSION,
        "about": dict(report.about),
        "pairs": report.pairs,
        "exit_code": report.exit_code,
        "configurations": [to_record(each) for each in report.outcomes],
    }
    return json.dumps(record, indent=1, sort_keys=True, allow_nan=False) + "\n"


# The formats of the files, by the name of the option. They do not depend on the terminal's width.
FRAMEWORKS_FORMATS: Mapping[str, Callable[[FrameworksReport, int], str]] = {
    "markdown": render_frameworks_markdown,
    "json": frameworks_json,
}


def label(row: ConfigurationOutcome) -> str:
    """A row's name as in the documents, and the source of the images: ``CPU=1,BS=4 synthetic``."""
    device = "CPU" if row.target == CPU else "GPU"
    return f"{device}={row.cards},BS={row.batch_size_per_card} {row.data}"


def _contents(rows: Sequence[ConfigurationOutcome]) -> tuple[list[_Titled], list[str]]:
    notes = _Notes()
    groups: dict[tuple[object, ...], list[ConfigurationOutcome]] = {}
    for row in (row for row in rows if any(cell.runs_here for cell in row.cells)):
        groups.setdefault((row.target, row.model, row.precision, row.execution, row.documented), []).append(row)
    tables = [_titled(group, notes) for group in groups.values()]
    notes.others += [*_reasons(rows), *_disturbed(rows), *_builds(rows)]
    legend = [each.format(unit=_unit(rows)) for each in _LEGEND] if tables else []
    return tables, [*notes.lines(), *legend]


def _unit(rows: Sequence[ConfigurationOutcome]) -> str:
    return rate_unit(*(cell.case_id for row in rows for cell in row.cells if cell.case_id))


def _titled(rows: Sequence[ConfigurationOutcome], notes: _Notes) -> _Titled:
    first, present = rows[0], {cell.framework for row in rows for cell in row.cells}
    frameworks = tuple(each for each in Framework if each.value in present)
    title = f"{first.target}, {first.model}, {first.precision}: {_unit(rows)}"
    if first.execution:
        title += f" (Paddle: {first.execution})"
    notes.others += dict.fromkeys(_pairing(row) for row in rows if row.documented)
    notes.others += dict.fromkeys(_unlike(row) for row in rows if row.unlike)
    return _Titled(title, frameworks, Table.of(_columns(frameworks, notes), rows))


def _pairing(row: ConfigurationOutcome) -> str:
    """A note on configurations that the documents compare although more than framework and execution differ."""
    cases = [Case.parse(cell.case_id) for cell in row.cells]
    parts = [f"{NAMES[case.framework]} {case.precision.value}, {case.data.value}" for case in cases]
    return f"{row.target} {row.precision}: as the documents pair them: {'; '.join(parts)}"


def _unlike(row: ConfigurationOutcome) -> str:
    """A note on settings that differ, and so affect the ratio: ``amp_level O2 (Paddle), O1 (PyTorch)``."""
    parts = []
    for name, values in row.unlike.items():
        each = (f"{json.dumps(value).strip(chr(34))} ({NAMES[Framework(of)]})" for of, value in values.items())
        parts.append(f"{name} {', '.join(each)}")
    return f"{row.target} {row.model} {row.precision}: not trained alike (perfgate show CASE): {'; '.join(parts)}"


def _columns(frameworks: Sequence[Framework], notes: _Notes) -> list[Column[ConfigurationOutcome]]:
    columns = [Column(_PARAMETERS, label)]
    columns += [_rate_column(each) for each in frameworks]
    for each in frameworks:
        if each is not REFERENCE:
            columns += _ratio_columns(each, notes)
    return columns


def _rate_column(framework: Framework) -> Column[ConfigurationOutcome]:
    return Column(NAMES[framework], lambda row: _rate(row.cell(framework)), Align.RIGHT)


def _ratio_columns(framework: Framework, notes: _Notes) -> tuple[Column[ConfigurationOutcome], ...]:
    return (
        Column(f"{NAMES[framework]} / Paddle", lambda row: _ratio(row, framework), Align.RIGHT),
        Column(_PUBLISHED, lambda row: _published(row, row.published_of(framework), notes), Align.RIGHT),
    )


def _rate(cell: Cell) -> str:
    if cell.samples_per_s is None:
        return ""
    case = Case.parse(cell.case_id)
    # In the form of the documents: 1438.518(O2).
    compilers = ",".join(case.compilers)
    text = f"{number(cell.samples_per_s)}{f'({compilers})' if compilers else ''}{'*' if cell.marks else ''}"
    if cell.low is None or cell.high is None:
        return text
    return f"{text} [{number(cell.low)}, {number(cell.high)}]"


def _ratio(row: ConfigurationOutcome, framework: Framework) -> str:
    """The ratio; it has a star if one of its two figures has one."""
    cell = row.cell(framework)
    if cell.ratio is None:
        return ""
    centre, low, high = cell.ratio.centre, cell.ratio.low, cell.ratio.high
    text = f"{_digits(centre)}{'*' if cell.marks or row.cell(REFERENCE).marks else ''}"
    return text if low is None or high is None else f"{text} [{_digits(low)}, {_digits(high)}]"


def _digits(ratio: float) -> str:
    """A ratio as text; a large one, as in the interval of two runs far apart, has no decimals."""
    return f"{ratio:.3f}" if ratio < 1000 else "over 999"


def _published(row: ConfigurationOutcome, found: PublishedCell | None, notes: _Notes) -> str:
    if found is None or found.ratio is None or found.paddle_samples_per_s is None or found.samples_per_s is None:
        return ""
    name = NAMES[Framework(found.framework)]
    note = (
        f"{found.row}, {found.gpu} ({title_of(found.source)}): Paddle {number(found.paddle_samples_per_s)}, "
        f"{name} {number(found.samples_per_s)}"
    )
    if found.differs:
        note += f"; unlike {label(row)}: {', '.join(found.differs)}"
    if found.disputed:
        note += "; * disputed: its own logs contradict it"
    return f"{found.ratio:.3f}{'*' if found.disputed else ''} ({notes.number_of(note)})"


def _reasons(rows: Sequence[ConfigurationOutcome]) -> list[str]:
    """Why cells are empty: one line for each reason, with frameworks and rows."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for row in rows:
        for cell in row.cells:
            if not cell.measured:
                status = "" if cell.status == Status.NOT_RUN.value else f"{cell.status}: "
                empty = found.setdefault(("not measured", status + cell.reason), [])
                empty.append((NAMES[Framework(cell.framework)], _place(row)))
        if any(cell.runs_here for cell in row.cells):
            for each in row.published:
                if each.ratio is None:
                    empty = found.setdefault(("no published ratio", each.reason), [])
                    empty.append((NAMES[Framework(each.framework)], _place(row)))
    parts = []
    for (what, why), empty in found.items():
        frameworks = dict.fromkeys(name for name, _ in empty)
        places = list(dict.fromkeys(place for _, place in empty))
        where = places[0] if len(places) == 1 else f"{len(places)} rows"
        parts.append(f"{', '.join(frameworks)}: {what}, {where}: {why}")
    return parts


def _place(row: ConfigurationOutcome) -> str:
    return f"{row.model} {row.precision} {label(row)}"


def _disturbed(rows: Iterable[ConfigurationOutcome]) -> list[str]:
    marks = dict.fromkeys(mark for row in rows for cell in row.cells if cell.measured for mark in cell.marks)
    return [f"* measured nevertheless; do not rely on these figures: {', '.join(marks)}"] if marks else []


def _builds(rows: Iterable[ConfigurationOutcome]) -> list[str]:
    builds = dict.fromkeys(cell.build for row in rows for cell in row.cells if cell.measured)
    return [f"builds: {', '.join(builds)}"] if builds else []


def _grid(titled: _Titled, width: int) -> list[str]:
    grid = titled.table.grid()
    return _stacked(titled) if grid.width > width else [grid.heading, "-" * grid.width, *grid.lines]


# Columns for one framework per line: name, samples/s, ratio, published ratio. They have no heading.
_STACKED: tuple[Column[Sequence[str]], ...] = (
    Column("", itemgetter(0)),
    Column("", itemgetter(1), Align.RIGHT),
    Column("", itemgetter(2), Align.RIGHT),
    Column("", itemgetter(3), Align.RIGHT),
)


def _stacked(titled: _Titled) -> list[str]:
    """A table with one line for each framework: samples/s, ratio, published ratio."""
    lines = []
    for first, *cells in titled.table.cells:
        ratios = iter(cells[len(titled.frameworks) :])
        lines.append(first)
        parts = []
        for framework, cell in zip(titled.frameworks, cells, strict=False):
            ratio, published = ("", "") if framework is REFERENCE else (next(ratios), next(ratios))
            parts.append([NAMES[framework], cell, ratio, f"{_PUBLISHED} {published}" if published else ""])
        lines += Table.of(_STACKED, parts).grid("    ").lines
    return lines
