"""Measures the fastest matrix product of TensorFlow on a device: ``python -m helpers.trainers.tensorflow.peak`` (see
``matrix_peak``).

On a CPU the product is computed as a 1 x 1 convolution too, for which oneDNN may have other kernels. TensorFlow has no
events, so on a GPU the host's clock is read when the device is idle and again when it has done all products. A timing
has many products, so the launch of the first is a small part of it.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Dict, List, Optional

from helpers.trainers.common.float32 import PROBE, check_product
from helpers.trainers.common.matrix_peak import (
    IMAGES,
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


def bench_of(request: PeakRequest) -> Bench:
    import os

    import tensorflow as tf

    threads = len(os.sched_getaffinity(0))
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    name = _device(tf, request.on_gpu)
    if request.on_gpu:
        _force_tf32(tf, request.precision)
    tf.random.set_seed(SEED)
    return Bench(
        device_name=name,
        # TensorFlow does not report a card's UUID.
        uuid="",
        framework_version=str(tf.__version__),
        timer=waiting_timer(tf.test.experimental.sync_devices) if request.on_gpu else host_timer,
        clock="the monotonic clock around all products" if request.on_gpu else host_clock(threads),
        ways=_ways(tf, request.precision, "GPU:0" if request.on_gpu else "CPU:0"),
    )


def waiting_timer(wait: Any, clock: Any = time.monotonic) -> Timer:
    """A timer by the host's clock; ``wait`` returns when the device has done all its work."""

    def timed(product: Product, times: int) -> float:
        wait()
        started: float = clock()
        for _ in range(times):
            product()
        wait()
        return float(clock() - started)

    return timed


def _ways(tf: Any, precision: str, where: str) -> Dict[str, Way]:
    kind = {"fp16": tf.float16, "bf16": tf.bfloat16}.get(precision, tf.float32)

    def random(*shape: int) -> Any:
        with tf.device(where):
            return tf.cast(tf.random.normal(shape), kind)

    def product_of(size: int) -> Product:
        left, right = random(size, size), random(size, size)
        return _ready(tf, where, lambda: tf.linalg.matmul(left, right))

    def convolution_of(size: int) -> Product:
        (images, _, height, width), (outputs, inputs, _, _) = convolved(size)
        values, kernels = random(images, height, width, inputs), random(1, 1, inputs, outputs)
        return _ready(tf, where, lambda: tf.nn.conv2d(values, kernels, 1, "VALID"))

    if where.startswith("CPU"):
        return {"tf.linalg.matmul": product_of, f"a 1 x 1 convolution of {IMAGES} images": convolution_of}
    return {"tf.linalg.matmul": product_of}


def _ready(tf: Any, where: str, compute: Product) -> Product:
    """The product as a graph, which TensorFlow optimises for the device. The result stays on the device."""

    def placed() -> Any:
        with tf.device(where):
            return compute()

    concrete: Product = tf.function(placed, autograph=False).get_concrete_function()
    return concrete


def _device(tf: Any, on_gpu: bool) -> str:
    if not on_gpu:
        return cpu_name()
    cards = tf.config.list_physical_devices("GPU")
    if not cards:
        raise Refused("TensorFlow sees no GPU")
    return str(tf.config.experimental.get_device_details(cards[0]).get("device_name", "unknown GPU"))


def _force_tf32(tf: Any, precision: str) -> None:
    """Switch TF32 on for tf32 and off for fp32, and check it by arithmetic on the card."""
    wanted = precision == "tf32"
    tf.config.experimental.enable_tensor_float_32_execution(wanted)
    if precision in ("fp32", "tf32"):
        product = tf.linalg.matmul(tf.fill([1024, 1024], PROBE), tf.eye(1024))
        check_product(wanted, float(product[0, 0]))


def main(arguments: Optional[List[str]] = None) -> int:
    return run(arguments, "TensorFlow", bench_of)


if __name__ == "__main__":
    sys.exit(main())
