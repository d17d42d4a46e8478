"""``perfgate calibrate``: measures a case's noise by A/A runs, stores it, and says how small a drop can be found."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TextIO

from helpers.commands.loading import (
    add_build,
    add_data,
    add_history,
    add_json,
    add_session,
    cases_named,
    measuring_options,
    print_answer,
    say,
    say_each_run,
    width_of,
)
from helpers.commands.main import EXIT_INTERRUPTED
from helpers.commands.option_types import count_of
from helpers.common.wall_clock import utc_now
from helpers.common.words import counted
from helpers.history import open_history
from helpers.history.results import RunResult
from helpers.history.stored import Calibration
from helpers.judging.case.calibrate import LEAST_RUNS, CaseNoise, Deviation, calibrating, noise_of
from helpers.judging.finding import Code
from helpers.judging.rules.rates import rate_unit
from helpers.judging.statistics import number
from helpers.plan.case_plan import SuiteCase
from helpers.plan.matrix import TARGETS, Tolerances
from helpers.report.reasons import finding_text, reason_text
from helpers.report.text import hanging
from helpers.session import SuiteOptions
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK
from helpers.session.measuring.case_loop import CaseResult, MeasureRequest, segment_tonight
from helpers.session.suite import Suite
from helpers.session.suite_history import history_url
from helpers.trainers.contract.errors import SuiteError, printable

NAME = "calibrate"
HELP = "Run one build again and again; say how much a case's runs differ here and which drops a night can find"
EXITS = {
    0: "every case is calibrated",
    6: "a case could not be measured, or others use the machine",
}

# 1: first format.
CALIBRATE_SCHEMA_VERSION = 1

_MOST_RUNS = 100
# Of a case, in all: some runs are repeated.
_MOST_MADE = 220
_INDENT = "  "
# The search for the smallest drop that can be found ends here; a larger drop needs no statistics.
_LARGEST_REPORTED = 0.45


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "cases", metavar="CASE", nargs="*", help="Case ids or patterns over them. Default: what pytest runs here"
    )
    parser.add_argument("--target", choices=TARGETS, help="Calibrate only this target's cases")
    parser.add_argument(
        "--runs",
        type=count_of("runs", LEAST_RUNS, _MOST_RUNS),
        default=10,
        metavar="N",
        help="Make N runs of each case; earlier ones do not count. Default: 10",
    )
    add_build(parser)
    add_data(parser)
    parser.add_argument(
        "--allow-contention", action="store_true", help="Run even if others use the machine; then nothing is stored"
    )
    add_session(parser, "an interrupted calibration")
    add_json(parser)
    add_history(parser)


def run(arguments: argparse.Namespace, out: TextIO, load: Callable[[SuiteOptions], Suite] = Suite.load) -> int:
    """Calibrate the cases in turn. Exit status 6 if one could not be measured or other processes use the machine, 130
    if interrupted; finished runs are kept.

    Raises SuiteError on options, files and a history that cannot be used.
    """
    suite = load(measuring_options(arguments, NAME))
    suite.name_builds(say)
    cases = chosen(suite, arguments.cases, arguments.target)
    suite.measurer.prepare(cases)
    found: list[CaseNoise] = []
    # The cases that could not be measured, each with the reason.
    problems: list[str] = []
    if text := suite.measurer.disturbance(cases):
        _report(arguments, found, [text], out)
        return EXIT_NOT_JUDGED
    interrupted = False
    try:
        for number, suite_case in enumerate(cases, 1):
            say(f"{number} of {len(cases)}: {suite_case.case.id}, {arguments.runs} runs")
            noise = _calibrated(suite, suite_case, arguments.runs)
            if isinstance(noise, str):
                problems.append(f"{suite_case.case.id} [{suite_case.target}]: {noise}")
                continue
            found.append(noise)
            if not arguments.json:
                print(render_noise(noise, width_of(out)), "\n", file=out, flush=True)
    except KeyboardInterrupt:
        interrupted = True
        say(
            f"interrupted: the runs made are kept in {suite.store.folder}; "
            f"the same command with --resume {suite.options.session} goes on"
            if suite.store.begun
            else "interrupted: nothing was measured"
        )
    for note in suite.history_notes():
        say(note)
    _report(arguments, found, problems, out)
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_NOT_JUDGED if problems else EXIT_OK


def chosen(suite: Suite, wanted: Sequence[str], target: str | None) -> tuple[SuiteCase, ...]:
    """The cases of the ids and patterns, else those that pytest runs here. Raises ConfigError if one of them matches no
    case."""
    if wanted:
        return cases_named(suite, wanted, target)
    here, _ = suite.selection_here()
    return tuple(each for each in suite.cases if each.key in here and target in (None, each.target))


def _calibrated(suite: Suite, suite_case: SuiteCase, runs: int) -> CaseNoise | str:
    """The case's noise, or why it is not known."""
    request = MeasureRequest(by=calibrating(runs), most=_MOST_MADE)
    tell = say_each_run(lambda run: f"  run {run.replicate + 1} of {runs}")
    result = suite.measurer.make_runs(suite_case, request, tell)
    if result.verdict.reason.code != Code.CALIBRATED:
        return f"{result.verdict.status.value}: {reason_text(result.verdict.reason)}"
    try:
        return _noise(suite, result)
    except SuiteError as error:
        return str(error)


