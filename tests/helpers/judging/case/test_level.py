"""Both builds beside their own past: which nights tell it, and when the reference build's fall explains the new
one's."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from helpers.judging.case.evidence import Compared, Past
from helpers.judging.case.level import Level, compare_with_past, learn_level
from helpers.judging.case.screen import screen
from tests.helpers.judging.case.evidences import CENTRE, GOOD, evidence, nights, noise, recorded, run


@pytest.mark.parametrize(("good_fall", "explained"), [(0.06, True), (0.04, False), (-0.06, False)])
def test_a_fall_half_as_large_of_the_good_build_explains_the_new_ones(good_fall: float, explained: bool) -> None:
    tonight = evidence(run(), past=nights())
    screening = screen(tonight, [CENTRE])
    level = Level(known=True, good=CENTRE, good_error=1e-4)
    new = [screening.noise.centre - 0.1] * 4
    beside = compare_with_past(screening, level, new, [CENTRE - good_fall] * 4)
    assert (beside.below, beside.good_below) == (True, explained)


def learned(*compared: Compared) -> Level:
    """The level against a reference build that the case was not recorded with."""
    past = Past(nights(), compared=compared)
    return learn_level(replace(evidence(recorded=recorded(build="another build")), past=past), noise())


def test_a_level_that_is_known_well_does_not_follow_later_nights() -> None:
    oldest, later = (Compared(GOOD, (CENTRE + level,) * 16, (CENTRE,) * 16) for level in (0.02, 0.01))
    level = learned(oldest, later, later)
    assert (level.pairs, level.offset) == (16, pytest.approx(0.02))


def test_few_pairs_that_agree_by_chance_make_no_certain_level() -> None:
    """Four pairs of an unstable spell once put a level at +0.59 +- 0.15%, and a build that was the same failed."""
    few, many = (learned(Compared(GOOD, (CENTRE + 0.006,) * pairs, (CENTRE,) * pairs)) for pairs in (4, 16))
    assert few.error > 2.6 * many.error


def test_what_was_recorded_in_a_slow_hour_is_forgotten_once_a_night_is_known() -> None:
    """With it, every slow night of the machine would look as usual for the reference build."""
    slow = recorded(replicates=(math.exp(CENTRE - 0.05),))
    given = evidence(recorded=slow)
    alone = learn_level(given, noise())
    assert (alone.good, alone.good_once) == (pytest.approx(CENTRE - 0.05), True)
    night = Compared(GOOD, (CENTRE,), (CENTRE,), teaches_level=False)
    later = learn_level(replace(given, past=Past(nights(), compared=(night,))), noise())
    assert (later.good, later.good_nights, later.good_once) == (CENTRE, 1, False)


def test_two_falls_that_differ_by_what_the_pairs_scatter_are_one() -> None:
    tonight = evidence(run(), past=nights())
    screening = screen(tonight, [CENTRE])
    level = Level(known=True, good=CENTRE, good_error=1e-4)
    scatter = [0.05, -0.05] * 2
    new = [screening.noise.centre - 0.06] * 4
    good = [CENTRE - 0.02 + each for each in scatter]
    assert compare_with_past(screening, level, new, good).good_below


def test_the_good_builds_own_level_is_that_of_its_newest_nights() -> None:
    older, newer = ([Compared(GOOD, (rate,) * 3, (rate,) * 3)] * 8 for rate in (CENTRE, CENTRE - 0.02))
    level = learned(*older, *newer)
    assert (level.good, level.good_nights) == (CENTRE - 0.02, 8)
