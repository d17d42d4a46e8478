"""Measures the fastest matrix product of MXNet on a device: ``python -m helpers.trainers.mxnet.peak`` (see
``matrix_peak``).

The product is computed as a fully connected layer (``mx.nd.dot`` has no bfloat16) and as a 1 x 1 convolution.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Dict, List, Optional, Tuple

from helpers.trainers.common.float32 import PROBE
from helpers.trainers.common.matrix_peak import SEED, Bench, PeakRequest, Product, Way, convolved, host_clock, run
from helpers.trainers.common.process import Refused

# MXNet represents bfloat16 by a NumPy structure of that name.
_TYPES = {"fp16": "float16", "bf16": [("bfloat16", "uint16")]}


def bench_of(request: PeakRequest) -> Bench:
    import mxnet as mx

    from helpers.trainers.mxnet.device import device_name, last_line, products

    _refuse(mx, request)
    context = mx.gpu(0) if request.on_gpu else mx.cpu(0)
    mx.random.seed(SEED)
    ways = _ways(mx, _TYPES.get(request.precision, "float32"), context)
    try:
        product, convolved_value = products(context, request.on_gpu)
    except mx.MXNetError as error:
        raise Refused("MXNet %s does not compute on %s: %s" % (mx.__version__, context, last_line(error))) from error
    if request.on_gpu and request.precision in ("fp32", "tf32"):
        ways = as_wanted(ways, (product != PROBE, convolved_value != PROBE), request.precision == "tf32")

    def timed(product: Product, times: int) -> float:
        started = time.monotonic()
        for _ in range(times):
            product()
        mx.nd.waitall()
        return time.monotonic() - started

    return Bench(
        device_name=device_name(request.on_gpu),
        # MXNet does not report it.
        uuid="",
        framework_version=str(mx.__version__),
        timer=timed,
        clock=host_clock(len(os.sched_getaffinity(0))),
        ways=ways,
    )


def _refuse(mx: Any, request: PeakRequest) -> None:
    if request.on_gpu and mx.context.num_gpus() == 0:
        raise Refused("MXNet sees no GPU")
    if request.precision == ("bf16" if request.on_gpu else "fp16"):
        raise Refused("MXNet computes in bfloat16 on CPUs alone, and in float16 on GPUs alone")


def as_wanted(ways: Dict[str, Way], rounded: Tuple[bool, bool], wanted: bool) -> Dict[str, Way]:
    """If ``wanted``, the ways that round like TF32, else those that do not. ``rounded`` states for each way whether it
    does. Raises Refused if no way remains."""
    found = {name: way for (name, way), rounds in zip(ways.items(), rounded) if rounds is wanted}
    if not found:
        raise Refused("TF32 is %s and was to be %s" % (("on", "off") if not wanted else ("off", "on")))
    return found


def _ways(mx: Any, dtype: Any, context: Any) -> Dict[str, Way]:
    import numpy

    def random(*shape: int) -> Any:
        return mx.nd.amp_cast(mx.nd.random.normal(shape=shape, ctx=context), dtype=numpy.dtype(dtype))

    def product_of(size: int) -> Product:
        left, right = random(size, size), random(size, size)
        return lambda: mx.nd.FullyConnected(left, right, num_hidden=size, no_bias=True)

    def convolution_of(size: int) -> Product:
        images, kernels = (random(*shape) for shape in convolved(size))
        return lambda: mx.nd.Convolution(images, kernels, kernel=(1, 1), num_filter=size, no_bias=True)

    return {"a fully connected layer": product_of, "a 1 x 1 convolution": convolution_of}


def main(arguments: Optional[List[str]] = None) -> int:
    return run(arguments, "MXNet", bench_of)


if __name__ == "__main__":
    sys.exit(main())
