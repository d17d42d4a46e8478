"""What lets a build of Paddle for CPUs build a GPU's program, in the build check alone: float16 kernels are pretended,
and the operators that start NCCL, which such a build lacks, are left out. A program so built is counted and never
run."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator
from unittest import mock

import paddle

# A version of cuDNN with which Paddle casts convolutions.
_CUDNN = 8900


@contextlib.contextmanager
def gpu_parts() -> Iterator[None]:
    """Within, Paddle's Python code finds a float16 kernel for each operator of a CPU, and CUDA with cuDNN."""
    core = paddle.base.core
    infos = core.op_supported_infos

    def every_operator(place: str, dtype: Any) -> Any:
        operators = infos("CPU", dtype)[0]
        return operators, operators, set()

    with contextlib.ExitStack() as stack:
        for name, value in (
            ("op_supported_infos", every_operator),
            ("is_compiled_with_cuda", lambda: True),
            ("cudnn_version", lambda: _CUDNN),
        ):
            stack.enter_context(mock.patch.object(core, name, value, create=True))
        # A build for CPUs does not know the flag, and a layer of convolution asks for it where there is CUDA.
        get_flags = paddle.base.framework.get_flags
        unknown = "FLAGS_conv2d_disable_cudnn"

        def with_unknown(flags: Any) -> Any:
            names = [flags] if isinstance(flags, str) else list(flags)
            known = get_flags([name for name in names if name != unknown])
            return {**known, **({unknown: False} if unknown in names else {})}

        for module in (paddle.nn.layer.conv, paddle.nn.functional.conv):
            stack.enter_context(mock.patch.object(module, "get_flags", with_unknown, create=True))
        yield


@contextlib.contextmanager
def no_nccl_start() -> Iterator[None]:
    """Within, fleet's start-up program makes no communicator."""
    from paddle.distributed.fleet.meta_optimizers import common

    with mock.patch.object(common.CollectiveHelper, "_init_communicator", lambda *_, **__: None):
        yield
