"""Queries of NVML whose entry point changed with the driver: the newest one that this driver has is called.

nvidia-ml-py calls only the newest, and where the driver lacks that, it raises an exception that is no NVMLError.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

# The suffixes of drivers from 510 on, and from 450 or 455 on. Before them the entry point had no suffix and used
# another structure.
_VERSIONS = ("_v3", "_v2")
COMPUTE, MPS_COMPUTE, GRAPHICS = "Compute", "MPSCompute", "Graphics"


class _FirstProcessInfo(ctypes.Structure):
    """nvml.h, nvmlProcessInfo_v1_t."""

    _fields_ = (("pid", ctypes.c_uint), ("used_gpu_memory", ctypes.c_ulonglong))


def processes_of(library: Any, kind: str) -> Callable[[Any], tuple[int, ...]]:
    """A function that takes a card's handle and returns the ids of the processes with a context of ``kind`` on it, each
    once and sorted.

    It raises the library's NVMLError, with "function not found" where this driver has no such list.
    """
    name = f"nvmlDeviceGet{kind}RunningProcesses"
    # An old nvidia-ml-py has no newer functions itself.
    newer = [getattr(library, name + version, None) for version in _VERSIONS]
    candidates: list[Callable[[Any], Iterable[Any]]] = [each for each in newer if each is not None]

    def ask(handle: Any) -> tuple[int, ...]:
        found = first_there(library, (*candidates, lambda card: _first_list(library, name, card)), handle)
        return tuple(sorted({int(process.pid) for process in found}))

    ask.__name__ = name
    return ask


def first_there(library: Any, functions: Iterable[Callable[..., Any]], *arguments: object) -> Any:
    """The answer of the first of ``functions``, newest first, that this driver has; NVMLError where it has none."""
    missing: Exception | None = None
    for function in functions:
        try:
            return function(*arguments)
        except library.NVMLError as error:
            if getattr(error, "value", None) != library.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise
            missing = error
    raise missing or library.NVMLError(library.NVML_ERROR_FUNCTION_NOT_FOUND)


def _first_list(library: Any, name: str, handle: Any) -> list[_FirstProcessInfo]:
    """The processes by the entry point without a suffix, for which nvidia-ml-py has no function."""
    function = getattr(library.nvmlLib, name, None)
    if function is None:
        raise library.NVMLError(library.NVML_ERROR_FUNCTION_NOT_FOUND)
    count = ctypes.c_uint(0)
    code = function(handle, ctypes.byref(count), None)
    while code == library.NVML_ERROR_INSUFFICIENT_SIZE:
        # This leaves room for processes that start between the two calls.
        count.value = count.value * 2 + 5
        found = (_FirstProcessInfo * count.value)()
        code = function(handle, ctypes.byref(count), found)
        if code == library.NVML_SUCCESS:
            return list(found[: count.value])
    if code != library.NVML_SUCCESS:
        raise library.NVMLError(code)
    return []
