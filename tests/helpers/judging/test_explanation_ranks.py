"""What is said of jobs of several ranks: a slow rank, a slow network, and a slow operator are told apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from helpers.judging.explanation import Explanation, explain
from helpers.judging.kinds import Kind
from helpers.judging.profile_parts import Level, Part, ProfiledPair, ProfiledRun
from helpers.judging.rank_parts import parts_and_ranks
from helpers.report.explanation import headline
from helpers.session.explain import CaseExplanation
from helpers.trainers.contract.step_profile import HOST, OperatorRow, Phase, StepProfile

SLOW = 1
REDUCTION = Part(Level.ROW, Phase.ALL_REDUCE, operator="all_reduce", device="cpu")
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
    (_slow_rank, Kind.RANK, Part(Level.RANK, rank=SLOW)),
    (_slow_network, Kind.ALL_REDUCE, Part(Level.PHASE, Phase.ALL_REDUCE)),
    (_slow_loader_of_a_rank, Kind.RANK, Part(Level.RANK_PHASE, Phase.DATA_WAIT, rank=SLOW)),
    (_slow_operator, Kind.SLOWER, Part(Level.ROW, *GRADIENT, device="cpu")),
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
@pytest.mark.slow
@pytest.mark.parametrize(("change", "kind", "part", "noise", "least"), [(*CAUSES[0], 0.03, 12), (*CAUSES[1], 0.1, 18)])
def test_beside_other_work_the_cause_is_found_and_wrong_parts_are_rare(
    change: Callable[[Job], None], kind: Kind, part: Part, noise: float, least: int
) -> None:
    right = {part, REDUCTION}
    if kind is Kind.RANK:
        phases = (Phase.FORWARD, Phase.BACKWARD)
        right = {
            part,
            Part(Level.PHASE, Phase.RANK_WAIT),
            *(Part(Level.RANK_PHASE, each, rank=SLOW) for each in phases),
        }
    named = [[each.part for each in _explained(change, noise=noise, seed=seed).named] for seed in range(20)]
    assert sum(each[:1] == [part] for each in named) >= least
    assert sum(not set(each) <= right for each in named) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("faster", [(SLOW,), (0, SLOW)])
def test_no_rank_is_slow_because_others_became_faster(faster: tuple[int, ...], ranks: int) -> None:
    def change(job: Job) -> None:
        job.slow, job.slow_ranks = 0.9, faster

    for seed in range(5):
        found = _explained(change, ranks=ranks, seed=seed)
        waited = Part(Level.PHASE, Phase.RANK_WAIT)
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


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_rank_is_named_by_what_it_computes_where_other_work_makes_some_rows_longer(ranks: int) -> None:
    """A quarter of a rank's rows, others in each run: by their sum the rank would be named in half of the answers."""

    def disturbed(job: Job) -> None:
        job.disturbed_rows = 8

    first = [_explained(_slow_rank, both=disturbed, ranks=ranks, pairs=10, seed=seed).named[0] for seed in range(6)]
    assert [(each.part.rank, each.kind) for each in first] == [(SLOW, Kind.RANK)] * 6
    by_speed = [each.seconds.mean for each in first if each.part.level is Level.RANK_SPEED]
    assert len(by_speed) >= 2
    assert by_speed == pytest.approx([0.0105] * len(by_speed), rel=0.15)


def test_a_rank_that_computes_longer_and_waits_longer_for_data_is_named_with_both() -> None:
    def disturbed(job: Job) -> None:
        job.disturbed_rows = 8

    def change(job: Job) -> None:
        job.slow, job.data_wait[SLOW] = 1.05, 0.004

    named = [_explained(change, both=disturbed, pairs=10, seed=seed).named for seed in range(6)]
    parts = [{each.part for each in one} for one in named]
    speed, wait = Part(Level.RANK_SPEED, rank=SLOW), Part(Level.RANK_PHASE, Phase.DATA_WAIT, rank=SLOW)
    assert sum(speed in each for each in parts) >= 2
    assert all(wait in each for each in parts if speed in each)


