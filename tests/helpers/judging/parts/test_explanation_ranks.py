"""What is said of jobs of several ranks: a slow rank, a slow network, and a slow operator are told apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from helpers.judging.parts.differences import Kind
from helpers.judging.parts.explanation import Explanation, explain
from helpers.judging.parts.ranks import parts_and_ranks
from helpers.judging.parts.step_parts import Grain, Part, ProfiledPair, ProfiledRun
from helpers.trainers.contract.step_profile import HOST, OperatorRow, Phase, StepProfile

pytestmark = pytest.mark.slow

SLOW = 1
REDUCTION = Part(Grain.ROW, Phase.ALL_REDUCE, operator="all_reduce")
GRADIENT = (Phase.BACKWARD, "blocks.2", "conv2d_grad")


@dataclass
class Job:
    """What the steps of a build take on each rank: seconds of its rows, the wait for data, and the all-reduce itself,
    of which the ranks that come earlier see more."""

    ranks: int = 2
    # How many times as long the ranks ``slow_ranks`` compute.
    slow: float = 1.0
    slow_ranks: tuple[int, ...] = (SLOW,)
    network: float = 0.03
    # By how much the network differs; as much as all else if it is None.
    network_noise: float | None = None
    # Beside this share of the backward pass gradients are reduced already.
    beside: float = 0.0
    # So much is reduced beside computation besides.
    hidden: float = 0.0
    # By so much of the backward pass the network takes longer, since the last gradients come with its end.
    drag: float = 0.0
    dragged_by: Callable[[Sequence[float]], float] = max
    data_wait: dict[int, float] = field(default_factory=dict)
    # What all ranks of a run share; as much as all else if it is None.
    shared_noise: float | None = None
    # So many rows of each rank, others in each run, take half as long again.
    disturbed_rows: int = 0
    rows: dict[tuple[Phase, str, str], float] = field(
        default_factory=lambda: {
            (phase, f"blocks.{number}", operator): seconds * (1 + 0.1 * number)
            for number in range(8)
            for phase, operator, seconds in (
                (Phase.FORWARD, "conv2d", 0.005),
                (Phase.FORWARD, "batch_norm", 0.001),
                (Phase.BACKWARD, "conv2d_grad", 0.01),
                (Phase.BACKWARD, "batch_norm_grad", 0.002),
            )
        }
    )

    def run(self, random: np.random.Generator, noise: float) -> ProfiledRun:
        """All ranks share ``noise``, each has half as much of its own, and so has each row."""
        speed = random.normal(1.0, noise if self.shared_noise is None else self.shared_noise)
        owns = [self._own(rank, speed * random.normal(1.0, noise / 2), random, noise) for rank in range(self.ranks)]
        network = self.network * random.normal(1.0, noise if self.network_noise is None else self.network_noise)
        backward = [phases[Phase.BACKWARD] for phases, _ in owns]
        network += self.drag * self.dragged_by(backward) - self.beside * max(backward)
        step = max(map(sum, (phases.values() for phases, _ in owns))) + network
        profiles = []
        for rank, (phases, rows) in enumerate(owns):
            waits = step - sum(phases.values())
            reduction = OperatorRow(Phase.ALL_REDUCE, "", "all_reduce", "", "", "cpu", 4.0, waits)
            whole, hidden = {**phases, Phase.ALL_REDUCE: waits}, self.hidden + self.beside * phases[Phase.BACKWARD]
            profiles.append(
                StepProfile("paddle", rank, 5, step, step, whole, hidden, (*rows, reduction), 1, "a profiler")
            )
        return ProfiledRun(step, tuple(profiles))

    def _own(
        self, rank: int, speed: float, random: np.random.Generator, noise: float
    ) -> tuple[dict[Phase, float], list[OperatorRow]]:
        speed *= self.slow if rank in self.slow_ranks else 1.0
        longer = random.choice(len(self.rows), self.disturbed_rows, replace=False)
        rows = []
        for place, (key, usual) in enumerate(self.rows.items()):
            seconds = usual * speed * random.normal(1.0, noise / 2) * (1.5 if place in longer else 1.0)
            rows.append(OperatorRow(*key, "", "", "cpu", 1.0, seconds))
        phases = {Phase.DATA_WAIT: self.data_wait.get(rank, 0.002) * random.normal(1.0, noise)}
        for row in rows:
            phases[row.phase] = phases.get(row.phase, 0.0) + row.seconds_per_step
        return phases, rows


def _explained(
    change: Callable[[Job], None],
    *,
    ranks: int = 2,
    noise: float = 0.004,
    pairs: int = 8,
    seed: int = 5,
    both: Callable[[Job], None] = lambda job: None,
    is_slower: bool = False,
) -> Explanation:
    random, good, bad = np.random.default_rng(seed), Job(ranks), Job(ranks)
    both(good)
    both(bad)
    change(bad)
    made = [ProfiledPair(good.run(random, noise), bad.run(random, noise)) for _ in range(pairs)]
    return explain(made, is_slower=is_slower)


def _slow_rank(job: Job) -> None:
    job.slow = 1.05


def _slow_network(job: Job) -> None:
    job.network += 0.01


def _slow_loader_of_a_rank(job: Job) -> None:
    job.data_wait[SLOW] = 0.012


def _slow_operator(job: Job) -> None:
    job.rows[GRADIENT] += 0.01


CAUSES: list[tuple[Callable[[Job], None], Kind, Part]] = [
    (_slow_rank, Kind.RANK, Part(Grain.RANK, rank=SLOW)),
    (_slow_network, Kind.ALL_REDUCE, Part(Grain.PHASE, Phase.ALL_REDUCE)),
    (_slow_loader_of_a_rank, Kind.RANK, Part(Grain.RANK, rank=SLOW)),
    (_slow_operator, Kind.SLOWER, Part(Grain.ROW, *GRADIENT)),
]


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize(("change", "kind", "part"), CAUSES)
def test_a_cause_is_named_alone_and_explains_the_drop(
    change: Callable[[Job], None], kind: Kind, part: Part, ranks: int
) -> None:
    found = _explained(change, ranks=ranks)
    (first,) = found.named
    assert (first.part, first.kind) == (part, kind)
    # A rank that is slower than the others by its own noise, too, hides some of what it is slower by.
    assert found.explained_seconds == pytest.approx(found.drop.mean, rel=0.3)


# Measured: the rank is first in 16 of the 20, the all-reduce in all.
@pytest.mark.parametrize(("change", "kind", "part", "noise", "least"), [(*CAUSES[0], 0.03, 12), (*CAUSES[1], 0.1, 18)])
def test_beside_other_work_the_cause_is_found_and_wrong_parts_are_rare(
    change: Callable[[Job], None], kind: Kind, part: Part, noise: float, least: int
) -> None:
    right = {part, REDUCTION}
    if kind is Kind.RANK:
        right = {part, Part(Grain.PHASE, Phase.RANK_WAIT)}
    named = [[each.part for each in _explained(change, noise=noise, seed=seed).named] for seed in range(20)]
    assert sum(each[:1] == [part] for each in named) >= least
    assert sum(not set(each) <= right for each in named) <= 2


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("faster", [(SLOW,), (0, SLOW)])
def test_no_rank_is_slow_because_others_became_faster(faster: tuple[int, ...], ranks: int) -> None:
    def change(job: Job) -> None:
        job.slow, job.slow_ranks = 0.9, faster

    for seed in range(5):
        found = _explained(change, ranks=ranks, seed=seed)
        waited = Part(Grain.PHASE, Phase.RANK_WAIT)
        assert [each.part for each in found.named if each.kind is Kind.RANK or each.part == waited] == []
        if len(faster) < ranks:
            assert next(each.seconds.low for each in found.phases if each.part == waited) > 0


def test_where_a_rank_became_faster_no_other_is_slow_even_if_the_build_is_known_to_be_slower() -> None:
    def change(job: Job) -> None:
        job.slow, job.slow_ranks = 0.9, (0,)

    found = _explained(change, is_slower=True)
    assert next(each.p_value for each in found.ranks if each.part.rank == SLOW) < 0.01
    assert [each.part for each in found.named if each.kind is Kind.RANK] == []


def test_a_build_known_to_be_slower_has_its_slow_rank_named_where_whole_runs_differ_by_more() -> None:
    def unlike(job: Job) -> None:
        job.shared_noise = 0.4

    def ranks(is_slower: bool) -> list[int]:
        found = [_explained(_slow_rank, both=unlike, seed=seed, is_slower=is_slower) for seed in range(6)]
        return [each.part.rank for explanation in found for each in explanation.named if each.kind is Kind.RANK]

    assert ranks(is_slower=True) == [SLOW] * 6
    assert len(ranks(is_slower=False)) < 5, "their runs alone do not tell"


def _speed_of(rank: int, runs: Sequence[tuple[StepProfile, ...]]) -> list[float]:
    """By how much the rank's computation is longer in the second run, in seconds; empty if it is not compared."""
    reference, candidate = (ProfiledRun(1.0, profiles) for profiles in runs)
    parts = parts_and_ranks([ProfiledPair(reference, candidate)])
    return [each.differences[0] for each in parts if each.part == Part(Grain.RANK, rank=rank)]


