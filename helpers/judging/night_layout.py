"""Lays out a night of limited time: which cases, how many runs of each, and what is kept for what comes after. Pure.

Each minute goes where it buys the most detection. The gain of measuring a case is

    weight · nights since it was last measured · log(largest drop / smallest drop that tonight finds with 80% power)

because a drop may have come on any night since then, and because halving the drop that is found is worth the same
wherever it lies. A case begins with the fewest runs; more runs of it, or pairs with the good build, are steps with a
gain of their own. The step with the largest gain a minute comes first (greedy, on the upper hull of each case's steps).

Every case is measured at least once in ``every_nights``: what is due tonight, and what could not all be measured later
because too much is due then, comes before any other step, the case that was left out longest first.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from helpers.judging.confirm import CASES, THRESHOLD
from helpers.judging.level import PAIR_TAU
from helpers.judging.night_cost import drop_pairs, screening_cost, unsuspected_pairs
from helpers.judging.night_plan import (
    CaseNeed,
    Choice,
    Key,
    NightLimits,
    NightPlan,
    PlannedCase,
    Why,
    counted_of,
    drops_minutes,
    margin_minutes,
)
from helpers.judging.power import LARGEST_REPORTED, Detection, smallest_drop_of

# The numbers of runs that a case may be planned with, beyond the fewest that it needs.
_MORE_RUNS = (0, 1, 2)
# More runs or pairs are worth their time only if the drop that is found gets smaller by such a share.
_LEAST_GAIN = 0.05
# Coming nights are looked at with this share of their time, because a whole case rarely fits what is left.
_USABLE = 0.9
# Noise is rounded up to a quarter of an octave, so that cases with nearly the same noise share their numbers.
_PER_OCTAVE = 4
WEEK = 7


def lay_out(needs: Sequence[CaseNeed], limits: NightLimits) -> NightPlan:
    """The plan of tonight. It is the same for the same cases in whatever order."""
    return _lay_out(needs, limits, {need.key: choices_of(need) for need in needs})


def coming_nights(needs: Sequence[CaseNeed], limits: NightLimits, nights: int) -> tuple[NightPlan, ...]:
    """Tonight's plan and those of the nights after it, if each goes as planned and nothing changes."""
    choices = {need.key: choices_of(need) for need in needs}
    found: list[NightPlan] = []
    for _ in range(nights):
        found.append(_lay_out(needs, limits, choices))
        measured = {each.key for each in found[-1].tonight}
        needs = [replace(need, waited=1 if need.key in measured else need.waited + 1) for need in needs]
    return tuple(found)


def with_week(nights: Sequence[NightPlan]) -> NightPlan:
    """The first of the coming nights, each case with the smallest drop that is found in any of the first seven."""
    first = nights[0]
    detections: dict[Key, list[Detection]] = {}
    for night in nights[:WEEK]:
        for each in night.tonight:
            if each.choice is not None and each.drop is not None:
                how = detection_of(each.need, each.choice.runs, in_pairs=each.choice.in_pairs, counted=night.counted)
                detections.setdefault(each.key, []).append(how)

    def told(case: PlannedCase) -> PlannedCase:
        hows = detections.get(case.key)
        drop = smallest_drop_of(hows) if hows else None
        return replace(case, week_drop=None if drop is None or drop >= LARGEST_REPORTED else drop)

    parts = (first.tonight, first.no_time, first.later)
    tonight, no_time, later = (tuple(map(told, part)) for part in parts)
    return replace(first, tonight=tonight, no_time=no_time, later=later)


def detection_of(need: CaseNeed, runs: int, *, in_pairs: bool, counted: int = CASES) -> Detection:
    """How a night finds a drop of the case."""
    return Detection(
        sigma=_rounded_up(need.sigma),
        tau=_rounded_up(need.tau),
        runs=runs,
        most_runs=max(runs, need.most_runs),
        pairs=need.pairs,
        threshold=THRESHOLD * max(1.0, counted / CASES),
        tolerance=need.tolerance,
        screened=not in_pairs,
        pair_tau=PAIR_TAU,
    )


def choices_of(need: CaseNeed) -> tuple[Choice, ...]:
    """The ways to measure a case that are worth their time: each finds a clearly smaller drop than the one before it,
    at a lower price than any mixture of its neighbours would have."""
    ways = [_choice(need, need.least_runs + more, in_pairs=False) for more in _MORE_RUNS]
    if need.pairs:
        ways.append(_choice(need, need.least_runs, in_pairs=True))
    first, *others = sorted(ways, key=lambda each: each.minutes)
    hull = [first]
    for way in others:
        if way.drop > (1 - _LEAST_GAIN) * hull[-1].drop:
            continue
        while len(hull) > 1 and _rate(hull[-2], way) >= _rate(hull[-2], hull[-1]):
            hull.pop()
        hull.append(way)
    return tuple(hull)


