"""The search for the first bad build: measured pairs in, the next pairs or an answer out.

Pure: no clock, no disk, no process. Every step is an interleaved pair: the good build and the probed one run in turn on
the same cards, as in a confirmation (case.confirm). Whatever makes the machine slow makes both slow. The
list of its measurements is the whole state of a search, so it can be interrupted at any point. docs/bisect.md says how
it works and how often its answers are right.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from helpers.judging.case.confirm import THRESHOLD
from helpers.judging.case.level import PAIR_TAU
from helpers.judging.case.shown import figures_of
from helpers.judging.finding import Code, Finding, found
from helpers.judging.statistics import NORMAL_95, EffectSize, effect_of
from helpers.trainers.contract.errors import SuiteError

if TYPE_CHECKING:
    from helpers.judging.bisect.posterior import Posterior

# What an answer has to reach.
CERTAIN = 0.99
# From this probability on the bad build counts as slower and the search goes on. The answer needs CERTAIN.
_SLOWER = 0.95
# The share of the budget that may be spent on showing that the bad build is slower at all.
_CONFIRMING = 0.5
# How many pairs of one build are made in a row: as many as are expected to give _BITS_A_BATCH, at most _MOST_AT_ONCE.
_BITS_A_BATCH, _MOST_AT_ONCE = 0.2, 8
# How many pairs both builds around a change have before it is named.
_LEAST_PAIRS = 2
# How many pairs the bad build gets before they are first looked at.
_FIRST_PAIRS = 2
# How many pairs of the good build beside itself are made before.
_GOOD_PAIRS = 2
# If a second change is at least this probable, the first one does not explain the whole drop.
_UNEXPLAINED = 0.5
# An answer with 99% needs about so many bits more than the position's entropy has.
_LAST_BITS = 2.0


@dataclass(frozen=True)
class Bisection:
    """A search: the builds from the good one to the bad one, oldest first, and what is known before anything is
    measured.

    Raises SuiteError for a list that cannot be searched.
    """

    builds: tuple[str, ...]
    # Standard deviation between runs of one build, in the logarithm (noise.learn(), noise.usual_sigma()). It may be
    # wrong by a factor of four and more.
    sigma: float
    # How probable it is that each build is the first bad one, in any unit; empty if all are alike. The good build's
    # value is ignored.
    prior: tuple[float, ...] = ()
    budget_runs: int = 400

    def __post_init__(self) -> None:
        builds = self.builds
        if len(builds) < 2:
            raise SuiteError("bisect", got=f"{len(builds)} build", expected="a good build and a later bad one")
        if builds[0] == builds[-1]:
            raise SuiteError(
                "bisect",
                got=f"{builds[0]} as the good build and as the bad one",
                expected="two builds",
                remedy="nothing can have changed between a build and itself",
            )
        places: dict[str, int] = {}
        for place, build in enumerate(builds, start=1):
            if build in places:
                raise SuiteError(
                    "bisect",
                    got=f"{build} as build {places[build]} and as build {place} of the list",
                    expected="every build once",
                    remedy="leave one of them out",
                )
            places[build] = place
        if not (math.isfinite(self.sigma) and self.sigma > 0):
            raise SuiteError("bisect", field="sigma", got=self.sigma, expected="a standard deviation above 0")
        if self.budget_runs < 2:
            raise SuiteError("bisect", got=f"a budget of {self.budget_runs} runs", expected="2 runs or more")
        self._check_prior()

    def _check_prior(self) -> None:
        if not self.prior:
            return
        if len(self.prior) != len(self.builds):
            got, expected = f"{len(self.prior)} weights", f"one for each of the {len(self.builds)} builds"
            raise SuiteError("bisect", field="prior", got=got, expected=expected)
        if not all(math.isfinite(each) and each >= 0 for each in self.prior) or not sum(self.prior[1:]):
            raise SuiteError("bisect", field="prior", got=self.prior, expected="weights of 0 or more, not all 0")

    @property
    def bad(self) -> int:
        """The place of the bad build in the list; the good one has place 0."""
        return len(self.builds) - 1

    @property
    def pair_sigma(self) -> float:
        """The expected standard deviation of a pair's difference."""
        return math.hypot(math.sqrt(2) * self.sigma, PAIR_TAU)


