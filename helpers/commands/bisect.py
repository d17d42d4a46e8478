"""``perfgate bisect``: find the first bad build among an ordered list, by interleaved pairs with the good one."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from helpers.builds.naming import anchored
from helpers.builds.series import BuildSeries, Newest, series_of_lines, series_of_releases
from helpers.commands.loading import (
    add_data,
    add_history,
    add_json,
    add_session,
    cases_named,
    measuring_options,
    print_answer,
    say,
    say_each_run,
)
from helpers.commands.main import EXIT_INTERRUPTED
from helpers.commands.option_types import count_of, hours, time_is_over
from helpers.common.files import MOST_INDEX_BYTES, read_text_limited, write_whole
from helpers.common.words import counted
from helpers.judging.case.noise import usual_sigma
from helpers.plan.case_plan import SuiteCase
from helpers.plan.matrix import TARGETS
from helpers.report.reasons import finding_text, reason_text
from helpers.session import SuiteOptions
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import ConfigError, printable

if TYPE_CHECKING:
    # Not imported at run time: they would load numpy, which takes longer than listing the commands.
    from helpers.session.bisect import BuildSearch, CaseSearch, Prepare, SearchPlan

NAME = "bisect"
HELP = "Find the first bad build between a good and a bad one, by interleaved runs beside the good one"
EXITS = {
    0: "every case has its first bad build (99%)",
    6: "a case could not be measured (the machine, the good build, or a bad build that cannot run); 6 outranks 8",
    7: "a case has a range of builds (the budget is spent, or the builds between cannot be tested)",
    8: "a case is not slower with the bad build; 8 outranks 7",
}

# The answer is a range of builds, with its probability.
EXIT_RANGE = 7
# The bad build is not slower than the good one.
EXIT_NOT_REPRODUCED = 8

_MOST_RUNS, _LEAST_RUNS = 400, 8
# Exit status by the name of a BisectEnd.
_EXITS = {
    "FOUND": EXIT_OK,
    "HIDDEN": EXIT_RANGE,
    "BUDGET": EXIT_RANGE,
    "NO_DROP": EXIT_NOT_REPRODUCED,
    "FASTER": EXIT_NOT_REPRODUCED,
    "UNCONFIRMED": EXIT_NOT_REPRODUCED,
}
# For several cases, the exit status is the first of these that one of the cases has.
_WORST_FIRST = (EXIT_NOT_JUDGED, EXIT_NOT_REPRODUCED, EXIT_RANGE, EXIT_OK)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--good", metavar="BUILD", help="The good build, named as for pytest --build")
    parser.add_argument("--bad", metavar="BUILD", help="The bad build, named as for pytest --build")
    lists = parser.add_mutually_exclusive_group()
    lists.add_argument(
        "--builds", metavar="FILE", help="Search the builds in FILE (-: standard input), oldest first, one a line"
    )
    lists.add_argument(
        "--commits",
        metavar="FILE",
        help="Search the commits that git rev-list --reverse GOOD..BAD wrote into FILE (-: standard input), by "
        "perf.yaml's builds.commit_url. Default without a list: the releases between two requirements",
    )
    parser.add_argument(
        "--case",
        action="append",
        metavar="CASE",
        help="Search for this case, or the cases of a pattern over ids; may be given again. Default: the cases that "
        "regressed last night",
    )
    parser.add_argument("--target", choices=TARGETS, help="Only this target's cases")
    parser.add_argument(
        "--most-runs",
        type=count_of("runs", _LEAST_RUNS, 100_000),
        metavar="N",
        help=f"Make at most N runs of each case. Default: {_MOST_RUNS}",
    )
    parser.add_argument("--hours", type=hours, metavar="H", help="Begin no pair after H hours of this call")
    add_data(parser)
    parser.add_argument("--allow-contention", action="store_true", help="Measure on a disturbed machine, and mark it")
    add_session(parser, "an interrupted search, or with a larger budget")
    add_json(parser)
    parser.set_defaults(build=None)
    add_history(parser)


def run(
    arguments: argparse.Namespace,
    out: TextIO,
    load: Callable[[SuiteOptions], Suite] = Suite.load,
    prepare: Prepare | None = None,
    newest: Newest | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Search for each case in turn. Returns the exit status: 0 if every case has its first bad build, 7 if one has a
    range of builds, 8 if one is not slower with the bad build, 6 if one could not be measured, 130 if interrupted.

    Raises SuiteError on options, lists, files and a history that cannot be used.
    """
    from helpers.session.bisect import BuildSearch, workshop, write_plan

    options = measuring_options(arguments, "bisect")
    suite = load(options)
    plan = _resumed(arguments, options, suite) if options.resume else _new(arguments, suite, newest)
    cases = tuple(each for each in suite.cases if each.key in plan.cases)
    if text := suite.measurer.disturbance(cases):
        print(printable(f"NOT JUDGED: {text}"), file=out)
        return EXIT_NOT_JUDGED
    write_plan(options, plan)
    search = BuildSearch(
        options,
        plan,
        prepare or workshop(options, suite.config, say),
        load,
        say,
        time_is_over=time_is_over(arguments.hours, clock),
        on_progress=say_each_run(lambda run: f"  {run.case_id}: run {run.replicate + 1} of this build"),
        tell=reason_text,
        tell_step=finding_text,
    )
    say(f"{len(plan.builds)} builds, {counted(len(cases), 'case')}, session {options.session}")
    found, interrupted = _search(search, cases)
    for note in search.history_notes():
        say(note)
    _report(arguments, search, found, out)
    if interrupted:
        again = f"perfgate bisect --resume {options.session}"
        say(f"interrupted: the runs made are kept in {options.runs_folder}; {again} goes on")
        return EXIT_INTERRUPTED
    return next(status for status in _WORST_FIRST if status in map(_status, found))


