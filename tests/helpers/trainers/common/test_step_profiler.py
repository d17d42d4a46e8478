"""Self times and phases of profiled steps; and that no profiler spoils a run."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from helpers.trainers.common.loop import Batch, HostTimer, LoopIO, LoopPlan, Training, train
from helpers.trainers.common.process import RankPlace, Trainer
from helpers.trainers.common.step_profiler import (
    ProfileError,
    Recording,
    Span,
    call_of,
    explain_at_the_end,
    keep_trace,
    nested,
    profile_steps,
    rows_of,
)
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.step_profile import NoProfile, OperatorRow, Phase, StepProfile, from_json

ROW = OperatorRow(Phase.FORWARD, "", "conv2d", "", "", "cpu", 1.0, 1.0)


def test_the_self_time_of_a_span_is_what_the_spans_in_it_leave() -> None:
    outer, first, second, inner = (
        Span("main", "outer", 0.0, 10.0),
        Span("main", "first", 1.0, 4.0),
        # It ends with the outer one, but for a profiler's rounding.
        Span("main", "second", 4.0, 10.1),
        Span("main", "inner", 2.0, 3.0),
    )
    other = Span("other thread", "beside", 2.0, 5.0)
    found = {each.span.name: each for each in nested([inner, other, second, outer, first])}
    assert {name: pytest.approx(each.self_seconds) for name, each in found.items()} == {
        "outer": 1.0,
        "first": 2.0,
        "second": 6.1,
        "inner": 1.0,
        "beside": 3.0,
    }
    assert found["inner"].around == (outer, first)
    assert found["beside"].around == ()


def test_calls_are_added_up_by_what_they_are() -> None:
    call = call_of(Phase.BACKWARD, "blocks.0", "conv2d_grad", 2.0, dtypes="float32")
    other = call_of(Phase.BACKWARD, "blocks.1", "conv2d_grad", 9.0, dtypes="float32")
    rows = rows_of([call, other, call], steps=2)
    assert [(row.layer, row.calls_per_step, row.seconds_per_step) for row in rows] == [
        ("blocks.1", 0.5, 4.5),
        ("blocks.0", 1.0, 2.0),
    ]


@dataclass
class World:
    """A reader and a stepper whose parts take time on a clock of their own."""

    now: float = 100.0
    in_one: bool = False
    losses: int = 0

    def clock(self) -> float:
        return self.now

    def epoch(self, number: int) -> Any:
        for _ in itertools.count():
            self.now += 0.5
            yield Batch(None, None, 1)

    def begin_epoch(self, number: int) -> None:
        pass

    def loss(self, handle: Any) -> float:
        self.losses += 1
        self.now += 0.25
        return 1.0


class InParts(World):
    def step(self, batch: Batch) -> None:
        self.forward(batch)
        # Python between the parts.
        self.now += 0.125
        self.backward()
        self.optimize()

    def forward(self, batch: Batch) -> None:
        self.now += 1.0

    def backward(self) -> None:
        self.now += 2.0

    def optimize(self) -> None:
        self.now += 0.75


class Whole(World):
    def step(self, batch: Batch) -> None:
        self.now += 4.0


@dataclass
class Profiler:
    recording: Recording = field(default_factory=lambda: Recording((ROW,)))
    name: str = "a stand-in"
    fails: Exception | None = None
    scopes: list[Phase] = field(default_factory=list)

    def start(self) -> None:
        pass

    def part(self, phase: Phase) -> AbstractContextManager[Any]:
        self.scopes.append(phase)
        return nullcontext()

    def stop(self, steps: int, trace: Path) -> Recording:
        if self.fails is not None:
            raise self.fails
        return self.recording


def _trainer(folder: Path, steps: int = 2) -> Trainer:
    case = Case.parse("paddle-resnet50v1.5-fp32-bs1-1x1-synthetic-dynamic")
    return Trainer(JobSpec("job", case, 0, str(folder), "cpu", 0, 2, explained_steps=steps), RankPlace(0, 0, 1))


def _trained(world: Any) -> Training:
    io = LoopIO(lambda steps: None, lambda phase, step: None, lambda: None, world.clock)
    return train(LoopPlan(0, 2, 1), world, world, HostTimer(world.clock), io)


def _profile(folder: Path, world: Any, profiler: Profiler) -> StepProfile | NoProfile:
    return profile_steps(_trainer(folder), lambda: profiler, world, _trained(world), world.clock)


def test_the_parts_of_a_step_are_timed_and_what_they_leave_is_the_hosts(tmp_path: Path) -> None:
    world, profiler = InParts(), Profiler()
    found = _profile(tmp_path, world, profiler)
    assert isinstance(found, StepProfile)
    assert found.phases == {
        Phase.DATA_WAIT: 0.5,
        Phase.FORWARD: 1.0,
        Phase.BACKWARD: 2.0,
        Phase.OPTIMIZER: 0.75,
        Phase.OTHER: 0.25,
        Phase.HOST_GAP: 0.125,
    }
    # A profiled step is a step of the window: the loss is fetched too.
    assert (found.step_seconds, found.step_seconds_unprofiled) == (4.625, 4.625)
    assert Phase.BACKWARD in profiler.scopes
    # The scopes are gone: a later step has the stepper's own methods.
    assert "forward" not in vars(world)


def test_a_step_without_parts_is_one_phase_unless_the_profiler_tells(tmp_path: Path) -> None:
    found = _profile(tmp_path, Whole(), Profiler())
    assert isinstance(found, StepProfile)
    assert found.phases[Phase.OTHER] == 4.25
    told = _profile(tmp_path, Whole(), Profiler(Recording((ROW,), {Phase.FORWARD: 1.0, Phase.BACKWARD: 3.0})))
    assert isinstance(told, StepProfile)
    assert told.phases == {Phase.FORWARD: 1.0, Phase.BACKWARD: 3.0, Phase.HOST_GAP: 0.75}


@pytest.mark.parametrize(
    ("profiler", "reason"),
    [
        (Profiler(fails=ProfileError("it dropped events")), "it dropped events"),
        (Profiler(fails=MemoryError("no room")), "MemoryError: no room"),
        (Profiler(Recording(())), "the profiler named no operator"),
        (Profiler(Recording((ROW,), {Phase.FORWARD: 9.0})), "the phases take 9 s, and a step took 4.75 s"),
    ],
)
def test_a_profiler_that_fails_or_names_nothing_is_said(tmp_path: Path, profiler: Profiler, reason: str) -> None:
    found = _profile(tmp_path, Whole(), profiler)
    assert isinstance(found, NoProfile)
    assert (found.reason, found.profiler) == (reason, "a stand-in")


def test_the_profile_is_written_once_the_log_is_complete_and_only_where_it_is_asked_for(tmp_path: Path) -> None:
    def written(steps: int, profiler_of: Callable[[], Profiler]) -> Path:
        trainer, world = _trainer(tmp_path, steps), InParts()
        explain_at_the_end(trainer, profiler_of, world, _trained(world))
        path = trainer.spec.step_profile_path(0)
        assert not path.exists()
        trainer.finish()
        return path

    assert not written(0, Profiler).exists()
    # The stand-in's clock is not that of the process, so the phases do not fit. That there is an answer is of interest.
    assert from_json(written(2, Profiler).read_text(), "answer").framework == "paddle"


def test_the_frameworks_own_number_of_threads_counts(tmp_path: Path) -> None:
    found = _profile(tmp_path, Whole(), Profiler(Recording((ROW,), threads=3)))
    assert isinstance(found, StepProfile) and found.threads == 3
    assert _profile(tmp_path, Whole(), Profiler()).threads == 1  # type: ignore[union-attr]


def test_a_trace_that_the_disk_has_no_room_for_is_a_note(tmp_path: Path) -> None:
    def export(path: Path) -> None:
        path.write_text("part of it")
        raise OSError(28, "No space left on device")

    trace = tmp_path / "trace.json"
    assert keep_trace(trace, export) == ("the trace was not kept: [Errno 28] No space left on device",)
    assert list(tmp_path.iterdir()) == []
