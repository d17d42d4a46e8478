"""Where the accepted nights stand against the good build, and what the good build itself usually does.

docs/verdicts.md, "Level against the good build": the recorded level may lie above the pinned build (a gain was accepted
and the pin stayed) or below it, so pairs are held against the level and not against 0.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from helpers.judging.estimate import hodges_lehmann
from helpers.judging.evidence import Compared, Evidence
from helpers.judging.likelihood import noise_factor
from helpers.judging.noise import Noise

# Of the oldest nights, as a level that went on learning would follow a build that gets slower bit by bit: so many
# pairs, and more where a case is so noisy that they leave a larger standard error than half the drop that counts.
LEVEL_PAIRS, LEVEL_ERROR = 16, 0.0025
# Fewer say too little of how they scatter.
_LEAST_PAIRS = 2
# The good build's own figures follow a machine's drift of months, so the newest nights count.
_OWN_NIGHTS = 8


@dataclass(frozen=True)
class Level:
    """In logarithms of images/s.

    - ``known``: whether the level is; then ``offset`` is that of the accepted nights less the good build's, ``error``
      its standard error, 0 both where the case was recorded with the good build itself, else from ``pairs`` pairs.
    - ``good``: where the good build itself ran on earlier nights, None where nobody knows; ``good_error`` its
      standard error and ``good_nights`` how many nights it rests on, the recorded one among them.
    """

    known: bool = False
    offset: float = 0.0
    error: float = 0.0
    pairs: int = 0
    good: float | None = None
    good_error: float = 0.0
    good_nights: int = 0


def learn_level(evidence: Evidence, noise: Noise) -> Level:
    """Of tonight's good build, from the nights on which the same one ran and from the recorded entry."""
    recorded, name = evidence.recorded, evidence.reference_id
    if not name or recorded is None:
        return Level()
    mine = [night for night in evidence.past.compared if night.good == name and night.new]
    its_own = recorded.build == name
    own = [statistics.median(night.reference) for night in mine if night.teaches_good][-_OWN_NIGHTS:]
    if its_own and len(own) < _OWN_NIGHTS:
        own.insert(0, statistics.median(map(math.log, recorded.replicates or (recorded.images_per_s,))))
    level = Level(known=True) if its_own and not evidence.past.gained else _from_pairs(mine, noise)
    if not own:
        return level
    error = math.hypot(noise.sigma, noise.tau) * math.sqrt(math.pi / 2 / len(own))
    return Level(level.known, level.offset, level.error, level.pairs, statistics.median(own), error, len(own))


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
    """Standard error of a level that rests on these pairs."""
    sigma = math.sqrt(2) * noise.sigma
    return sigma * max(1.0, noise_factor(differences, sigma)) / math.sqrt(len(differences))
