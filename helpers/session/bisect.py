"""Searches for the first bad build: makes the pairs that judging.bisect.search asks for, until it has an answer.

Each build of the list has a session of its own, ``<search>.<place>``. It holds the build's runs and the good build's,
as any session does, and the history has them too. So a search that was killed goes on from its runs. ``bisect.json``
has only what no run tells: the list, and which builds cannot be tested.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import msgspec

from helpers.builds.cache import cache_of
from helpers.builds.naming import BuildUnavailable, Why
from helpers.common.files import MOST_INDEX_BYTES, read_text_limited, write_whole
from helpers.common.masking import shown_words
from helpers.common.words import counted
from helpers.history import open_history
from helpers.history.results import CONTENDED, RunResult, interleaved_pairs
from helpers.history.run_folders import ResultStore
from helpers.history.session_file import begin_session
from helpers.history.stored import StoredNight
from helpers.judging.bisect.search import (
    BisectAnswer,
    Bisection,
    BuildFinding,
    MeasuredPair,
    Measurement,
    NeedPairs,
    Untestable,
    findings,
    next_step,
    no_drop_probability,
)
from helpers.judging.case.confirm import next_runs
from helpers.judging.case.evidence import Build, CaseKey, Evidence
from helpers.judging.case.judge import end_without_comparison, failed_run, no_median_step
from helpers.judging.case.noise import usual_sigma
from helpers.judging.case.verdict import NeedRuns, Reason, Status, Verdict
from helpers.judging.finding import Code, Finding, found
from helpers.judging.rules.rates import rate_unit
from helpers.launch.failure import is_of_machine
from helpers.machine.environment import differences
from helpers.plan.case_plan import SuiteCase
from helpers.plan.overrides import segment_of
from helpers.plan.perf_yaml import Config
from helpers.session import SuiteOptions
from helpers.session.builds import NamedBuilds, named_builds
from helpers.session.measuring.case_loop import CaseResult, Judge, MeasureRequest, segment_tonight
from helpers.session.measuring.measurer import OnProgress
from helpers.session.outcome import Tell, code_of
from helpers.session.suite import Suite
from helpers.session.suite_history import history_url
from helpers.trainers.contract.errors import ConfigError, NoHistory, SuiteError

STATE_FILE = "bisect.json"
# The codes of nights that are compared with no recorded figure: no later night is compared with them.
_COMMANDS = (Code.BISECTED, Code.CALIBRATED, Code.COMPARED)
_REGRESSED = (Status.REGRESSION.value, Status.SLOWER.value)
_UNHEALTHY = "device unhealthy"
# A limit in case a judge goes wrong: no judge requests so many times the budget.
_MOST_ATTEMPTS = 4
# The share of the prior that follows the answers for other cases.
_SAME_CAUSE = 0.5


class BisectStopped(SuiteError):
    """The search cannot go on now, and no build is the reason. The runs made so far are kept."""


@dataclass(frozen=True)
class CannotTest:
    """A build that cannot be tested: for one case, or for all where ``case`` is empty."""

    build: str
    reason: str
    case: str = ""
    # The runs that were needed to find that out.
    runs: int = 0
    # Whether a resumed search tries it again, because it may be available by then.
    again: bool = False


@dataclass(frozen=True)
class SearchPlan:
    """The builds and cases of a search. They stay the same when it is resumed."""

    builds: tuple[str, ...]
    cases: tuple[CaseKey, ...]
    # Of the machine.
    host_id: str
    most_runs: int
    # By case: the standard deviation between runs that the search assumes, once it is known.
    sigmas: Mapping[str, float] = field(default_factory=dict)
    untestable: tuple[CannotTest, ...] = ()
    schema_version: Literal[1] = 1


@dataclass(frozen=True)
class CaseSearch:
    """How the search for one case stands."""

    case_id: str
    target: str
    builds: tuple[BuildFinding, ...]
    no_drop: float
    # None while it is open.
    answer: BisectAnswer | None
    # How many runs were made, with those that gave no figure.
    runs: int
    # Why it was stopped; empty if it was not.
    stopped: str = ""
    # In what the stack of the first bad build differs from that of the newest build before it that was measured. Pairs
    # decide whatever the stack is.
    changed: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        return rate_unit(self.case_id)

    @property
    def tried(self) -> int:
        """How many builds, with both ends, were measured or found to be untestable."""
        return sum(bool(each.pairs or each.untestable) for each in self.builds)


Prepare = Callable[[str, str], AbstractContextManager[NamedBuilds]]


def workshop(options: SuiteOptions, config: Config, say: Callable[[str], None]) -> Prepare:
    """Makes the builds of a search. Each is kept while it is measured; the good one is kept until the end."""
    cache = cache_of(config.path.parent, config.builds.most_gigabytes)

    @contextmanager
    def prepared(build: str, good: str) -> Iterator[NamedBuilds]:
        """Both builds, ready to run. Raises BuildUnavailable."""
        named = replace(options, build=build, reference_build=good, same_build=True)
        found = named_builds(named, config, cache, say)
        try:
            yield found
        finally:
            candidate, reference = found[Build.CANDIDATE.value], found[Build.REFERENCE.value]
            if candidate["made"] and candidate["digest"] != reference["digest"]:
                cache.release(candidate["digest"])

    return prepared


@dataclass
class BuildSearch:
    """One ``perfgate bisect``: its cases are searched in turn.

    ``options`` are the search's own, with its session; ``prepare`` makes builds, ``load`` a suite.
    """

    options: SuiteOptions
    plan: SearchPlan
    prepare: Prepare
    load: Callable[[SuiteOptions], Suite]
    say: Callable[[str], None]
    # Says whether the time for new pairs is over.
    time_is_over: Callable[[], bool] = lambda: False
    on_progress: OnProgress | None = None
    # Makes the sentences of a reason.
    tell: Tell = code_of
    tell_step: Callable[[Finding], str] = lambda why: why.code.value
    _runs: dict[tuple[int, str], tuple[RunResult, ...]] = field(default_factory=dict)
    _suites: list[Suite] = field(default_factory=list)

    @property
    def good(self) -> str:
        return self.plan.builds[0]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The builds' names as they may be shown: an address without user, password and signature."""
        shown = shown_words(self.plan.builds)
        return tuple(f"{each} ({number})" if shown.count(each) > 1 else each for number, each in enumerate(shown))

    def search(self, suite_case: SuiteCase, found: Sequence[CaseSearch] = ()) -> CaseSearch:
        """Measure one case until there is an answer. The search begins at the builds that were ``found`` for earlier
        cases.

        If something stops it, the result says what. Raises KeyboardInterrupt with every finished run kept.
        """
        fewest = self.plan.most_runs
        try:
            while isinstance(step := self._next(suite_case, found), NeedPairs):
                if self.time_is_over():
                    raise BisectStopped("the search", got="the time is over", expected="an answer before it")
                # An estimate from the next pair alone rises again near the end, where a pair says little.
                fewest = min(fewest, step.expected_runs or fewest)
                self.say(self.tell_step(step.why) + (f"; about {fewest} runs are left" if step.expected_runs else ""))
                self._measure(suite_case, step, found)
        except (BisectStopped, OSError) as error:
            return replace(self.state_of(suite_case, found), stopped=str(error))
        return self.state_of(suite_case, found)

    def state_of(self, suite_case: SuiteCase, found: Sequence[CaseSearch] = ()) -> CaseSearch:
        """The state of the search by the files on disk; nothing is measured."""
        search, measured = self._bisection(suite_case, found), self._measured(suite_case)
        step = self._next(suite_case, found)
        return CaseSearch(
            suite_case.case.id,
            suite_case.target,
            findings(search, measured),
            no_drop_probability(search, measured),
            step if isinstance(step, BisectAnswer) else None,
            self._made(suite_case),
            changed=self._changed_with(step, suite_case) if isinstance(step, BisectAnswer) else (),
        )

    def history_notes(self) -> tuple[str, ...]:
        """What the user must know about the history at the end."""
        return self._suites[0].history_notes() if self._suites else ()

    def _next(self, suite_case: SuiteCase, found: Sequence[CaseSearch]) -> NeedPairs | BisectAnswer:
        return next_step(self._bisection(suite_case, found), self._measured(suite_case))

    def _changed_with(self, answer: BisectAnswer, suite_case: SuiteCase) -> tuple[str, ...]:
        """CaseSearch.changed; nothing if the answer is not one build, or a build around it was not measured."""
        if not answer.first or answer.first != answer.last:
            return ()
        before, after = (
            next((each for place in places if (each := self._stack_of(place, suite_case))), {})
            for places in (range(answer.first - 1, -1, -1), (answer.first,))
        )
        return differences(before, after) if before and after else ()

    def _stack_of(self, place: int, suite_case: SuiteCase) -> dict[str, str]:
        """The facts of the build's newest usable run; empty without one."""
        mine = [
            each for each in self._runs_of(place, suite_case) if each.measured and each.role == Build.CANDIDATE.value
        ]
        return segment_of(mine[-1].environment, mine[-1].settings, suite_case.case.id) if mine else {}

    def _bisection(self, suite_case: SuiteCase, found: Sequence[CaseSearch]) -> Bisection:
        """The search for its judge: the budget is smaller by the runs that gave no figure."""
        counted = sum(2 if isinstance(each, MeasuredPair) else each.runs for each in self._measured(suite_case))
        budget = self.plan.most_runs - (self._made(suite_case) - counted)
        if self.time_is_over():
            budget = min(budget, counted)
        sigma = self.plan.sigmas.get(suite_case.case.id, usual_sigma())
        return Bisection(self.names, sigma, prior_of(found), max(2, budget))

    def _measured(self, suite_case: SuiteCase) -> list[Measurement]:
        measured: list[Measurement] = []
        for place in range(len(self.plan.builds)):
            measured += [MeasuredPair(place, *rates) for rates in paired_rates(self._runs_of(place, suite_case))]
        places = {build: place for place, build in enumerate(self.plan.builds)}
        mine = [each for each in self.plan.untestable if each.case in ("", suite_case.case.id)]
        return measured + [Untestable(places[each.build], each.reason, each.runs) for each in mine]

    def _made(self, suite_case: SuiteCase) -> int:
        return sum(len(self._runs_of(place, suite_case)) for place in range(len(self.plan.builds)))

    def _runs_of(self, place: int, suite_case: SuiteCase) -> tuple[RunResult, ...]:
        key = (place, suite_case.case.id)
        if key not in self._runs:
            store = ResultStore(self.options.runs_folder, session_of(self.options.session, place))
            self._runs[key] = store.results(suite_case.case.id)
        return self._runs[key]

    def _measure(self, suite_case: SuiteCase, step: NeedPairs, found: Sequence[CaseSearch]) -> None:
        """Make the pairs, or note why the build cannot give any. Raises BisectStopped."""
        build = self.plan.builds[step.build]
        try:
            with self.prepare(build, self.good) as named:
                self._pairs(self._suite(step.build, named, suite_case), step, suite_case, found)
        except BuildUnavailable as error:
            if error.kind is Why.NO_SPACE:
                raise BisectStopped(f"the search at {self.names[step.build]}", got=str(error)) from error
            self._note(CannotTest(build, str(error), again=error.kind is Why.NOT_FETCHED))

    def _suite(self, place: int, named: NamedBuilds, suite_case: SuiteCase) -> Suite:
        session = session_of(self.options.session, place)
        options = replace(self.options, session=session, builds=named, resume=True, same_build=True)
        suite = self.load(options)
        if self._suites:
            # There is one machine and one history, so what the history lacks is reported once.
            suite.machine, suite.memory = self._suites[0].machine, self._suites[0].memory
        else:
            suite.measurer.prepare([suite_case])
            self._suites.append(suite)
        return suite

    def _pairs(self, suite: Suite, step: NeedPairs, suite_case: SuiteCase, found: Sequence[CaseSearch]) -> None:
        """Make more pairs on one lease of cards, or note why the build cannot give any."""
        build, case_id = self.plan.builds[step.build], suite_case.case.id
        have = len(paired_rates(self._runs_of(step.build, suite_case)))
        by = beside_good(have + step.pairs, partial(self._settled, suite_case, found, step.build))
        request = MeasureRequest(by=by, most=_MOST_ATTEMPTS * self.plan.most_runs)
        result = suite.measurer.make_runs(suite_case, request, self.on_progress)
        self._runs.pop((step.build, case_id), None)
        if result.verdict.reason.code == Code.BISECTED:
            self._learn_sigma(suite, result)
            return
        reason = f"{result.verdict.status.value}: {self.tell(result.verdict.reason)}"
        if step.build == 0 or not is_builds_own(result):
            raise BisectStopped(f"the search at {self.names[step.build]}", got=reason)
        spent = sum(not run.measured for run in self._runs_of(step.build, suite_case))
        self._note(CannotTest(build, reason, case_id, spent))

    def _settled(
        self, suite_case: SuiteCase, found: Sequence[CaseSearch], place: int, pairs: Sequence[tuple[float, float]]
    ) -> bool:
        """Whether no further pair is needed once the build at ``place`` has these: several are asked for at once, and
        the first of them may give the answer."""
        others = [each for each in self._measured(suite_case) if each.build != place]
        here = [MeasuredPair(place, *rates) for rates in pairs]
        return self.time_is_over() or isinstance(
            next_step(self._bisection(suite_case, found), [*others, *here]), BisectAnswer
        )

    def _learn_sigma(self, suite: Suite, result: CaseResult) -> None:
        """Learn from the history, once, how far runs of the case scatter."""
        plan, case_id = result.plan, result.plan.case.id
        if case_id in self.plan.sigmas:
            return
        segment = segment_tonight(plan, result.runs)
        past = suite.memory.past(case_id, plan.suite_case.target, segment, plan.case.cards, suite.options.session)
        nights = [night.log_rates for night in past.nights if night.accepted and night.log_rates]
        sigma = past.calibrated or usual_sigma(nights, past.siblings)
        self._keep(replace(self.plan, sigmas={**self.plan.sigmas, case_id: sigma}))

    def _note(self, cannot: CannotTest) -> None:
        ends = (self.plan.builds[0], self.plan.builds[-1])
        self.say(f"{'cannot be tested' if cannot.build in ends else 'stepped around'}: {cannot.reason}")
        self._keep(replace(self.plan, untestable=(*self.plan.untestable, cannot)))

    def _keep(self, plan: SearchPlan) -> None:
        self.plan = plan
        write_plan(self.options, plan)


