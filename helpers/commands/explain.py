"""``perfgate explain CASE``: says which part of a step is slower with one build than with another."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from helpers.commands.loading import (
    add_build,
    add_data,
    add_json,
    add_runs_folder,
    add_session,
    build_option,
    find_cases,
    measuring_options,
    print_answer,
    say,
    say_each_run,
    width_of,
)
from helpers.commands.option_types import count_of, hours, time_is_over
from helpers.judging.parts.beyond_chance import LEAST_PAIRS, MOST_PAIRS, USUAL_PAIRS
from helpers.plan.case_plan import SuiteCase
from helpers.plan.matrix import TARGETS
from helpers.session import SuiteOptions
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import ConfigError, printable

if TYPE_CHECKING:
    # Not imported at run time: it would load numpy, which takes longer than listing the commands.
    from helpers.session.explain.case import CaseExplanation

NAME = "explain"
HELP = "Say which part of a step is slower with one build than with another, by the framework's profiler"
EXITS = {
    0: "a part of the step is longer beyond chance, and named",
    6: "it could not be measured, or the profiler gave nothing",
    7: "the step is longer, and no part of it beyond chance",
    8: "the step is not longer, and no part of it beyond chance",
}

# The step is longer and nothing in it is named.
EXIT_UNNAMED = 7
# The build under test is not slower.
EXIT_NOT_REPRODUCED = 8

_MOST_STEPS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="CASE", help="The case's id")
    add_build(parser)
    parser.add_argument(
        "--reference-build", metavar="BUILD", help="Compare with BUILD, named as for --build. Default: perf.yaml's"
    )
    parser.add_argument("--target", choices=TARGETS, help="This target's case, if several have it")
    parser.add_argument(
        "--pairs",
        type=count_of("pairs", LEAST_PAIRS, MOST_PAIRS),
        default=USUAL_PAIRS,
        metavar="N",
        help=f"Make N pairs of runs, from {LEAST_PAIRS} to {MOST_PAIRS}. Default: {USUAL_PAIRS}, the fewest with which "
        "a part may be more than probable",
    )
    parser.add_argument(
        "--steps",
        type=count_of("steps", 1, _MOST_STEPS),
        default=10,
        metavar="N",
        help="Profile N steps after each run's window. Default: 10",
    )
    parser.add_argument("--hours", type=hours, metavar="H", help="Begin no pair after H hours")
    add_data(parser)
    parser.add_argument("--allow-contention", action="store_true", help="Measure on a disturbed machine")
    add_session(parser, "the interrupted explanation SESSION")
    add_json(parser)
    add_runs_folder(parser, "Keep the runs in FOLDER")
    # Other commands that measure have a history. None takes these runs.
    parser.set_defaults(history=None)


def run(
    arguments: argparse.Namespace,
    out: TextIO,
    load: Callable[[SuiteOptions], Suite] = Suite.load,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Measure both builds and print the explanation. Returns the exit status of ``EXITS``.

    Raises SuiteError on options, files and builds that cannot be used.
    """
    from helpers.session.explain.case import explain_case, made_pairs
    from helpers.session.explain.runs import ExplainRequest

    reference = build_option(arguments.reference_build)
    options = measuring_options(arguments, NAME)
    # Builds may differ in one file only, and one build beside itself shows what chance makes of it.
    suite = load(replace(options, reference_build=reference, pinned_reference=True, same_build=True))
    suite.name_builds(say)
    suite_case = _case(suite, arguments)
    if options.resume and made_pairs(options, suite_case.case.id) is None:
        raise ConfigError(
            f"--resume {options.session}",
            got=f"no pair of {suite_case.case.id}",
            expected="a session that has begun to explain it",
            remedy="Without --resume it is explained anew",
        )
    suite.measurer.expect([suite_case])
    if text := suite.measurer.disturbance([suite_case]):
        print(printable(f"NOT EXPLAINED: {text}"), file=out)
        return EXIT_NOT_JUDGED
    request = ExplainRequest(arguments.pairs, arguments.steps, time_is_over(arguments.hours, clock))
    tell = say_each_run(lambda each: f"  {each.case_id}: run {each.replicate + 1}")
    kept = f"the pairs made so far are kept: the same command with --resume {options.session} goes on"
    try:
        found = explain_case(suite, suite_case, request, say, tell)
    except KeyboardInterrupt:
        if made_pairs(options, suite_case.case.id) is not None:
            say(kept)
        raise
    if found.explanation is None and made_pairs(options, suite_case.case.id) is not None:
        say(kept)
    _report(arguments, suite, found, out)
    return _status(found)


def _case(suite: Suite, arguments: argparse.Namespace) -> SuiteCase:
    """Raises ConfigError if no case, or several, are meant."""
    found = find_cases(suite.cases, arguments.case, arguments.target)
    here = [each for each in found if suite.why_not(each) is None] or list(found)
    if len(here) > 1:
        targets = ", ".join(each.target for each in here)
        raise ConfigError(f"case {arguments.case}", got=f"the targets {targets}", expected="--target with one of them")
    return here[0]


def _report(arguments: argparse.Namespace, suite: Suite, found: CaseExplanation, out: TextIO) -> None:
    """Print the answer, and keep it as explain.md and explain.json beside the runs."""
    from helpers.report.explanation import command_of, render_explanation, to_record, write_explanation

    session, folder = suite.options.session, suite.options.runs_folder / suite.options.session
    command = command_of(arguments.case, arguments.build, arguments.reference_build)
    try:
        write_explanation(folder, found, command, session)
    except OSError as error:
        say(f"not all of the answer is kept in {folder}: {error}")
    print_answer(arguments, out, render_explanation(found, width_of(out)), to_record(found, session))


def _status(found: CaseExplanation) -> int:
    explanation = found.explanation
    if explanation is None:
        return EXIT_NOT_JUDGED
    if any(each.seconds.mean > 0 for each in explanation.named):
        return EXIT_OK
    return EXIT_UNNAMED if explanation.is_slower else EXIT_NOT_REPRODUCED
