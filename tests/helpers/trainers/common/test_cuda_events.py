"""Event times through a stand-in for the CUDA driver, which keeps the driver's rules."""

from __future__ import annotations

import ctypes
import types
from dataclasses import dataclass, field
from typing import Any

import pytest

from helpers.trainers.common import cuda_events
from helpers.trainers.common.cuda_events import CudaEvents, EventMarks, EventTimer
from helpers.trainers.contract.errors import DeviceError

CARD, STREAM, CONTEXT = 3, 0x7FAB_CDEF_1230, 0x7F00_0000_0BEE
INVALID_CONTEXT, INVALID_HANDLE, NOT_READY = 201, 400, 600


@dataclass
class Driver:
    """Each record is ``milliseconds`` later on the card; an event must be recorded in its own context."""

    milliseconds: float = 12.5
    failing: dict[str, int] = field(default_factory=dict)
    now: float = 0.0
    current: list[int | None] = field(default_factory=list)
    events: dict[int, float | None] = field(default_factory=dict)
    created: int = 0
    reached: float = 0.0

    def __getattribute__(self, name: str) -> Any:
        failing: dict[str, int] = object.__getattribute__(self, "failing")
        return (lambda *_: failing[name]) if name in failing else object.__getattribute__(self, name)

    def cuInit(self, flags: int) -> int:
        return 0 if flags == 0 else INVALID_HANDLE

    def cuDeviceGet(self, device: Any, index: int) -> int:
        device._obj.value = index + 40
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: ctypes.c_int) -> int:
        context._obj.value = CONTEXT
        return 0 if device.value == CARD + 40 else INVALID_HANDLE

    def cuCtxPushCurrent_v2(self, context: ctypes.c_void_p) -> int:
        self.current.append(context.value)
        return 0

    def cuCtxPopCurrent_v2(self, context: Any) -> int:
        context._obj.value = self.current.pop()
        return 0

    def cuEventCreate(self, event: Any, flags: int) -> int:
        self.created += 1
        event._obj.value = 0x7F00_1000_0000 + self.created
        self.events[event._obj.value] = None
        # Any flag would make it an event without time, or one that sleeps.
        return 0 if self.current == [CONTEXT] and flags == 0 else INVALID_CONTEXT

    def cuEventRecord(self, event: ctypes.c_void_p, stream: ctypes.c_void_p) -> int:
        if stream.value != STREAM or self.current != [CONTEXT]:
            return INVALID_HANDLE
        self.now += self.milliseconds
        self.events[event.value or 0] = self.now
        return 0

    def cuEventSynchronize(self, event: ctypes.c_void_p) -> int:
        return 0 if self.events[event.value or 0] is not None else NOT_READY

    def cuEventQuery(self, event: ctypes.c_void_p) -> int:
        recorded = self.events[event.value or 0]
        assert recorded is not None
        return 0 if recorded <= self.reached else NOT_READY

    def cuEventElapsedTime(self, milliseconds: Any, first: ctypes.c_void_p, second: ctypes.c_void_p) -> int:
        start, end = self.events[first.value or 0], self.events[second.value or 0]
        if start is None or end is None:
            return NOT_READY
        milliseconds._obj.value = end - start
        return 0

    def cuEventDestroy_v2(self, event: ctypes.c_void_p) -> int:
        del self.events[event.value or 0]
        return 0


def _timer(driver: Driver) -> EventTimer:
    return EventTimer(CudaEvents(CARD, lambda: STREAM, driver), lambda: None, lambda: 100.0)


def _flat(timer: EventTimer) -> list[float]:
    return [seconds for step in timer.resolve() for seconds in step]


def test_steps_are_chained_from_the_phase_s_begin_across_blocks() -> None:
    timer = _timer(Driver())
    timer.begin()
    timer.mark()
    timer.mark()
    assert _flat(timer) == pytest.approx([100.0, 100.0125, 100.0125, 100.025])
    timer.mark()
    assert _flat(timer) == pytest.approx([100.025, 100.0375])
    assert timer.resolve() == []


def test_a_phase_begins_at_a_host_time_taken_when_the_card_has_nothing_left_to_do() -> None:
    order: list[str] = []
    driver = Driver()
    events = CudaEvents(CARD, lambda: STREAM, driver)
    clock = iter([100.0, 200.0])
    timer = EventTimer(events, lambda: order.append("synchronize"), lambda: order.append("clock") or next(clock))
    timer.begin()
    assert order == ["synchronize", "clock"]
    timer.begin()
    timer.mark()
    assert _flat(timer) == pytest.approx([200.0, 200.0125])


def test_events_are_given_back_and_the_thread_s_context_is_as_it_was() -> None:
    driver = Driver()
    timer = _timer(driver)
    for _ in range(2):
        timer.begin()
        for _ in range(5):
            timer.mark()
        timer.resolve()
    assert (driver.created, len(driver.events), driver.current) == (12, 1, [])


@pytest.mark.parametrize("milliseconds", [0.0, -1.0, float("nan")])
def test_a_card_clock_that_does_not_advance_is_an_error(milliseconds: float) -> None:
    timer = _timer(Driver(milliseconds))
    timer.begin()
    timer.mark()
    with pytest.raises(DeviceError, match="expected a positive number"):
        timer.resolve()


@pytest.mark.parametrize("name", ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuEventCreate"])
def test_an_error_of_the_driver_names_the_call_and_its_code(name: str) -> None:
    driver = Driver(failing={name: 999})
    with pytest.raises(DeviceError, match=rf"{name}.*error 999"):
        _timer(driver).begin()
    assert driver.current == []


def test_a_machine_without_the_driver_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(cuda_events, "ctypes", types.SimpleNamespace(CDLL=load))
    with pytest.raises(DeviceError, match=r"libcuda\.so\.1"):
        CudaEvents(0, lambda: 0)


def test_a_mark_is_reached_when_the_card_has_come_to_it_and_gives_its_event_back() -> None:
    driver = Driver()
    marks = EventMarks(CudaEvents(CARD, lambda: STREAM, driver))
    first, second = marks(), marks()
    assert (first.query(), second.query(), len(driver.events)) == (False, False, 2)
    driver.reached = 12.5
    assert (first.query(), second.query(), len(driver.events)) == (True, False, 1)
    driver.reached = 25.0
    assert (second.query(), driver.events, driver.current) == (True, {}, [])


def test_a_mark_that_the_driver_cannot_tell_of_is_an_error() -> None:
    driver = Driver()
    mark = EventMarks(CudaEvents(CARD, lambda: STREAM, driver))()
    driver.failing["cuEventQuery"] = 700
    with pytest.raises(DeviceError, match=r"cuEventQuery.*error 700"):
        mark.query()
