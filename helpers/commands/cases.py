"""``perfgate cases [CASE]``: lists the cases (whether each configuration is complete, and whether the case runs here),
or shows one with all that is known about it (``case_sheet``)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from helpers.commands.case_sheet import render as render_sheet
from helpers.commands.case_sheet import sheet_of, sheets_record
from helpers.commands.loading import add_json, find_cases, load_suite, matching_cases, print_answer, width_of
from helpers.common.words import counted
from helpers.judging.rules.rates import rate_unit
from helpers.launch.programs import check_settings
from helpers.plan.case_plan import CPU, SuiteCase
from helpers.plan.image_folder import images_needed
from helpers.plan.matrix import TARGETS
from helpers.report.table import Column, Table, markdown_text
from helpers.report.text import hanging
from helpers.session.gate import EXIT_OK
from helpers.session.programs import draft_of
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import ConfigError, printable
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec

NAME = "cases"
HELP = "List the cases and whether each runs here; with a CASE show its figures, protocol, settings and command"
EXITS = {
    0: "the cases are listed, or the case is shown",
}


# 1: first format.
CASES_SCHEMA_VERSION = 1

WIDTH = 100
COMPLETE = "complete"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "case",
        metavar="CASE",
        nargs="?",
        help='Show the case of this id, or list those of a pattern over ids, "*resnet50*". Default: list all',
    )
    parser.add_argument(
        "--framework",
        action="append",
        choices=[each.value for each in Framework],
        help="List only this framework's cases. Can be given several times",
    )
    parser.add_argument("--target", choices=TARGETS, help="List only this target's cases, or show the case only on it")
    parser.add_argument("--published", action="store_true", help="List only the cases with a published figure")
    printed = parser.add_mutually_exclusive_group()
    add_json(printed)
    printed.add_argument("--markdown", action="store_true", help="Print the list as a table in Markdown")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print the table, or a sheet for each target that has the case. Raises SuiteError if the options choose
    no case, and if a check gives no answer."""
    suite = load_suite(arguments)
    found: Sequence[SuiteCase] = suite.cases
    if arguments.case is not None:
        matching = matching_cases(suite.cases, arguments.case, arguments.target)
        if matching is None:
            return _show(arguments, suite, out)
        found = matching
    chosen = tuple(each for each in found if _is_chosen(each, arguments))
    if not chosen:
        raise ConfigError("perfgate cases", got="options that no case fits", expected="at least one case")
    table = CaseTable(case_lines(suite, chosen), suite.machine.describe())
    if arguments.markdown:
        print(render_markdown(table), file=out)
        return EXIT_OK
    print_answer(arguments, out, render(table, width_of(out)), table_record(table))
    return EXIT_OK


def _show(arguments: argparse.Namespace, suite: Suite, out: TextIO) -> int:
    if arguments.markdown:
        raise ConfigError("perfgate cases", field="--markdown", got=arguments.case, expected="a list of cases")
    sheets = [sheet_of(suite, each) for each in find_cases(suite.cases, arguments.case, arguments.target)]
    text = "\n\n\n".join(render_sheet(sheet, width_of(out)) for sheet in sheets)
    print_answer(arguments, out, text, sheets_record(sheets))
    return EXIT_OK


def _is_chosen(suite_case: SuiteCase, arguments: argparse.Namespace) -> bool:
    return (
        suite_case.case.framework.value in (arguments.framework or [suite_case.case.framework.value])
        and arguments.target in (None, suite_case.target)
        and (bool(suite_case.figures) or not arguments.published)
    )


def case_lines(suite: Suite, chosen: Sequence[SuiteCase]) -> tuple[CaseLine, ...]:
    """The lines of the chosen cases. The trainers' strict reader checks every configuration."""
    return tuple(
        CaseLine(
            case_id=each.case.id,
            target=each.target,
            published=tuple(f"{figure.samples_per_s} ({figure.status.value})" for figure in each.figures),
            configuration=problem or COMPLETE,
            here=suite.why_not(each),
            needs=_needs(each),
        )
        for each, problem in zip(chosen, configuration_problems(chosen), strict=True)
    )


