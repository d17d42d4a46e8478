"""Each moment of a step belongs to one phase."""

from __future__ import annotations

import pytest

from helpers.trainers.common.phase_times import Claim, divided
from helpers.trainers.contract.step_profile import Phase


def test_a_moment_counts_for_the_first_group_that_claims_it() -> None:
    computing = [Claim(Phase.BACKWARD, 1.0, 4.0), Claim(Phase.BACKWARD, 6.0, 7.0)]
    reducing = [Claim(Phase.ALL_REDUCE, 3.0, 6.5)]
    parts = [Claim(Phase.FORWARD, 0.0, 1.0), Claim(Phase.BACKWARD, 1.0, 8.0)]
    assert divided([computing, reducing, parts]) == pytest.approx(
        {
            Phase.FORWARD: 1.0,
            Phase.BACKWARD: 3.0 + 1.0 + 1.0,
            Phase.ALL_REDUCE: 2.0,
        }
    )


def test_what_overlaps_within_a_group_counts_once_for_what_began_first() -> None:
    streams = [Claim(Phase.BACKWARD, 0.0, 3.0), Claim(Phase.OPTIMIZER, 2.0, 5.0), Claim(Phase.FORWARD, 4.0, 4.0)]
    assert divided([streams]) == pytest.approx({Phase.BACKWARD: 3.0, Phase.OPTIMIZER: 2.0})