def _profile(rank: int, convolution: float, *, wait: float = 0.9, also: float = 0.0) -> StepProfile:
    """A rank that waits for data and computes a convolution, and ``also`` operators that others may not have."""
    rows = [OperatorRow(*GRADIENT, "", "", "cpu", 1.0, convolution)]
    rows += [OperatorRow(Phase.DATA_WAIT, "", HOST, "", "", "cpu", 1.0, wait)]
    rows += [
        OperatorRow(Phase.FORWARD, "", name, "", "", "cpu", 1.0, also) for name in ("print", "check", "copy") if also
    ]
    phases = {Phase.BACKWARD: convolution, Phase.DATA_WAIT: wait, Phase.FORWARD: 3 * also}
    return StepProfile("paddle", rank, 5, 1.0, 1.0, phases, 0.0, tuple(rows), 1, "a profiler")


def test_what_a_rank_waits_for_data_counts_beside_what_it_computes() -> None:
    before = (_profile(0, 0.1), _profile(SLOW, 0.1))
    assert _speed_of(SLOW, [before, (_profile(0, 0.1), _profile(SLOW, 0.11))]) == [pytest.approx(0.0105)]
    assert _speed_of(SLOW, [before, (_profile(0, 0.1), _profile(SLOW, 0.1, wait=0.91))]) == [pytest.approx(0.01)]


