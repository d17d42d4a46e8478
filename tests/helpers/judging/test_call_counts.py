"""Which operators the builds call more or less often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from helpers.judging.call_counts import CallCount, call_counts
from helpers.judging.profile_parts import Level, Part, ProfiledPair, ProfiledRun
from helpers.trainers.contract.step_profile import HOST, OperatorRow, Phase, StepProfile

CONVOLUTION = Part(Level.OPERATOR, Phase.FORWARD, operator="conv2d")
RELU = Part(Level.OPERATOR, Phase.FORWARD, operator="relu")


def _row(part: Part, calls: float, seconds: float = 0.001, layer: str = "") -> OperatorRow:
    return OperatorRow(part.phase, layer, part.operator, "", "", "cpu", calls, seconds)


def _run(*rows: OperatorRow) -> ProfiledRun:
    profile = StepProfile("paddle", 0, 5, 0.1, 0.1, {Phase.FORWARD: 0.1}, 0.0, rows, 1, "a profiler")
    return ProfiledRun(0.1, (profile,))


def _pairs(reference: Sequence[ProfiledRun], candidate: Sequence[ProfiledRun]) -> list[ProfiledPair]:
    return [ProfiledPair(*runs) for runs in zip(reference, candidate, strict=True)]


def test_an_operator_that_all_runs_of_a_build_call_more_often_is_told_over_its_layers() -> None:
    once = [_run(_row(CONVOLUTION, 1, layer="blocks.0"), _row(CONVOLUTION, 1, layer="blocks.1"))] * 6
    twice = [_run(_row(CONVOLUTION, 2, layer="blocks.0"), _row(CONVOLUTION, 1, layer="blocks.1"))] * 6
    assert call_counts(_pairs(once, twice), ()) == (CallCount(CONVOLUTION, 2.0, 3.0),)
    assert call_counts(_pairs(twice, once), ()) == (CallCount(CONVOLUTION, 3.0, 2.0),)


def test_what_one_run_calls_as_often_as_a_run_of_the_other_build_is_not() -> None:
    reference = [_run(_row(CONVOLUTION, calls)) for calls in (1, 1, 1, 1, 1, 2)]
    candidate = [_run(_row(CONVOLUTION, calls)) for calls in (2, 3, 3, 3, 3, 3)]
    assert call_counts(_pairs(reference, candidate), ()) == ()
    (found,) = call_counts(_pairs(reference[:5], candidate[1:]), ())
    assert (found.reference, found.candidate) == (1.0, 3.0)


def test_new_and_gone_operators_have_no_calls_with_one_build_and_the_host_has_none() -> None:
    host = replace(CONVOLUTION, operator=HOST)
    reference = [_run(_row(RELU, 1, 0.001), _row(host, 1))] * 6
    candidate = [_run(_row(CONVOLUTION, 2, 0.004), _row(host, 7))] * 6
    # The one that makes the larger difference is the first.
    assert call_counts(_pairs(reference, candidate), ()) == (
        CallCount(CONVOLUTION, 0.0, 2.0),
        CallCount(RELU, 1.0, 0.0),
    )


def test_calls_are_the_mean_over_the_ranks() -> None:
    def of_ranks(first: float, second: float) -> ProfiledRun:
        one, other = _run(_row(CONVOLUTION, first)).profiles[0], _run(_row(CONVOLUTION, second)).profiles[0]
        return ProfiledRun(0.1, (one, replace(other, rank=1)))

    (found,) = call_counts(_pairs([of_ranks(1, 1)] * 6, [of_ranks(1, 2)] * 6), ())
    assert (found.reference, found.candidate) == (1.0, 1.5)


def test_what_a_named_part_tells_is_not_told_again() -> None:
    pairs = _pairs([_run(_row(CONVOLUTION, 1), _row(RELU, 1))] * 6, [_run(_row(CONVOLUTION, 2), _row(RELU, 2))] * 6)
    row = Part(Level.ROW, Phase.FORWARD, "blocks.0", "conv2d")
    change = Part(Level.CHANGE, Phase.FORWARD, layers=("blocks.0",), gone=("relu",), came=("conv2d",))
    assert [each.part for each in call_counts(pairs, [row])] == [RELU]
    assert call_counts(pairs, [change]) == ()
    # Neither does the same operator in another phase, nor a whole phase, say how often it is called.
    for others in (replace(row, phase=Phase.BACKWARD), Part(Level.PHASE, Phase.FORWARD)):
        assert len(call_counts(pairs, [others])) == 2
