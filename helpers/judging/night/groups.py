"""The cases of one night together: groups that fell together, and whether most cases moved alike. Pure.

A group's e-value is the mean of two e-values. Such a mean is an e-value, however the two depend on each other:

- the product of its members' own e-values (docs/verdicts.md, "All cases together"), which finds many members with a
  little evidence each;
- evalue() of the members' shifts as one sample, in units of their noise. It finds many noisy members without any
  evidence of their own. It allows for an offset that all share, because a machine drifts over weeks.

Both leave the strongest member out, so they are e-values against "at most one fell", and one slow case makes no group.
If no two cases fell and the members' noise is independent, the chance that any of G groups reaches G / error_rate is at
most error_rate (Markov). A move of the whole machine does not count as noise: it is found, and then confirmed or
reported.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from helpers.judging.case.evidence import CaseKey
from helpers.judging.case.verdict import Standing, Status
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.records import finite

# The label of the group of all cases.
ALL_CASES = ""

# The largest e-value that is used, so that sums and means stay finite.
_LARGEST_LOG = 690.0
# So many values evalue() multiplies without an underflow.
_LARGEST_SAMPLE = 100
# Noise below this was not measured: it is missing.
_LEAST_NOISE = 1e-6


@dataclass(frozen=True)
class NightRules:
    """The thresholds of the verdict on a night."""

    # The rate of false group alarms, over all groups of a night together. It is a tenth of the rate for single drops
    # that become suspects, because without a reference build an alarm is all that a night can give.
    error_rate: float = 0.02
    # The standard deviation, as a fraction, of the drift that all cases of a machine share over weeks
    # (docs/accuracy.md, "What the nights are").
    machine_drift: float = 0.002
    # Two cases can fall together by chance, and without the stronger one only one is left.
    least_members: int = 3
    # A large group is named instead of a smaller one inside it only if its other members fell too: by this many
    # standard deviations of their sum (1 in 700 by chance), and by this share of the smaller group's fall.
    rest_sum: float = 3.0
    rest_share: float = 0.5
    # The most interleaved comparisons that one night may request, because a pair of runs is expensive.
    confirmations: int = 3
    # How many cases, and which share of them, must move in one direction by this many standard deviations of their own
    # noise. One case of six does so by chance. Of 60 cases 40 never do, of 6 cases 4 do in 1 night of 70.
    common_cases: int = 5
    common_share: float = 2 / 3
    common_sigmas: float = 1.0
    # What all of them together must reach in one direction, in standard deviations of their sum (3e-5 by chance). Each
    # counts with at most the cap, so that one bad run does not make the sum.
    common_sum: float = 4.0
    common_cap: float = 3.0


RULES = NightRules()


@dataclass(frozen=True)
class NightCase:
    """One judged case of a night. Only cases that have a Standing take part."""

    case_id: str
    target: str
    # The groups it belongs to (labels_of).
    labels: tuple[str, ...]
    # The status by the recorded question alone.
    status: Status
    standing: Standing
    # The smallest change that counts, as a fraction.
    tolerance: float = 0.005
    # Whether a reference build of the case is at hand, and if not, why.
    can_confirm: bool = False
    why_not: str = ""

    def __post_init__(self) -> None:
        """NaN compares false with everything, so a case that holds one would silence its groups."""
        numbers = {"e_drop": self.standing.e_drop, "sigma": self.standing.sigma, "tau": self.standing.tau}
        if self.standing.pairs is not None:
            numbers["pairs.evidence"] = self.standing.pairs.evidence
        for name, value in numbers.items():
            if not finite(value) or value < 0:
                raise SuiteError(f"night of {self.case_id}", field=name, got=value, expected="finite, not negative")

    @property
    def key(self) -> CaseKey:
        return self.target, self.case_id

    @property
    def shift(self) -> float | None:
        """Tonight's runs against the accepted nights, as a fraction; None without nights."""
        effect = self.standing.effect
        if self.standing.shift is not None or self.standing.pairs is not None or effect is None:
            return self.standing.shift
        return effect.point

    @property
    def noise(self) -> float:
        """The standard deviation of ``shift`` if nothing changed: between runs and between nights."""
        known = math.hypot(self.standing.sigma / math.sqrt(max(self.standing.runs, 1)), self.standing.tau)
        return max(known, _LEAST_NOISE)

    @property
    def log_e(self) -> float:
        """Natural logarithm of tonight's own e-value for a drop of the build.

        The evidence carried from earlier nights is left out, because those nights were judged before. A case that was
        compared with the reference build counts with that comparison, whose noise is its own. That is an e-value too,
        because a larger one led to it. A comparison that found the new build faster is no evidence for a drop.
        """
        pairs, effect = self.standing.pairs, self.standing.effect
        e_value = self.standing.e_drop if pairs is None else pairs.evidence
        if pairs is not None and (effect is None or effect.point >= 0):
            e_value = min(e_value, 1.0)
        # Clipped as far down as the carried evidence is clipped upwards, so that one member never outweighs all others.
        return math.log(max(e_value, 1e-6))

    @property
    def is_same(self) -> bool:
        """Whether interleaved runs showed that the build is not slower.

        They cannot show that if the level of the earlier nights against the reference build is not known.
        """
        return self.standing.pair_count > 0 and self.status in (Status.PASS, Status.IMPROVEMENT)

    def good_fell(self, shift: float) -> bool:
        """Whether the reference build itself ran below its own earlier figures by about ``shift``, a fraction below 0.

        "About" means at least half as far, or as far within two standard deviations. True if those figures are not
        known.
        """
        good = None if self.standing.pairs is None else self.standing.pairs.good_shift
        return good is None or good <= shift / 2 or abs(good - shift) <= 2 * self.noise


