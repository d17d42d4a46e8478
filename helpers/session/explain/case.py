"""Why a case is slower: both builds' runs are made in turn on the same cards, and their profiles are compared.

The runs lie in ``runs/<session>/explained/``. No history, baseline or night takes them: they are no results of the
suite.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from helpers.history.run_folders import ResultStore
from helpers.judging.case.verdict import Status
from helpers.judging.parts.beyond_chance import LEAST_PAIRS
from helpers.judging.parts.explanation import Explanation, explain
from helpers.plan.case_plan import CasePlan, SuiteCase, build_label
from helpers.session import SuiteOptions
from helpers.session.explain.runs import (
    FOLDER,
    KEPT_TRACES,
    MOST_TRACE_BYTES,
    PAIRS_FILE,
    ExplainRequest,
    ExplainRuns,
    MadePairs,
    clean_traces,
    read_pairs,
)
from helpers.session.measuring.case_loop import Runner
from helpers.session.measuring.job_runner import RunTerms, leased_runner
from helpers.session.measuring.measurer import OnProgress
from helpers.session.outcome import CaseOutcome
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import ConfigError, SuiteError


@dataclass(frozen=True)
class CaseExplanation:
    """What was measured of one case, and what it says."""

    case_id: str
    target: str
    # The builds in words.
    reference: str
    candidate: str
    # None where there is none; ``why_not`` says why.
    explanation: Explanation | None
    why_not: str = ""
    # How many runs were made, also those that gave no profile.
    runs: int = 0
    # Steps that each run trained under the profiler.
    steps: int = 0
    profiler: str = ""
    # What the profilers do not tell, and what went wrong on the way.
    notes: tuple[str, ...] = ()
    # The kept traces of the first pair, by side.
    traces: tuple[Path, ...] = ()


def explain_case(
    suite: Suite,
    suite_case: SuiteCase,
    request: ExplainRequest,
    say: Callable[[str], None],
    on_progress: OnProgress | None = None,
) -> CaseExplanation:
    """Measure both builds of the suite in turn, and compare what their profilers say.

    Whatever stops it becomes the reason in the answer, or a note if there are pairs enough. Raises ConfigError if the
    case has no reference build here or its framework's profiler cannot be read, before anything is measured.
    """
    plan = _planned(suite, suite_case)
    store = ResultStore(suite.store.folder, FOLDER, suite.options.record)
    runs, why_not = ExplainRuns(plan, store, request, say), ""
    try:
        suite.store.begin()
        with _runner(suite, plan, store, request, on_progress) as runner_without:
            _take_up(runs, suite)
            try:
                runs.measure(runner_without)
            finally:
                if runs.pairs:
                    runs.keep(compared=runs.closed)
        have = len(runs.pairs)
        over = f"the time is over after {have} of {request.pairs} pairs"
        if have < LEAST_PAIRS:
            why_not = f"{over}, and {LEAST_PAIRS} or more can show what is beyond chance"
        elif have < request.pairs and not runs.closed:
            runs.notes[over] = None
    except (SuiteError, OSError) as error:
        why_not = str(error)
    pairs = list(runs.pairs.values())
    if not pairs:
        runs.drop_traces()
    if why_not and len(pairs) >= LEAST_PAIRS:
        runs.notes[f"stopped after {len(pairs)} of {request.pairs} pairs: {why_not}"] = None
        why_not = ""
    if not why_not:
        runs.keep(compared=True)
    try:
        clean_traces(suite.options.runs_folder, MOST_TRACE_BYTES)
    except OSError as error:
        say(f"old traces are not removed: {error}")
    return CaseExplanation(
        case_id=suite_case.case.id,
        target=suite_case.target,
        reference=build_label(plan.reference),
        candidate=build_label(plan.build),
        explanation=None if why_not else explain(pairs, is_slower=request.is_slower),
        why_not=why_not,
        runs=runs.made,
        steps=request.steps,
        profiler=pairs[0].candidate.profiles[0].profiler if pairs else "",
        notes=tuple(runs.notes),
        traces=tuple(path for path in runs.traces if path.exists()),
    )


def _take_up(runs: ExplainRuns, suite: Suite) -> None:
    """Go on with the pairs of a resumed session's earlier calls, and remove what is no part of them."""
    folder = runs.store.folder / runs.plan.case.id
    numbers = [int(path.name[1:]) for path in folder.glob("r*") if path.name[1:].isdecimal()]
    runs.number = max(numbers, default=-1) + 1
    try:
        before = read_pairs(folder) if suite.options.resume else None
    except SuiteError as error:
        before = None
        runs.say(f"the pairs are made again: {error}")
    if before is not None:
        runs.go_on_from(before, suite.options.allow_contention)
    if not runs.pairs:
        (folder / PAIRS_FILE).unlink(missing_ok=True)
    for path in folder.glob(f"r*/{KEPT_TRACES}"):
        if path not in runs.traces:
            path.unlink(missing_ok=True)


