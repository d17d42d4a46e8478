"""``perfgate compare-frameworks``: measures a configuration in each installed framework in turn, and shows the ratios
with the published ones."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TextIO

from helpers.commands.loading import (
    add_build,
    add_data,
    add_file_formats,
    add_history,
    add_session,
    check_files,
    find_cases,
    matching_cases,
    measuring_options,
    say,
    say_each_run,
    text_output,
    width_of,
    write_files,
)
from helpers.commands.main import EXIT_INTERRUPTED
from helpers.commands.option_types import typed
from helpers.launch.tail import Progress
from helpers.plan.case_plan import SuiteCase
from helpers.plan.matrix import TARGETS
from helpers.report.frameworks import FRAMEWORKS_FORMATS, FrameworksReport, render_frameworks
from helpers.session import SuiteOptions
from helpers.session.frameworks.comparison import ConfigurationOutcome
from helpers.session.frameworks.configurations import (
    LEAST_PAIRS,
    MOST_PAIRS,
    USUAL_PAIRS,
    Configuration,
    configurations,
    named,
    pairs_of,
    twin_of,
)
from helpers.session.frameworks.measuring import (
    NO_OTHER_FRAMEWORK,
    can_measure,
    compare_frameworks,
    targets_here,
    unmeasured,
    why_not,
    why_not_compared,
)
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK
from helpers.session.suite import Suite
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError

NAME = "compare-frameworks"
HELP = "Measure configurations in each installed framework in turn; print rates and ratios to Paddle"
EXITS = {
    0: "every configuration has its figures",
    6: "a figure is missing, none could be compared, or others use the machine",
}

_INTERRUPTED = "interrupted before it was measured"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "cases",
        metavar="CASE",
        nargs="*",
        help="Case ids of any framework, or patterns over them. Default: what this machine's target has in two "
        "frameworks or more",
    )
    parser.add_argument(
        "-k", dest="keyword", metavar="TEXT", help="Compare only configurations with TEXT in their name"
    )
    parser.add_argument("--target", choices=TARGETS, help="Compare only this target's configurations")
    parser.add_argument(
        "--pairs",
        type=typed(pairs_of),
        default=USUAL_PAIRS,
        metavar="N",
        help=f"Run each framework N times, in turn, {LEAST_PAIRS} to {MOST_PAIRS}. Default: {USUAL_PAIRS}",
    )
    add_build(parser)
    add_data(parser)
    parser.add_argument("--allow-contention", action="store_true", help="Measure on a disturbed machine, and mark it")
    parser.add_argument("--build-envs", action="store_true", help="Build the environments that frameworks lack here")
    add_session(parser, "an interrupted comparison")
    add_file_formats(parser, FRAMEWORKS_FORMATS)
    add_history(parser)


@dataclass
class _Compared:
    outcomes: list[ConfigurationOutcome] = field(default_factory=list)
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """6 if an installed framework has no figure, or if no configuration has two figures to compare."""
        if self.interrupted:
            return EXIT_INTERRUPTED
        missing = any(cell.missing for each in self.outcomes for cell in each.cells)
        complete = any(each.measured > 1 for each in self.outcomes) and not missing
        return EXIT_OK if complete else EXIT_NOT_JUDGED


def run(arguments: argparse.Namespace, out: TextIO, load: Callable[[SuiteOptions], Suite] = Suite.load) -> int:
    """Measure, print the table and write the files. Exit status 6 if a cell that could be measured is empty or other
    processes use the machine, 130 if interrupted; finished measurements are printed and kept.

    Raises SuiteError on options, files and a history that cannot be used.
    """
    check_files(arguments, FRAMEWORKS_FORMATS)
    output = text_output(arguments, FRAMEWORKS_FORMATS, out)
    suite = load(_options(arguments))
    suite.name_builds(say)
    found = chosen(suite, arguments.cases, arguments.target, arguments.keyword)
    if arguments.build_envs:
        suite.build_environments([each for configuration in found for each in configuration.members], say)
    to_run = _to_run(suite, found)
    suite.prepare(to_run)
    if text := suite.disturbance(to_run):
        say(text)
        return EXIT_NOT_JUDGED
    done = _measured(suite, found, arguments.pairs)
    for note in suite.history_notes():
        say(note)
    about = {
        "machine": suite.machine.describe(),
        "session": suite.options.session,
        "runs": f"{arguments.pairs} of each framework, in turn",
    }
    report = FrameworksReport(done.outcomes, about, arguments.pairs, done.exit_code)
    print(render_frameworks(report, width_of(out)), file=output, flush=True)
    write_files(arguments, FRAMEWORKS_FORMATS, report, out)
    return done.exit_code


def _to_run(suite: Suite, found: Sequence[Configuration]) -> list[SuiteCase]:
    """The cases that will be run. Configurations that will not be run are reported now, before an hour of measuring."""
    cases = []
    left_out: dict[str, list[str]] = {}
    for each in found:
        if reason := why_not_compared(suite, each):
            left_out.setdefault(reason, []).append(each.name)
        else:
            cases += [member for member in each.members if why_not(suite, member) is None]
    for reason, names in left_out.items():
        say(f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not measured: {reason}")
    return cases


def _measured(suite: Suite, found: Sequence[Configuration], pairs: int) -> _Compared:
    done = _Compared()
    for number, each in enumerate(found, 1):
        if why_not_compared(suite, each):
            done.outcomes.append(unmeasured(suite, each, NO_OTHER_FRAMEWORK))
            continue
        if done.interrupted:
            done.outcomes.append(unmeasured(suite, each, _INTERRUPTED))
            continue
        say(f"{number} of {len(found)}: {each.name}, {pairs * can_measure(suite, each)} runs")
        try:
            done.outcomes.append(
                compare_frameworks(suite, each, pairs, say_each_run(lambda run: _run_name(run, pairs)))
            )
        except KeyboardInterrupt:
            done.interrupted = True
            done.outcomes.append(unmeasured(suite, each, _INTERRUPTED))
            session = suite.options.session
            say(f"interrupted: the runs made are kept in {suite.store.folder}; --resume {session} goes on")
    return done


def chosen(suite: Suite, wanted: Sequence[str], target: str | None, keyword: str | None) -> tuple[Configuration, ...]:
    """The configurations to compare. Raises ConfigError if an id or pattern matches none, and if none is left."""
    if wanted:
        found = named(suite.cases, [case for text in wanted for case in _cases(suite, text, target)])
    else:
        targets = (target,) if target else targets_here(suite)
        found = tuple(each for each in configurations(suite.cases) if each.target in targets)
    found = tuple(each for each in found if keyword is None or _has(each, keyword))
    if not found:
        raise ConfigError(
            "perfgate compare-frameworks",
            got="nothing to compare",
            expected="a configuration that the matrix has in two frameworks or more",
            remedy="Name a case of any framework: the same configuration in the other frameworks follows from it",
        )
    return found


def _cases(suite: Suite, text: str, target: str | None) -> tuple[SuiteCase, ...]:
    if (matching := matching_cases(suite.cases, text, target)) is not None:
        return matching
    try:
        return find_cases(suite.cases, text, target)
    except ConfigError as unknown:
        try:
            twin = twin_of(suite.cases, Case.parse(text), target)
        except ConfigError:
            raise unknown from None
        if twin is None:
            raise
        return (twin,)


def _has(configuration: Configuration, keyword: str) -> bool:
    names = (configuration.name, *(each.case.id for each in configuration.members))
    return any(keyword.lower() in name.lower() for name in names)


def _options(arguments: argparse.Namespace) -> SuiteOptions:
    return replace(measuring_options(arguments, NAME), build_envs=arguments.build_envs)


def _run_name(run: Progress, pairs: int) -> str:
    # A run beyond the number of pairs replaces an invalid or failed run.
    of = f" of {pairs}" if run.replicate < pairs else ""
    return f"  {run.case_id.partition('-')[0]}, run {run.replicate + 1}{of}"
