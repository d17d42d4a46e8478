"""Which of the parts that hold each other are shown."""

from __future__ import annotations

import pytest

from helpers.judging.parts.differences import Difference, Kind, apart
from helpers.judging.parts.step_parts import Amount, Grain, Part
from helpers.judging.statistics import Interval
from helpers.trainers.contract.step_profile import Phase


def _difference(part: Part, seconds: float) -> Difference:
    return Difference(part, Kind.SLOWER, Amount(1.0), Amount(1.0 + seconds), Interval(seconds, seconds, seconds), 0.01)


BACKWARD = Part(Grain.PHASE, Phase.BACKWARD)
ROWS = tuple(Part(Grain.ROW, Phase.BACKWARD, f"blocks.{number}", "conv2d_grad") for number in range(4))


@pytest.mark.parametrize(
    ("phase", "inside", "shown"),
    [
        # A longer row is not hidden by a phase that is shorter as a whole.
        (-0.010, (0.005,), (0.005,)),
        (-0.010, (0.005, -0.003), (0.005, -0.003)),
        # A shorter row does not hide that its phase is longer.
        (0.010, (-0.003,), (0.010,)),
        (0.010, (0.002, -0.003), (0.010,)),
        # Of the rows that differ as their phase does a few explain most of it.
        (0.010, (0.006, -0.005), (0.006, -0.005)),
        (0.010, (0.002, 0.002, 0.002, 0.002), (0.002, 0.002, 0.002, 0.002)),
        (0.010, (0.0015, 0.0015, 0.0015, 0.0015), (0.010,)),
        (-0.010, (-0.003,), (-0.010,)),
        (-0.010, (), (-0.010,)),
    ],
)
def test_rows_are_shown_in_place_of_their_phase_if_they_say_more(
    phase: float, inside: tuple[float, ...], shown: tuple[float, ...]
) -> None:
    rows = [_difference(row, seconds) for row, seconds in zip(ROWS, inside, strict=False)]
    found = apart([*rows, _difference(BACKWARD, phase)])
    assert tuple(each.seconds.mean for each in found) == shown
