"""Both builds beside their own past: when the good build's fall explains the new one's."""

from __future__ import annotations

import pytest

from helpers.judging.level import Level, compare_with_past
from helpers.judging.screen import screen
from tests.helpers.judging.evidences import CENTRE, evidence, nights, run


@pytest.mark.parametrize(("good_fall", "explained"), [(0.06, True), (0.04, False), (-0.06, False)])
def test_a_fall_half_as_large_of_the_good_build_explains_the_new_ones(good_fall: float, explained: bool) -> None:
    tonight = evidence(run(), past=nights())
    screening = screen(tonight, tonight.runs, [CENTRE])
    level = Level(known=True, good=CENTRE, good_error=1e-4)
    new = [screening.noise.centre - 0.1] * 4
    beside = compare_with_past(tonight, screening, level, new, [CENTRE - good_fall] * 4)
    assert (beside.below, beside.good_below) == (True, explained)
