"""Measures the fastest matrix product of Paddle on a device: ``python -m helpers.trainers.paddle.peak`` (see
``matrix_peak``).

On a CPU the product is computed as a 1 x 1 convolution too. Dynamic execution has no bfloat16 kernel on a CPU, so a
product in bf16 is a static program, which uses oneDNN's.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

from helpers.trainers.common.cuda import CudaEvents, Events
from helpers.trainers.common.matrix_peak import (
    SEED,
    Bench,
    PeakRequest,
    Product,
    Timer,
    Way,
    convolved,
    host_clock,
    host_timer,
    run,
)
from helpers.trainers.common.process import Refused, cpu_name
from helpers.trainers.contract.case import Precision

Shape = Tuple[int, ...]
# A function from the size of the square matrices to the shapes of the two tensors, and the function that multiplies
# them.
Kind = Tuple[Callable[[int], Tuple[Shape, Shape]], Callable[[Any, Any], Any]]


def bench_of(request: PeakRequest) -> Bench:
    import paddle

    paddle.seed(SEED)
    if request.on_gpu:
        return _on_gpu(paddle, request.precision)
    paddle.set_device("cpu")
    if request.precision == "bf16":
        _enter_static_mode(paddle)
        ways = {"%s in a static program" % name: _program(paddle, kind) for name, kind in _kinds(paddle).items()}
    elif request.precision == "fp32":
        ways = {name: _way(paddle, kind, "float32") for name, kind in _kinds(paddle).items()}
    else:
        raise Refused("Paddle computes no %s on a CPU" % request.precision)
    return Bench(cpu_name(), "", paddle.__version__, host_timer, host_clock(int(os.environ["OMP_NUM_THREADS"])), ways)


def _on_gpu(paddle: Any, precision: str) -> Bench:
    if not paddle.is_compiled_with_cuda() or paddle.device.cuda.device_count() == 0:
        raise Refused("Paddle sees no GPU, or this build is for CPUs")
    from helpers.trainers.paddle.device import force_tf32

    paddle.set_device("gpu:0")
    if precision in ("fp32", "tf32"):
        force_tf32(Precision(precision))
    place = paddle.CUDAPlace(0)
    events = CudaEvents(0, lambda: int(paddle.device.current_stream(place).stream_base.cuda_stream))
    dtype = {"fp16": "float16", "bf16": "bfloat16"}.get(precision, "float32")
    # Only cuBLAS, which is the fastest; a convolution may choose TF32 or another algorithm by itself.
    ways = {"paddle.matmul": _way(paddle, _kinds(paddle)["paddle.matmul"], dtype)}
    name = str(paddle.device.cuda.get_device_name())
    return Bench(name, "", paddle.__version__, event_timer(events), "CUDA events", ways)


def event_timer(events: Events) -> Timer:
    def timed(product: Product, times: int) -> float:
        first = events.record()
        for _ in range(times):
            product()
        last = events.record()
        events.wait(last)
        seconds = events.seconds_between(first, last)
        events.release(first)
        events.release(last)
        return seconds

    return timed


def _kinds(paddle: Any) -> Dict[str, Kind]:
    return {
        "paddle.matmul": (lambda size: ((size, size), (size, size)), paddle.matmul),
        "a 1 x 1 convolution": (convolved, paddle.nn.functional.conv2d),
    }


def _way(paddle: Any, kind: Kind, dtype: str) -> Way:
    shapes_of, multiply = kind

    def product_of(size: int) -> Product:
        left, right = (paddle.randn(list(shape)).astype(dtype) for shape in shapes_of(size))
        return lambda: multiply(left, right)

    return product_of


def _program(paddle: Any, kind: Kind) -> Way:
    """The product as a program of one operator. It is fed with tensors that are in place, since arrays would be
    copied."""
    import numpy

    shapes_of, multiply = kind
    place = paddle.CPUPlace()
    executor = paddle.static.Executor(place)
    random = numpy.random.default_rng(SEED)

    def fed(shape: Shape) -> Any:
        # The upper half of a float32 is a bfloat16; Paddle takes it as a 16-bit integer.
        halves = (random.standard_normal(shape, dtype="float32").view("uint32") >> 16).astype("uint16")
        tensor = paddle.base.core.LoDTensor()
        tensor.set(halves, place)
        return tensor

    def product_of(size: int) -> Product:
        program = paddle.static.Program()
        with paddle.static.program_guard(program, paddle.static.Program()), paddle.utils.unique_name.guard():
            left, right = shapes_of(size)
            tensors = {"left": fed(left), "right": fed(right)}
            inputs = [
                paddle.static.data(name, list(shape), "bfloat16") for name, shape in (("left", left), ("right", right))
            ]
            product = multiply(*inputs)
        return lambda: executor.run(program, feed=tensors, fetch_list=[product], return_numpy=False)

    return product_of


def _enter_static_mode(paddle: Any) -> None:
    """Raise Refused if static programs have no bfloat16 product with this machine and build."""
    if not paddle.base.core.supports_bfloat16():
        raise Refused("oneDNN's bfloat16 needs a CPU with AVX-512, which this one lacks")
    paddle.enable_static()
    pir = getattr(paddle.framework, "in_pir_mode", lambda: False)()
    if not pir:
        raise Refused("on a CPU this build's static programs, which are no PIR ones, find no bfloat16 product")


def main(arguments: Optional[List[str]] = None) -> int:
    return run(arguments, "Paddle", bench_of)


if __name__ == "__main__":
    sys.exit(main())
