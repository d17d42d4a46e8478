"""What Ctrl-C, SIGTERM, SIGHUP and pytest-timeout's alarm do to whoever runs a job: its ending is never cut short."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

# Ctrl-C, a stopped CI job, a closed terminal.
INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Handler = Callable[[int, "FrameType | None"], Any]


class Asked:
    """How often the end was asked for, however often one wish is told: a terminal that closes sends SIGHUP several
    times, the kernel and the shell each; and a Ctrl-C reaches an xdist worker from the terminal and as SIGHUP from its
    controller, whichever is handled first."""

    def __init__(self) -> None:
        self.times = 0
        self._seen: list[int] = []

    def take(self, number: int) -> bool:
        """Whether this signal is a wish of its own, which is counted."""
        seen, again = self._seen, False
        if seen:
            again = number == signal.SIGHUP or (
                number == signal.SIGINT and seen[0] == signal.SIGHUP and number not in seen
            )
        seen.append(number)
        self.times += not again
        return not again


class StopSignals:
    """Signals around one job. The first interrupts (KeyboardInterrupt), but once the job is being ended (``defer``,
    or the interrupt itself) nothing does any more: signals are counted, and the second asks for haste."""

    def __init__(self) -> None:
        self._asked = Asked()
        self._deferring = False
        self._told = False
        self._alarm: Handler | None = None
        self._alarm_due = False

    def at_once(self) -> bool:
        """Whether the job is to be ended without grace."""
        return self._asked.times >= 2

    def check(self) -> None:
        """Raise the interrupt again where whoever ran at its moment has swallowed it."""
        if self._told:
            raise interrupt(signal.SIGINT)

    def defer(self) -> None:
        """From now on no signal raises: the job is being ended."""
        self._deferring = True

    def ask(self, number: int, frame: FrameType | None) -> None:
        """The handler of INTERRUPTING."""
        self._asked.take(number)
        if not self._deferring:
            self._deferring = self._told = True
            raise interrupt(number)

    def take_alarm(self, number: int, frame: FrameType | None) -> None:
        """The handler of SIGALRM where it had one, which raises at pytest-timeout."""
        if self._deferring:
            self._alarm_due = True
        elif self._alarm is not None:
            self._deferring = True
            self._alarm(number, frame)
            self._deferring = False

    @contextlib.contextmanager
    def installed(self) -> Generator[None, None, None]:
        with contextlib.ExitStack() as handlers:
            for number in INTERRUPTING:
                if heeded(number):
                    handlers.callback(signal.signal, number, signal.signal(number, self.ask))
            if callable(alarm := signal.getsignal(signal.SIGALRM)):
                self._alarm = alarm
                handlers.callback(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, self.take_alarm))
            yield

    def pass_on(self) -> None:
        """Raise what was put off, and what was raised but is not on its way any more."""
        if self._asked.times:
            raise interrupt(signal.SIGINT)
        if self._alarm_due and self._alarm is not None:
            self._alarm(signal.SIGALRM, None)


@contextlib.contextmanager
def stop_signals() -> Generator[StopSignals, None, None]:
    """Handle signals for one job and its ending; outside the main thread nothing is handled."""
    stop = StopSignals()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    interrupted = False
    try:
        with stop.installed():
            yield stop
    except KeyboardInterrupt:
        interrupted = True
        raise
    finally:
        # Somebody may have swallowed the interrupt at the last look, or a fault of the ending have taken its place.
        if not interrupted:
            stop.pass_on()


@contextlib.contextmanager
def signals_interrupt() -> Generator[None, None, None]:
    """SIGTERM and SIGHUP as Ctrl-C, for a program whose main thread this is."""

    def raise_interrupt(number: int, frame: FrameType | None) -> None:
        raise interrupt(number)

    with contextlib.ExitStack() as handlers:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if heeded(number):
                handlers.callback(signal.signal, number, signal.signal(number, raise_interrupt))
        yield


def heeded(number: int) -> bool:
    """Whether to handle a signal here: nohup has SIGHUP ignored, a shell SIGINT in what it runs in the background."""
    before = signal.getsignal(number)
    return before is not None and (before is not signal.SIG_IGN or number == signal.SIGTERM)


def interrupt(number: int) -> KeyboardInterrupt:
    """Says which signal it was, where it was not Ctrl-C's."""
    return (
        KeyboardInterrupt() if number == signal.SIGINT else KeyboardInterrupt(f"ended by {signal.Signals(number).name}")
    )
