"""Refuses a case before anything is set up on a card, if this build of Paddle finds other CUDA libraries than it was
made for."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Mapping

import paddle

from helpers.trainers.common.cuda import CUBLAS, CUDNN, NCCL, loaded_facts, mapped_facts, why_wrong_libraries
from helpers.trainers.common.process import Refused

# The names by which a build without pip's libraries opens them.
_CUDNN_NAME, _CUBLAS_NAME = "libcudnn.so", "libcublas.so"
_REMEDY = (
    "make env, or perfgate builds for a named build, puts the right ones into the environment of Paddle 2 for CUDA 11, "
    "before those of the system and of LD_LIBRARY_PATH; those of another build are installed by hand "
    "(docs/choosing.md)"
)


def refuse_wrong_libraries() -> None:
    """Open cuDNN and cuBLAS as this build does. Raise Refused if one is not found or has another major version than the
    one for which the build was made. Needs no card, and no card may be set up before.

    Such a library would be used silently, or end the process in its first step.
    """
    # With pip's libraries a build opens them by names with the version, from folders of its own.
    if getattr(paddle.version, "with_pip_cuda_libraries", "OFF") != "ON":
        # Paddle looks for cuDNN in one more folder than the loader.
        with contextlib.suppress(OSError):
            ctypes.CDLL(_CUDNN_NAME)
        try:
            ctypes.CDLL(_CUBLAS_NAME)
        except OSError as error:
            raise Refused(f"this build opens {_CUBLAS_NAME} and finds none ({error}); {_REMEDY}") from error
        # Before any is asked for its version, as cuDNN 9 ends the process if a part of it is missing.
        refuse_wrong_majors(mapped_facts())
    if not paddle.get_cudnn_version():
        raise Refused(f"this build was made for cuDNN {paddle.version.cudnn()} and finds none; {_REMEDY}")
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
        raise Refused(f"{wrong}; {_REMEDY}")