def prior_of(found: Sequence[CaseSearch]) -> tuple[float, ...]:
    """The prior of the builds: one half is divided among those where earlier cases changed, the other half equally
    among all."""
    answered = [each.builds for each in found if each.answer is not None and each.answer.first is not None]
    if not answered:
        return ()
    alike = (1 - _SAME_CAUSE) / max(1, len(answered[0]) - 1)
    return tuple(
        alike + _SAME_CAUSE * statistics.fmean(builds[place].probability for builds in answered)
        for place in range(len(answered[0]))
    )


def session_of(search: str, place: int) -> str:
    """The session that holds a build's runs."""
    return f"{search}.{place:03d}"


def paired_rates(runs: Sequence[RunResult]) -> list[tuple[float, float]]:
    """The log rates of the good build and, run in turn with it, of the session's build."""
    return [(good.log_rate or 0.0, new.log_rate or 0.0) for good, new in interleaved_pairs(runs)]


def beside_good(pairs: int, enough: Callable[[Sequence[tuple[float, float]]], bool] = lambda _: False) -> Judge:
    """A judge that requests ``pairs`` pairs in the order of a confirmation. They may be fewer: after each, ``enough``
    is asked with the log rates of all (good build, build of the session). The judge compares them with nothing.

    Failed and invalid runs are repeated as often in a row as on a night. Failures with successes between them do not
    end a search, because it takes many runs.
    """

    def judge(evidence: Evidence) -> Verdict | NeedRuns:
        if (ended := end_without_comparison(evidence, _given_up(evidence)) or no_median_step(evidence)) is not None:
            return ended
        new, good = (
            [run.log_rate or 0.0 for run in evidence.runs if run.usable and run.build is each] for each in Build
        )
        made = list(zip(good, new, strict=False))
        if len(made) < pairs and not (len(new) == len(good) and enough(made)):
            wider = replace(evidence, budget=replace(evidence.budget, pairs=pairs))
            return next_runs(wider, len(new), len(good), found(Code.SEARCH))
        return Verdict(Status.NO_BASELINE, Reason.of(found(Code.BISECTED, pairs=len(made))))

    return judge


