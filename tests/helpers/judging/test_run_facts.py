"""What the builds' runs differ in besides the times of the parts of a step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.judging.profile_parts import ProfiledPair, ProfiledRun
from helpers.judging.run_facts import reduced_beside
from helpers.trainers.contract.step_profile import Phase, StepProfile

_PROFILE = StepProfile("pytorch", 0, 5, 0.1, 0.1, {Phase.BACKWARD: 0.1}, 0.0, (), 1, "a profiler")


def _run(*seconds: float) -> ProfiledRun:
    """A run whose ranks reduce gradients beside computation for so many seconds."""
    ranks = enumerate(seconds)
    return ProfiledRun(
        0.1, tuple(replace(_PROFILE, rank=rank, all_reduce_overlapped_seconds=each) for rank, each in ranks)
    )


def test_what_is_reduced_beside_computation_is_the_mean_over_ranks_and_runs() -> None:
    pairs = [ProfiledPair(_run(0.008, 0.010), _run(0.001 + shift, 0.003)) for shift in (0.0, 0.002)]
    found = reduced_beside(pairs)
    assert found is not None
    assert found.reference_seconds == pytest.approx(0.009)
    assert found.candidate_seconds == pytest.approx(0.0025)
    assert found.difference.mean == pytest.approx(-0.0065)
    assert found.difference.low < found.difference.mean < found.difference.high


def test_where_nothing_is_beside_computation_nothing_is_said_of_it() -> None:
    assert reduced_beside([ProfiledPair(_run(0.0, 0.0), _run(0.0, 0.0))] * 2) is None
