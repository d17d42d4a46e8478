"""The training loop of all trainers: warm-up, barrier, measured window. It does not depend on any framework.

A step lasts from the end of the previous step to its own end. So the steps of a phase are contiguous, and everything
between two steps (reading data, fetching the loss, writing the log) counts in one of them. Warm-up goes on, window by
window, until its last windows are steady or its budget is used up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Callable, ContextManager, Iterator, List, Optional, Protocol, Sequence, Tuple

from helpers.trainers.contract.errors import DatasetError, SuiteError
from helpers.trainers.contract.step_profile import Phase
from helpers.trainers.contract.steplog import PROFILE, WARMUP, WINDOW, Step, steadiness

Clock = Callable[[], float]
# Returns what is entered around a part of a step.
PartTimer = Callable[[Phase], ContextManager[Any]]


class LossError(SuiteError):
    """The loss is not finite, so the training has failed."""


@dataclass(frozen=True)
class Batch:
    """Images with their labels, in the form that the framework's step takes."""

    images: Any
    labels: Any
    # How many images.
    samples: int


class Reader(Protocol):
    """The batches of this rank, epoch by epoch. An epoch ends when no full batch is left."""

    def epoch(self, number: int) -> Iterator[Batch]: ...


class Stepper(Protocol):
    """Forward, backward and optimizer step of one batch."""

    def begin_epoch(self, number: int) -> None: ...

    def step(self, batch: Batch) -> Any:
        """Train on the batch; returns the loss, still on the device."""

    def loss(self, handle: Any) -> float:
        """The value of a loss that ``step`` returned; waits for the device."""


class StepTimer(Protocol):
    """Times the begin and end of steps, in seconds that begin at the host's monotonic clock."""

    def begin(self) -> None:
        """Begin a phase; waits for the device first."""

    def mark(self) -> None:
        """End the current step, at this place in the device's work; does not wait for it."""

    def resolve(self) -> List[Tuple[float, float]]:
        """Start and end of each step marked since the last call; waits for the device."""