def test_a_row_that_some_ranks_do_not_have_is_not_compared() -> None:
    before = (_profile(0, 0.1), _profile(SLOW, 0.1), _profile(2, 0.1))
    after = (_profile(0, 0.1, also=0.3), _profile(SLOW, 0.1, also=0.4), _profile(2, 0.1))
    assert _speed_of(SLOW, [before, after]) == [pytest.approx(0.0)]


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_that_became_slower_is_named_alone(ranks: int) -> None:
    def change(job: Job) -> None:
        job.slow = 1.1

    for seed in range(5):
        found = _explained(change, ranks=ranks, seed=seed)
        assert [(each.part.rank, each.kind) for each in found.named] == [(SLOW, Kind.RANK)]


def test_that_an_all_reduce_is_shorter_is_not_named_with_a_slow_rank() -> None:
    """A rank that is always the last one waits less than ranks that are the last in turn."""

    def change(job: Job) -> None:
        job.slow, job.network = 1.1, job.network - 0.004

    found = _explained(change, pairs=14, is_slower=True)
    assert [each.part.rank for each in found.named] == [SLOW]


def test_ranks_that_compute_less_than_a_thousandth_of_a_step_explain_nothing() -> None:
    def ranks(network: float) -> set[int]:
        random, job = np.random.default_rng(1), Job(network=network)
        pairs = [ProfiledPair(job.run(random, 0.004), job.run(random, 0.004)) for _ in range(3)]
        return {each.part.rank for each in parts_and_ranks(pairs) if each.part.level is Grain.RANK}

    assert ranks(0.03) == {0, 1}
    assert ranks(300.0) == set()