def _noise(suite: Suite, result: CaseResult) -> CaseNoise:
    """The case's noise. The history keeps it, unless a run was disturbed."""
    plan, runs = result.plan, tuple(run for run in result.runs if run.measured)
    case, target, tolerances = plan.case, plan.suite_case.target, suite.config.tolerances
    segment = segment_tonight(plan, runs)
    url = history_url(suite.options, suite.config)
    with open_history(url, runs_folder=suite.options.runs_folder) as history:
        past = history.past(case.id, target, segment, case.cards, suite.options.session)
        noise = noise_of(
            [run.evidence for run in runs],
            past,
            plan.budget,
            case_id=case.id,
            target=target,
            tolerance=tolerances.of(case.id).recorded,
            least=Tolerances().recorded,
        )
        if marks := sorted({mark for run in runs for mark in run.marks}):
            about = f"{case.id} [{target}]: its runs are marked ({', '.join(marks)})"
            say(f"{about}, so this is not stored and says little")
        else:
            history.add_calibration(_stored(noise, runs, segment, suite.options.session))
    return noise


def _stored(noise: CaseNoise, runs: Sequence[RunResult], segment: dict[str, str], session: str) -> Calibration:
    night = noise.night
    return Calibration(
        case_id=noise.case_id,
        target=noise.target,
        segment=segment,
        created=utc_now().isoformat(),
        session=session,
        runs=len(runs),
        sigma_run=noise.run.value,
        degrees_of_freedom=noise.run.degrees_of_freedom,
        sigma_run_low=noise.run.low,
        sigma_run_high=noise.run.high,
        smallest_drop=noise.night_drop,
        tolerance=noise.recommended,
        sigma_night=night.value if night else None,
        sigma_night_low=night.low if night else None,
        sigma_night_high=night.high if night else None,
    )


def _report(arguments: argparse.Namespace, found: Sequence[CaseNoise], problems: Sequence[str], out: TextIO) -> None:
    record = {
        "schema_version": CALIBRATE_SCHEMA_VERSION,
        "cases": [asdict(each) for each in found],
        "problems": problems,
    }
    print_answer(arguments, out, "\n".join(printable(f"not calibrated: {each}") for each in problems), record)


def render_noise(noise: CaseNoise, width: int) -> str:
    """A case's calibration as text, its warnings last."""
    rates = [math.exp(rate) for rate in noise.log_rates]
    found = _by_pairs(noise)
    lines = [
        f"{noise.case_id} [{noise.target}]",
        f"{_INDENT}{len(rates)} runs, {number(min(rates))} … {number(max(rates))} {rate_unit(noise.case_id)}, "
        f"median {number(statistics.median(rates))}, by the median step",
        f"{_INDENT}between runs:   {_spread(noise.run)}",
        f"{_INDENT}between nights: {_spread(noise.night)}{_nights(noise)}",
    ]
    text = (
        f"smallest regression found with 80% power at evidence {noise.threshold:.0f}, by the number of interleaved "
        f"pairs: {', '.join(found)}; by a night that screens first: {_drop(noise.night_drop)}"
    )
    lines += _wrapped(text, width)
    lines += _wrapped(_tolerance(noise), width)
    for warning in noise.warnings:
        lines += _wrapped(f"WARNING: {finding_text(warning)}", width)
    return "\n".join(printable(line) for line in lines)


def _by_pairs(noise: CaseNoise) -> list[str]:
    """Such as ``up to 4: none below 45%`` for the numbers of pairs that find no drop, then each number of pairs with
    its drop."""
    none = [pairs for pairs, drop in noise.by_pairs if drop > _LARGEST_REPORTED]
    parts = [f"up to {none[-1]}: {_drop(1.0)}"] if none else []
    return parts + [f"{pairs}: {_drop(drop)}" for pairs, drop in noise.by_pairs if pairs not in none]


def _tolerance(noise: CaseNoise) -> str:
    if noise.recommended > noise.tolerance + 1e-9:
        return f"tolerance: {noise.tolerance:.1%} in use, {noise.recommended:.1%} recommended"
    return f"tolerance: {noise.tolerance:.1%} in use, which this noise allows"


def _spread(spread: Deviation | None) -> str:
    if spread is None:
        return "not known"
    return (
        f"{spread.value:.2%} [{spread.low:.2%}, {spread.high:.2%}], "
        f"{counted(spread.degrees_of_freedom, 'degree')} of freedom"
    )


def _nights(noise: CaseNoise) -> str:
    if noise.night is None:
        return ": one night so far"
    return f", {noise.nights} nights"


def _drop(drop: float) -> str:
    return f"none below {_LARGEST_REPORTED:.0%}" if drop > _LARGEST_REPORTED else f"{drop:.1%}"


def _wrapped(text: str, width: int) -> list[str]:
    return hanging(text, width, _INDENT, _INDENT * 2)
