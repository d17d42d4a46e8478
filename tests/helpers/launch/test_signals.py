"""What each signal does before and while a job is being ended."""

import contextlib
import os
import signal
from collections.abc import Callable, Generator
from types import FrameType

import pytest

from helpers.launch.signals import EndRequests, StopSignals, heeded, signals_interrupt, stop_signals

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)


class TimedOutError(Exception):
    """As pytest-timeout's."""


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Generator[None, None, None]:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def time_out(number: int, frame: FrameType | None) -> None:
        raise TimedOutError

    signal.signal(signal.SIGALRM, time_out)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(*numbers: int) -> None:
    for number in numbers:
        signal.raise_signal(number)


@pytest.mark.parametrize(("number", "told"), [(signal.SIGINT, ""), (signal.SIGTERM, "ended by SIGTERM"),
                                              (signal.SIGHUP, "ended by SIGHUP")])  # fmt: skip
@pytest.mark.parametrize("frame", [stop_signals, signals_interrupt])
def test_each_signal_interrupts_and_the_old_handler_comes_back(
    number: int, told: str, frame: Callable[[], "object"]
) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt) as raised, frame():  # type: ignore[attr-defined]
        send(number)
    assert str(raised.value) == told
    assert signal.getsignal(number) is before


def interrupted(*then: int) -> StopSignals:
    """The signals of a job that is being ended because of Ctrl-C, after ``then`` came."""
    with pytest.raises(KeyboardInterrupt), stop_signals() as stop:
        try:
            send(signal.SIGINT)
        finally:
            send(*then)
    return stop


@pytest.mark.parametrize(
    ("then", "at_once"),
    [((), False), ((signal.SIGINT,), True), ((signal.SIGTERM,), True), ((signal.SIGHUP, signal.SIGHUP), False),
     ((signal.SIGHUP, signal.SIGINT), True),
     ((signal.SIGALRM,), False)],
)  # fmt: skip
def test_a_second_signal_asks_for_haste_and_interrupts_nothing(then: tuple[int, ...], at_once: bool) -> None:
    assert interrupted(*then).at_once() is at_once


@pytest.mark.parametrize(("numbers", "at_once"), [((signal.SIGTERM,), False), ((signal.SIGINT, signal.SIGTERM), True)])
def test_a_signal_while_a_finished_job_is_ended_waits_for_its_end(numbers: tuple[int, ...], at_once: bool) -> None:
    reached = False
    with pytest.raises(KeyboardInterrupt), stop_signals() as stop:
        stop.defer()
        send(*numbers)
        assert stop.at_once() is at_once
        reached = True
    assert reached


@pytest.mark.parametrize(
    ("numbers", "times"),
    [
        ((), 0),
        # A Ctrl-C in a terminal and the xdist controller's word of it, in both orders; then once more.
        ((signal.SIGINT, signal.SIGHUP), 1),
        ((signal.SIGHUP, signal.SIGINT), 1),
        ((signal.SIGHUP, signal.SIGINT, signal.SIGINT), 2),
        ((signal.SIGHUP, signal.SIGINT, signal.SIGTERM), 2),
        ((signal.SIGINT, signal.SIGHUP, signal.SIGINT), 2),
        ((signal.SIGHUP, signal.SIGHUP), 1),
        ((signal.SIGHUP, signal.SIGTERM), 2),
        ((signal.SIGTERM, signal.SIGINT), 2),
    ],
)
def test_one_wish_told_twice_is_one(numbers: tuple[int, ...], times: int) -> None:
    asked = EndRequests()
    counted = [asked.take(number) for number in numbers]
    assert asked.times == sum(counted) == times


def test_an_interrupt_is_not_lost_behind_a_fault_of_the_ending_or_somebody_who_swallows_it() -> None:
    with pytest.raises(KeyboardInterrupt) as raised, stop_signals() as stop:
        try:
            send(signal.SIGTERM)
        finally:
            stop.defer()
            _ = 1 // 0
    assert isinstance(raised.value.__context__, ZeroDivisionError)
    ended = False
    with pytest.raises(KeyboardInterrupt), stop_signals() as stop:
        with contextlib.suppress(KeyboardInterrupt):
            send(signal.SIGINT)
        stop.defer()
        ended = True
    assert ended


def test_what_nohup_or_a_background_shell_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with stop_signals():
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGINT)
    assert not heeded(signal.SIGHUP) and heeded(signal.SIGTERM)
