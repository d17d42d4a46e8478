"""Profiles some steps after the measured window, and reads from the profile how long each card computed.

A profile is a timeline of each card. A framework's ``profile.py`` converts its own profiler's format to timelines; the
computation on these is the same for all frameworks.
"""

from __future__ import annotations

import sys
import time
import traceback
from dataclasses import dataclass
from typing import Callable, Mapping, Protocol, Sequence

from helpers.trainers.common.process import Trainer, one_line
from helpers.trainers.contract.device_time import PROFILE, DeviceTime


@dataclass(frozen=True)
class Operation:
    """Something that a card did: a kernel, a copy, or what the framework calls an operator."""

    name: str
    # In seconds of the profiler's own clock.
    start: float
    end: float


# The operations of each card, by the card's name. Those of several streams may overlap.
Timelines = Mapping[str, Sequence[Operation]]


class Profiler(Protocol):
    """A framework's profiler."""

    # In words, the profiler and what it records.
    method: str
    # The cards whose timelines must be in a profile, by their names.
    cards: Sequence[str]

    def start(self) -> None: ...

    def stop(self) -> Timelines:
        """Stop, and return the recorded operations. Raises ProfileError if some are missing."""


class ProfileError(Exception):
    """The profiler recorded nothing, or not everything."""


def busy_seconds(operations: Sequence[Operation]) -> float:
    """The time in which at least one of the operations ran."""
    busy, until = 0.0, float("-inf")
    for each in sorted(operations, key=lambda each: each.start):
        busy += max(0.0, each.end - max(each.start, until))
        until = max(until, each.end)
    return busy


def profile(
    profiler_of: Callable[[], Profiler], train: Callable[[int], None], steps: int, clock: Callable[[], float]
) -> DeviceTime:
    """Train ``steps`` steps with ``train``, to their end on the cards, and profile them. On an error the answer has the
    reason."""
    method = "the framework's profiler"
    try:
        profiler = profiler_of()
        method = profiler.method
        profiler.start()
        began = clock()
        try:
            train(steps)
        finally:
            seconds = clock() - began
            timelines = profiler.stop()
        return DeviceTime(method, steps, _seconds_per_step(timelines, profiler.cards, steps, seconds))
    except ProfileError as error:
        return DeviceTime(method, steps, None, one_line(str(error)))
    except Exception as error:  # noqa: BLE001 - the run is measured and complete: no profiler may spoil it
        traceback.print_exc()
        return DeviceTime(method, steps, None, one_line(f"{type(error).__name__}: {error}"))


def _seconds_per_step(timelines: Timelines, cards: Sequence[str], steps: int, seconds: float) -> float:
    busy = {card: busy_seconds(timelines.get(card, ())) for card in cards}
    for card, each in busy.items():
        if not each > 0:
            known = ", ".join(name for name, recorded in timelines.items() if recorded) or "nothing"
            raise ProfileError(f"no operation of {card} was recorded; there is {known}")
        if each > seconds:
            raise ProfileError(f"{card} was busy for {each:.4g} s, and the steps took {seconds:.4g} s")
    return max(busy.values()) / steps


def profile_at_the_end(trainer: Trainer, profiler_of: Callable[[], Profiler], train: Callable[[int], None]) -> None:
    """Arrange that the job's profiled steps are trained and their answer is written after the step log is complete.
    Does nothing if the job has no such steps."""
    spec = trainer.spec
    if not spec.profiled_steps:
        return

    def afterwards() -> None:
        trainer.beat(PROFILE)
        answer = profile(profiler_of, train, spec.profiled_steps, time.monotonic)
        try:
            spec.device_time_path(trainer.ranks.rank).write_text(answer.to_json(), encoding="utf-8")
        except OSError as error:
            print(f"trainer: the time on the device is not kept: {error}", file=sys.stderr)

    trainer.afterwards.append(afterwards)