def _speed_of(rank: int, runs: Sequence[tuple[StepProfile, ...]]) -> list[float]:
    """By how much the rank's computation is longer in the second run, in seconds; empty if it is not compared."""
    reference, candidate = (ProfiledRun(1.0, profiles) for profiles in runs)
    parts = parts_and_ranks([ProfiledPair(reference, candidate)])
    return [each.differences[0] for each in parts if each.part == Part(Level.RANK_SPEED, rank=rank)]


def _profile(rank: int, convolution: float, *, wait: float = 0.9, also: float = 0.0) -> StepProfile:
    """A rank that waits for data and computes a convolution, and ``also`` operators that others may not have."""
    rows = [OperatorRow(*GRADIENT, "", "", "cpu", 1.0, convolution)]
    rows += [OperatorRow(Phase.DATA_WAIT, "", HOST, "", "", "cpu", 1.0, wait)]
    rows += [
        OperatorRow(Phase.FORWARD, "", name, "", "", "cpu", 1.0, also) for name in ("print", "check", "copy") if also
    ]
    phases = {Phase.BACKWARD: convolution, Phase.DATA_WAIT: wait, Phase.FORWARD: 3 * also}
    return StepProfile("paddle", rank, 5, 1.0, 1.0, phases, 0.0, tuple(rows), 1, "a profiler")


def test_waiting_for_data_is_nothing_that_a_rank_computes() -> None:
    before = (_profile(0, 0.1), _profile(SLOW, 0.1))
    after = (_profile(0, 0.1), _profile(SLOW, 0.11, wait=0.89))
    assert _speed_of(SLOW, [before, after]) == [pytest.approx(0.0105)]


def test_a_row_that_some_ranks_do_not_have_is_not_compared() -> None:
    before = (_profile(0, 0.1), _profile(SLOW, 0.1), _profile(2, 0.1))
    after = (_profile(0, 0.1, also=0.3), _profile(SLOW, 0.1, also=0.4), _profile(2, 0.1))
    assert _speed_of(SLOW, [before, after]) == [pytest.approx(0.0)]


def test_rows_that_vary_from_run_to_run_count_less_than_steady_ones() -> None:
    """By their time alone the two long rows would be the rank's speed, two fifths less than before."""

    def computed(long: float, steady: float) -> StepProfile:
        seconds = {"conv2d_grad": long, "batch_norm_grad": long, "conv2d": steady, "batch_norm": steady}
        rows = [OperatorRow(Phase.BACKWARD, "", name, "", "", "cpu", 1.0, each) for name, each in seconds.items()]
        phases = {Phase.BACKWARD: sum(seconds.values())}
        return StepProfile("paddle", 0, 5, 1.0, 1.0, phases, 0.0, tuple(rows), 1, "a profiler")

    usual = computed(0.4, 0.1)
    runs = [(usual, replace(each, rank=SLOW)) for each in (computed(0.48, 0.1), computed(0.32, 0.102))]
    assert _speed_of(SLOW, runs) == pytest.approx([0.02], rel=0.1)


