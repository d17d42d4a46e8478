"""Times steps on an NVIDIA GPU by the card itself, with events of the CUDA driver; knows no framework.

The driver is called directly, because not every build of a framework returns its events' times: in Paddle 2.6
``paddle.device.Event.elapsed_time`` is a constant 0. So steps are timed in the same way under every build.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any, Callable, List, Protocol, Tuple

from helpers.trainers.contract.errors import DeviceError

LIBRARY = "libcuda.so.1"
# cuEventQuery's answer for work that is under way.
_NOT_READY = 600


class Events(Protocol):
    """Marks in a card's stream of work; CudaEvents, or a stand-in."""

    def record(self) -> Any:
        """A mark behind all work issued so far; does not wait for it."""

    def wait(self, event: Any) -> None:
        """Return when the card has reached the mark."""

    def reached(self, event: Any) -> bool:
        """Whether the card has reached the mark; does not wait for it."""

    def seconds_between(self, first: Any, second: Any) -> float:
        """The time between two marks that were reached, by the card's clock; DeviceError unless it is positive."""

    def release(self, event: Any) -> None:
        """Free a mark that is not needed any more."""


class CudaEvents:
    """Events on the stream that ``stream`` names, a ``cudaStream_t`` as a number, of the card ``index``.

    ``index`` counts as CUDA does (CUDA_VISIBLE_DEVICES). The framework works in the card's primary
    context, which need not be the calling thread's. Every method raises DeviceError when the driver fails.
    """

    def __init__(self, index: int, stream: Callable[[], int], driver: Any = None) -> None:
        self._driver = _load() if driver is None else driver
        self._stream = stream
        self._call("cuInit", 0)
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), index)
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)

    def record(self) -> Any:
        event = ctypes.c_void_p()
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            self._call("cuEventCreate", ctypes.byref(event), 0)
            self._call("cuEventRecord", event, ctypes.c_void_p(self._stream()))
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        return event

    def wait(self, event: Any) -> None:
        self._call("cuEventSynchronize", event)

    def reached(self, event: Any) -> bool:
        code = self._driver.cuEventQuery(event)
        if code not in (0, _NOT_READY):
            raise _failure("cuEventQuery", code)
        return bool(code == 0)

    def seconds_between(self, first: Any, second: Any) -> float:
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), first, second)
        if not milliseconds.value > 0:
            raise DeviceError(
                "GPU timing",
                field="milliseconds between two steps' events",
                got=milliseconds.value,
                expected="a positive number",
                remedy="The driver's clock does not advance: check the driver and the card",
            )
        return milliseconds.value / 1000.0

    def release(self, event: Any) -> None:
        self._call("cuEventDestroy_v2", event)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code != 0:
            raise _failure(name, code)


def _failure(name: str, code: int) -> DeviceError:
    return DeviceError(
        "CUDA driver",
        field=name,
        got=f"error {code}",
        expected="0 (CUDA_SUCCESS)",
        remedy="CUDA's manual names the error under CUresult; 'nvidia-smi' must work",
    )


class EventMarks:
    """Gives marks behind all that was issued so far (dali.Lent), by events that are released once reached."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def __call__(self) -> EventMark:
        return EventMark(self._events)


class EventMark:
    def __init__(self, events: Events) -> None:
        self._events = events
        self._event = events.record()

    def query(self) -> bool:
        """Whether the card has reached it, which frees it: after True it is not called again."""
        if not self._events.reached(self._event):
            return False
        self._events.release(self._event)
        return True


class EventTimer:
    """A StepTimer of ``loop``: events chained from one host time at the phase's begin."""

    def __init__(
        self, events: Events, synchronize: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``synchronize`` waits for everything that was issued to the card."""
        self._events = events
        self._synchronize = synchronize
        self._clock = clock
        self._last_seconds = 0.0
        self._last_event: Any = None
        self._marked: List[Any] = []

    def begin(self) -> None:
        self._synchronize()
        if self._last_event is not None:
            self._events.release(self._last_event)
        self._last_event = self._events.record()
        self._events.wait(self._last_event)
        self._last_seconds = self._clock()

    def mark(self) -> None:
        self._marked.append(self._events.record())

    def resolve(self) -> List[Tuple[float, float]]:
        marked, self._marked = self._marked, []
        times = []
        for event in marked:
            self._events.wait(event)
            end = self._last_seconds + self._events.seconds_between(self._last_event, event)
            times.append((self._last_seconds, end))
            self._events.release(self._last_event)
            self._last_event, self._last_seconds = event, end
        return times


def _load() -> Any:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise DeviceError(
            "CUDA driver", field=LIBRARY, got=str(error), expected="a library", remedy="'nvidia-smi' must work"
        ) from error
