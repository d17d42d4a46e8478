"""The level of a case's accepted nights against the reference build, and whether that build itself was slower tonight.

The recorded level may lie above the pinned build (a gain was accepted and the pin stayed) or below it. So pairs are
compared with that level and not with 0 (docs/verdicts.md, "Level against the reference build").
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from helpers.judging.case.evalue import evalue, noise_factor
from helpers.judging.case.evidence import Compared, Evidence
from helpers.judging.case.noise import Noise
from helpers.judging.case.screen import Screening, recorded_night
from helpers.judging.statistics import NORMAL_95, hodges_lehmann, student_t_95

# The standard deviation of the differences of pairs of unchanged builds, in the logarithm.
PAIR_TAU = 3e-4
# A level is learned from the oldest nights, because a level that went on learning would follow a build that gets slower
# bit by bit. It needs so many pairs, and more if the case is so noisy that its standard error is still larger than half
# the drop that counts.
LEVEL_PAIRS, LEVEL_ERROR = 16, 0.0025
# Fewer pairs say too little about their scatter.
_LEAST_PAIRS = 2
# The reference build's own figures drift with the machine over months, so the newest nights count.
_OWN_NIGHTS = 8
# A fall of the reference build explains the new build's fall if it is at least half as large, or as large within two
# errors.
_ENOUGH, _ERRORS = 0.5, 2.0
# Below this e-value the pairs' own runs do not confirm what the first run of the night showed.
_STILL_BELOW = 1.0


@dataclass(frozen=True)
class Level:
    """The level of the accepted nights against the reference build, and that build's own level.

    All in natural logarithms of samples/s.
    """

    known: bool = False
    # The accepted nights minus the reference build, with the standard error; both are 0 if the case was recorded with
    # the reference build itself.
    offset: float = 0.0
    error: float = 0.0
    # From how many pairs the offset was learned.
    pairs: int = 0
    # The reference build's own level on earlier nights, with its standard error; None if that is not known.
    good: float | None = None
    good_error: float = 0.0
    # From how many nights it was learned, and whether it is known from one hour alone (the recording, or the first
    # night beside it).
    good_nights: int = 0
    good_once: bool = False

    def settled(self, mature: bool) -> bool:
        """Whether the case needs no confirmation to learn it. An uncertain level matters only once the case is
        ``mature``."""
        return self.known and not (mature and self.error > LEVEL_ERROR)


def learn_level(evidence: Evidence, noise: Noise) -> Level:
    """The level against tonight's reference build, from the nights on which that build ran and from the recorded
    entry."""
    name = evidence.reference_id
    if not name or evidence.recorded is None:
        return Level()
    mine, elsewhere = (
        [night for night in nights if night.good == name and night.new]
        for nights in (evidence.past.compared, evidence.past.elsewhere)
    )
    its_own = evidence.recorded.build == name
    own = [statistics.median(night.reference) for night in mine if night.teaches_good]
    if its_own and (recording := recorded_night(evidence)):
        own.insert(0, statistics.median(recording))
    once = len(own) == 1
    # If the machine was slow in the recording's hour, slow nights would look usual: it counts until a night is known.
    own = (own[1:] or own)[-_OWN_NIGHTS:]
    level = Level(known=True) if its_own and not evidence.past.gained else _from_pairs([*elsewhere, *mine], noise)
    if not own:
        return level
    error = math.hypot(noise.sigma, noise.tau) * math.sqrt(math.pi / 2 / len(own))
    return replace(level, good=statistics.median(own), good_error=error, good_nights=len(own), good_once=once)


def _from_pairs(nights: list[Compared], noise: Noise) -> Level:
    differences: list[float] = []
    for night in nights:
        known = len(differences) >= LEVEL_PAIRS and level_error(differences, noise) <= LEVEL_ERROR
        if night.teaches_level and not known:
            differences += [new - good for new, good in zip(night.new, night.reference, strict=True)]
    if len(differences) < _LEAST_PAIRS:
        return Level()
    return Level(True, hodges_lehmann(differences), level_error(differences, noise), len(differences))


def level_error(differences: list[float], noise: Noise) -> float:
    """The standard error of a level that is learned from these pairs.

    Few pairs of an unstable spell may agree by chance, so their own scatter counts by Student's t; what is expected of
    it counts as one pair.
    """
    sigma, pairs = math.sqrt(2) * noise.sigma, len(differences)
    return sigma * max(1.0, noise_factor(differences, sigma)) / math.sqrt(pairs) * student_t_95(pairs) / NORMAL_95


def accepted_as_low(screening: Screening, new: Sequence[float], good: Sequence[float]) -> bool:
    """Whether what people recorded or accepted is nearer to the new build's runs in the pairs than to the reference
    build's.

    ``new`` and ``good`` are the pairs' log rates. What was accepted is the recorded entry, or the nights since a
    confirmed gain; where neither can be compared with tonight, nobody has accepted anything.
    """
    rates = recorded_night(screening.case)
    if not rates:
        return False
    accepted = screening.noise.centre if screening.case.past.gained else statistics.median(rates)
    return accepted < (hodges_lehmann(new) + hodges_lehmann(good)) / 2


def pair_tau(level: Level) -> float:
    """The standard deviation of the differences of pairs of unchanged builds from the level."""
    return math.hypot(PAIR_TAU, level.error)


@dataclass(frozen=True)
class Beside:
    """What the interleaved runs of a night say in addition to their differences."""

    # Whether the new build's own runs in the pairs still lie below its level.
    below: bool
    # By how much they do, in the logarithm; below 0 if they do.
    fall: float
    # The reference build tonight minus its own earlier figures, in the logarithm; None if those are not known.
    good_shift: float | None
    # Whether it fell as far as the new build.
    good_below: bool


def compare_with_past(screening: Screening, level: Level, new: Sequence[float], good: Sequence[float]) -> Beside:
    """Compare both builds with their own past; ``new`` and ``good`` are the pairs' log rates."""
    noise = screening.noise
    below = [rate - noise.centre for rate in new]
    fall = hodges_lehmann(below)
    is_below = evalue(below, noise.sigma, noise.tau) > _STILL_BELOW and fall < 0
    if level.good is None:
        return Beside(is_below, fall, None, False)
    shift = hodges_lehmann([rate - level.good for rate in good])
    # By as much as the pairs' own runs scatter, the two falls differ by chance.
    apart = level_error([rate - other for rate, other in zip(new, good, strict=True)], noise)
    near = abs(shift - fall) <= _ERRORS * math.hypot(level.good_error, noise.tau, apart)
    return Beside(is_below, fall, shift, shift < 0 and (shift <= _ENOUGH * fall or near))