@dataclass(frozen=True)
class MeasuredPair:
    """Natural logarithms of samples/s of the good build and, run in turn with it, of the build at place ``build``."""

    build: int
    good_log_rate: float
    log_rate: float

    @property
    def difference(self) -> float:
        return self.log_rate - self.good_log_rate


@dataclass(frozen=True)
class Untestable:
    """The build at place ``build`` cannot be installed, or crashes; ``runs`` were needed to find that out."""

    build: int
    reason: str
    runs: int = 1


Measurement = MeasuredPair | Untestable


@dataclass(frozen=True)
class NeedPairs:
    """The search is open: make ``pairs`` more pairs of the good build and the build at place ``build``."""

    build: int
    pairs: int
    why: Finding
    # About how many more runs an answer will take; None before the bad build is known to be slower.
    expected_runs: int | None = None


class BisectEnd(enum.Enum):
    """How a search ended."""

    # One build has 99%.
    FOUND = "found"
    # Some builds have 99% together, and all but the last of them cannot be tested.
    HIDDEN = "hidden"
    # The budget is spent; the answer is the smallest range with 99%.
    BUDGET = "budget"
    # The bad build is not slower than the good one.
    NO_DROP = "no-drop"
    # The bad build is faster than the good one: they may have been exchanged.
    FASTER = "faster"
    # The budget for it is spent, and the bad build is not shown to be slower.
    UNCONFIRMED = "unconfirmed"
    # The good build differs from itself: what is compared is not what was meant.
    GOOD_DIFFERS = "good-differs"
    # The good build or the bad one cannot be tested.
    ENDS_UNTESTABLE = "ends-untestable"


@dataclass(frozen=True)
class BisectAnswer:
    """The result of a search. Effects are fractions of samples/s; negative means slower."""

    end: BisectEnd
    why: Finding
    # Places of the first and the last build of the range that holds the first bad build, with its probability; None
    # if nothing was searched.
    first: int | None = None
    last: int | None = None
    probability: float = 0.0
    # The change in the range.
    change: EffectSize | None = None
    # The bad build against the good one.
    whole: EffectSize | None = None
    # The other change, if there probably is one: the part of the whole drop that the first does not explain.
    residual: EffectSize | None = None
    # The probability that there is another change.
    second_change: float = 0.0
    runs: int = 0

    @property
    def unexplained(self) -> bool:
        """Whether the change probably does not explain the whole drop."""
        return self.second_change >= _UNEXPLAINED


@dataclass(frozen=True)
class BuildFinding:
    """The result for one build of the list."""

    name: str
    # The probability that it is the first bad one.
    probability: float
    pairs: int
    # Against the good build; None if there are no pairs.
    level: EffectSize | None
    # Why it cannot be tested, empty if it can.
    untestable: str = ""


@dataclass(frozen=True)
class _State:
    search: Bisection
    differences: Mapping[int, tuple[float, ...]]
    untestable: Mapping[int, str]
    runs: int
    posterior: Posterior = field(repr=False)

    @property
    def testable(self) -> list[int]:
        return [build for build in range(1, self.search.bad + 1) if build not in self.untestable]


def next_step(search: Bisection, measured: Sequence[Measurement]) -> NeedPairs | BisectAnswer:
    """What to measure next, or the answer. Raises SuiteError for a measurement that does not belong to this search."""
    state = _state(search, measured)
    for end in (0, search.bad):
        if end in state.untestable:
            why = found(Code.SEARCH_END_UNTESTABLE, build=search.builds[end], why=state.untestable[end])
            return BisectAnswer(BisectEnd.ENDS_UNTESTABLE, why, runs=state.runs)
    left = (search.budget_runs - state.runs) // 2
    checked = _check_ends(state, left)
    if checked is not None:
        return checked
    certain = _certain_gap(state)
    if left < 1 and certain is None:
        return _answer(state, *smallest_range(state.posterior.positions, CERTAIN), BisectEnd.BUDGET)
    if certain is not None:
        # A single run may be bad, so one pair is not enough to name a build.
        once = [build for build in certain if build in state.testable and len(state.differences[build]) < _LEAST_PAIRS]
        if not once or left < 1:
            return _certain(state, *certain)
        return NeedPairs(once[0], 1, found(Code.SEARCH_SECOND_PAIR, build=search.builds[once[0]]), 2 * len(once))
    from helpers.judging.bisect.posterior import choose

    build, bits = choose(state.posterior, state.testable, search.pair_sigma)
    pairs = max(1, min(round(_BITS_A_BATCH / max(bits, 1e-3)), _MOST_AT_ONCE, left))
    expected = 2 * math.ceil((state.posterior.bits + _LAST_BITS) / max(bits, 1e-3))
    why = found(Code.SEARCH_NEXT, build=search.builds[build], bits=bits, left=state.posterior.bits)
    return NeedPairs(build, pairs, why, expected)