def _choice(need: CaseNeed, runs: int, *, in_pairs: bool) -> Choice:
    minutes = need.run_seconds / 60
    sigma, tau = _rounded_up(need.sigma), _rounded_up(need.tau)
    drop = _drop_of(need, runs, in_pairs=in_pairs)
    a_drop = 2 * minutes * drop_pairs(sigma, need.pairs)
    if in_pairs:
        pairs = 2 * minutes * unsuspected_pairs(sigma, need.pairs)
        return Choice(runs, True, runs * minutes, pairs, pairs**2 / 4, drop, max(0.0, a_drop - pairs))
    if not need.recorded:
        return Choice(runs, False, runs * minutes, 0.0, 0.0, drop)
    cost = screening_cost(sigma, tau, runs, need.most_runs, confirmed=need.pairs > 0)
    share = 1 - (1 - cost.suspected) * (1 - need.unasked) if need.pairs else 0.0
    # The pairs of a suspect whose build is as fast as before are as many as if nobody had suspected it.
    one = 2 * minutes * unsuspected_pairs(sigma, need.pairs)
    return Choice(runs, False, cost.runs * minutes, share * one, share * one**2, drop, a_drop)


def _drop_of(need: CaseNeed, runs: int, *, in_pairs: bool, counted: int = CASES) -> float:
    if not need.recorded:
        return LARGEST_REPORTED
    return smallest_drop_of([detection_of(need, runs, in_pairs=in_pairs, counted=counted)])


def _rate(cheaper: Choice, dearer: Choice) -> float:
    """The gain a minute of the step from one choice to the other, for a weight of 1."""
    return math.log(cheaper.drop / dearer.drop) / max(dearer.minutes - cheaper.minutes, 1e-9)


def _lay_out(needs: Sequence[CaseNeed], limits: NightLimits, choices: Mapping[Key, Sequence[Choice]]) -> NightPlan:
    needs = sorted(needs, key=lambda need: need.key)
    needed = _needed_minutes(needs, limits, choices)
    if limits.minutes is None:
        counted = counted_of([choices[need.key][0] for need in needs])
        tonight = tuple(_planned(need, Why.CONFIGURED, choices[need.key][0], 0, counted) for need in needs)
        return NightPlan(limits, tonight, (), (), needed)
    return _plan_of(needs, limits, _filled(needs, limits, choices), needed)


def _filled(needs: Sequence[CaseNeed], limits: NightLimits, choices: Mapping[Key, Sequence[Choice]]) -> _Draft:
    assert limits.minutes is not None
    draft = _Draft(limits.minutes - limits.search_minutes)
    for need in _wanted_first(needs, limits, choices):
        overdue = _due_in(need, limits) == 0
        first = choices[need.key][0]
        if draft.takes(need.key, first, is_due=True):
            draft.why[need.key] = Why.DUE if overdue else Why.AHEAD
        elif overdue:
            draft.without_time[need.key] = first
    for key, choice in _steps(needs, choices, draft):
        if key not in draft.without_time and draft.takes(key, choice):
            draft.why.setdefault(key, Why.GAIN)
    return draft


@dataclass
class _Draft:
    """A night while it is laid out."""

    # In which the choices have to fit.
    minutes: float
    chosen: dict[Key, Choice] = field(default_factory=dict)
    # Why each of these is measured.
    why: dict[Key, Why] = field(default_factory=dict)
    # Of the cases that are due and for which there is no time.
    without_time: dict[Key, Choice] = field(default_factory=dict)

    @property
    def counted(self) -> int:
        """How many cases the night's correction counts."""
        return counted_of([*self.chosen.values(), *self.without_time.values()])

    def takes(self, key: Key, choice: Choice, *, is_due: bool = False) -> bool:
        """Take the choice in place of the case's earlier one, if it fits. A case that is due, and the first choice of
        one that finds drops, may take the time that is kept to confirm them: a drop in a case that is not measured is
        not found at all."""
        trial = [each for other, each in self.chosen.items() if other != key]
        trial.append(choice)
        finds_drops = key not in self.chosen and choice.drop < LARGEST_REPORTED
        for_drops = 0.0 if is_due or finds_drops else drops_minutes(trial)
        if sum(each.minutes for each in trial) + margin_minutes(trial) + for_drops > self.minutes:
            return False
        self.chosen[key] = choice
        return True


def _due_in(need: CaseNeed, limits: NightLimits) -> int:
    return max(0, limits.every_nights - need.waited)


