"""Refuses a case before anything is set up on a card, if this build of Paddle finds other CUDA libraries than it was
made for."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Any, Callable, Mapping

import paddle

from helpers.trainers.common.cuda import CUBLAS, CUDNN, NCCL, loaded_facts, mapped_facts, why_wrong_libraries
from helpers.trainers.common.process import Refused

# The names by which a build without pip's libraries opens them.
_CUDNN_NAME, _CUBLAS_NAME = "libcudnn.so", "libcublas.so"
# Beside cuDNN and NCCL; from CUDA 13 on their names have no number.
_WHEELS = ["cublas", "cuda-cupti", "cuda-nvrtc", "cuda-runtime", "curand", "cusolver", "cusparse"]


def _remedy() -> str:
    """What puts the right libraries there: the suite for Paddle 2 and CUDA 11, as companions.yaml has them; the user
    for every other build."""
    major = str(paddle.version.cuda()).partition(".")[0]
    if major == "11" and str(paddle.version.full_version).startswith("2."):
        return (
            "make env, or perfgate builds for a named build, puts the right ones into the environment, and they come "
            "before those of the system and of LD_LIBRARY_PATH (docs/choosing.md)"
        )
    suffix = f"-cu{major}" if major in ("11", "12") else ""
    names = [f"nvidia-{each}{suffix}" for each in _WHEELS]
    cudnn = str(paddle.version.cudnn()).partition(".")[0]
    names += [f"'nvidia-cudnn-cu{major}=={cudnn}.*'", f"nvidia-nccl-cu{major}"]
    return (
        f"the suite has no libraries for a build of CUDA {major} that opens them by name. Install them by hand: uv pip "
        f"install --python {sys.executable} {' '.join(names)}; then {sys.executable} requirements/link_libraries.py"
    )


def refuse_wrong_libraries(load: Callable[[str], Any] = ctypes.CDLL) -> None:
    """Open cuDNN and cuBLAS as this build does. Raise Refused if one is not found or has another major version than the
    one for which the build was made. Needs no card, and no card may be set up before.

    Such a library would be used silently, or end the process in its first step.
    """
    # With pip's libraries a build opens them by names with the version, from folders of its own.
    if getattr(paddle.version, "with_pip_cuda_libraries", "OFF") != "ON":
        # Paddle looks for cuDNN in one more folder than the loader.
        with contextlib.suppress(OSError):
            load(_CUDNN_NAME)
        try:
            load(_CUBLAS_NAME)
        except OSError as error:
            raise Refused(f"this build opens {_CUBLAS_NAME} and finds none ({error}); {_remedy()}") from error
        # Before any is asked for its version, as cuDNN 9 ends the process if a part of it is missing.
        refuse_wrong_majors(mapped_facts())
    if not paddle.get_cudnn_version():
        raise Refused(f"this build was made for cuDNN {paddle.version.cudnn()} and finds none; {_remedy()}")
    refuse_wrong_majors(loaded_facts())


def refuse_wrong_majors(loaded: Mapping[str, str]) -> None:
    """Raise Refused if a library of ``loaded_facts`` has another major version than the build's."""
    built_for = {
        CUDNN: str(paddle.version.cudnn()),
        CUBLAS: str(paddle.version.cuda()),
        # The only major version there is; Paddle 2.6 does not state it.
        NCCL: str(getattr(paddle.version, "nccl", str)() or 2),
    }
    wrong = why_wrong_libraries(loaded, {name: each for name, each in built_for.items() if each[:1].isdigit()})
    if wrong:
        raise Refused(f"{wrong}; {_remedy()}")
