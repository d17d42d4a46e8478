"""Times the steps of a framework that reports when an operation is done but gives no access to its cards' streams."""

from __future__ import annotations

import queue
import threading
import time
from typing import Callable, List, Optional, Tuple, Union


class EngineTimer:
    """A StepTimer of ``loop``: reads the host's clock when the framework reports that a step is done.

    MXNet is such a framework: its engine reports an operation as done when the card has done it. A separate thread
    waits for the end of each step, so that the loop can go on issuing steps.
    """

    def __init__(
        self,
        synchronize: Callable[[], None],
        mark: Callable[[], Callable[[], None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``synchronize`` waits for everything that was issued. ``mark`` returns a function that returns (or raises)
        when everything issued before the call of ``mark`` is done."""
        self._synchronize = synchronize
        self._mark = mark
        self._clock = clock
        self._last = 0.0
        self._marked = 0
        self._waiting: "queue.SimpleQueue[Callable[[], None]]" = queue.SimpleQueue()
        self._ended: "queue.SimpleQueue[Union[float, Exception]]" = queue.SimpleQueue()
        self._thread: Optional[threading.Thread] = None

    def begin(self) -> None:
        self._synchronize()
        self._last = self._clock()

    def mark(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="step-ends", daemon=True)
            self._thread.start()
        self._marked += 1
        self._waiting.put(self._mark())

    def resolve(self) -> List[Tuple[float, float]]:
        times = []
        for _ in range(self._marked):
            ended = self._ended.get()
            self._marked -= 1
            if isinstance(ended, Exception):
                raise ended
            times.append((self._last, ended))
            self._last = ended
        return times

    def _watch(self) -> None:
        while True:
            wait = self._waiting.get()
            try:
                wait()
                self._ended.put(self._clock())
            except Exception as error:  # noqa: BLE001 - whatever the step failed with is raised where the loop asks for it
                self._ended.put(error)