def made_pairs(options: SuiteOptions, case_id: str) -> MadePairs | None:
    """The pairs that the session has made of a case; None without one. Raises ResultError if their file is damaged."""
    return read_pairs(options.runs_folder / options.session / FOLDER / case_id)


def explain_night(
    suite: Suite,
    outcomes: Iterable[CaseOutcome],
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[CaseExplanation]:
    """Explain the session's regressions in turn, as far as ``explain`` of perf.yaml allows. No verdict depends on it:
    whatever stops it becomes the reason in the answer."""
    allowed = suite.config.explain
    regressed = [outcome.key for outcome in outcomes if outcome.status is Status.REGRESSION]
    if not allowed.night_minutes or not regressed:
        return
    end = clock() + 60.0 * allowed.night_minutes
    request = ExplainRequest(allowed.pairs, allowed.steps, lambda: clock() >= end, is_slower=True)
    for suite_case in [each for each in suite.cases if each.key in regressed]:
        case_id = suite_case.case.id
        if request.time_is_over():
            # Its cards need not be waited for.
            yield CaseExplanation(case_id, suite_case.target, "", "", None, "the time is over before its first pair")
            continue
        say(f"explaining {case_id}")
        try:
            yield explain_case(suite, suite_case, request, say)
        except (SuiteError, OSError) as error:
            yield CaseExplanation(case_id, suite_case.target, "", "", None, str(error))


def _planned(suite: Suite, suite_case: SuiteCase) -> CasePlan:
    case, spec = suite_case.case, suite_case.case.framework.spec
    if suite_case.device not in spec.explained_on:
        there = " and ".join(spec.explained_on) or "no device"
        raise ConfigError(
            f"case {case.id}",
            got=f"a case of {suite_case.device.upper()}s",
            expected=f"a case whose profile can be read: {spec.title}'s can on {there}",
        )
    if case.nodes > 1:
        raise ConfigError(f"case {case.id}", got=f"{case.nodes} nodes", expected="a case of one node")
    plan = suite.measurer.plan(suite_case)
    if isinstance(plan, str):
        raise ConfigError(f"case {case.id}", got=plan, expected="a case that this machine can run")
    if not plan.reference:
        raise ConfigError(
            f"case {case.id}",
            got=f"no reference build: {plan.why_no_reference or 'none is named'}",
            expected="a build to compare with",
            remedy="--reference-build names it",
        )
    return plan


@contextmanager
def _runner(
    suite: Suite, plan: CasePlan, store: ResultStore, request: ExplainRequest, on_progress: OnProgress | None
) -> Iterator[Callable[[tuple[str, ...]], Runner]]:
    given = suite.runner
    if given is not None:
        yield lambda without: given
        return
    terms = RunTerms(
        allow_contention=suite.options.allow_contention,
        data=plan.images,
        system=suite.system,
        explained_steps=request.steps,
    )
    with leased_runner(plan, suite.machine, store, suite.config, terms, on_progress) as runner:
        yield lambda without: replace(runner, terms=replace(terms, explained_without=without))
