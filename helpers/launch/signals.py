"""Handles Ctrl-C, SIGTERM and SIGHUP while a job runs, so that none of them interrupts the ending of the job."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from types import FrameType

# Sent by Ctrl-C, by a CI system that stops a job, and by a terminal that closes.
INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class EndRequests:
    """Counts how often the user asked to end; one request may come as several signals.

    When a terminal closes, the kernel and the shell each send SIGHUP. A Ctrl-C reaches an xdist worker from the
    terminal, and as SIGHUP from its controller, in either order.
    """

    def __init__(self) -> None:
        self.times = 0
        self._seen: list[int] = []

    def take(self, number: int) -> bool:
        """Count the signal if it is a new request; returns whether it is."""
        seen, again = self._seen, False
        if seen:
            again = number == signal.SIGHUP or (
                number == signal.SIGINT and seen[0] == signal.SIGHUP and number not in seen
            )
        seen.append(number)
        self.times += not again
        return not again


class StopSignals:
    """The signals during one job. The first one interrupts (KeyboardInterrupt). Once the job is being ended, by that
    interrupt or after ``defer``, signals are only counted, and the second one ends the job without grace."""

    def __init__(self) -> None:
        self._requests = EndRequests()
        self._deferring = False
        self._raised = False

    def at_once(self) -> bool:
        """Whether the job must be ended without grace."""
        return self._requests.times >= 2

    def check(self) -> None:
        """Raise the interrupt again, in case the interrupted code has swallowed it."""
        if self._raised:
            raise interrupt(signal.SIGINT)

    def defer(self) -> None:
        """From now on no signal raises an exception, since the job is being ended."""
        self._deferring = True

    def ask(self, number: int, frame: FrameType | None) -> None:
        """The handler of INTERRUPTING."""
        self._requests.take(number)
        if not self._deferring:
            self._deferring = self._raised = True
            raise interrupt(number)

    def pass_on(self) -> None:
        """Raise interrupts that were deferred, and one that was raised and then swallowed."""
        if self._requests.times:
            raise interrupt(signal.SIGINT)


@contextlib.contextmanager
def stop_signals() -> Generator[StopSignals, None, None]:
    """Handle signals for one job and its ending; outside the main thread nothing is handled."""
    stop = StopSignals()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    interrupted = False
    try:
        with _handled(INTERRUPTING, stop.ask):
            yield stop
    except KeyboardInterrupt:
        interrupted = True
        raise
    finally:
        # The interrupt may have been swallowed at the last look at the job, or replaced by an error while the job was
        # ended.
        if not interrupted:
            stop.pass_on()


@contextlib.contextmanager
def signals_interrupt() -> Generator[None, None, None]:
    """Let SIGTERM and SIGHUP interrupt as Ctrl-C does. To be called in the main thread."""

    def raise_interrupt(number: int, frame: FrameType | None) -> None:
        raise interrupt(number)

    with _handled((signal.SIGTERM, signal.SIGHUP), raise_interrupt):
        yield


@contextlib.contextmanager
def _handled(numbers: Iterable[int], handler: Callable[[int, FrameType | None], None]) -> Generator[None, None, None]:
    """Have signals handled so, as far as they are heeded."""
    with contextlib.ExitStack() as handlers:
        for number in filter(heeded, numbers):
            handlers.callback(signal.signal, number, signal.signal(number, handler))
        yield


def heeded(number: int) -> bool:
    """Whether the suite handles a signal. nohup makes a program ignore SIGHUP, and a shell makes its background
    programs ignore SIGINT; that is respected."""
    before = signal.getsignal(number)
    return before is not None and (before is not signal.SIG_IGN or number == signal.SIGTERM)


def interrupt(number: int) -> KeyboardInterrupt:
    """The interrupt for a signal. Its text names the signal, unless it is Ctrl-C's."""
    return (
        KeyboardInterrupt() if number == signal.SIGINT else KeyboardInterrupt(f"ended by {signal.Signals(number).name}")
    )