def configuration_problems(chosen: Sequence[SuiteCase]) -> tuple[str | None, ...]:
    """For each case what is wrong with the recipe's settings; None if the trainer accepts them."""
    jobs: dict[int, JobSpec] = {}
    problems: list[str | None] = [None] * len(chosen)
    for place, suite_case in enumerate(chosen):
        try:
            jobs[place] = draft_of(suite_case, "RUN")
        except ConfigError as error:
            # Without the case's name, since the problem is the same for all cases of a framework.
            problems[place] = str(error).removeprefix(f"case {suite_case.case.id}: ")
    for place, problem in zip(jobs, check_settings(tuple(jobs.values())), strict=True):
        problems[place] = problem
    return tuple(problems)


def _needs(suite_case: SuiteCase) -> str:
    case = suite_case.case
    if suite_case.target == CPU:
        return counted(case.cards, "CPU card")
    cards = f"{case.cards_per_node} x {suite_case.target.upper()}"
    cards = cards if case.nodes == 1 else f"{case.nodes} nodes of {cards}"
    needed = images_needed(case, (figure.rule for figure in suite_case.figures))
    return f"{cards}, {needed.images:,} images" if needed else cards


@dataclass(frozen=True)
class CaseLine:
    """One case on one target."""

    case_id: str
    target: str
    # The published figures as texts.
    published: tuple[str, ...]
    # COMPLETE, or what is missing.
    configuration: str
    # Why this machine does not run the case; None if it does.
    here: str | None
    # The cards, and the images of a published comparison.
    needs: str


@dataclass(frozen=True)
class CaseTable:
    """The answer of ``perfgate cases``."""

    lines: Sequence[CaseLine]
    machine: str

    @property
    def summary(self) -> str:
        """The numbers of cases that are complete and run here."""
        return (
            f"{len(self.lines)} cases, "
            f"{sum(line.configuration == COMPLETE for line in self.lines)} with a complete configuration, "
            f"{sum(line.here is None for line in self.lines)} run here"
        )

    @property
    def reasons(self) -> list[str]:
        """Why cases are incomplete or do not run here, each once; the footnotes' numbers count from 1."""
        found = [each for line in self.lines for each in (line.configuration, line.here) if each is not None]
        return [each for each in dict.fromkeys(found) if each != COMPLETE]

    def columns(self) -> tuple[Column[CaseLine], ...]:
        unit, reasons = rate_unit(*(line.case_id for line in self.lines)), self.reasons

        def marked(word: str, reason: str) -> str:
            return f"{word} [{reasons.index(reason) + 1}]"

        return (
            Column(f"published {unit}", lambda line: ", ".join(line.published) or "-"),
            Column(
                "configuration",
                lambda line: COMPLETE if line.configuration == COMPLETE else marked("incomplete", line.configuration),
            ),
            Column("runs here", lambda line: "yes" if line.here is None else marked("no", line.here)),
            Column("needs", lambda line: line.needs),
        )


def render(table: CaseTable, width: int = WIDTH) -> str:
    """The table for a terminal: some lines for each case, footnotes at the end."""
    grid = Table.of(table.columns()[:-1], table.lines).grid("    ")
    shown = [*hanging(f"machine: {table.machine}", width, "", "    "), "", "case", grid.heading, "-" * width]
    for line, text in zip(table.lines, grid.lines, strict=True):
        shown += [printable(f"{line.case_id} [{line.target}]"), printable(text)]
        shown += hanging(printable(f"needs {line.needs}"), width, "      ", "      ")
    shown += ["", *hanging(table.summary, width, "", "    ")]
    for number, reason in enumerate(table.reasons, 1):
        shown += hanging(f"[{number}] {printable(reason)}", width, "", "    ")
    return "\n".join(shown)


def render_markdown(table: CaseTable) -> str:
    """The table in Markdown, footnotes below."""
    columns = (
        Column[CaseLine]("case", lambda line: f"`{markdown_text(line.case_id)}`"),
        Column[CaseLine]("target", lambda line: markdown_text(line.target)),
        *(_escaped(column) for column in table.columns()),
    )
    below = [f"- [{number}] {markdown_text(reason)}" for number, reason in enumerate(table.reasons, 1)]
    rows = Table.of(columns, table.lines).markdown()
    return "\n".join([f"- machine: {markdown_text(table.machine)}", "", f"{table.summary}.", "", *rows, "", *below])


def _escaped(column: Column[CaseLine]) -> Column[CaseLine]:
    return Column(column.heading, lambda line: markdown_text(column.cell(line)))


def table_record(table: CaseTable) -> dict[str, Any]:
    return {
        "schema_version": CASES_SCHEMA_VERSION,
        "machine": table.machine,
        "summary": table.summary,
        "cases": [asdict(line) for line in table.lines],
    }