def findings(search: Bisection, measured: Sequence[Measurement]) -> tuple[BuildFinding, ...]:
    """Every build in order, with its level and its probability."""
    state = _state(search, measured)
    return tuple(
        BuildFinding(
            name,
            state.posterior.positions[place],
            len(state.differences.get(place, ())),
            _effect(state, place),
            state.untestable.get(place, ""),
        )
        for place, name in enumerate(search.builds)
    )


def no_drop_probability(search: Bisection, measured: Sequence[Measurement]) -> float:
    """The probability that no build of the list brought a drop; it and the builds' own probabilities sum to 1."""
    return _state(search, measured).posterior.no_drop


def _state(search: Bisection, measured: Sequence[Measurement]) -> _State:
    from helpers.judging.bisect.posterior import weigh

    differences: dict[int, tuple[float, ...]] = {}
    untestable: dict[int, str] = {}
    runs = 0
    for each in measured:
        if not 0 <= each.build <= search.bad:
            raise SuiteError("bisect", field="build", got=each.build, expected=f"0 to {search.bad}")
        if isinstance(each, Untestable):
            untestable[each.build] = each.reason
            runs += each.runs
            continue
        if not math.isfinite(each.difference):
            raise SuiteError("bisect", got=each, expected="finite log rates")
        differences[each.build] = (*differences.get(each.build, ()), each.difference)
        runs += 2
    prior = search.prior or (1.0,) * len(search.builds)
    return _State(search, differences, untestable, runs, weigh(differences, prior, search.pair_sigma))


