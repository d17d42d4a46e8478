"""How long a card computed, from what a profiler recorded; and that no profiler spoils a run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers.trainers.common.device_time import (
    Operation,
    ProfileError,
    Timelines,
    busy_seconds,
    profile,
    profile_at_the_end,
)
from helpers.trainers.common.process import RankPlace, Trainer
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.device_time import PROFILE, DeviceTime
from helpers.trainers.contract.job import JobSpec


def _kernel(start: float, end: float) -> Operation:
    return Operation("kernel", start, end)


@dataclass
class Recorded:
    """A profiler that has recorded this."""

    timelines: Timelines = field(default_factory=lambda: {"card 0": [_kernel(1.0, 2.0)]})
    cards: Sequence[str] = ("card 0",)
    method: str = "a stand-in"
    fails: BaseException | None = None
    calls: list[object] = field(default_factory=list)

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> Timelines:
        self.calls.append("stop")
        if self.fails is not None:
            raise self.fails
        return self.timelines


def _clock(seconds: float) -> Callable[[], float]:
    return itertools.count(100.0, seconds).__next__


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0.0),
        ([(1.0, 2.0), (4.0, 4.5)], 1.5),
        # Of two streams at once, and one within another, in any order.
        ([(3.0, 5.0), (1.0, 4.0)], 4.0),
        ([(1.0, 9.0), (2.0, 3.0), (8.0, 10.0)], 9.0),
    ],
)
def test_a_card_is_busy_while_any_of_its_operations_runs(spans: list[tuple[float, float]], seconds: float) -> None:
    assert busy_seconds([_kernel(*span) for span in spans]) == seconds


def test_the_card_that_computes_longest_is_the_answer() -> None:
    cards = {"card 0": [_kernel(1.0, 2.0)], "card 1": [_kernel(1.0, 4.0)], "host": [_kernel(0.0, 9.0)]}
    profiler = Recorded(cards, ("card 0", "card 1"))
    answer = profile(lambda: profiler, profiler.calls.append, 2, _clock(5.0))
    assert answer == DeviceTime("a stand-in", 2, 1.5)
    assert profiler.calls == ["start", 2, "stop"]


@pytest.mark.parametrize(
    ("profiler", "reason"),
    [
        (Recorded({"host": [_kernel(0.0, 1.0)], "card 0": []}), "no operation of card 0 was recorded; there is host"),
        (Recorded({}), "no operation of card 0 was recorded; there is nothing"),
        (Recorded({"card 0": [_kernel(0.0, 6.0)]}), "card 0 was busy for 6 s, and the steps took 5 s"),
        (Recorded({"card 0": [_kernel(0.0, float("nan"))]}), "no operation of card 0 was recorded; there is card 0"),
        (Recorded(fails=ProfileError("2 events dropped")), "2 events dropped"),
        (Recorded(fails=RuntimeError("CUPTI could not be loaded")), "RuntimeError: CUPTI could not be loaded"),
    ],
)
def test_a_profile_that_cannot_be_right_is_no_figure_and_says_why(profiler: Recorded, reason: str) -> None:
    assert profile(lambda: profiler, lambda steps: None, 2, _clock(5.0)) == DeviceTime("a stand-in", 2, None, reason)


def test_a_step_that_fails_under_the_profiler_stops_it_and_is_the_reason() -> None:
    def fail(steps: int) -> None:
        raise MemoryError("no room for the profiler")

    profiler = Recorded()
    answer = profile(lambda: profiler, fail, 2, _clock(5.0))
    assert (answer.seconds_per_step, answer.reason) == (None, "MemoryError: no room for the profiler")
    assert profiler.calls == ["start", "stop"]


def _trainer(folder: Path, profiled_steps: int) -> Trainer:
    case = Case.parse("tensorflow-resnet50v1.5-fp32-bs1-1x1-synthetic")
    spec = JobSpec("job", case, 0, str(folder), "cpu", 0, 1, profiled_steps=profiled_steps)
    return Trainer(spec, RankPlace(0, 0, 1))


def test_the_answer_is_written_beside_the_log_and_only_where_steps_are_to_be_profiled(tmp_path: Path) -> None:
    trained: list[int] = []
    trainer = _trainer(tmp_path, 3)
    profile_at_the_end(trainer, Recorded, trained.append)
    assert trained == []
    trainer.finish()
    trainer.finish()
    # The stand-in's second of work took less: only that there is an answer is of interest here.
    answer = DeviceTime.from_json(trainer.spec.device_time_path(0).read_text(), "answer")
    assert (trained, answer.steps, answer.reason[:26]) == ([3], 3, "card 0 was busy for 1 s, a")
    assert f'"{PROFILE}"' in trainer.spec.heartbeat_path(0).read_text()
    without = _trainer(tmp_path, 0)
    profile_at_the_end(without, Recorded, trained.append)
    without.finish()
    assert trained == [3]


def test_a_profiler_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    def missing() -> Recorded:
        raise ImportError("no profiler in this build")

    trainer = _trainer(tmp_path, 3)
    profile_at_the_end(trainer, missing, lambda steps: None)
    trainer.finish()
    answer = DeviceTime.from_json(trainer.spec.device_time_path(0).read_text(), "answer")
    assert answer.reason == "ImportError: no profiler in this build"
