"""Lays out all tables. A table is a list of columns, each with a heading, an alignment and a function of the row."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from helpers.trainers.contract.errors import printable

GAP = "  "

Row = TypeVar("Row")
# Characters with a meaning in Markdown: the end of a column; the beginning of code, HTML, an entity or emphasis; a link
# or a picture that a browser would fetch; a backslash that would escape the next character; at the start of a text the
# beginning of a heading, quotation or list. Within a word, as in amp_o2, an underscore has no meaning.
_MARKDOWN = re.compile(r"^[#>+-]+(?= )|[|`<*]|&(?=#?\w+;)|~(?=~)|(?<![^\W_])_|\](?=[(\[])|\\(?=[!-/:-@\[-`{-~])")
# A backslash cannot escape these.
_ENTITIES = {"<": "&lt;", "&": "&amp;"}


class Align(enum.Enum):
    """The alignment of a cell, and how Markdown writes it below the heading."""

    LEFT = "---"
    RIGHT = "---:"

    def padded(self, cell: str, width: int) -> str:
        return cell.ljust(width) if self is Align.LEFT else cell.rjust(width)

    def rule(self, width: int) -> str:
        return self.value[0] + "-" * (max(width, len(self.value)) - 2) + self.value[-1]


@dataclass(frozen=True)
class Column(Generic[Row]):
    """One column of a table."""

    heading: str
    cell: Callable[[Row], str]
    align: Align = Align.LEFT
    # The text between this column and the one to its left.
    gap: str = GAP


@dataclass(frozen=True)
class Grid:
    """A laid-out table, without spaces at the ends of its lines."""

    heading: str
    lines: tuple[str, ...]

    @property
    def text_width(self) -> int:
        """The length of the longest line."""
        return max(map(len, (self.heading, *self.lines)))


@dataclass(frozen=True)
class Table:
    """Columns and the cells of each row."""

    columns: tuple[Column[Any], ...]
    cells: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, columns: Sequence[Column[Row]], rows: Iterable[Row]) -> Table:
        """Makes the cells row by row, and in each row from left to right."""
        return cls(tuple(columns), tuple(tuple(column.cell(row) for column in columns) for row in rows))

    @classmethod
    def of_texts(cls, headings: Iterable[str], rows: Iterable[Sequence[str]]) -> Table:
        """Makes a table of cells that are texts already."""
        return cls(tuple(Column[Any](heading, str) for heading in headings), tuple(map(tuple, rows)))

    @property
    def headings(self) -> tuple[str, ...]:
        return tuple(column.heading for column in self.columns)

    def grid(self, indent: str = "") -> Grid:
        """The lines for a terminal, each behind ``indent``."""
        widths = self._widths()
        heading, *lines = (indent + self._line(cells, widths).rstrip() for cells in (self.headings, *self.cells))
        return Grid(heading, tuple(lines))

    def markdown(self, shown: Callable[[str], str] = str, *, padded: bool = False) -> list[str]:
        """Lines of Markdown, with ``shown`` applied to each cell. ``padded`` lines can be shown in a terminal too."""
        widths = self._widths() if padded else [0] * len(self.columns)
        aligns = [column.align for column in self.columns]
        cells = [list(map(shown, line)) for line in self.cells]
        lines = [list(map(Align.padded, aligns, line, widths)) for line in (self.headings, *cells)]
        lines.insert(1, list(map(Align.rule, aligns, widths)))
        return [f"| {' | '.join(line)} |" for line in lines]

    def _widths(self) -> list[int]:
        return [max(map(len, cells)) for cells in zip(self.headings, *self.cells, strict=True)]

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        line = ""
        for place, (column, cell, width) in enumerate(zip(self.columns, cells, widths, strict=True)):
            line += (column.gap if place else "") + column.align.padded(cell, width)
        return line


def markdown_text(text: str) -> str:
    """The text, escaped so that Markdown shows it unchanged, also in the cell of a table."""
    return _MARKDOWN.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), printable(text))


def markdown_list(texts: Iterable[str]) -> str:
    """The texts as a list in Markdown, which shows them unchanged."""
    return "\n".join(f"- {markdown_text(text)}" for text in texts)