def _check_ends(state: _State, left: int) -> NeedPairs | BisectAnswer | None:
    """Whether the good build equals itself and the bad one is slower; this is measured before anything between them."""
    search, posterior = state.search, state.posterior
    itself = state.differences.get(0, ())
    if len(itself) < _GOOD_PAIRS and left > _FIRST_PAIRS:
        missing = _GOOD_PAIRS - len(itself)
        return NeedPairs(0, min(missing, left), found(Code.SEARCH_GOOD, good=search.builds[0]))
    bad, good = search.builds[-1], search.builds[0]
    if itself and _differs(search, itself):
        effect = effect_of(itself, search.pair_sigma, PAIR_TAU)
        differs = found(Code.SEARCH_GOOD_DIFFERS, good=good, effect=figures_of(effect))
        return BisectAnswer(BisectEnd.GOOD_DIFFERS, differs, runs=state.runs)
    if posterior.slower_at_end >= _SLOWER and state.differences.get(search.bad):
        return None
    pairs = len(state.differences.get(search.bad, ()))
    whole = _effect(state, search.bad)

    def ended(end: BisectEnd, code: Code) -> BisectAnswer:
        effect = None if whole is None else figures_of(whole)
        why = found(code, bad=bad, good=good, effect=effect, pairs=pairs)
        return BisectAnswer(end, why, whole=whole, runs=state.runs)

    if pairs >= _FIRST_PAIRS and whole is not None:
        not_slower = posterior.slower_at_end <= 1 - CERTAIN
        if posterior.faster_at_end >= CERTAIN or (not_slower and whole.low > 0):
            return ended(BisectEnd.FASTER, Code.SEARCH_FASTER)
        if not_slower:
            return ended(BisectEnd.NO_DROP, Code.SEARCH_NO_DROP)
    if left < 1 or (state.runs >= _CONFIRMING * search.budget_runs and pairs >= _FIRST_PAIRS):
        return ended(BisectEnd.UNCONFIRMED, Code.SEARCH_UNCONFIRMED)
    # Each time half as many pairs more: if few pairs do not show it, one more hardly will.
    more = min(max(_FIRST_PAIRS if not pairs else 1, pairs // 2), _MOST_AT_ONCE, left)
    return NeedPairs(search.bad, more, found(Code.SEARCH_BAD, bad=bad, good=good))


def _differs(search: Bisection, differences: Sequence[float]) -> bool:
    from helpers.judging.case.evalue import Direction, evalue

    both = (evalue(differences, search.pair_sigma, PAIR_TAU, direction) for direction in Direction)
    return max(both) >= THRESHOLD


def _certain_gap(state: _State) -> tuple[int, int] | None:
    """The builds around the gap that has 99%, if no build in it is left to test."""
    testable = set(state.testable)
    for (start, end), probability in zip(state.posterior.gaps, state.posterior.in_gap, strict=True):
        if probability >= CERTAIN and not any(build in testable for build in range(start + 1, end)):
            return start, end
    return None


def _certain(state: _State, start: int, end: int) -> BisectAnswer:
    """The smallest part of a gap that still has 99%, without builds that the prior excludes."""
    probability = state.posterior.in_gap[state.posterior.gaps.index((start, end))]
    positions = state.posterior.positions[start + 1 : end + 1]
    first, last = start + 1, end
    if total := sum(positions):
        at, to, probability = smallest_range([probability * each / total for each in positions], CERTAIN)
        first, last = start + 1 + at, start + 1 + to
    return _answer(state, first, last, probability, BisectEnd.FOUND if first == last else BisectEnd.HIDDEN)


def smallest_range(shares: Sequence[float], wanted: float) -> tuple[int, int, float]:
    """First index, last index and sum of the shortest part that has ``wanted``. Of several equally short ones it is the
    likeliest; if no part has so much, it is the whole."""
    best = (0, len(shares) - 1, sum(shares))
    # A sum of many numbers may be this much too small by rounding.
    wanted = min(wanted, best[2]) - 1e-12
    start, share = 0, 0.0
    for end, each in enumerate(shares):
        share += each
        while share - shares[start] >= wanted:
            share -= shares[start]
            start += 1
        if share >= wanted and (end - start, -share) < (best[1] - best[0], -best[2]):
            best = (start, end, share)
    return best


def _answer(state: _State, first: int, last: int, probability: float, end: BisectEnd) -> BisectAnswer:
    search = state.search
    whole = _effect(state, search.bad)
    change, residual = _sizes(state, first, last)
    second = state.posterior.two_changes
    code = {BisectEnd.FOUND: Code.SEARCH_FOUND, BisectEnd.HIDDEN: Code.SEARCH_HIDDEN}.get(end, Code.SEARCH_BUDGET)
    why = found(
        code,
        first=search.builds[first],
        last=search.builds[last],
        budget=search.budget_runs,
        probability=probability,
        change=None if change is None else figures_of(change),
        whole=None if whole is None else figures_of(whole),
        residual=None if residual is None else figures_of(residual),
    )
    return BisectAnswer(end, why, first, last, probability, change, whole, residual, second, state.runs)


def _sizes(state: _State, first: int, last: int) -> tuple[EffectSize | None, EffectSize | None]:
    """The change in a range, and the rest of the whole drop if there is more than one change."""
    from helpers.judging.bisect.posterior import two_sizes

    if state.posterior.two_changes >= _UNEXPLAINED:
        shares = state.posterior.in_gap
        inside = [gap for gap, (start, end) in enumerate(state.posterior.gaps) if start < last and end >= first]
        sizes = two_sizes(state.posterior.outlook, max(inside, key=shares.__getitem__))
        return (None, None) if sizes is None else (_interval(*sizes[0]), _interval(*sizes[1]))
    # One change explains everything, so every build after it shows its size.
    pooled = [each for build, pairs in state.differences.items() if build >= last for each in pairs]
    return (effect_of(pooled, state.search.pair_sigma, PAIR_TAU) if pooled else None), None


def _interval(mean: float, deviation: float) -> EffectSize:
    return EffectSize(math.expm1(mean), *(math.expm1(mean + side * deviation) for side in (-NORMAL_95, NORMAL_95)))


def _effect(state: _State, build: int) -> EffectSize | None:
    pairs = state.differences.get(build, ())
    return effect_of(pairs, state.search.pair_sigma, PAIR_TAU) if pairs else None
