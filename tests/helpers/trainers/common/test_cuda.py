"""Event times through a stand-in for the CUDA driver, which keeps the driver's rules."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.trainers.common.cuda import (
    CudaEvents,
    EventTimer,
    cudnn_text,
    loaded_facts,
    nccl_text,
    why_wrong_libraries,
)
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
    # The first event is recorded at 100.
    def clock() -> float:
        return 100.0 + (driver.now - driver.milliseconds) / 1000

    return EventTimer(CudaEvents(CARD, lambda: STREAM, driver), lambda: None, clock)


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


def test_a_phase_begins_where_the_card_s_clock_says_that_the_one_before_has_ended() -> None:
    driver = Driver()
    timer = _timer(driver)
    timer.begin()
    timer.mark()
    timer.resolve()
    # Whatever the host's clock says by now.
    driver.now += 1000.0
    timer.begin()
    timer.mark()
    assert _flat(timer) == pytest.approx([101.025, 101.0375])


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


@pytest.mark.parametrize("name", ["cuInit", "cuEventCreate"])
def test_an_error_of_the_driver_names_the_call_and_its_code(name: str) -> None:
    driver = Driver(failing={name: 999})
    with pytest.raises(DeviceError, match=rf"{name}.*error 999"):
        _timer(driver).begin()
    assert driver.current == []


def test_a_mark_is_reached_when_the_card_has_come_to_it() -> None:
    driver = Driver()
    events = CudaEvents(CARD, lambda: STREAM, driver)
    marks = [events.record(), events.record()]
    for driver.reached, reached in ((0.0, [False, False]), (12.5, [True, False]), (25.0, [True, True])):
        assert [events.reached(mark) for mark in marks] == reached
    for mark in marks:
        events.release(mark)
    assert (driver.events, driver.current) == ({}, [])


def number(value: int) -> Any:
    class Function:
        restype: object = None

        def __call__(self) -> int:
            return value

    return Function()


def pointer(value: int, code: int = 0) -> Callable[..., int]:
    def function(found: Any) -> int:
        found._obj.value = value
        return code

    return function


def cublas(*numbers: int) -> Callable[..., int]:
    def function(part: int, found: Any) -> int:
        found._obj.value = numbers[part]
        return 0

    return function


LIBRARIES = {
    "/env/nvidia/cublas/lib/libcublas.so.11": SimpleNamespace(cublasGetProperty=cublas(11, 11, 3)),
    "/usr/lib/libcudnn.so.8.9.7": SimpleNamespace(cudnnGetVersion=number(8907)),
    "/env/nvidia/cudnn/lib/libcudnn.so.9": SimpleNamespace(cudnnGetVersion=number(91002)),
    "/broken/libnccl.so.2.9": SimpleNamespace(ncclGetVersion=pointer(0, code=3)),
    "/env/torch/lib/libcudart-d0da41ae.so.11.0": SimpleNamespace(cudaRuntimeGetVersion=pointer(11080)),
}


def facts_with(tmp_path: Path, *paths: str) -> dict[str, str]:
    maps = tmp_path / "maps"
    lines = [
        f"7f{number:010x}-7f{number + 1:010x} {mode} 00000000 fe:00 1234     {path}"
        for number, (path, mode) in enumerate((path, mode) for path in paths for mode in ("r-xp", "rw-p"))
    ]
    maps.write_text("\n".join([*lines, "7ffd00000000-7ffd00001000 rw-p 00000000 00:00 0                  [stack]", ""]))
    return loaded_facts(maps, LIBRARIES.__getitem__)


def test_the_loaded_libraries_are_asked_for_their_versions(tmp_path: Path) -> None:
    assert facts_with(
        tmp_path,
        *LIBRARIES,
        "/env/nvidia/cudnn/lib/libcudnn_ops.so.9",
        "/env/nvidia/cublas/lib/libcublasLt.so.11",
        "/lib/libc.so.6",
    ) == {
        # Two copies, and one that does not tell its version.
        "cudnn": "9.10.2 + 8.9.7",
        "cudnn_file": "/env/nvidia/cudnn/lib/libcudnn.so.9 + /usr/lib/libcudnn.so.8.9.7",
        "nccl": "unknown (libnccl.so.2.9)",
        "nccl_file": "/broken/libnccl.so.2.9",
        "cuda_runtime": "11.8",
        "cuda_runtime_file": "/env/torch/lib/libcudart-d0da41ae.so.11.0",
        "cublas": "11.11.3",
        "cublas_file": "/env/nvidia/cublas/lib/libcublas.so.11",
    }


@pytest.mark.parametrize(
    ("loaded", "told"),
    [
        ({"cudnn": "8.9.7", "cudnn_file": "/a/libcudnn.so.8", "nccl": "2.15.5", "nccl_file": "/a/libnccl.so.2"}, ""),
        (
            {"cudnn": "8.6.0 + 9.5.1", "cudnn_file": "/a/libcudnn.so.8 + /b/libcudnn.so.9"},
            "/b/libcudnn.so.9 is cuDNN 9.5.1, this build was made for 8.6.0",
        ),
        (
            {"cublas": "12.8.4", "cublas_file": "/a/libcublas.so.12"},
            "/a/libcublas.so.12 is cuBLAS 12.8.4, this build was made for 11.8",
        ),
        # What does not tell its version is no reason, and is in another segment (docs/verdicts.md).
        ({"cudnn": "unknown (libcudnn.so.9)", "cudnn_file": "/a/libcudnn.so.9"}, ""),
        ({"cuda_runtime": "12.8", "cuda_runtime_file": "/dali/libcudart.so.12"}, ""),
    ],
)
def test_a_library_of_another_major_version_is_named_with_its_file(loaded: dict[str, str], told: str) -> None:
    assert why_wrong_libraries(loaded, {"cudnn": "8.6.0", "cublas": "11.8", "nccl": "2"}) == told


def test_versions_in_one_number_are_read_by_their_age() -> None:
    assert [cudnn_text(each) for each in (7605, 8907, 90100, 91002)] == ["7.6.5", "8.9.7", "9.1.0", "9.10.2"]
    assert [nccl_text(each) for each in (2804, 20903, 22705)] == ["2.8.4", "2.9.3", "2.27.5"]
