"""Which of the parts that hold each other are shown."""

from __future__ import annotations

import pytest

from helpers.judging.kinds import Kind
from helpers.judging.named_parts import apart
from helpers.judging.profile_differences import Difference
from helpers.judging.profile_parts import Amount, Level, Part
from helpers.judging.statistics import Interval
from helpers.trainers.contract.step_profile import Phase

LAYERS = tuple(f"blocks.{number}" for number in range(8))


def _difference(part: Part, seconds: float) -> Difference:
    return Difference(part, Kind.SLOWER, Amount(1.0), Amount(1.0 + seconds), Interval(seconds, seconds, seconds), 0.01)


BACKWARD = Part(Level.PHASE, Phase.BACKWARD)
ROWS = tuple(Part(Level.ROW, Phase.BACKWARD, f"blocks.{number}", "conv2d_grad") for number in range(4))


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
    found = apart([*rows, _difference(BACKWARD, phase)], ROWS)
    assert tuple(each.seconds.mean for each in found) == shown


@pytest.mark.parametrize(("layer", "shown"), [("blocks.0", 1), ("blocks.9", 2)])
def test_a_change_hides_an_operator_of_its_phase_only_in_its_own_layers(layer: str, shown: int) -> None:
    row = Part(Level.ROW, Phase.FORWARD, layer, "conv2d")
    operator = Part(Level.OPERATOR, Phase.FORWARD, operator="conv2d")
    change = Part(Level.CHANGE, Phase.FORWARD, layers=LAYERS, gone=("batch_norm",), came=("mean", "multiply"))
    found = apart([_difference(operator, 0.01), _difference(change, 0.02)], [row])
    assert [each.part for each in found] == [change, operator][:shown]
