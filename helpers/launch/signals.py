"""Signals while a job runs: SIGTERM ends it in order, and nothing interrupts the ending."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def sigterm_interrupts() -> Generator[None, None, None]:
    """SIGTERM as KeyboardInterrupt, so that a stopped CI job ends its trainers and keeps its results."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt("ended by SIGTERM")

    with _handler(signal.SIGTERM, interrupt):
        yield


@contextlib.contextmanager
def uninterrupted() -> Generator[None, None, None]:
    """A second Ctrl-C must not leave half a job behind; ending takes the grace at most."""
    with _handler(signal.SIGINT, signal.SIG_IGN), _handler(signal.SIGTERM, signal.SIG_IGN):
        yield


@contextlib.contextmanager
def _handler(number: int, handler: Any) -> Generator[None, None, None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