def _wanted_first(
    needs: Sequence[CaseNeed], limits: NightLimits, choices: Mapping[Key, Sequence[Choice]]
) -> Iterator[CaseNeed]:
    """What is due tonight, and as much ahead of time as the coming nights could not hold; the case that was left out
    longest first."""
    assert limits.minutes is not None
    usable = _USABLE * max(limits.minutes - limits.search_minutes - _usual_margin(needs, limits, choices), 0.0)
    # Of those that waited as long, the dear ones come first: they are rarely chosen for their gain. A case that is
    # overdue comes before them, or it would wait for ever where nights are short.
    in_order = sorted(needs, key=lambda need: (-need.waited, -choices[need.key][0].minutes, need.key))
    minutes, tonight = 0.0, 0.0
    for need in in_order:
        minutes += choices[need.key][0].minutes
        tonight = max(tonight, minutes - usable * _due_in(need, limits))
    given = 0.0
    for need in in_order:
        if _due_in(need, limits) and given >= tonight:
            return
        given += choices[need.key][0].minutes
        yield need


def _steps(
    needs: Sequence[CaseNeed], choices: Mapping[Key, Sequence[Choice]], draft: _Draft
) -> Iterator[tuple[Key, Choice]]:
    """The steps of all cases, the largest gain a minute first. A case's next step follows once one is taken."""
    queue: list[tuple[float, int, Key, int]] = []
    by_key = {need.key: need for need in needs}

    def offer(need: CaseNeed, at: int) -> None:
        ways = choices[need.key]
        if at == len(ways):
            return
        if at:
            rate = _rate(ways[at - 1], ways[at])
        else:
            rate = math.log(LARGEST_REPORTED / min(ways[0].drop, LARGEST_REPORTED)) / max(ways[0].minutes, 1e-9)
        heapq.heappush(queue, (-need.weight * need.waited * rate, -need.waited, need.key, at))

    for need in needs:
        offer(need, 1 if need.key in draft.chosen else 0)
    while queue:
        _, _, key, at = heapq.heappop(queue)
        choice = choices[key][at]
        yield key, choice
        if draft.chosen.get(key) == choice:
            offer(by_key[key], at + 1)


def _usual_margin(needs: Sequence[CaseNeed], limits: NightLimits, choices: Mapping[Key, Sequence[Choice]]) -> float:
    """The margin of a night that measures as much as every night has to."""
    return margin_minutes([choices[need.key][0] for need in needs]) / math.sqrt(limits.every_nights)


def _needed_minutes(needs: Sequence[CaseNeed], limits: NightLimits, choices: Mapping[Key, Sequence[Choice]]) -> float:
    """What every case once in ``every_nights`` takes of a night on average. No night is shorter than its dearest
    case."""
    firsts = [choices[need.key][0] for need in needs]
    if limits.minutes is None:
        return sum(each.minutes for each in firsts) + margin_minutes(firsts) + limits.search_minutes
    a_night = sum(each.minutes for each in firsts) / limits.every_nights / _USABLE
    a_night += _usual_margin(needs, limits, choices)
    dearest = max((each.minutes + margin_minutes([each]) for each in firsts), default=0.0)
    return max(a_night, dearest) + limits.search_minutes


def _plan_of(needs: Sequence[CaseNeed], limits: NightLimits, draft: _Draft, needed: float) -> NightPlan:
    planned, counted = [], draft.counted
    for need in needs:
        choice = draft.chosen.get(need.key) or draft.without_time.get(need.key)
        why = Why.NO_TIME if need.key in draft.without_time else draft.why.get(need.key, Why.LATER)
        planned.append(_planned(need, why, choice, _due_in(need, limits), counted))

    def part(*, wanted: bool, no_time: bool = False) -> tuple[PlannedCase, ...]:
        mine = [each for each in planned if each.tonight == wanted and (each.why is Why.NO_TIME) == no_time]
        return tuple(sorted(mine, key=_place))

    return NightPlan(limits, part(wanted=True), part(wanted=False, no_time=True), part(wanted=False), needed)


def _place(case: PlannedCase) -> tuple[object, ...]:
    """Where a case stands in the order of measuring. Of those that waited as long, the ones in pairs come last: a night
    on which much is confirmed reaches several others in their minutes."""
    in_pairs = case.choice is not None and case.choice.in_pairs
    return case.due_in, -case.need.waited, in_pairs, -case.need.weight, case.key


def _planned(need: CaseNeed, why: Why, choice: Choice | None, due_in: int, counted: int) -> PlannedCase:
    drop = LARGEST_REPORTED
    if choice is not None and why is not Why.NO_TIME:
        drop = _drop_of(need, choice.runs, in_pairs=choice.in_pairs, counted=counted)
    return PlannedCase(need, why, choice, due_in, drop if drop < LARGEST_REPORTED else None)


def _rounded_up(width: float) -> float:
    return float(2 ** (math.ceil(_PER_OCTAVE * math.log2(max(width, 1e-4))) / _PER_OCTAVE))
