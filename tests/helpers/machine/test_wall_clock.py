from __future__ import annotations

import datetime

import pytest

from helpers.machine.wall_clock import WallClock, utc_now


class Clocks:
    wall = 1_700_000_000.0
    monotonic = 50.0

    def made(self) -> WallClock:
        return WallClock(lambda: self.wall, lambda: self.monotonic)


@pytest.mark.parametrize("set_by_seconds", [-3600.0, 3600.0])
def test_a_wall_clock_that_is_set_does_not_move_the_moments_of_a_session(set_by_seconds: float) -> None:
    clocks = Clocks()
    now = clocks.made()
    first = now()
    clocks.wall += set_by_seconds + 2
    clocks.monotonic += 2
    assert first == datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC)
    assert now() - first == datetime.timedelta(seconds=2)
    assert clocks.made()() - first == datetime.timedelta(seconds=2 + set_by_seconds)


def test_the_suite_s_own_clock_tells_utc() -> None:
    assert abs(utc_now() - datetime.datetime.now(datetime.UTC)) < datetime.timedelta(minutes=1)
    assert utc_now().utcoffset() == datetime.timedelta(0)
