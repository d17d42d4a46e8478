"""The table of ``perfgate cases``: a line for each case, and the footnotes that lines share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from helpers.commands.formats import JSON, MARKDOWN, TEXT, Formats, json_text
from helpers.report.markdown import markdown_text
from helpers.report.table import Column, Table
from helpers.report.text import hanging, printable

# 1: first format.
CASES_SCHEMA_VERSION = 1

WIDTH = 100
NOT_TRIED = "not tried"
TWINS = (
    "A CPU twin has a batch and a learning rate of its own, bfloat16 where the case has float16, and none of the "
    "GPU's flags and strategies; its footnote says what else differs."
)
COMPLETE = "complete"


@dataclass(frozen=True)
class CaseLine:
    """One case on one target."""

    case_id: str
    target: str
    # The published figures as texts.
    published: tuple[str, ...]
    # COMPLETE, or what is missing.
    configuration: str
    # None where this machine runs the case, else the reason.
    here: str | None
    # The cards, and the images of a published comparison.
    needs: str
    # The CPU case that runs here in its place; empty without one.
    twin: str = ""
    # How the twin differs, or why there is none.
    twin_note: str = ""
    # What became of building the program, and why it was not built.
    build: str = NOT_TRIED
    build_note: str = ""
    # The flags and options that the tried build does not know.
    not_applied: tuple[str, ...] = ()
    # Counts of the program that was built.
    operators: int | None = None
    parameters: int | None = None

    def to_record(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class CaseTable:
    """What ``perfgate cases`` answers with."""

    lines: Sequence[CaseLine]
    # Names machine and build.
    about: Mapping[str, str]


@dataclass
class Footnotes:
    """Texts that lines share, numbered in the order of their first use."""

    numbers: dict[str, int] = field(default_factory=dict)

    def mark(self, text: str) -> str:
        """`` [1]`` for a text, nothing for an empty one."""
        return f" [{self.numbers.setdefault(text, len(self.numbers) + 1)}]" if text else ""

    def lines(self, shown: Callable[[str], str] = printable) -> list[str]:
        return [f"[{number}] {shown(text)}" for text, number in self.numbers.items()]


def summary(lines: Sequence[CaseLine]) -> str:
    """One line that counts: how many cases are complete, run here, have a twin that does, are built."""
    built = Counter(line.build for line in lines)
    parts = [
        f"{len(lines)} cases",
        f"{sum(line.configuration == COMPLETE for line in lines)} with a complete configuration",
        f"{sum(line.here is None for line in lines)} run here",
        f"{sum(bool(line.twin) for line in lines)} have a CPU twin that runs here",
        *(f"{count} {build}" for build, count in sorted(built.items()) if build != NOT_TRIED),
    ]
    if built[NOT_TRIED]:
        parts.append(f"{built[NOT_TRIED]} builds not tried")
    return ", ".join(parts)


def render(table: CaseTable, width: int = WIDTH) -> str:
    """The table for a terminal: two lines a case, footnotes at the end."""
    lines, about = table.lines, table.about
    notes = Footnotes()
    noted = [_noted(line, notes) for line in lines]
    grid = Table.of(_TEXT_COLUMNS, noted).grid("    ")
    shown = ["case", grid.heading, "-" * width]
    for each, text in zip(noted, grid.lines, strict=True):
        shown += [printable(f"{each.line.case_id} [{each.line.target}]"), text]
        shown += hanging(_below(each), width, "      ", "      ")
    heading = [line for name, value in about.items() for line in hanging(f"{name}: {value}", width, "", "    ")]
    parts = [*heading, "", *shown, "", *hanging(summary(lines), width, "", "    ")]
    if any(line.twin for line in lines):
        parts += hanging(TWINS, width, "", "    ")
    for note in notes.lines():
        parts += hanging(note, width, "", "    ")
    return "\n".join(parts)


def render_markdown(table: CaseTable, _width: int = WIDTH) -> str:
    """The same as a Markdown table with its footnotes below."""
    lines, about = table.lines, table.about
    notes = Footnotes()
    rows = Table.of(_MARKDOWN_COLUMNS, [_noted(line, notes) for line in lines]).markdown()
    facts = [f"- {name}: {markdown_text(value)}" for name, value in about.items()]
    text = " ".join([f"{summary(lines)}.", *([TWINS] if any(line.twin for line in lines) else [])])
    return "\n".join([*facts, "", text, "", *rows, "", *(f"- {each}" for each in notes.lines(markdown_text))])


def render_json(table: CaseTable, _width: int = WIDTH) -> str:
    record = {
        "schema_version": CASES_SCHEMA_VERSION,
        "about": table.about,
        "summary": summary(table.lines),
        "cases": [line.to_record() for line in table.lines],
    }
    return json_text(record)


FORMATS: Formats[CaseTable] = {TEXT: render, MARKDOWN: render_markdown, JSON: render_json}


@dataclass(frozen=True)
class _Noted:
    """A line and its cells with footnotes, whose numbers follow the order in which lines are read."""

    line: CaseLine
    configuration: str
    here: str
    build: str
    twin_mark: str

    @property
    def published(self) -> str:
        return ", ".join(self.line.published) or "-"


def _noted(line: CaseLine, notes: Footnotes) -> _Noted:
    complete = line.configuration == COMPLETE
    unknown = f"this build does not know: {', '.join(line.not_applied)}" if line.not_applied else ""
    return _Noted(
        line,
        configuration=COMPLETE if complete else "incomplete" + notes.mark(line.configuration),
        here="yes" if line.here is None else "no" + notes.mark(line.here),
        build=line.build + notes.mark(line.build_note) + notes.mark(unknown),
        twin_mark=notes.mark(line.twin_note),
    )


_TEXT_COLUMNS: tuple[Column[_Noted], ...] = (
    Column("published", lambda each: each.published),
    Column("configuration", lambda each: each.configuration),
    Column("runs here", lambda each: each.here),
    Column("builds here", lambda each: each.build),
)
_MARKDOWN_COLUMNS: tuple[Column[_Noted], ...] = (
    Column("case", lambda each: f"`{markdown_text(each.line.case_id)}`"),
    Column("target", lambda each: markdown_text(each.line.target)),
    Column("published images/s", lambda each: markdown_text(each.published)),
    Column("configuration", lambda each: markdown_text(each.configuration)),
    Column("runs here", lambda each: markdown_text(each.here)),
    Column("builds here", lambda each: markdown_text(each.build)),
    Column("program", lambda each: _program(each.line)),
    Column("needs", lambda each: markdown_text(each.line.needs)),
    Column(
        "CPU twin",
        lambda each: (f"`{markdown_text(each.line.twin)}`" if each.line.twin else "none") + each.twin_mark,
    ),
)


def _program(line: CaseLine) -> str:
    counts = ((line.operators, "operators"), (line.parameters, "parameters"))
    return ", ".join(f"{count:,} {what}" for count, what in counts if count is not None) or "-"


def _below(each: _Noted) -> str:
    line = each.line
    twin = f"twin here: {line.twin}" if line.twin else "no twin here"
    program = "" if _program(line) == "-" else f"; {_program(line)}"
    return f"needs {line.needs}; {twin}{each.twin_mark}{program}"
