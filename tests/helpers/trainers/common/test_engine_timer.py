"""Steps timed by what a framework's engine says, with a clock and operations that the test controls."""

from __future__ import annotations

import queue
from collections.abc import Callable

import pytest

from helpers.trainers.common.engine_timer import EngineTimer


class Engine:
    """Work that ends when the test says so, at the time that it gives."""

    def __init__(self) -> None:
        self.now = 0.0
        self._ends: queue.Queue[float | Exception] = queue.Queue()
        self.waited_for_all = 0

    def clock(self) -> float:
        return self.now

    def synchronize(self) -> None:
        self.waited_for_all += 1

    def ends(self, at: float | Exception) -> None:
        self._ends.put(at)

    def mark(self) -> Callable[[], None]:
        def wait() -> None:
            at = self._ends.get(timeout=60)
            if isinstance(at, Exception):
                raise at
            self.now = at

        return wait


@pytest.fixture
def engine() -> Engine:
    return Engine()


def timer_of(engine: Engine) -> EngineTimer:
    return EngineTimer(engine.synchronize, engine.mark, engine.clock)


def test_a_step_lasts_from_the_end_of_the_step_before_to_its_own(engine: Engine) -> None:
    timer = timer_of(engine)
    engine.now = 10.0
    timer.begin()
    for _ in range(3):
        timer.mark()
    for end in (11.0, 12.5, 14.0):
        engine.ends(end)
    assert timer.resolve() == [(10.0, 11.0), (11.0, 12.5), (12.5, 14.0)]
    assert timer.resolve() == []
    timer.mark()
    engine.ends(15.0)
    assert timer.resolve() == [(14.0, 15.0)]


def test_marking_does_not_wait_and_a_step_that_failed_is_raised_where_its_time_is_asked_for(engine: Engine) -> None:
    timer = timer_of(engine)
    timer.begin()
    timer.mark()
    timer.mark()
    engine.ends(1.0)
    engine.ends(RuntimeError("out of memory"))
    with pytest.raises(RuntimeError, match="out of memory"):
        timer.resolve()
