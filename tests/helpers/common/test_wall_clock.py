from __future__ import annotations

import datetime
import time
from zoneinfo import ZoneInfo

import pytest

from helpers.common.wall_clock import WallClock, local_now, night_number, utc_now


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


@pytest.mark.parametrize(
    ("zone", "began", "night"),
    [
        ("America/Los_Angeles", "2026-11-20T23:50", "2026-11-20"),
        ("America/Los_Angeles", "2026-11-20T22:00", "2026-11-20"),
        ("America/Los_Angeles", "2026-11-21T00:10", "2026-11-21"),
        ("Asia/Shanghai", "2026-11-20T02:00", "2026-11-20"),
        ("Asia/Shanghai", "2026-11-20T23:50", "2026-11-20"),
        # The hour that summer time's end has twice, and the day that its beginning makes 23 hours long.
        ("Europe/Berlin", "2026-10-25T02:30", "2026-10-25"),
        ("Europe/Berlin", "2026-03-29T00:10", "2026-03-29"),
    ],
)
def test_a_night_is_the_local_date_on_which_its_session_began(zone: str, began: str, night: str) -> None:
    moment = datetime.datetime.fromisoformat(began).replace(tzinfo=ZoneInfo(zone))
    assert night_number(moment) == datetime.date.fromisoformat(night).toordinal()
    kept = datetime.datetime.fromisoformat(moment.isoformat())
    assert night_number(kept) == night_number(moment), "what a file keeps gives the same night anywhere"


def test_nights_are_counted_one_by_one_over_summer_time_and_the_year() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    evenings = [
        datetime.datetime(2026, 1, 1, 23, 50, tzinfo=berlin) + datetime.timedelta(days=day) for day in range(366)
    ]
    numbers = [night_number(each) for each in evenings]
    assert numbers == list(range(numbers[0], numbers[0] + 366))


def test_a_moment_without_an_offset_is_no_night() -> None:
    with pytest.raises(ValueError, match="offset from UTC"):
        night_number(datetime.datetime(2026, 11, 20, 23, 50))


def test_the_local_clock_has_the_machine_s_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    try:
        assert local_now().utcoffset() in (datetime.timedelta(hours=-7), datetime.timedelta(hours=-8))
    finally:
        monkeypatch.undo()
        time.tzset()