def _given_up(evidence: Evidence) -> Sequence[Finding]:
    """Why no further attempt is made; empty if one may be made."""
    row: list[str] = []
    for run in evidence.runs:
        if run.failure is not None:
            row.append(run.failure)
            if not run.retriable:
                return [failed_run(run.failure)]
        elif run.usable:
            row = []
    if len(row) <= evidence.budget.retries:
        return []
    return [failed_run(row[-1], len(row))]


def is_builds_own(result: CaseResult) -> bool:
    """Whether the probed build is the reason that nothing was measured, and not the machine or the good build."""
    status = result.verdict.status
    bad = [run for run in result.runs if not run.measured]
    if not bad:
        # It was refused before a run (no such kernels). An error at that point is the machine's fault.
        return status is Status.NOT_RUN
    last = bad[-1]
    if last.role != Build.CANDIDATE.value or is_of_machine(last.failure or ""):
        return False
    if last.invalid is not None:
        return not last.invalid.startswith((CONTENDED, _UNHEALTHY))
    return status in (Status.INFRA_ERROR, Status.NOT_RUN)


# ---- the search on disk


def plan_path(options: SuiteOptions) -> Path:
    return options.runs_folder / options.session / STATE_FILE


def write_plan(options: SuiteOptions, plan: SearchPlan) -> None:
    """Write the whole search. Raises ConfigError if the disk refuses."""
    path = plan_path(options)
    try:
        begin_session(path.parent, options.record)
        write_whole(path, msgspec.json.format(msgspec.json.encode(plan), indent=1))
    except OSError as error:
        raise ConfigError(f"search {path}", got=str(error), expected="room for a few kilobytes") from error


