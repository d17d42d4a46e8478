"""Finds which CUDA runtime, cuDNN and NCCL this process has loaded, by calling the libraries; knows no framework.

A build states the versions that it was compiled against; the loader may have found others.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any, Callable, Dict, List

MAPS = Path("/proc/self/maps")
# libcudnn.so.9, libcudart-d0da41ae.so.11.0 (as wheels rename them); not libcudnn_ops.so.9.
_NAMES = re.compile(r"lib(cudnn|nccl|cudart)(?:-[0-9a-f]+)?\.so[.0-9]*")
# As the header of a step log names them.
CUDA_RUNTIME, CUDNN, NCCL = "cuda_runtime", "cudnn", "nccl"


def loaded_facts(maps: Path = MAPS, load: Callable[[str], Any] = ctypes.CDLL) -> Dict[str, str]:
    """``{cudnn: 9.10.2, nccl: 2.27.5, cuda_runtime: 12.8}`` of those that are mapped; several copies with `` + ``.

    To be called after the first step, since frameworks load them when they first need them. The file's name stands for
    the version of a library that does not return it.
    """
    found = {}  # type: Dict[str, List[str]]
    for path in sorted({line.split(None, 5)[-1].strip() for line in _lines(maps)}):
        name = _NAMES.fullmatch(path.rpartition("/")[2])
        if name is not None:
            fact, ask = _QUESTIONS[name.group(1)]
            versions = found.setdefault(fact, [])
            version = _version(path, ask, load)
            if version not in versions:
                versions.append(version)
    return {fact: " + ".join(versions) for fact, versions in found.items()}


def cudnn_text(version: int) -> str:
    """8907 is 8.9.7, and from 9 on 91002 is 9.10.2 (cudnn_version.h)."""
    if version >= 90000:
        return f"{version // 10000}.{version % 10000 // 100}.{version % 100}"
    return f"{version // 1000}.{version % 1000 // 100}.{version % 100}"


def nccl_text(version: int) -> str:
    """2804 is 2.8.4, and from 2.9 on 22705 is 2.27.5 (nccl.h)."""
    if version >= 10000:
        return f"{version // 10000}.{version % 10000 // 100}.{version % 100}"
    return f"{version // 1000}.{version % 1000 // 100}.{version % 100}"


def _lines(maps: Path) -> List[str]:
    lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line for line in lines if "/" in line]


def _version(path: str, ask: Callable[[Any], str], load: Callable[[str], Any]) -> str:
    try:
        return ask(load(path))
    except (OSError, AttributeError, ValueError):
        return f"unknown ({path.rpartition('/')[2]})"


def _cudnn(library: Any) -> str:
    function = library.cudnnGetVersion
    function.restype = ctypes.c_size_t
    return cudnn_text(int(function()))


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


_QUESTIONS = {"cudnn": (CUDNN, _cudnn), "nccl": (NCCL, _nccl), "cudart": (CUDA_RUNTIME, _cudart)}