def test_how_steady_a_row_is_that_only_one_run_has_is_not_known() -> None:
    """Two operators that only the second run has take half as long again on the slow rank. By that run alone they would
    be the steadiest ones."""

    def with_two_more(profile: StepProfile, seconds: float) -> StepProfile:
        more = [OperatorRow(Phase.FORWARD, "", name, "", "", "cpu", 1.0, seconds) for name in ("gather", "scatter")]
        return replace(profile, operators=(*profile.operators, *more))

    usual = _profile(0, 1.0, also=0.1)
    slow = [_profile(SLOW, 1.0 * longer, also=0.1 * longer) for longer in (1.0, 1.04)]
    runs = [(usual, slow[0]), (with_two_more(usual, 0.1), with_two_more(slow[1], 0.15))]
    assert _speed_of(SLOW, runs) == pytest.approx([0.04 * 1.45], rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_rank_that_became_slower_is_named_alone(ranks: int) -> None:
    def change(job: Job) -> None:
        job.slow = 1.1

    for seed in range(5):
        found = _explained(change, ranks=ranks, seed=seed)
        assert [(each.part.rank, each.kind) for each in found.named] == [(SLOW, Kind.RANK)]


def test_a_network_that_differs_less_than_the_rows_is_named() -> None:
    """It takes ten times as long as a step computes and differs by 3%, and the rows by 15%."""

    def link(job: Job) -> None:
        job.network, job.network_noise = 2.0, 0.03

    def change(job: Job) -> None:
        job.network *= 1.15

    named = [_explained(change, noise=0.3, seed=seed, both=link).named for seed in range(10)]
    assert sum([each.part for each in one] == [Part(Level.PHASE, Phase.ALL_REDUCE)] for one in named) >= 8


WHOLE = Part(Level.REDUCTION, Phase.ALL_REDUCE)


def _beside_backward(job: Job) -> None:
    """As a link that takes as long as a step computes, beside a backward pass that differs from run to run."""
    job.network, job.network_noise, job.beside, job.drag, job.shared_noise = 0.2, 0.004, 0.9, 0.3, 0.1


def _all_beside(job: Job) -> None:
    job.network, job.hidden = 0.0, 0.1


def test_an_all_reduce_is_named_as_a_whole_where_what_is_beside_it_differs_from_run_to_run() -> None:
    def change(job: Job) -> None:
        job.network += 0.004

    for seed in range(5):
        found = _explained(change, pairs=14, seed=seed, both=_beside_backward, is_slower=True)
        assert [(each.part, each.kind) for each in found.named] == [(WHOLE, Kind.ALL_REDUCE)]
        assert found.named[0].seconds.mean == pytest.approx(0.004, rel=0.5)
        # How much of it makes the step longer is not known, so none of it is said to explain the drop.
        assert found.explained_seconds == 0.0
        line = headline(CaseExplanation("CASE", "cpu", "good", "bad", found, "", 28, 5, "a profiler"))
        assert line.startswith("all-reduce, beside computation or not, +")
        assert "; the part not beside computation differs by " in line
        assert "; the whole step: " in line


def test_an_all_reduce_as_a_whole_stands_behind_what_is_known_to_explain_something() -> None:
    def change(job: Job) -> None:
        job.network += 0.004
        key = next(each for each in job.rows if each[0] is Phase.FORWARD)
        job.rows[key] += 0.002

    found = _explained(change, pairs=14, both=_beside_backward, is_slower=True)
    assert [each.part.phase for each in found.named] == [Phase.FORWARD, Phase.ALL_REDUCE]
    operator, whole = found.named
    assert (whole.part, whole.seconds.low > operator.seconds.low) == (WHOLE, True)


def test_an_all_reduce_that_waits_for_a_slower_backward_pass_is_not_named() -> None:
    def change(job: Job) -> None:
        job.rows = {key: 1.15 * each if key[0] is Phase.BACKWARD else each for key, each in job.rows.items()}

    def beside(job: Job) -> None:
        _beside_backward(job)
        # What is not beside computation takes what it took.
        job.beside = job.drag

    for seed in range(5):
        found = _explained(change, pairs=14, seed=seed, both=beside, is_slower=True)
        assert WHOLE not in [each.part for each in found.named]


def test_a_slow_rank_makes_the_whole_all_reduce_neither_longer_nor_shorter() -> None:
    def beside(job: Job) -> None:
        _beside_backward(job)
        job.beside, job.hidden, job.dragged_by = 0.0, 0.05, min

    def change(job: Job) -> None:
        job.slow = 1.1

    for seed in range(5):
        found = _explained(change, pairs=20, seed=seed, both=beside, is_slower=True)
        assert [each.part.rank for each in found.named] == [SLOW]


def test_that_an_all_reduce_is_shorter_is_not_named_with_a_slow_rank() -> None:
    """A rank that is always the last one waits less than ranks that are the last in turn."""

    def change(job: Job) -> None:
        job.slow, job.network = 1.1, job.network - 0.004

    found = _explained(change, pairs=14, is_slower=True)
    assert [each.part.rank for each in found.named] == [SLOW]


def test_an_all_reduce_that_is_all_beside_computation_is_named_as_a_whole() -> None:
    def change(job: Job) -> None:
        job.hidden += 0.004

    found = _explained(change, pairs=14, both=_all_beside, is_slower=True)
    assert [each.part for each in found.named] == [WHOLE]
    line = headline(CaseExplanation("CASE", "cpu", "good", "bad", found, "", 28, 5, "a profiler"))
    assert "the part not beside computation differs by nothing that was tested" in line


def test_an_all_reduce_that_one_build_has_beside_computation_is_compared_with_that_of_the_other() -> None:
    def change(job: Job) -> None:
        job.network, job.hidden = job.network - 0.02, 0.02

    found = _explained(change, pairs=14)
    assert [(each.part, each.seconds.mean < 0) for each in found.named] == [(Part(Level.PHASE, Phase.ALL_REDUCE), True)]


def test_what_of_an_all_reduce_is_not_beside_computation_says_more_than_the_whole() -> None:
    def change(job: Job) -> None:
        job.network += 0.03

    def beside(job: Job) -> None:
        job.beside = 0.1

    found = _explained(change, pairs=14, both=beside)
    assert [each.part for each in found.named] == [Part(Level.PHASE, Phase.ALL_REDUCE)]


def test_two_slow_ranks_do_not_explain_more_than_the_drop() -> None:
    def change(job: Job) -> None:
        job.slow, job.slow_ranks = 1.1, (0, SLOW)

    found = _explained(change, ranks=4)
    assert sorted(each.part.rank for each in found.named) == [0, SLOW]
    largest = max(each.seconds.mean for each in found.named)
    # They compute side by side, so the step is as much longer as the slower of the two.
    assert found.explained_seconds == pytest.approx(largest)
    assert found.not_explained_seconds == pytest.approx(0.0, abs=0.2 * found.drop.mean)


@pytest.mark.slow
def test_of_builds_that_do_not_differ_no_rank_is_named() -> None:
    found = [_explained(lambda job: None, noise=0.05, seed=seed, is_slower=True) for seed in range(20)]
    assert sum(bool(each.named) for each in found) <= 3


def test_what_the_others_wait_for_a_slow_rank_is_no_all_reduce() -> None:
    found = _explained(_slow_rank)
    phases = {each.part.phase: each.seconds.mean for each in found.phases}
    assert phases[Phase.ALL_REDUCE] == pytest.approx(0.0, abs=0.001)
    assert phases[Phase.RANK_WAIT] == pytest.approx(found.drop.mean / 2, rel=0.3)
    # The phases of the ranks that stand in the tables beside each other.
    assert [each.part.rank for each in found.ranks if each.part.level is Level.RANK] == [0, 1]
    assert {each.part.rank for each in found.ranks if each.part.level is Level.RANK_PHASE} == {SLOW}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_slow_rank, "rank 1 is slower by "),
        (_slow_loader_of_a_rank, "waiting for data of rank 1 is slower by "),
        (_slow_network, "all-reduce, +"),
    ],
)
def test_the_first_sentence_says_who_waits_for_whom(change: Callable[[Job], None], sentence: str) -> None:
    line = headline(CaseExplanation("CASE", "cpu", "good", "bad", _explained(change), "", 16, 5, "a profiler"))
    assert line.startswith(sentence)
    assert ("which wait for it in the all-reduce" in line) == ("rank 1" in line)