@dataclass(frozen=True)
class Alarm:
    """A group that fell together."""

    label: str
    # All cases of the group.
    members: tuple[CaseKey, ...]
    # The cases of the e-value: the members of the group, or of a smaller one inside it, that no comparison had found
    # slower before.
    tested: tuple[CaseKey, ...]
    # The members' median shift, as a fraction.
    shift: float
    e_value: float
    # From this e-value on a group is reported.
    needed: float


@dataclass(frozen=True)
class CommonMove:
    """Most cases of a night moved in one direction."""

    # How many cases were looked at, and those that moved in that direction beyond their own noise.
    cases: int
    moved: tuple[CaseKey, ...]
    # The median shift of all cases, as a fraction.
    shift: float

    @property
    def slower(self) -> bool:
        return self.shift < 0


def labels_of(case: Case, target: str) -> tuple[str, ...]:
    """The groups that a case belongs to, by what its cases have in common."""
    labels = [
        ALL_CASES,
        target,
        case.framework.value,
        case.model.value,
        case.precision.value,
        f"{case.cards}-card",
        case.data.value,
    ]
    labels += [case.execution.value] if case.execution else []
    labels += ["amp"] if case.precision.is_amp else []
    labels += ["multi-card"] if case.cards > 1 else []
    labels += ["multi-node"] if case.nodes > 1 else []
    return tuple(labels)


def find_alarms(cases: Sequence[NightCase], rules: NightRules = RULES) -> tuple[Alarm, ...]:
    """The groups that fell together, strongest first; no case is in two of them.

    The strongest alarm is found first. Then it is named: it is narrowed to the smallest group that explains it, and
    widened to the largest group of which all members fell.
    """
    needed = len(_groups(cases, rules)) / rules.error_rate
    found: list[Alarm] = []
    left = list(cases)
    while alarms := _alarms(left, needed, rules):
        best = max(alarms, key=_strength)
        while narrower := [each for each in alarms if set(each.members) < set(best.members)]:
            explaining = [each for each in narrower if not _rest_fell(each, best.members, left, rules)]
            if not explaining:
                break
            best = max(explaining, key=_strength)
        found.append(_widened(best, left, rules))
        left = [case for case in left if case.key not in found[-1].members]
    return tuple(found)


def group_e_value(members: Sequence[NightCase], rules: NightRules = RULES) -> float:
    """The group's e-value for a drop of two members or more; 0 for none."""
    return (_product(members) + _as_one_sample(members, rules)) / 2


def _product(members: Iterable[NightCase]) -> float:
    """The product of the members' e-values without the largest one, at most 1e299."""
    logs = sorted(case.log_e for case in members)
    return math.exp(min(sum(logs[:-1]), _LARGEST_LOG)) if logs else 0.0


def _as_one_sample(members: Iterable[NightCase], rules: NightRules) -> float:
    """The e-value of all shifts as one sample, without the lowest one. A case whose builds were compared tonight is
    left out, because it has its answer."""
    # Imported here because it loads numpy, which takes longer than listing the tests.
    from helpers.judging.case.evalue import evalue

    known = [case for case in members if case.shift is not None and case.standing.pairs is None]
    known = sorted(known, key=lambda case: case.noise)[:_LARGEST_SAMPLE]
    if len(known) < rules.least_members:
        return 0.0
    usual = statistics.median(case.noise for case in known)
    # The shifts are scaled to the same noise, so a drift that all share is largest for the quietest member.
    scaled = sorted(math.log1p(case.shift or 0.0) * usual / case.noise for case in known)[1:]
    return min(evalue(scaled, usual, rules.machine_drift * usual / known[0].noise), math.exp(_LARGEST_LOG))