def _search(search: BuildSearch, cases: Sequence[SuiteCase]) -> tuple[list[CaseSearch], bool]:
    """The answers for all cases that were begun, and whether the search was interrupted."""
    found: list[CaseSearch] = []
    for number, suite_case in enumerate(cases, 1):
        plan, case_id = search.plan, suite_case.case.id
        sigma = plan.sigmas.get(case_id, usual_sigma())
        say(f"{number} of {len(cases)}: {case_id}; {_estimate_text(len(plan.builds), plan.most_runs, sigma)}")
        try:
            found.append(search.search(suite_case, found))
        except KeyboardInterrupt:
            found.append(search.state_of(suite_case, found))
            return found, True
        if found[-1].stopped and search.time_is_over():
            return found, False
    return found, False


def _estimate_text(builds: int, most_runs: int, sigma: float) -> str:
    """How many runs a search takes for each of some drops."""
    from helpers.judging.bisect.estimate import estimate

    parts = [
        f"about {runs} runs for a drop of {drop:.0%}" if runs else f"more than {most_runs} for {drop:.0%}"
        for drop, runs in estimate(builds, most_runs, sigma).items()
    ]
    return f"{', '.join(parts)}, where runs scatter by {sigma:.2%}"


def _status(found: CaseSearch) -> int:
    if found.stopped or found.answer is None:
        return EXIT_NOT_JUDGED
    return _EXITS.get(found.answer.end.name, EXIT_NOT_JUDGED)


