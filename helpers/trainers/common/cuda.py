"""Calls NVIDIA's libraries directly: times steps on the card, and reads the versions that this process has loaded.

Not every build of a framework returns the times of its events: in Paddle 2.6 ``paddle.device.Event.elapsed_time`` is
always 0. So steps are timed by events of the CUDA driver, in the same way for every build. A build states the versions
of the CUDA runtime, cuDNN and NCCL with which it was compiled; the dynamic linker may have found others, so the loaded
libraries are asked.
"""

from __future__ import annotations

import ctypes
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Tuple

from helpers.trainers.contract.errors import DeviceError

LIBRARY = "libcuda.so.1"
# cuEventQuery's answer while the work is not finished.
_NOT_READY = 600


class Events(Protocol):
    """Marks in a card's stream of work; CudaEvents, or a stand-in."""

    def record(self) -> Any:
        """Sets a mark behind all work issued so far, without waiting for it."""

    def wait(self, event: Any) -> None:
        """Return when the card has reached the mark."""

    def reached(self, event: Any) -> bool:
        """Whether the card has reached the mark; does not wait."""

    def seconds_between(self, first: Any, second: Any) -> float:
        """The time between two marks that were reached, by the card's clock. Raises DeviceError unless it is
        positive."""

    def release(self, event: Any) -> None:
        """Free a mark that is not needed any more."""


class CudaEvents:
    """Events on a stream of the card ``index``; ``stream`` returns the ``cudaStream_t`` as a number.

    ``index`` is CUDA's number (CUDA_VISIBLE_DEVICES). The framework works in the card's primary context, which need not
    be that of the calling thread. Every method raises DeviceError if the driver fails.
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


class EventMark:
    """A mark behind all work issued so far (for readers.Lent): an event that is released when it is reached."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._event = events.record()

    def query(self) -> bool:
        """Whether the card has reached the mark. It is then freed, so this must not be called again after True."""
        if not self._events.reached(self._event):
            return False
        self._events.release(self._event)
        return True


# What the header says of steps that EventTimer times.
EVENTS = "CUDA events on the framework's own stream: a step's seconds are the card's"


# How far the card's clock may run from the host's, as a fraction: the crystals of cards and boards are within 100 ppm
# each, and five times as much is no drift.
MOST_DRIFT = 1e-3


def unslewed_clock() -> float:
    """Seconds by a clock that nothing corrects. chrony may slew the monotonic one by 8% while it sets the time."""
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)


@dataclass(frozen=True)
class _Together:
    """A moment known by both clocks: the card's time of an event, and the host's times right before and after it."""

    card_seconds: float
    host_before: float
    host_after: float


class EventTimer:
    """A StepTimer of ``loop``. The host's clock says when the first phase begins; from there on all times are the
    card's, so that no phase begins before the one before it has ended, however the two clocks drift apart.

    The drift is measured at each begin of a phase, when the card is idle, and at each ``resolve``. Both raise
    DeviceError if it is above MOST_DRIFT beyond what the host's own readings leave open.
    """

    def __init__(
        self,
        events: Events,
        synchronize: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        unslewed: Callable[[], float] = unslewed_clock,
    ) -> None:
        """``synchronize`` waits until the card has done everything that was issued. ``clock`` places the first phase,
        by ``unslewed`` the drift is measured."""
        self._events = events
        self._synchronize = synchronize
        self._clock = clock
        self._unslewed = unslewed
        self._last_seconds = 0.0
        self._last_event: Any = None
        self._together: Optional[_Together] = None
        self._marked: List[Any] = []

    def begin(self) -> None:
        self._synchronize()
        before = self._unslewed()
        event = self._events.record()
        self._events.wait(event)
        after = self._unslewed()
        earlier = self._together
        if earlier is None:
            start = self._clock()
        else:
            start = self._last_seconds + self._events.seconds_between(self._last_event, event)
            _check_drift(start - earlier.card_seconds, before - earlier.host_after, after - earlier.host_before)
            self._events.release(self._last_event)
        self._together = _Together(start, before, after)
        self._last_event, self._last_seconds = event, start

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
        if times and self._together is not None:
            # The card may have been done long before the host asked, so only a card that is ahead shows here.
            passed = self._unslewed() - self._together.host_before
            _check_drift(self._last_seconds - self._together.card_seconds, 0.0, passed)
        return times


def _check_drift(card_seconds: float, least: float, most: float) -> None:
    """Raises DeviceError unless the card's seconds are within ``least`` and ``most`` of the host, give or take
    MOST_DRIFT."""
    if not least * (1 - MOST_DRIFT) <= card_seconds <= most * (1 + MOST_DRIFT):
        raise DeviceError(
            "GPU timing",
            field="seconds by the card's clock",
            got=f"{card_seconds:.6f}",
            expected=f"{least:.6f} to {most:.6f} by the host's uncorrected clock, within {MOST_DRIFT:.1%}",
            remedy="Check the card and its driver (nvidia-smi -q, dmesg); on a virtual machine also the host's clock",
        )


def total_memory_bytes(index: int) -> int:
    """The memory of the card with CUDA's number ``index``. Raises DeviceError if the driver fails."""
    size = ctypes.c_size_t()
    _ask_of_card("cuDeviceTotalMem_v2", index, ctypes.byref(size))
    return size.value


def card_name(index: int) -> str:
    """The name of the card with CUDA's number ``index``. Raises DeviceError if the driver fails."""
    name = ctypes.create_string_buffer(256)
    _ask_of_card("cuDeviceGetName", index, name, len(name))
    return name.value.decode(errors="replace")


