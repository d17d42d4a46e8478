"""The tables of the pages that follow from the code: ``python -m tests.docs.tables`` writes them into the pages.

A table stands in a page between ``<!-- generated: NAME -->`` and ``<!-- end -->``. With ``, in its own words`` behind
the name the heading and the second column are the page's, which a Chinese page needs.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import pytest

from fixtures.options import add_options
from helpers.commands.main import EXITS_OF_ANY, commands, parser_of
from helpers.plan.baseline_files import BASELINES, FigureStatus
from helpers.plan.published import PublishedFigure, load_published
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.models import MODELS
from tests.docs.blocks import ROOT

_GENERATED = re.compile(r"(<!-- generated: ([a-z-]+)(, in its own words)? -->\n)(.*?)(<!-- end -->\n)", re.DOTALL)
# Options that most commands have; the page says once what they mean.
COMMON_OPTIONS = ("--help", "--config", "--baselines", "--history", "--runs-dir", "--json")
_SHAPES = ((1, 1), (1, 8), (2, 8), (4, 8))


def table(heading: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def exit_codes() -> str:
    rows = [("any", EXITS_OF_ANY), *((f"`{each.NAME}`", each.EXITS) for each in commands())]
    return table(
        ["command", "exit codes"],
        ([name, "; ".join(f"**{code}** {when}" for code, when in sorted(exits.items()))] for name, exits in rows),
    )


def command_options() -> str:
    (action,) = [each for each in parser_of(commands())._actions if isinstance(each, argparse._SubParsersAction)]
    return table(
        ["command", "it does", "options"],
        (
            [f"`{each.NAME}`", each.HELP[:1].lower() + each.HELP[1:], ", ".join(_options(action.choices[each.NAME]))]
            for each in commands()
        ),
    )


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.option_strings and not {*action.option_strings} & {*COMMON_OPTIONS}:
            yield f"`{action.option_strings[-1 if len(action.option_strings[0]) == 2 else 0]}`"
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield " ".join([f"`{name}`", *_options(inner)])


def session_options() -> str:
    parser = pytest.Parser(_ispytest=True)
    add_options(parser)
    group = parser.getgroup("performance")
    return table(
        ["option", "meaning"],
        (
            [f"`{each.names()[-1]}{_value(each.attrs())}`", each.attrs()["help"].replace("|", r"\|")]
            for each in group.options
        ),
    )


def _value(of_option: Mapping[str, object]) -> str:
    return f" {of_option['metavar']}" if of_option.get("metavar") else ""


def published() -> str:
    """Paddle's figures, a row a configuration, a column a number of cards."""
    rows: dict[tuple[str, ...], dict[tuple[int, int], PublishedFigure]] = {}
    for figure in sorted(_figures_of_paddle(), key=_order):
        rows.setdefault(_row_of(figure), {})[figure.case.nodes, figure.case.cards_per_node] = figure
    assert {shape for row in rows.values() for shape in row} == {*_SHAPES}, "no column for a figure"
    return table(
        ["card", "model", "precision, data", "batch", *(f"{nodes}x{cards}" for nodes, cards in _SHAPES)],
        ([*row, *(_shown(figures.get(shape)) for shape in _SHAPES)] for row, figures in rows.items()),
    )


def _figures_of_paddle() -> list[PublishedFigure]:
    files = [BASELINES / "published" / f"{target}.json" for target in ("v100", "a100")]
    figures = [figure for file in files for figure in load_published(file).figures]
    return [figure for figure in figures if figure.case.framework is Framework.PADDLE]


def _order(figure: PublishedFigure) -> tuple[object, ...]:
    case = figure.case
    return figure.target == "a100", case.model.value, case.auto, case.precision.value, case.batch_size_per_card


def _row_of(figure: PublishedFigure) -> tuple[str, ...]:
    case = figure.case
    what = "auto (reference)" if case.auto else f"{case.precision.value} {case.data.value}"
    return figure.target.upper(), MODELS[case.model].title, what, str(case.batch_size_per_card)


def _shown(figure: PublishedFigure | None) -> str:
    if figure is None:
        return "-"
    mark = " (disputed)" if figure.status is FigureStatus.DISPUTED else ""
    assert (figure.status is FigureStatus.REFERENCE) == figure.case.auto, figure
    return f"{figure.samples_per_s}{mark}"


TABLES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "command-options": command_options,
        "exit-codes": exit_codes,
        "published": published,
        "session-options": session_options,
    }
)


def filled(text: str) -> str:
    """A page's text with its tables as the code has them."""
    return _GENERATED.sub(_filled, text)


def _filled(found: re.Match[str]) -> str:
    new = TABLES[found[2]]()
    return f"{found[1]}\n{_in_words_of(found[4], new) if found[3] else new}\n{found[5]}"


def _in_words_of(before: str, new: str) -> str:
    heading, _, *rows = _rows(before)
    words = {row[0]: row[1] for row in rows}
    return table(heading, ([row[0], words.get(row[0], row[1]), *row[2:]] for row in _rows(new)[2:]))


def _rows(of_table: str) -> list[list[str]]:
    return [line[2:-2].split(" | ") for line in of_table.strip().splitlines()]


def names_in(text: str) -> list[str]:
    return [found[1] for found in _GENERATED.findall(text)]


def main() -> None:
    for page in sorted((ROOT / "docs").rglob("*.md")):
        before = page.read_text(encoding="utf-8")
        if (after := filled(before)) != before:
            page.write_text(after, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