def read_plan(options: SuiteOptions) -> SearchPlan:
    """Read the search that is resumed. Builds that may be available by now are tried again. Raises ConfigError for any
    other file."""
    path = plan_path(options)
    try:
        plan = msgspec.json.decode(read_text_limited(path, MOST_INDEX_BYTES), type=SearchPlan)
        if {each.build for each in plan.untestable} - set(plan.builds):
            raise ValueError("untestable names a build that is not in the list")
        if not all(sigma > 0 for sigma in plan.sigmas.values()):
            raise ValueError("sigmas are not above 0")
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"search {path}",
            got=f"{type(error).__name__}: {error}",
            expected="what perfgate bisect wrote",
            remedy="--resume takes the name of a search: bisect-…",
        ) from error
    return replace(plan, untestable=tuple(each for each in plan.untestable if not each.again))


# ---- before it begins


def regressed_last_night(suite: Suite) -> tuple[tuple[SuiteCase, ...], str]:
    """The cases that the newest judged session in the history found slower, and the name of that session.

    Raises ConfigError if there is none, and HistoryError.
    """
    url = history_url(suite.options, suite.config)
    newest: dict[str, list[StoredNight]] = {}
    with suppress(NoHistory), open_history(url, writes=False) as history:
        for case_id, target in history.cases():
            judged = [each for each in history.series(case_id, target) if _is_judged(each)]
            if judged:
                newest.setdefault(judged[-1].record.session, []).append(judged[-1])
    if not newest:
        raise ConfigError("--case", got="a history without a judged night", expected="a case, by --case")
    session = max(newest, key=lambda each: max(night.record.created for night in newest[each]))
    slower = {
        (night.record.target, night.record.case_id) for night in newest[session] if night.record.status in _REGRESSED
    }
    cases = tuple(each for each in suite.cases if each.key in slower)
    when = newest[session][-1].record.date
    if not cases:
        raise ConfigError("--case", got=f"no case that regressed in {session} ({when})", expected="a case, by --case")
    return cases, f"the {counted(len(cases), 'case')} that regressed in {session} ({when})"


def _is_judged(night: StoredNight) -> bool:
    return night.record.code not in _COMMANDS and night.exclusion is None
