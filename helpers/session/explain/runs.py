"""The runs of an explanation: both builds in turn, each run with some profiled steps after its window.

A profiler that fails leaves the run's window as it was measured. The pairs made so far are kept on disk, so that an
interrupted explanation goes on with them, and the profilers' own traces of one pair, for a trace viewer.
"""

from __future__ import annotations

import gzip
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from helpers.common.files import MOST_LIST_BYTES, MOST_RESULT_BYTES, make_folder, read_limited, write_whole
from helpers.common.words import counted
from helpers.history.results import RunResult
from helpers.history.run_folders import RESULT_FILE, ResultStore, read_result
from helpers.judging.case.evidence import Build, Stage
from helpers.judging.parts.beyond_chance import LEAST_PAIRS, MOST_PAIRS
from helpers.judging.parts.run_facts import MOST_COST, profiling_cost
from helpers.judging.parts.step_parts import ProfiledPair, ProfiledRun
from helpers.launch.step_profile_reader import NO_ANSWER, read_step_profiles
from helpers.plan.case_plan import CasePlan
from helpers.session.measuring.case_loop import Runner, is_of_plan
from helpers.session.measuring.run_label import again_text
from helpers.trainers.contract.errors import ConfigError, ResultError, SuiteError
from helpers.trainers.contract.step_profile import NoProfile, StepProfile

# The folder of the profiled runs within the session's.
FOLDER = "explained"
# In the folder of the case's profiled runs.
PAIRS_FILE = "pairs.json"
# All sessions' traces together; the oldest are removed first.
MOST_TRACE_BYTES = 512 * 2**20
KEPT_TRACES = "trace-rank*.json.gz"
# After so many runs without a profile no other is expected.
_PATIENCE = 4
# The turns of the builds: A B, B A, and so on, so that what grows or fades with time meets both alike.
_TURNS = ((Build.REFERENCE, Build.CANDIDATE), (Build.CANDIDATE, Build.REFERENCE))
# As the answer calls the builds.
_NAMES = {Build.REFERENCE: "reference", Build.CANDIDATE: "build under test"}
# Facts that differ from run to run, or with what the case sets for all builds.
_NOT_OF_THE_BUILD = ("cores", "pinned", "warmup_steps", "device_name")


class ExplainStopped(SuiteError):
    """There is no explanation, and this says why. The runs made so far are kept."""


@dataclass(frozen=True)
class ExplainRequest:
    """How much is to be measured."""

    pairs: int
    steps: int
    # Whether the time for new pairs is over.
    time_is_over: Callable[[], bool] = lambda: False
    # Whether the build is known to be slower, by runs that no profiler was in.
    is_slower: bool = False

    def __post_init__(self) -> None:
        if not LEAST_PAIRS <= self.pairs <= MOST_PAIRS:
            expected = f"from {LEAST_PAIRS} to {MOST_PAIRS}"
            raise ConfigError("explain", field="pairs", got=self.pairs, expected=expected)


@dataclass(frozen=True)
class MadePairs:
    """What one explanation of a case has made."""

    # The steps that each run trained under the profiler.
    steps: int
    # What the profilers did not record.
    without: tuple[str, ...] = ()
    # The numbers of each pair's runs: that of the reference, then that of the build under test.
    pairs: tuple[tuple[int, int], ...] = ()
    # How many runs were made for them, also those that are in no pair.
    runs: int = 0
    notes: tuple[str, ...] = ()
    # Whether the pairs were compared. Then none is added: who looks again after some more names what is chance more
    # often.
    compared: bool = False

    def write(self, folder: Path) -> None:
        """Raises OSError."""
        make_folder(folder)
        write_whole(folder / PAIRS_FILE, msgspec.json.format(msgspec.json.encode(self), indent=1))


def read_pairs(folder: Path) -> MadePairs | None:
    """What lies in ``folder``; None if nothing does. Raises ResultError if it is damaged."""
    path = folder / PAIRS_FILE
    try:
        return msgspec.json.decode(read_limited(path, MOST_RESULT_BYTES, within=folder), type=MadePairs)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise ResultError(
            str(path),
            got=str(error),
            expected="pairs that this program wrote",
            remedy="Without --resume the case is explained anew",
        ) from error