class HostTimer:
    """Times steps by the host's clock: those of a device whose steps are synchronous, or that is waited for after every
    step. Then a step's time includes the launch of its first operations."""

    def __init__(self, clock: Clock, wait: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._wait = wait
        self._last = 0.0
        self._done: List[Tuple[float, float]] = []

    def begin(self) -> None:
        self._wait()
        self._last = self._clock()

    def mark(self) -> None:
        self._wait()
        now = self._clock()
        self._done.append((self._last, now))
        self._last = now

    def resolve(self) -> List[Tuple[float, float]]:
        done, self._done = self._done, []
        return done


@dataclass(frozen=True)
class LoopPlan:
    """The steps of one rank."""

    warmup_steps: int
    window_steps: int
    # After so many steps, and at the end of a phase, the loss is fetched and the steps are written to the log; 1 on a
    # CPU, where fetching does not wait.
    fetch_every_steps: int
    # As in JobSpec.
    steady_window_steps: int = 0
    most_warmup_steps: int = 0
    # Only for tests: makes every step longer by this fraction of its time. It also fetches every loss, since the host's
    # time is the step's only then.
    slowdown: float = 0.0


@dataclass(frozen=True)
class LoopIO:
    """The functions through which the loop reaches the log, the heartbeat, the other ranks and the clock."""

    # Writes steps into the log.
    record: Callable[[Sequence[Step]], None]
    # Writes the heartbeat: phase and step.
    beat: Callable[[str, int], None]
    # Returns when all ranks have called it.
    barrier: Callable[[], object]
    clock: Clock
    # Returns whether all ranks are steady; all ranks must call it.
    agree: Callable[[bool], bool] = bool
    # Called with the step's number before it is computed, so that the heartbeat shows which rank the others wait for.
    begin: Callable[[int], None] = lambda number: None


def train(plan: LoopPlan, reader: Reader, stepper: Stepper, timer: StepTimer, io: LoopIO) -> Training:
    """Train the steps of warm-up and window, and record each of them. The window begins after ``io.barrier``.

    Returns what trains more steps.
    Raises LossError if a loss is not finite, after the steps before it were recorded, and DatasetError if an epoch has
    no batch.
    """
    training = Training(plan, reader, stepper, timer, io)
    training.warm_up()
    io.barrier()
    training.phase(WINDOW, plan.window_steps)
    return training


class Training:
    """The steps of one rank, one after the other."""

    def __init__(self, plan: LoopPlan, reader: Reader, stepper: Stepper, timer: StepTimer, io: LoopIO) -> None:
        self._plan = plan
        self._stepper = stepper
        self._timer = timer
        self._io = io
        self._source = _Source(reader, stepper, io.clock)
        self._number = 0
        self._began = 0.0
        # Steps that were issued and whose times are not known yet.
        self._pending: List[Step] = []
        self._step_seconds: List[float] = []

    def warm_up(self) -> None:
        """Train the planned warm-up steps, and more as long as they are not steady."""
        plan = self._plan
        self.phase(WARMUP, plan.warmup_steps)
        while plan.steady_window_steps and self._number < plan.most_warmup_steps and not self._steady():
            self.phase(WARMUP, min(plan.steady_window_steps, plan.most_warmup_steps - self._number))

    def _steady(self) -> bool:
        return self._io.agree(steadiness(self._step_seconds, self._plan.steady_window_steps).steady)

    def phase(self, phase: str, steps: int) -> None:
        if steps == 0:
            return
        self._timer.begin()
        self._began = self._io.clock()
        for number in range(1, steps + 1):
            self._step(phase, last=number == steps)

    def in_parts(self, steps: int, part: PartTimer) -> None:
        """Train so many steps as those of the window, with the losses fetched, to their end on the device, without
        recording them. ``part`` is entered around the parts of a step that are not the stepper's."""
        for number in range(1, steps + 1):
            with part(Phase.DATA_WAIT):
                batch, _ = self._source.next()
            handle = self._stepper.step(batch)
            if number == steps or number % self._plan.fetch_every_steps == 0:
                with part(Phase.OTHER):
                    self._stepper.loss(handle)
            self._io.beat(PROFILE, self._number)
        with part(Phase.OTHER):
            # It waits for the device.
            self._timer.begin()

    @property
    def window_step_seconds(self) -> float:
        """The mean seconds of a step in the window."""
        return math.fsum(self._step_seconds[-self._plan.window_steps :]) / self._plan.window_steps

    def _step(self, phase: str, last: bool) -> None:
        batch, reader_seconds = self._source.next()
        self._number += 1
        self._io.begin(self._number)
        handle = self._stepper.step(batch)
        fetch = last or self._plan.slowdown > 0 or self._number % self._plan.fetch_every_steps == 0
        loss = self._stepper.loss(handle) if fetch else None
        if loss is not None and not math.isfinite(loss):
            self._flush()
            raise LossError(
                f"step {self._number} ({phase})",
                field="loss",
                got=loss,
                expected="a finite number",
                remedy="The training diverged: lower learning_rate, or look for a bug in the build under test",
            )
        if self._plan.slowdown > 0:
            self._linger()
        self._timer.mark()
        self._began = self._io.clock()
        source = self._source
        self._pending.append(Step(source.epoch, source.step, phase, 0.0, 0.0, batch.samples, reader_seconds, loss))
        if fetch:
            self._flush()
        self._io.beat(phase, self._number)

    def _linger(self) -> None:
        """Keep the host busy, as slower code would, for ``slowdown`` times the duration of the step so far."""
        now = self._io.clock()
        end = now + (now - self._began) * self._plan.slowdown
        while self._io.clock() < end:
            pass

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            times = self._timer.resolve()
            steps = [replace(step, start=start, end=end) for step, (start, end) in zip(pending, times)]
            self._step_seconds += [step.step_seconds for step in steps]
            self._io.record(steps)


class _Source:
    """An endless series of batches, with the epoch and step of the newest batch."""

    def __init__(self, reader: Reader, stepper: Stepper, clock: Clock) -> None:
        self._reader = reader
        self._stepper = stepper
        self._clock = clock
        self._batches: Optional[Iterator[Batch]] = None
        self.epoch = 0
        self.step = 0

    def next(self) -> Tuple[Batch, float]:
        """The next batch, and the seconds for which the caller waited for it."""
        started = self._clock()
        batch = next(self._batches, None) if self._batches is not None else None
        if batch is None:
            batch = self._first_of_next_epoch()
        self.step += 1
        return batch, self._clock() - started

    def _first_of_next_epoch(self) -> Batch:
        if self._batches is not None:
            self.epoch += 1
        self.step = 0
        self._stepper.begin_epoch(self.epoch)
        self._batches = self._reader.epoch(self.epoch)
        batch = next(self._batches, None)
        if batch is None:
            raise DatasetError(f"epoch {self.epoch}", got="no batch", expected="at least one full batch for each rank")
        return batch
