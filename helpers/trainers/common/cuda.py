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
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Tuple

from helpers.trainers.contract.errors import DeviceError

LIBRARY = "libcuda.so.1"
# cuEventQuery's answer while the work is not finished.
_NOT_READY = 600


class CudaEvents:
    """Marks in a stream of the card ``index``; ``stream`` returns the ``cudaStream_t`` as a number.

    ``index`` is CUDA's number (CUDA_VISIBLE_DEVICES). The framework works in the card's primary context, which need not
    be that of the calling thread. Every method raises DeviceError if the driver fails.
    """

    def __init__(self, index: int, stream: Callable[[], int], driver: Any = None) -> None:
        self._driver = _load() if driver is None else driver
        self._stream = stream
        device = _device(self._driver, index)
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)

    def record(self) -> Any:
        """Set a mark behind all work issued so far, without waiting for it."""
        event = ctypes.c_void_p()
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            self._call("cuEventCreate", ctypes.byref(event), 0)
            self._call("cuEventRecord", event, ctypes.c_void_p(self._stream()))
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        return event

    def wait(self, event: Any) -> None:
        """Return when the card has reached the mark."""
        self._call("cuEventSynchronize", event)

    def reached(self, event: Any) -> bool:
        """Whether the card has reached the mark; does not wait."""
        code = self._driver.cuEventQuery(event)
        if code not in (0, _NOT_READY):
            raise _failure("cuEventQuery", code)
        return bool(code == 0)

    def seconds_between(self, first: Any, second: Any) -> float:
        """The time between two marks that were reached, by the card's clock. Raises DeviceError unless it is
        positive."""
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
        """Free a mark that is not needed any more."""
        self._call("cuEventDestroy_v2", event)

    def _call(self, name: str, *arguments: Any) -> None:
        _call(self._driver, name, *arguments)


def _failure(name: str, code: int) -> DeviceError:
    return DeviceError(
        "CUDA driver",
        field=name,
        got=f"error {code}",
        expected="0 (CUDA_SUCCESS)",
        remedy="CUDA's manual names the error under CUresult; 'nvidia-smi' must work",
    )


# What the header says of steps that EventTimer times.
EVENTS = "CUDA events on the framework's own stream: a step's seconds are the card's"


class EventTimer:
    """A StepTimer of ``loop``. The host's clock says when the first phase begins; from there on all times are the
    card's, so that no phase begins before the one before it has ended, however the two clocks drift apart."""

    def __init__(
        self, events: CudaEvents, synchronize: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``synchronize`` waits until the card has done everything that was issued. ``clock`` places the first
        phase."""
        self._events = events
        self._synchronize = synchronize
        self._clock = clock
        self._last_seconds = 0.0
        self._last_event: Any = None
        self._marked: List[Any] = []

    def begin(self) -> None:
        self._synchronize()
        event = self._events.record()
        self._events.wait(event)
        if self._last_event is None:
            self._last_event, self._last_seconds = event, self._clock()
        else:
            self._reach(event)

    def mark(self) -> None:
        self._marked.append(self._events.record())

    def resolve(self) -> List[Tuple[float, float]]:
        marked, self._marked = self._marked, []
        times = []
        for event in marked:
            self._events.wait(event)
            start = self._last_seconds
            self._reach(event)
            times.append((start, self._last_seconds))
        return times

    def _reach(self, event: Any) -> None:
        """Go on to an event behind the last one."""
        self._last_seconds += self._events.seconds_between(self._last_event, event)
        self._events.release(self._last_event)
        self._last_event = event


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
    driver = _load()
    device = _device(driver, index)
    _call(driver, question, *answer, device)


def _device(driver: Any, index: int) -> ctypes.c_int:
    device = ctypes.c_int()
    _call(driver, "cuInit", 0)
    _call(driver, "cuDeviceGet", ctypes.byref(device), index)
    return device


def _call(driver: Any, name: str, *arguments: Any) -> None:
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
