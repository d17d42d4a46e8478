"""``perfgate plan``: shows how the coming nights are laid out, what they take, and which drops they find. Nothing is
measured."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO

from helpers.commands.loading import (
    JSON,
    MARKDOWN,
    Formats,
    add_file_formats,
    add_history,
    json_text,
    text_output,
    width_of,
    write_files,
)
from helpers.commands.option_types import count_of, number_in
from helpers.judging.night_plan import NightPlan, PlannedCase
from helpers.judging.wording import counted
from helpers.plan.night_budget import NightBudget
from helpers.report.night_plan import plan_record, plan_summary, plan_table
from helpers.report.table import Column, Table, markdown_text
from helpers.report.text import hanging
from helpers.session import SuiteOptions
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import ConfigError, printable

NAME = "plan"
HELP = "Show which cases the coming nights measure, the minutes they take, and the drops they find"
EXITS = {
    0: "the plan is shown",
    6: "the night is too short: not every case is measured once in budgets.every_nights",
}

# 1: first format.
PLAN_SCHEMA_VERSION = 1
_MOST_NIGHTS = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--minutes",
        type=_minutes,
        metavar="N",
        help="Plan with N minutes a night. Default: perf.yaml's budgets.night_minutes",
    )
    parser.add_argument(
        "--nights",
        type=count_of("nights", 1, _MOST_NIGHTS),
        default=1,
        metavar="N",
        help="Show N nights, tonight first. Default: 1",
    )
    add_file_formats(parser, FILES)
    add_history(parser)


def _minutes(text: str) -> float:
    found = number_in(text)
    if not 0 < found < 7 * 24 * 60:
        raise argparse.ArgumentTypeError(f"{text!r}: expected minutes, above 0 and below a week")
    return found


@dataclass(frozen=True)
class Nights:
    """The coming nights, tonight first. Tonight's cases have the drop that is found within a week."""

    # In words, whose cases they are.
    what: str
    nights: tuple[NightPlan, ...]
    # The nights of a week, or as many as are shown if they are more.
    laid_out: tuple[NightPlan, ...]

    @property
    def keeps_its_word(self) -> bool:
        """Whether every case is measured in time on each of these nights."""
        return all(night.keeps_its_word for night in self.laid_out)

    @property
    def late(self) -> str:
        """Which case is the first to be late on a night after this one; empty if none is, or if tonight's plan says
        that it is too short."""
        late = ((number, each.need) for number, night in enumerate(self.laid_out) for each in night.no_time)
        first = next(late, None)
        if first is None or not self.tonight.keeps_its_word:
            return ""
        number, need = first
        when = f"in {counted(number, 'night')}"
        return (
            f"night plan: {when} {need.case_id} [{need.target}] is due without time: whole cases fit these nights "
            "badly (budgets.night_minutes, budgets.every_nights)"
        )

    @property
    def tonight(self) -> NightPlan:
        return self.nights[0]


def run(arguments: argparse.Namespace, out: TextIO, load: Callable[[SuiteOptions], Suite] = Suite.load) -> int:
    """Show the plan. Exit status 6 if the night is too short for all cases. Raises SuiteError on files and a history
    that cannot be used."""
    output = text_output(arguments, FILES, out)
    suite = load(
        SuiteOptions(
            arguments.config,
            arguments.baselines,
            arguments.runs_dir.expanduser().absolute(),
            session="plan",
            pinned_reference=True,
            history_url=arguments.history,
        )
    )
    found = _nights_of(suite, arguments)
    print(render(found, width_of(out)), file=output)
    write_files(arguments, FILES, found, out)
    return EXIT_OK if found.keeps_its_word else EXIT_NOT_JUDGED


def _nights_of(suite: Suite, arguments: argparse.Namespace) -> Nights:
    # Imported here because they load numpy, which listing the commands does not need.
    from helpers.judging.night_layout import WEEK, with_week
    from helpers.session.night_layout import nights_of

    gate = [case for case in suite.cases if suite.gate.rule_for(case) is not None]
    here = {case.key for case in gate} if gate else suite.selection_here()[0]
    cases = [case for case in suite.cases if case.key in here and suite.why_not(case) is None]
    if not cases:
        raise ConfigError(
            f"perfgate {NAME}",
            got="no case that runs here",
            expected="one, of this machine's gate or of what pytest runs here",
            remedy="perfgate doctor says what this machine lacks",
        )
    budget = suite.config.night
    if arguments.minutes is not None:
        budget = _with_minutes(suite, arguments.minutes)
    nights = nights_of(suite, cases, budget, max(WEEK, arguments.nights))
    what = f"the gate's {len(cases)} cases" if gate else f"the {len(cases)} cases that pytest runs here"
    return Nights(what, (with_week(nights), *nights[1 : arguments.nights]), nights)


