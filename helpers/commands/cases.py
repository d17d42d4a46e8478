"""``perfgate cases``: lists all cases: whether each configuration is complete, and whether the case runs and builds
here."""

from __future__ import annotations

import argparse
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TextIO

from helpers.commands.loading import (
    JSON,
    LINES,
    MARKDOWN,
    TEXT,
    Formats,
    add_printed_formats,
    find_cases,
    json_text,
    load_suite,
    matching_cases,
    print_answer,
    say,
)
from helpers.commands.option_types import number_in
from helpers.judging.rates import rate_unit
from helpers.judging.wording import counted
from helpers.launch.programs import (
    TIMEOUT_SECONDS,
    BuildReport,
    BuildState,
    check_settings,
    why_no_build_check,
)
from helpers.machine.frameworks import BuildFinder, FrameworkBuild
from helpers.plan.case_plan import CPU, SuiteCase
from helpers.plan.cpu_twin import cpu_twin, differences
from helpers.plan.image_folder import images_needed
from helpers.plan.matrix import TARGETS
from helpers.plan.perf_yaml import Config
from helpers.report.table import Column, Table, markdown_text
from helpers.report.text import hanging
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK
from helpers.session.programs import OnReport, build_programs, draft_of
from helpers.session.suite import Suite
from helpers.trainers.contract.case import Execution
from helpers.trainers.contract.errors import ConfigError, printable
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.program import PROGRAM_FACT

NAME = "cases"
HELP = "List the cases: whether each is fully configured, whether it runs and builds here, and what it needs"
EXITS = {
    0: "the cases are listed",
    6: "with --build-programs: a build failed, or none could be tried",
}


# 1: first format.
# 2: a case has the kind of its "program".
CASES_SCHEMA_VERSION = 2

WIDTH = 100
NOT_TRIED = "not tried"
TWINS = (
    "A CPU twin has a batch and a learning rate of its own, bfloat16 where the case has float16, and none of the "
    "GPU's flags and strategies; its footnote says what else differs."
)
COMPLETE = "complete"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "cases",
        metavar="CASE",
        nargs="*",
        help='List these: case ids or patterns over them, "*resnet50*". Default: all',
    )
    parser.add_argument(
        "--framework",
        action="append",
        choices=[each.value for each in Framework],
        help="List only this framework's cases. Can be given several times",
    )
    parser.add_argument("--target", choices=TARGETS, help="List only this target's cases")
    parser.add_argument("--published", action="store_true", help="List only the cases with a published figure")
    parser.add_argument(
        "--build-programs", action="store_true", help="Build each GPU case's program, without training it"
    )
    parser.add_argument(
        "--interpreter", metavar="PYTHON", help="Build with this Python. Default: the framework's own in perf.yaml"
    )
    parser.add_argument(
        "--build-seconds",
        type=_seconds,
        default=TIMEOUT_SECONDS,
        metavar="S",
        help=f"Give each build S seconds. Default: {TIMEOUT_SECONDS:g}",
    )
    add_printed_formats(parser, FORMATS)


