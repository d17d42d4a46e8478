"""The loop with a fake clock: exact times, epochs, phases and failures, without waiting."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers.launch.steplog_reader import read_step_log
from helpers.trainers.common.loop import Batch, HostTimer, LoopIO, LoopPlan, LossError, train
from helpers.trainers.contract.errors import DatasetError
from helpers.trainers.contract.step_profile import Phase
from helpers.trainers.contract.steplog import (
    COMPLETE,
    PROFILE,
    WARMUP,
    WINDOW,
    Footer,
    Header,
    Step,
    StepLogWriter,
    steadiness,
)


@dataclass
class World:
    """A clock that only reading data, training and the barrier move, and a record of what happened."""

    batches_per_epoch: int = 1000
    reader_seconds: float = 0.25
    step_seconds: float = 1.0
    barrier_seconds: float = 7.0
    speeds: Iterator[float] = field(default_factory=lambda: itertools.repeat(1.0))
    tick_seconds: float = 0.0
    tells_begins: bool = False
    losses: Iterator[float] = field(default_factory=lambda: itertools.repeat(2.0))
    now: float = 100.0
    steps: list[Step] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    beats: list[tuple[str, int]] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    fetched: int = 0
    barriers: int = 0

    def clock(self) -> float:
        self.now += self.tick_seconds
        return self.now

    def epoch(self, number: int) -> Iterator[Batch]:
        for _ in range(self.batches_per_epoch):
            self.now += self.reader_seconds
            yield Batch("images", "labels", 4)

    def begin_epoch(self, number: int) -> None:
        self.epochs.append(number)

    def step(self, batch: Batch) -> float:
        self.now += self.step_seconds * next(self.speeds)
        return next(self.losses)

    def loss(self, handle: float) -> float:
        self.fetched += 1
        return handle

    def barrier(self) -> None:
        self.barriers += 1
        self.now += self.barrier_seconds

    def record(self, steps: Sequence[Step]) -> None:
        self.blocks.append(len(steps))
        self.steps.extend(steps)

    def train(
        self, warmup: int, window: int, fetch_every: int = 1, agree: Callable[[bool], bool] = bool, **plan: float
    ) -> list[Step]:
        io = LoopIO(
            self.record,
            lambda phase, step: self.beats.append((phase, step)),
            self.barrier,
            self.clock,
            agree,
            lambda number: self.beats.append(("begun", number)) if self.tells_begins else None,
        )
        train(LoopPlan(warmup, window, fetch_every, **plan), self, self, HostTimer(self.clock), io)
        return self.steps

    @property
    def warmup_steps(self) -> int:
        return sum(step.phase == WARMUP for step in self.steps)


def test_steps_are_contiguous_and_hold_their_reading_time() -> None:
    steps = World().train(2, 3)
    assert [(step.start, step.end) for step in steps[:2]] == [(100.0, 101.25), (101.25, 102.5)]
    window = steps[2:]
    assert window[-1].end - window[0].start == 3 * 1.25
    assert all(step.reader_seconds == 0.25 and step.samples == 4 for step in steps)


def test_steps_after_the_window_go_on_with_the_data_and_are_not_recorded() -> None:
    world = World(batches_per_epoch=4)
    io = LoopIO(world.record, lambda phase, step: world.beats.append((phase, step)), world.barrier, world.clock)
    more = train(LoopPlan(1, 2, 1), world, world, HostTimer(world.clock), io)
    before = world.now
    parts: list[Phase] = []

    @contextmanager
    def part(phase: Phase) -> Iterator[None]:
        parts.append(phase)
        yield

    more.in_parts(2, part)
    assert world.now - before == 2 * 1.25
    assert parts == [Phase.DATA_WAIT, Phase.OTHER] * 2 + [Phase.OTHER]
    assert (len(world.steps), world.epochs, world.beats[3:]) == (3, [0, 1], [(PROFILE, 3)] * 2)


def test_a_step_is_told_when_it_has_its_data_and_when_it_is_done() -> None:
    world = World()
    world.tells_begins = True
    world.train(1, 1)
    assert world.beats == [("begun", 1), (WARMUP, 1), ("begun", 2), (WINDOW, 2)]


def test_the_barrier_lies_between_warm_up_and_window_and_in_neither() -> None:
    world = World()
    steps = world.train(1, 1)
    assert world.barriers == 1
    assert steps[1].start - steps[0].end == 7.0
    assert [step.phase for step in steps] == [WARMUP, WINDOW]


def test_a_small_dataset_runs_through_many_epochs() -> None:
    world = World(batches_per_epoch=2)
    steps = world.train(1, 4)
    assert [(step.epoch, step.step) for step in steps] == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1)]
    assert world.epochs == [0, 1, 2]


def test_an_epoch_without_a_batch_is_an_error_and_not_a_hang() -> None:
    with pytest.raises(DatasetError, match="no batch"):
        World(batches_per_epoch=0).train(0, 1)


def test_the_loss_is_fetched_at_the_interval_and_at_each_phase_s_end() -> None:
    world = World()
    steps = world.train(3, 11, fetch_every=5)
    assert [number for number, step in enumerate(steps, 1) if step.loss is not None] == [3, 5, 10, 14]
    assert world.fetched == 4
    assert world.blocks == [3, 2, 5, 4]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_ends_the_run_and_names_step_and_loss(bad: float) -> None:
    world = World(losses=iter([2.0, 1.5, bad]))
    with pytest.raises(LossError, match=rf"step 3 \(window\): field 'loss': got {bad}"):
        world.train(1, 4)
    assert [step.loss for step in world.steps] == [2.0, 1.5]


def test_the_steps_before_a_bad_loss_are_recorded_although_theirs_was_not_fetched() -> None:
    world = World(losses=iter([1.0, 1.0, 1.0, math.nan]))
    with pytest.raises(LossError, match="step 4"):
        world.train(0, 8, fetch_every=4)
    assert [step.step for step in world.steps] == [1, 2, 3]


def test_what_the_loop_records_passes_the_strict_reader(tmp_path: Path) -> None:
    world = World(batches_per_epoch=3)
    steps = world.train(2, 6, fetch_every=4)
    path = tmp_path / "rank0.jsonl"
    log = StepLogWriter(path, Header("j", "c", 0, 0, 1, "h", 1, "paddle", "3", "c", "cpu"))
    log.steps(steps)
    log.footer(Footer(COMPLETE))
    assert len(read_step_log(path, "j", 0).window) == 6


# ---- warm-up until it is steady


def falling(*speeds: float) -> Iterator[float]:
    """Steps of these lengths, then all of length 1."""
    return itertools.chain(speeds, itertools.repeat(1.0))


def test_warm_up_goes_on_window_by_window_until_three_of_them_agree() -> None:
    world = World(speeds=falling(9.0, 5.0, 3.0, 2.0, 1.5))
    steps = world.train(6, 3, steady_window_steps=2, most_warmup_steps=16)
    # The fifth step is the last slow one; with it the window of the fifth and the sixth is another than those behind.
    assert (world.warmup_steps, len(steps)) == (12, 15)
    assert [step.phase for step in steps[12:]] == [WINDOW] * 3
    assert world.barriers == 1


def test_a_warm_up_that_never_gets_steady_ends_with_its_budget_and_is_measured_all_the_same() -> None:
    world = World(speeds=(0.9**number for number in itertools.count()))
    steps = world.train(6, 3, steady_window_steps=2, most_warmup_steps=11)
    assert (world.warmup_steps, len(steps)) == (11, 14)


def test_all_ranks_stop_when_all_are_steady_and_not_before() -> None:
    told: list[bool] = []

    def others(own: bool) -> bool:
        told.append(own)
        return own and len(told) >= 3

    world = World()
    world.train(6, 1, agree=others, steady_window_steps=2, most_warmup_steps=16)
    assert (told, world.warmup_steps) == ([True, True, True], 10)


def test_the_suites_judgement_of_the_recorded_steps_is_the_trainers_own() -> None:
    world = World(speeds=falling(4.0, 2.0, 1.5, 1.2, 1.1, 1.05))
    world.train(6, 2, steady_window_steps=2, most_warmup_steps=30)
    warmup = [step.step_seconds for step in world.steps if step.phase == WARMUP]
    assert steadiness(warmup, 2).steady
    assert not any(steadiness(warmup[:made], 2).steady for made in range(6, len(warmup), 2))


# ---- the tests' slowdown


def test_a_slowdown_makes_every_step_longer_by_its_share_of_the_steps_own_time() -> None:
    world = World(reader_seconds=0.0, tick_seconds=2.0**-12, speeds=itertools.cycle([1.0, 2.0]))
    steps = world.train(2, 6, slowdown=0.25)
    assert [step.step_seconds for step in steps] == pytest.approx([1.25, 2.5] * 4, abs=0.01)