def _ask_of_card(question: str, index: int, *answer: Any) -> None:
    driver, device = _load(), ctypes.c_int()
    for name, arguments in (
        ("cuInit", (0,)),
        ("cuDeviceGet", (ctypes.byref(device), index)),
        (question, (*answer, device)),
    ):
        code = getattr(driver, name)(*arguments)
        if code != 0:
            raise _failure(name, code)


def _load() -> Any:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise DeviceError(
            "CUDA driver", field=LIBRARY, got=str(error), expected="a library", remedy="'nvidia-smi' must work"
        ) from error


MAPS = Path("/proc/self/maps")
# libcudnn.so.9, libcudart-d0da41ae.so.11.0 (as wheels rename them); not libcudnn_ops.so.9.
_NAMES = re.compile(r"lib(cublas|cudnn|nccl|cudart)(?:-[0-9a-f]+)?\.so[.0-9]*")
# Their keys in the header of a step log. The fact with the file has this behind the key.
CUDA_RUNTIME, CUBLAS, CUDNN, NCCL = "cuda_runtime", "cublas", "cudnn", "nccl"
FILE = "_file"
_BETWEEN = " + "


def loaded_facts(maps: Path = MAPS, load: Callable[[str], Any] = ctypes.CDLL) -> Dict[str, str]:
    """The versions and files of the libraries that this process has mapped: ``{cudnn: 9.10.2, cudnn_file:
    /usr/lib/libcudnn.so.9, cublas: 12.8.4, nccl: 2.27.5, cuda_runtime: 12.8, …}``. Those of several copies are joined
    by `` + ``, in the same order.

    To be called after the first step, since frameworks load libraries when they need them. If a library does not return
    its version, the name of its file is given.
    """
    return _facts(maps, lambda path, name: _version(path, _QUESTIONS[name][1], load))


def mapped_facts(maps: Path = MAPS) -> Dict[str, str]:
    """As ``loaded_facts``, with the versions that the files' names have (``libcudnn.so.8`` is 8): no library is asked.
    Some end the process when they are asked and do not fit."""
    return _facts(maps, lambda path, name: path.partition(".so")[2].lstrip(".") or "unknown")


def _facts(maps: Path, version_of: Callable[[str, str], str]) -> Dict[str, str]:
    found = {}  # type: Dict[str, Dict[str, List[str]]]
    lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    for path in sorted({line.split(None, 5)[-1].strip() for line in lines if "/" in line}):
        name = _NAMES.fullmatch(path.rpartition("/")[2])
        if name is not None:
            fact = _QUESTIONS[name.group(1)][0]
            found.setdefault(fact, {}).setdefault(version_of(path, name.group(1)), []).append(path)
    facts = {fact: _BETWEEN.join(versions) for fact, versions in found.items()}
    files = {fact + FILE: _BETWEEN.join(each[0] for each in versions.values()) for fact, versions in found.items()}
    return {**facts, **files}


def why_wrong_libraries(loaded: Mapping[str, str], built_for: Mapping[str, str]) -> str:
    """Which loaded library, of ``loaded_facts``, has another major version than the one for which the build was made;
    empty if none has. A library that is in only one of the two is not looked at."""
    wrong = []
    for name, expected in sorted(built_for.items()):
        versions, files = loaded.get(name, ""), loaded.get(name + FILE, "")
        for version, file in zip(versions.split(_BETWEEN), files.split(_BETWEEN)):
            if version[:1].isdigit() and version.partition(".")[0] != expected.partition(".")[0]:
                wrong.append(f"{file} is {_TITLES[name]} {version}, this build was made for {expected}")
    return "; ".join(wrong)


def cudnn_text(version: int) -> str:
    """8907 is 8.9.7, and from 9 on 91002 is 9.10.2 (cudnn_version.h)."""
    return _packed_text(version, 90000)


def nccl_text(version: int) -> str:
    """2804 is 2.8.4, and from 2.9 on 22705 is 2.27.5 (nccl.h)."""
    return _packed_text(version, 10000)


def _packed_text(version: int, wider_from: int) -> str:
    major = 10000 if version >= wider_from else 1000
    return f"{version // major}.{version % major // 100}.{version % 100}"


def _version(path: str, ask: Callable[[Any], str], load: Callable[[str], Any]) -> str:
    try:
        return ask(load(path))
    except (OSError, AttributeError, ValueError):
        return f"unknown ({path.rpartition('/')[2]})"


def _cudnn(library: Any) -> str:
    function = library.cudnnGetVersion
    function.restype = ctypes.c_size_t
    return cudnn_text(int(function()))


def _cublas(library: Any) -> str:
    numbers = []
    # MAJOR_VERSION, MINOR_VERSION and PATCH_LEVEL of library_types.h; cublasGetVersion needs a card.
    for part in range(3):
        number = ctypes.c_int()
        if library.cublasGetProperty(part, ctypes.byref(number)) != 0:
            raise ValueError("the library does not return its version")
        numbers.append(str(number.value))
    return ".".join(numbers)


def _nccl(library: Any) -> str:
    return nccl_text(_through_pointer(library.ncclGetVersion))


def _cudart(library: Any) -> str:
    version = _through_pointer(library.cudaRuntimeGetVersion)
    return f"{version // 1000}.{version % 1000 // 10}"


def _through_pointer(function: Any) -> int:
    version = ctypes.c_int()
    if function(ctypes.byref(version)) != 0:
        raise ValueError("the library does not return its version")
    return version.value


_QUESTIONS = {
    "cublas": (CUBLAS, _cublas),
    "cudnn": (CUDNN, _cudnn),
    "nccl": (NCCL, _nccl),
    "cudart": (CUDA_RUNTIME, _cudart),
}
_TITLES = {CUBLAS: "cuBLAS", CUDNN: "cuDNN", NCCL: "NCCL", CUDA_RUNTIME: "the CUDA runtime"}