def _seconds(text: str) -> float:
    value = number_in(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: expected seconds above 0")
    return value


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Print the table. With ``--build-programs`` the exit status is 6 if a build failed or none could be tried.

    Raises SuiteError if the options choose no case, and if a check gives no answer.
    """
    if arguments.interpreter and not arguments.build_programs:
        raise ConfigError("--interpreter", got=arguments.interpreter, expected="--build-programs with it")
    suite = load_suite(arguments)
    named = _named(suite.cases, arguments)
    chosen = tuple(each for each in suite.cases if each.key in named and _is_chosen(each, arguments))
    if not chosen:
        raise ConfigError("perfgate cases", got="options that no case fits", expected="at least one case")
    about = {"machine": suite.machine.describe()}
    lines = case_lines(suite, chosen)
    if arguments.build_programs:
        builds = Builds(suite.config, arguments.interpreter, arguments.build_seconds)
        lines = builds.tried(chosen, lines)
        about["builds by"] = builds.describe()
    print_answer(arguments, FORMATS, CaseTable(lines, about), out)
    return _exit_code(lines) if arguments.build_programs else EXIT_OK


def _exit_code(lines: Sequence[CaseLine]) -> int:
    """A refused build is an answer, with its reason in the table; a failed build is not."""
    states = {line.build for line in lines}
    answered = states & {BuildState.BUILT.value, BuildState.REFUSED.value}
    return EXIT_OK if answered and BuildState.FAILED.value not in states else EXIT_NOT_JUDGED


def _named(cases: Sequence[SuiteCase], arguments: argparse.Namespace) -> set[tuple[str, str]]:
    """The keys of the cases of the ids and patterns. Raises ConfigError if one of them matches no case."""
    if not arguments.cases:
        return {each.key for each in cases}
    target = arguments.target
    found = (matching_cases(cases, text, target) or find_cases(cases, text, target) for text in arguments.cases)
    return {each.key for several in found for each in several}


def _is_chosen(suite_case: SuiteCase, arguments: argparse.Namespace) -> bool:
    return (
        suite_case.case.framework.value in (arguments.framework or [suite_case.case.framework.value])
        and arguments.target in (None, suite_case.target)
        and (bool(suite_case.figures) or not arguments.published)
    )


def case_lines(suite: Suite, chosen: Sequence[SuiteCase]) -> tuple[CaseLine, ...]:
    """The lines of the chosen cases, before builds are tried. The trainers' strict reader checks every
    configuration."""
    problems = configuration_problems(chosen)
    lines = []
    for suite_case, problem in zip(chosen, problems, strict=True):
        twin, twin_note = _twin(suite, suite_case)
        lines.append(
            CaseLine(
                case_id=suite_case.case.id,
                target=suite_case.target,
                published=tuple(f"{each.samples_per_s} ({each.status.value})" for each in suite_case.figures),
                configuration=problem or COMPLETE,
                here=suite.why_not(suite_case),
                needs=_needs(suite_case),
                twin=twin,
                twin_note=twin_note,
            )
        )
    return tuple(lines)


def configuration_problems(chosen: Sequence[SuiteCase]) -> tuple[str | None, ...]:
    """For each case what is wrong with the recipe's settings; None if the trainer accepts them."""
    jobs: dict[int, JobSpec] = {}
    problems: list[str | None] = []
    for place, suite_case in enumerate(chosen):
        try:
            jobs[place] = draft_of(suite_case, "RUN")
            problems.append(None)
        except ConfigError as error:
            # Without the case's name, since the problem is the same for all cases of a framework.
            problems.append(str(error).removeprefix(f"case {suite_case.case.id}: "))
    for place, problem in zip(jobs, check_settings(tuple(jobs.values())), strict=True):
        problems[place] = problem
    return tuple(problems)


class Builds:
    """Tries to build the programs of GPU cases, those of each framework with one interpreter."""

    def __init__(self, config: Config, interpreter: str | None, timeout_seconds: float) -> None:
        self._config = config
        self._interpreter = interpreter
        self._finder = BuildFinder()
        self._timeout_seconds = timeout_seconds
        self._asked: dict[str, None] = {}

    def describe(self) -> str:
        """The builds of frameworks that were used, without their paths, since the text goes into documents."""
        return ", ".join(self._asked) or "nothing that is installed"

    def tried(self, chosen: Sequence[SuiteCase], lines: Sequence[CaseLine]) -> tuple[CaseLine, ...]:
        """``lines``, completed by the results of building."""
        changed = list(lines)
        by_interpreter: dict[str, list[int]] = {}
        for place, suite_case in enumerate(chosen):
            where = self._where(suite_case, lines[place])
            if isinstance(where, FrameworkBuild):
                self._asked[f"{where.distribution} {where.version}"] = None
                by_interpreter.setdefault(where.interpreter, []).append(place)
            else:
                changed[place] = replace(lines[place], build_note=where)
        for interpreter, places in by_interpreter.items():
            asked = [chosen[place] for place in places]
            reports = build_programs(asked, interpreter, _progress(len(asked)), self._timeout_seconds)
            for place, report in zip(places, reports, strict=True):
                changed[place] = _with_report(lines[place], report)
        return tuple(changed)

    def _where(self, suite_case: SuiteCase, line: CaseLine) -> FrameworkBuild | str:
        """The framework's build with which to build the case's program, or why it is not tried."""
        if suite_case.device == CPU or suite_case.case.execution not in (None, Execution.STATIC):
            return "only programs for a GPU are built ahead, Paddle's only where they are static"
        if line.configuration != COMPLETE:
            return "no complete configuration"
        framework = suite_case.case.framework
        interpreter = self._interpreter or self._config.frameworks[framework].interpreter
        return why_no_build_check(framework) or self._finder.find_build(framework, interpreter)


def _progress(total: int) -> OnReport:
    """Report each build on standard error, since they take minutes and the answer comes only at the end."""
    number = itertools.count(1)

    def tell(suite_case: SuiteCase, report: BuildReport) -> None:
        say(f"{next(number)} of {total} tried: {suite_case.case.id}: {report.state.value}")

    return tell


def _with_report(line: CaseLine, report: BuildReport) -> CaseLine:
    return replace(
        line,
        build=report.state.value,
        build_note=report.reason,
        not_applied=report.not_applied,
        operators=report.operators,
        parameters=report.parameters,
        program=report.facts.get(PROGRAM_FACT, ""),
    )


def _needs(suite_case: SuiteCase) -> str:
    case = suite_case.case
    if suite_case.target == CPU:
        return counted(case.cards, "CPU card")
    cards = f"{case.cards_per_node} x {suite_case.target.upper()}"
    cards = cards if case.nodes == 1 else f"{case.nodes} nodes of {cards}"
    needed = images_needed(case, (figure.rule for figure in suite_case.figures))
    return f"{cards}, {needed.images:,} images" if needed else cards


def _twin(suite: Suite, suite_case: SuiteCase) -> tuple[str, str]:
    """The id of the twin that runs here (empty if there is none), and a note on it."""
    if suite_case.target == CPU:
        return "", "a CPU case has none"
    twin = cpu_twin(suite_case.case, suite.cases)
    if twin is None:
        return "", "perf.yaml's CPU matrix has no case of this framework, model, execution and precision"
    if reason := suite.why_not(twin):
        return "", f"{twin.case.id} does not run here either: {reason}"
    apart = differences(twin.case, suite_case.case)
    return twin.case.id, f"the twin has {', '.join(apart)}" if apart else ""


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
    # The CPU twin that runs here; empty if there is none.
    twin: str = ""
    # How the twin differs, or why there is none.
    twin_note: str = ""
    # The result of building the program, and why it was not built.
    build: str = NOT_TRIED
    build_note: str = ""
    # Flags and options that the framework's build does not know.
    not_applied: tuple[str, ...] = ()
    # How many the built program has; None if it was not built.
    operators: int | None = None
    parameters: int | None = None
    # The kind of a static program (contract.program.ProgramKind); empty if it was not built, or is none.
    program: str = ""


@dataclass(frozen=True)
class CaseTable:
    """The answer of ``perfgate cases``."""

    lines: Sequence[CaseLine]
    # The machine and the build, by title.
    about: Mapping[str, str]


@dataclass
class Footnotes:
    """Texts that lines share, numbered in the order of their first use."""

    numbers: dict[str, int] = field(default_factory=dict)

    def mark(self, text: str) -> str:
        """`` [1]`` for a text; empty for an empty text."""
        return f" [{self.numbers.setdefault(text, len(self.numbers) + 1)}]" if text else ""

    def lines(self, shown: Callable[[str], str] = printable) -> list[str]:
        return [f"[{number}] {shown(text)}" for text, number in self.numbers.items()]


def summary(lines: Sequence[CaseLine]) -> str:
    """One line with the numbers of cases that are complete, run here, have a twin that runs here, and were built."""
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
    """The table for a terminal: two lines for each case, footnotes at the end."""
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
    """The table in Markdown, footnotes below."""
    lines, about = table.lines, table.about
    notes = Footnotes()
    rows = Table.of(_markdown_columns(lines), [_noted(line, notes) for line in lines]).markdown()
    facts = [f"- {name}: {markdown_text(value)}" for name, value in about.items()]
    text = " ".join([f"{summary(lines)}.", *([TWINS] if any(line.twin for line in lines) else [])])
    return "\n".join([*facts, "", text, "", *rows, "", *(f"- {each}" for each in notes.lines(markdown_text))])


def render_json(table: CaseTable, _width: int = WIDTH) -> str:
    record = {
        "schema_version": CASES_SCHEMA_VERSION,
        "about": table.about,
        "summary": summary(table.lines),
        "cases": [asdict(line) for line in table.lines],
    }
    return json_text(record)


def render_lines(table: CaseTable, _width: int = WIDTH) -> str:
    """One line for each case, for grep: id, target, configuration, build, whether it runs here."""
    return "\n".join(Table.of(_LINE_COLUMNS, table.lines).grid().lines)


_LINE_COLUMNS: tuple[Column[CaseLine], ...] = (
    Column("case", lambda line: printable(line.case_id)),
    Column("target", lambda line: printable(line.target)),
    Column("configuration", lambda line: COMPLETE if line.configuration == COMPLETE else "incomplete"),
    Column("build", lambda line: line.build),
    Column("here", lambda line: "runs here" if line.here is None else printable(f"no: {line.here}")),
)

FORMATS: Formats[CaseTable] = {TEXT: render, MARKDOWN: render_markdown, LINES: render_lines, JSON: render_json}


@dataclass(frozen=True)
class _Noted:
    """A line with the cells that have footnotes. Footnotes are numbered in the order in which lines are read."""

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


def _markdown_columns(lines: Sequence[CaseLine]) -> tuple[Column[_Noted], ...]:
    unit = rate_unit(*(line.case_id for line in lines))
    return (
        Column("case", lambda each: f"`{markdown_text(each.line.case_id)}`"),
        Column("target", lambda each: markdown_text(each.line.target)),
        Column(f"published {unit}", lambda each: markdown_text(each.published)),
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
    told = [f"{count:,} {what}" for count, what in counts if count is not None]
    return ", ".join([*told, *([line.program] if line.program else [])]) or "-"


def _below(each: _Noted) -> str:
    line = each.line
    twin = f"twin here: {line.twin}" if line.twin else "no twin here"
    program = "" if _program(line) == "-" else f"; {_program(line)}"
    return f"needs {line.needs}; {twin}{each.twin_mark}{program}"