def compressed(trace: Path) -> Path:
    """A compressed copy of the file, which trace viewers read too. Raises OSError."""
    path = trace.with_name(f"{trace.name}.gz")
    write_whole(path, gzip.compress(read_limited(trace, MOST_LIST_BYTES, within=trace.parent), compresslevel=4))
    return path


def clean_traces(runs_folder: Path, most_bytes: int) -> None:
    """Remove the oldest traces of all sessions until the others have at most ``most_bytes``."""
    # Those of interrupted runs too, which are not compressed.
    traces = runs_folder.glob(f"*/{FOLDER}/*/r*/trace-rank*.json*")
    found = [(path.stat().st_mtime, path.stat().st_size, path) for path in traces]
    left = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if left <= most_bytes:
            return
        path.unlink(missing_ok=True)
        left -= size


@dataclass
class ExplainRuns:
    """The runs of one case, and the pairs made of them."""

    plan: CasePlan
    store: ResultStore
    request: ExplainRequest
    say: Callable[[str], None]
    # The number of the next run, which no earlier one has.
    number: int = 0
    # How many runs this explanation has made, in all its calls.
    made: int = 0
    unprofiled: int = 0
    # By the numbers of their runs: that of the reference, then that of the build under test.
    pairs: dict[tuple[int, int], ProfiledPair] = field(default_factory=dict)
    traces: list[Path] = field(default_factory=list)
    # Whether the traces of the next pair are kept. Runs of one build look alike, so one pair's are enough.
    wants_traces: bool = True
    # Whether the pairs were compared before. None is added to them.
    closed: bool = False
    notes: dict[str, None] = field(default_factory=dict)
    without: tuple[str, ...] = ()

    def measure(self, runner_without: Callable[[tuple[str, ...]], Runner]) -> None:
        """Make the pairs. ``runner_without`` gives the runner whose profiler does not record what it is given.

        Raises ExplainStopped if no profile can be expected any more, and SuiteError.
        """
        while len(self.pairs) < self.request.pairs and not self.closed:
            if self.request.time_is_over():
                return
            began_with_reference = sum(reference < candidate for reference, candidate in self.pairs)
            turn = _TURNS[began_with_reference > len(self.pairs) / 2]
            runs = {build: self._run(build, runner_without(self.without)) for build in turn}
            (one, reference), (other, candidate) = runs[Build.REFERENCE], runs[Build.CANDIDATE]
            if reference is not None and candidate is not None:
                if not self.pairs and self._costs_much(reference, candidate):
                    continue
                self.pairs[one.replicate, other.replicate] = ProfiledPair(reference, candidate)
                self.wants_traces = False
                self.keep()
                self.say(f"{len(self.pairs)} of {self.request.pairs} pairs")
            elif self.wants_traces:
                self.drop_traces()

    def go_on_from(self, before: MadePairs, allow_contention: bool) -> None:
        """Take the pairs of an earlier call that are of exactly this plan, and say how many are. Of pairs that were
        compared all are taken, or none."""
        if before.steps != self.request.steps:
            self.say(f"the resumed session profiled {before.steps} steps a run: its pairs are not taken")
            return
        for numbers in before.pairs:
            try:
                one, other = [read_result(self._folder(number) / RESULT_FILE) for number in numbers]
                if not all(each.measured and is_of_plan(self.plan, each, allow_contention) for each in (one, other)):
                    continue
                reference, candidate = self._profiled(one), self._profiled(other)
            except (SuiteError, OSError) as error:
                self.say(f"a pair is made again: {error}")
                continue
            if reference is not None and candidate is not None:
                self.pairs[numbers] = ProfiledPair(reference, candidate)
        self.unprofiled = 0
        if before.compared and len(self.pairs) < len(before.pairs):
            self.pairs.clear()
        others = "" if len(self.pairs) == len(before.pairs) else "; the others are made again"
        of = counted(len(before.pairs), "pair")
        self.say(f"{len(self.pairs)} of {of} are taken from the resumed session{others}")
        if self.pairs:
            self.closed = before.compared
            self.without, self.made = before.without, before.runs
            self.notes.update(dict.fromkeys(before.notes))
            for number in next(iter(self.pairs)):
                self.traces.extend(sorted(self._folder(number).glob(KEPT_TRACES)))
            self.wants_traces = not self.traces

    def keep(self, *, compared: bool = False) -> None:
        """Write down which runs are pairs. A disk that refuses takes no pair away."""
        done = MadePairs(self.request.steps, self.without, tuple(self.pairs), self.made, tuple(self.notes), compared)
        folder = self.store.folder / self.plan.case.id
        try:
            done.write(folder)
        except OSError as error:
            self.notes[f"which runs are pairs is not kept: {error}"] = None
            # An older one would have pairs added that were compared.
            (folder / PAIRS_FILE).unlink(missing_ok=True)

    def _folder(self, number: int) -> Path:
        return self.store.run_folder(self.plan.case.id, number)

    def _costs_much(self, reference: ProfiledRun, candidate: ProfiledRun) -> bool:
        """Whether the profiler costs too much in the first pair and can record less. The pair is then dropped: what is
        compared must be recorded alike."""
        can = self.plan.case.framework.spec.explained_without
        costs = [each for each in map(profiling_cost, (reference, candidate)) if each is not None]
        if len(self.without) == len(can) or not costs or statistics.fmean(costs) <= MOST_COST:
            return False
        left_out = can[len(self.without)]
        both = " and ".join(f"{each:+.0%}" for each in costs)
        self.notes[
            f"{left_out} are not recorded: with them the profiler made a step {both} longer in a first pair, which is "
            "not compared"
        ] = None
        self.without = (*self.without, left_out)
        self.drop_traces()
        return True

    def drop_traces(self) -> None:
        """Remove the traces of runs that are no pair."""
        for trace in self.traces:
            trace.unlink(missing_ok=True)
        self.traces.clear()

    def _run(self, build: Build, runner: Runner) -> tuple[RunResult, ProfiledRun | None]:
        """One run that can be used, after as many attempts as the case's budget has; None if it has no profile."""
        budget = self.plan.budget
        for left in reversed(range(1 + budget.repeats + budget.retries)):
            result = runner.run(self.plan, self.number, build, Stage.CONFIRM)
            self.number, self.made = self.number + 1, self.made + 1
            self._keep_traces(self._folder(result.replicate), keep=result.measured and self.wants_traces)
            if result.measured:
                return result, self._profiled(result)
            if result.refusal is not None or not left:
                raise ExplainStopped(
                    f"run {result.replicate + 1}, {build.value} build",
                    got=result.refusal or result.failure or result.invalid or "no figure",
                    expected="a run that can be used",
                )
            self.say(again_text(result))
        raise AssertionError("the last attempt returns or raises")

    def _keep_traces(self, folder: Path, *, keep: bool) -> None:
        """Compress the run's traces, or remove them. Those of the first pair are kept: runs of one build look alike."""
        for trace in sorted(folder.glob("trace-rank*.json")):
            if keep:
                try:
                    self.traces.append(compressed(trace))
                except (SuiteError, OSError) as error:
                    self.notes[f"a trace was not kept: {error}"] = None
            trace.unlink(missing_ok=True)

    def _profiled(self, result: RunResult) -> ProfiledRun | None:
        """The run with its profiles; None if it has none. Raises ExplainStopped after too many of those."""
        folder, build = self._folder(result.replicate), Build(result.role)
        found = read_step_profiles(folder)
        profiles = tuple(each for each in found if isinstance(each, StepProfile))
        # A rank that said what is wrong comes before those that waited for it.
        without = sorted(
            (each for each in found if isinstance(each, NoProfile)), key=lambda each: each.reason == NO_ANSWER
        )
        missing = [_no_profile(each, build, len(found)) for each in without]
        self.notes.update(dict.fromkeys([*(note for each in profiles for note in each.notes), *missing]))
        if missing:
            self.unprofiled += 1
            if self.unprofiled >= _PATIENCE:
                raise ExplainStopped(
                    f"the profiler, in {self.unprofiled} runs; the last one's output is in {folder}",
                    got=missing[0],
                    expected="a profile of each rank",
                )
            return None
        facts = {name: value for name, value in result.facts.items() if name not in _NOT_OF_THE_BUILD}
        return ProfiledRun(statistics.median(result.step_seconds), profiles, facts)


def _no_profile(of: NoProfile, build: Build, ranks: int) -> str:
    rank = f", rank {of.rank}" if ranks > 1 else ""
    return f"no profile of the {_NAMES[build]}{rank}: {of.reason} ({of.profiler})"
