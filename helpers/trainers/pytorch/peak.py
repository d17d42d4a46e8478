"""Measures the fastest matrix product of PyTorch on a device: ``python -m helpers.trainers.pytorch.peak`` (see
``matrix_peak``).

On a CPU the product is computed as a 1 x 1 convolution too, since torch.matmul is slow on AMD's processors.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Optional, Tuple

from helpers.trainers.common.float32 import PROBE, check_product
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


def bench_of(request: PeakRequest) -> Bench:
    import torch

    name, uuid = _device(torch, request.on_gpu)
    if request.on_gpu:
        _force_tf32(torch, request.precision)
    torch.manual_seed(SEED)
    return Bench(
        device_name=name,
        uuid=uuid,
        framework_version=str(torch.__version__),
        timer=event_timer(torch) if request.on_gpu else host_timer,
        clock="CUDA events" if request.on_gpu else host_clock(torch.get_num_threads()),
        ways=_ways(torch, request.precision, "cuda" if request.on_gpu else "cpu"),
    )


def event_timer(torch: Any) -> Timer:
    def timed(product: Product, times: int) -> float:
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        for _ in range(times):
            product()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1000.0

    return timed


def _ways(torch: Any, precision: str, where: str) -> Dict[str, Way]:
    kind = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)

    def random(*shape: int) -> Any:
        return torch.randn(*shape, device=where).to(kind)

    def product_of(size: int) -> Product:
        left, right = random(size, size), random(size, size)
        out = torch.empty_like(left)
        return lambda: torch.matmul(left, right, out=out)

    def convolution_of(size: int) -> Product:
        images, kernels = (random(*shape) for shape in convolved(size))
        return lambda: torch.nn.functional.conv2d(images, kernels)

    if where == "cpu":
        return {"torch.matmul": product_of, "a 1 x 1 convolution": convolution_of}
    return {"torch.matmul": product_of}


def _device(torch: Any, on_gpu: bool) -> Tuple[str, str]:
    """Name and UUID of the device; the UUID is empty on a CPU, and if this PyTorch does not report it."""
    if not on_gpu:
        return cpu_name(), ""
    if not torch.cuda.is_available():
        raise Refused("PyTorch sees no GPU")
    properties = torch.cuda.get_device_properties(0)
    uuid = str(getattr(properties, "uuid", ""))
    return str(properties.name), uuid if not uuid or uuid.startswith("GPU-") else "GPU-" + uuid


def _force_tf32(torch: Any, precision: str) -> None:
    """Switch TF32 on for tf32 and off for fp32, and check it by arithmetic on the card."""
    wanted = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = wanted
    if precision in ("fp32", "tf32"):
        product = torch.matmul(torch.full((1024, 1024), PROBE, device="cuda"), torch.eye(1024, device="cuda"))
        check_product(wanted, float(product[0, 0]))


def main(arguments: Optional[List[str]] = None) -> int:
    return run(arguments, "PyTorch", bench_of)


if __name__ == "__main__":
    sys.exit(main())