def common_move(cases: Sequence[NightCase], rules: NightRules = RULES) -> CommonMove | None:
    """The common move, if most cases moved alike, further than their own noise explains and further than the smallest
    change that counts; else None."""
    known = [(case, case.shift) for case in cases if case.shift is not None]
    if len(known) < rules.common_cases:
        return None
    middle = statistics.median(shift for _, shift in known)
    direction = math.copysign(1.0, middle)
    moved = tuple(case.key for case, shift in known if direction * shift >= rules.common_sigmas * case.noise)
    total = direction * _sum_of_scores((case for case, _ in known), rules)
    counts = abs(middle) >= statistics.median(case.tolerance for case, _ in known)
    if len(moved) < rules.common_share * len(known) or total < rules.common_sum or not counts:
        return None
    return CommonMove(len(known), moved, middle)


def _groups(cases: Sequence[NightCase], rules: NightRules) -> dict[str, tuple[NightCase, ...]]:
    """Members by label, each set of members once. Each group has enough members that no comparison has answered yet."""
    by_label: dict[str, list[NightCase]] = {}
    for case in cases:
        for label in case.labels:
            by_label.setdefault(label, []).append(case)
    distinct: dict[frozenset[CaseKey], str] = {}
    for label, members in by_label.items():
        if len(_open(members)) >= rules.least_members:
            distinct.setdefault(frozenset(case.key for case in members), label)
    return {label: tuple(by_label[label]) for label in distinct.values()}


def _open(members: Iterable[NightCase]) -> list[NightCase]:
    """Members that no comparison has found slower; the slower ones are reported by their own rows."""
    return [case for case in members if case.status is not Status.REGRESSION]


def _alarms(cases: Sequence[NightCase], needed: float, rules: NightRules) -> list[Alarm]:
    alarms = []
    for label, members in _groups(cases, rules).items():
        tested = _open(members)
        shift = _median_shift(tested)
        if shift is None or shift > -statistics.median(case.tolerance for case in tested):
            continue
        if (e_value := group_e_value(tested, rules)) >= needed:
            keys = tuple(case.key for case in members)
            alarms.append(Alarm(label, keys, tuple(case.key for case in tested), shift, e_value, needed))
    return alarms


def _median_shift(cases: Iterable[NightCase]) -> float | None:
    return statistics.median(known) if (known := [case.shift for case in cases if case.shift is not None]) else None


def _strength(alarm: Alarm) -> tuple[float, int]:
    return alarm.e_value, -len(alarm.members)


def _widened(alarm: Alarm, cases: Sequence[NightCase], rules: NightRules) -> Alarm:
    """The alarm, named after the largest group around it whose other members fell too."""
    wider = [
        (label, tuple(case.key for case in members))
        for label, members in _groups(cases, rules).items()
        if set(alarm.members) < {case.key for case in members}
    ]
    fell = [(label, keys) for label, keys in wider if _rest_fell(alarm, keys, cases, rules)]
    if not fell:
        return alarm
    label, keys = max(fell, key=lambda each: len(each[1]))
    shift = _median_shift(_open(case for case in cases if case.key in keys))
    return replace(alarm, label=label, members=keys, shift=alarm.shift if shift is None else shift)


def _rest_fell(narrow: Alarm, wide: Collection[CaseKey], cases: Sequence[NightCase], rules: NightRules) -> bool:
    """Whether the members of ``wide`` outside ``narrow`` fell too, judged by the quietest third of them."""
    rest = [case for case in _open(cases) if case.key in wide and case.key not in narrow.members]
    rest = sorted(rest, key=lambda case: case.noise)[: max(rules.least_members, len(rest) // 3)]
    shift = _median_shift(rest)
    fell = shift is not None and shift <= rules.rest_share * narrow.shift
    return fell and _sum_of_scores(rest, rules) <= -rules.rest_sum


def _sum_of_scores(cases: Iterable[NightCase], rules: NightRules) -> float:
    """The sum of the shifts in units of their noise, in standard deviations of the sum; 0 for no shifts."""
    scores = [case.shift / case.noise for case in cases if case.shift is not None]
    capped = [max(-rules.common_cap, min(score, rules.common_cap)) for score in scores]
    return sum(capped) / math.sqrt(max(len(capped), 1))