def _new(arguments: argparse.Namespace, suite: Suite, newest: Newest | None) -> SearchPlan:
    from helpers.session.bisect import SearchPlan

    missing = [f"--{each}" for each in ("good", "bad") if getattr(arguments, each) is None]
    if missing:
        raise ConfigError("perfgate bisect", got=f"no {' and no '.join(missing)}", expected="both, or --resume SESSION")
    here = Path.cwd()
    good, bad = (anchored(each, here) or each for each in (arguments.good, arguments.bad))
    series = _series(arguments, good, bad, suite, newest)
    if series.left_out:
        say(f"left out: {counted(series.left_out, 'build')} of the list outside the range")
    cases = _cases(arguments, suite)
    for each in cases:
        if reason := suite.why_not(each):
            raise ConfigError(f"case {each.case.id}", got=reason, expected="a case that this machine can run")
        if each.case.nodes > 1:
            raise ConfigError(
                f"case {each.case.id}",
                got=f"{each.case.nodes} nodes",
                expected="a case of one node: builds are made here",
            )
    return SearchPlan(
        series.builds,
        tuple(each.key for each in cases),
        suite.machine.host_id,
        arguments.most_runs or _MOST_RUNS,
    )


def _series(arguments: argparse.Namespace, good: str, bad: str, suite: Suite, newest: Newest | None) -> BuildSeries:
    here, config = Path.cwd(), suite.config
    file = arguments.builds or arguments.commits
    if file is None:
        return series_of_releases(good, bad, here, config, newest, say)
    about = "standard input" if file == "-" else file
    try:
        text = sys.stdin.read(MOST_INDEX_BYTES) if file == "-" else read_text_limited(Path(file), MOST_INDEX_BYTES)
    except (OSError, ValueError) as error:
        raise ConfigError(file, got=str(error), expected="a file with one build a line") from error
    return series_of_lines(text, about, good, bad, here, config, commits=arguments.commits is not None)


def _cases(arguments: argparse.Namespace, suite: Suite) -> tuple[SuiteCase, ...]:
    from helpers.session.bisect import regressed_last_night

    if arguments.case is not None:
        return cases_named(suite, arguments.case, arguments.target)
    cases, what = regressed_last_night(suite)
    say(what)
    return cases


def _resumed(arguments: argparse.Namespace, options: SuiteOptions, suite: Suite) -> SearchPlan:
    from helpers.session.bisect import read_plan

    plan = read_plan(options)
    if plan.host_id != suite.machine.host_id:
        raise ConfigError(
            f"--resume {options.session}", got="a search of another machine", expected="one that this machine began"
        )
    for option in ("good", "bad", "builds", "commits", "case"):
        if getattr(arguments, option) is not None:
            raise ConfigError(
                f"--{option} with --resume", got="both", expected="--resume alone, with --most-runs or --hours"
            )
    if lost := set(plan.cases) - {each.key for each in suite.cases}:
        raise ConfigError(f"--resume {options.session}", got=sorted(lost)[0][1], expected="a case of perf.yaml")
    return plan if arguments.most_runs is None else replace(plan, most_runs=arguments.most_runs)


def _report(arguments: argparse.Namespace, search: BuildSearch, found: Sequence[CaseSearch], out: TextIO) -> None:
    """Print the answers, and write bisect.md with its pictures beside the search."""
    from helpers.report.bisect import render_markdown, render_search, to_record
    from helpers.report.bisect_drawing import draw

    options, builds = search.options, search.names
    folder = options.runs_folder / options.session
    pictures = ["bisect.svg" if number == 1 else f"bisect-{number}.svg" for number in range(1, len(found) + 1)]
    command = shlex.join(["perfgate", "bisect", "--good", builds[0], "--bad", builds[-1]])
    text = render_markdown(found, pictures, command, builds[0], builds[-1])
    lines = [f"{render_search(each)}\n" for each in found]
    try:
        write_whole(folder / "bisect.md", text.encode())
        for each, picture in zip(found, pictures, strict=True):
            write_whole(folder / picture, draw(each, builds[0]).encode())
    except Exception as error:  # noqa: BLE001 - the answer is known, and neither disk nor picture changes it
        say(f"not all of the answer is kept in {folder / 'bisect.md'}: {type(error).__name__}: {error}")
    else:
        lines.append(printable(f"written: {folder / 'bisect.md'}"))
    print_answer(arguments, out, "\n".join(lines), to_record(found, options.session))