def _with_minutes(suite: Suite, minutes: float) -> NightBudget:
    """The budget as it would be with these minutes in perf.yaml. Raises ConfigError if they are no more than what is
    kept for bisect and explain, as reading that file would."""
    budget, explaining = suite.config.night, suite.config.explain.night_minutes
    found = NightBudget.of(minutes, explaining) if budget is None else budget.with_minutes(minutes, explaining)
    if found.search_minutes >= minutes:
        kept = f"{found.search_minutes:g} min that are kept for bisect and explain"
        raise ConfigError(
            "--minutes",
            got=f"{minutes:g}",
            expected=f"more than the {kept}",
            remedy="perf.yaml says how many: budgets.search_minutes, explain.night_minutes",
        )
    return found


def _summary(found: Nights) -> list[str]:
    return [*plan_summary(found.tonight), *filter(None, [found.late])]


def render(found: Nights, width: int) -> str:
    """The division of the night's time, a table of the cases, and of the nights if there are several."""
    lines = [line for text in _summary(found) for line in hanging(text, width, "", "  ")]
    parts = [f"{found.what}, tonight", "\n".join(lines), _as_text(plan_table(found.tonight)), _wrapped(_LEGEND, width)]
    if len(found.nights) > 1:
        parts += [_as_text(_by_night(found)), _wrapped(_NIGHTS_LEGEND, width)]
    return "\n\n".join(_printable_lines(part) for part in parts)


def render_markdown(found: Nights, _width: int) -> str:
    parts = [f"# Night plan: {markdown_text(found.what)}", *map(markdown_text, _summary(found))]
    parts += ["\n".join(plan_table(found.tonight).markdown(markdown_text)), markdown_text(_LEGEND)]
    if len(found.nights) > 1:
        parts += ["\n".join(_by_night(found).markdown(markdown_text)), markdown_text(_NIGHTS_LEGEND)]
    return "\n\n".join(parts)


def plan_json(found: Nights) -> dict[str, Any]:
    return {
        "schema_version": PLAN_SCHEMA_VERSION,
        "of": found.what,
        "enough": found.keeps_its_word,
        "nights": [plan_record(night) for night in found.nights],
    }


FILES: Formats[Nights] = {JSON: lambda found, _: json_text(plan_json(found)), MARKDOWN: render_markdown}

_LEGEND = (
    "min: expected, with its part of the confirmations. finds, in a week: the smallest drop that is found with 80% "
    "power tonight, and on any of seven nights, if it stays."
)
_NIGHTS_LEGEND = (
    "By night: the runs of each case, P: in pairs with the good build, !: due and no time, .: not that night."
)


def _by_night(found: Nights) -> Table:
    marks: list[dict[tuple[str, str], str]] = [
        {each.key: _mark(each) for each in (*night.tonight, *night.no_time)} for night in found.nights
    ]
    first = found.tonight
    columns: list[Column[PlannedCase]] = [Column("case", lambda case: f"{case.need.case_id} [{case.need.target}]")]
    for number, night in enumerate(marks):
        columns.append(Column("tonight" if not number else f"+{number}", _mark_in(night)))
    return Table.of(columns, (*first.tonight, *first.no_time, *first.later))


def _mark_in(night: dict[tuple[str, str], str]) -> Callable[[PlannedCase], str]:
    return lambda case: night.get(case.key, ".")


def _mark(case: PlannedCase) -> str:
    if not case.tonight or case.choice is None:
        return "!"
    return "P" if case.choice.in_pairs else str(case.choice.runs)


def _wrapped(text: str, width: int) -> str:
    return "\n".join(hanging(text, width, "", ""))


def _as_text(table: Table) -> str:
    grid = table.grid()
    return "\n".join([grid.heading, *grid.lines])


def _printable_lines(text: str) -> str:
    return "\n".join(printable(line) for line in text.split("\n"))
