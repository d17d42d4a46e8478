"""Which operators the builds call more or less often."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from helpers.judging.call_counts import CallCount, call_counts
from helpers.judging.kinds import Kind
from helpers.judging.profile_differences import Difference
from helpers.judging.profile_parts import Amount, Level, Part, ProfiledPair, ProfiledRun
from helpers.judging.statistics import Interval
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


def _calls(counts: Sequence[CallCount]) -> list[tuple[Part, float, float]]:
    return [(each.part, each.reference.calls, each.candidate.calls) for each in counts]


def _named(part: Part, old: float, new: float) -> Difference:
    interval = Interval(0.001, 0.0005, 0.0015)
    return Difference(part, Kind.SLOWER, Amount(0.01, old), Amount(0.011, new), interval, 0.008)


def test_an_operator_that_all_runs_of_a_build_call_more_often_is_told_over_its_layers() -> None:
    once = [_run(_row(CONVOLUTION, 1, layer="blocks.0"), _row(CONVOLUTION, 1, layer="blocks.1"))] * 6
    twice = [_run(_row(CONVOLUTION, 2, 0.003, layer="blocks.0"), _row(CONVOLUTION, 1, layer="blocks.1"))] * 6
    (more,) = call_counts(_pairs(once, twice), ())
    assert _calls([more]) == [(CONVOLUTION, 2.0, 3.0)]
    assert more.longer_seconds == pytest.approx(0.002)
    assert _calls(call_counts(_pairs(twice, once), ())) == [(CONVOLUTION, 3.0, 2.0)]


def test_what_one_run_calls_as_often_as_a_run_of_the_other_build_is_not() -> None:
    reference = [_run(_row(CONVOLUTION, calls)) for calls in (1, 1, 1, 1, 1, 2)]
    candidate = [_run(_row(CONVOLUTION, calls)) for calls in (2, 3, 3, 3, 3, 3)]
    assert call_counts(_pairs(reference, candidate), ()) == ()
    assert _calls(call_counts(_pairs(reference[:5], candidate[1:]), ())) == [(CONVOLUTION, 1.0, 3.0)]


def test_counts_that_are_added_up_in_another_order_are_the_same() -> None:
    whole = [_run(_row(CONVOLUTION, 0.3))] * 6
    parts = [_run(*(_row(CONVOLUTION, 0.1, layer=layer) for layer in ("stem", "body", "head")))] * 6
    assert 0.1 + 0.1 + 0.1 != 0.3
    assert call_counts(_pairs(whole, parts), ()) == ()


def test_new_and_gone_operators_have_no_calls_with_one_build_and_the_host_has_none() -> None:
    host = replace(CONVOLUTION, operator=HOST)
    reference = [_run(_row(RELU, 1, 0.001), _row(host, 1))] * 6
    candidate = [_run(_row(CONVOLUTION, 2, 0.004), _row(host, 7))] * 6
    # The one that makes the larger difference is the first.
    assert _calls(call_counts(_pairs(reference, candidate), ())) == [(CONVOLUTION, 0.0, 2.0), (RELU, 1.0, 0.0)]


def test_kernels_of_a_card_are_not_calls() -> None:
    once, twice = ([_run(replace(_row(CONVOLUTION, calls), device="cuda"))] * 6 for calls in (1, 2))
    assert call_counts(_pairs(once, twice), ()) == ()


@pytest.mark.parametrize(("second", "mean"), [([_row(CONVOLUTION, 2)], 1.5), ([], 0.5)])
def test_calls_are_the_mean_over_all_ranks(second: list[OperatorRow], mean: float) -> None:
    def of_ranks(*rows: OperatorRow) -> ProfiledRun:
        one, other = _run(_row(CONVOLUTION, 1)).profiles[0], _run(*rows).profiles[0]
        return ProfiledRun(0.1, (one, replace(other, rank=1)))

    (found,) = call_counts(_pairs([of_ranks(_row(CONVOLUTION, 1))] * 6, [of_ranks(*second)] * 6), ())
    assert (found.reference.calls, found.candidate.calls) == (1.0, mean)


@pytest.mark.parametrize(
    ("named", "told"),
    [
        (_named(Part(Level.ROW, Phase.FORWARD, "blocks.0", "conv2d"), 1, 2), True),
        (_named(CONVOLUTION, 53, 54), True),
        (_named(Part(Level.CHANGE, Phase.FORWARD, layers=("blocks.0",), gone=("relu",), came=("conv2d",)), 9, 9), True),
        # A row that is slower at the same count says nothing of another layer's calls, nor does one of some of them.
        (_named(Part(Level.ROW, Phase.FORWARD, "blocks.0", "conv2d"), 1, 1), False),
        (_named(Part(Level.ROW, Phase.FORWARD, "blocks.0", "conv2d"), 0, 2), False),
        (_named(Part(Level.ROW, Phase.BACKWARD, "blocks.0", "conv2d"), 1, 2), False),
        (_named(Part(Level.PHASE, Phase.FORWARD), 0, 0), False),
    ],
)
def test_what_a_named_part_says_is_not_told_again(named: Difference, told: bool) -> None:
    pairs = _pairs([_run(_row(CONVOLUTION, 53))] * 6, [_run(_row(CONVOLUTION, 54))] * 6)
    assert (call_counts(pairs, [named]) == ()) == told
