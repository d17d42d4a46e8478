"""The fastest matrix product of a device: ``python -m helpers.trainers.pytorch_peak PRECISION DEVICE``.

PRECISION is fp32, tf32, fp16 or bf16, DEVICE ``cpu`` or ``gpu`` (the first visible card). Square matrices of random
numbers (zeros would need less power, and so be faster) are multiplied, doubled in size until that is no faster any
more; a size's figure is the median of repeats, each long enough for its clock: the card's own events, or the host's
monotonic clock. On a CPU the product is tried as a 1 x 1 convolution too, as torch.matmul is slow there on AMD's
processors. Prints one JSON object. Exit status: 0 measured, 3 refused (``process.EXIT_REFUSED``).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

from helpers.trainers.process import EXIT_REFUSED, Refused, cpu_name

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
# A size that gains less than this over the fastest so far is no faster; after two such in a row the device is full
# (one may have met somebody else's work).
LEAST_GAIN = 1.02
PATIENCE = 2
WARMUPS = 3
_TERA = 1e12

Product = Callable[[], Any]
# Seconds that a number of products take, from the first one's start to the last one's end.
Timer = Callable[[Product, int], float]


@dataclass(frozen=True)
class Limits:
    """Sizes from ``first`` to ``largest``; a repeat lasts ``repeat_seconds`` or one product; a size whose product takes
    longer than ``longest_seconds`` is the last."""

    first: int
    largest: int
    repeats: int
    repeat_seconds: float
    longest_seconds: float


ON_GPU = Limits(first=2048, largest=32768, repeats=10, repeat_seconds=0.05, longest_seconds=0.25)
ON_CPU = Limits(first=1024, largest=2048, repeats=5, repeat_seconds=0.02, longest_seconds=0.25)


@dataclass(frozen=True)
class Found:
    tflops: float
    size: int


def grow(product_of: Callable[[int], Product], timer: Timer, limits: Limits) -> Found:
    """The fastest size: doubled until PATIENCE sizes in a row were not LEAST_GAIN faster."""
    best = Found(0.0, 0)
    size, patience = limits.first, PATIENCE
    while True:
        product = product_of(size)
        timer(product, WARMUPS)
        one = timer(product, 1)
        times = max(1, round(limits.repeat_seconds / one))
        seconds = statistics.median([timer(product, times) / times for _ in range(limits.repeats)])
        found = Found(2.0 * size**3 / seconds / _TERA, size)
        patience = patience - 1 if found.tflops < LEAST_GAIN * best.tflops else PATIENCE
        best = max(best, found, key=lambda each: each.tflops)
        if patience == 0 or seconds > limits.longest_seconds or 2 * size > limits.largest:
            return best
        size *= 2


def host_timer(product: Product, times: int) -> float:
    started = time.monotonic()
    for _ in range(times):
        product()
    return time.monotonic() - started


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


def probe(torch: Any, precision: str, device: str) -> Dict[str, Any]:
    """The answer as it is printed. Raises Refused where the device has no such arithmetic."""
    on_gpu = device == "gpu"
    name, uuid = _device(torch, on_gpu)
    _force_tf32(torch, precision, on_gpu)
    limits = ON_GPU if on_gpu else ON_CPU
    timer = event_timer(torch) if on_gpu else host_timer
    torch.manual_seed(1234)
    with torch.inference_mode():
        ways = _ways(torch, precision, "cuda" if on_gpu else "cpu")
        tried = {name: grow(product_of, timer, limits) for name, product_of in ways.items()}
    way, found = max(tried.items(), key=lambda each: each[1].tflops)
    clock = "CUDA events" if on_gpu else "the monotonic clock, %d threads" % torch.get_num_threads()
    return {
        "precision": precision,
        "device": device,
        "device_name": name,
        "uuid": uuid,
        "tflops": found.tflops,
        "size": found.size,
        "repeats": limits.repeats,
        "how": "%s of square random matrices, timed by %s" % (way, clock),
        "framework_version": str(torch.__version__),
    }


def _ways(torch: Any, precision: str, where: str) -> Dict[str, Callable[[int], Product]]:
    """How a product of square matrices of a size can be had, by name."""
    kind = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)

    def random(*shape: int) -> Any:
        return torch.randn(*shape, device=where).to(kind)

    def product_of(size: int) -> Product:
        left, right = random(size, size), random(size, size)
        out = torch.empty_like(left)
        return lambda: torch.matmul(left, right, out=out)

    def convolution_of(size: int) -> Product:
        rows, kernels = random(1, size, 1, size), random(size, size, 1, 1)
        return lambda: torch.nn.functional.conv2d(rows, kernels)

    if where == "cpu":
        return {"torch.matmul": product_of, "a 1 x 1 convolution": convolution_of}
    return {"torch.matmul": product_of}


def _device(torch: Any, on_gpu: bool) -> Tuple[str, str]:
    """Name and UUID, the latter empty on a CPU and where this PyTorch does not tell it."""
    if not on_gpu:
        return cpu_name(), ""
    if not torch.cuda.is_available():
        raise Refused("PyTorch sees no GPU")
    properties = torch.cuda.get_device_properties(0)
    uuid = str(getattr(properties, "uuid", ""))
    return str(properties.name), uuid if not uuid or uuid.startswith("GPU-") else "GPU-" + uuid


def _force_tf32(torch: Any, precision: str, on_gpu: bool) -> None:
    """On for tf32, off for fp32, and looked at by what the arithmetic shows."""
    if not on_gpu:
        if precision == "tf32":
            raise Refused("TF32 is arithmetic of NVIDIA GPUs from Ampere on; a CPU has none")
        return
    wanted = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = wanted
    if precision in ("fp32", "tf32"):
        # 1 + 2**-12 has more digits than TF32's 10: times one it comes back as 1 where TF32 computed.
        value = 1.0 + 2.0**-12
        product = torch.matmul(torch.full((1024, 1024), value, device="cuda"), torch.eye(1024, device="cuda"))
        rounded = float(product[0, 0]) != value
        if rounded is not wanted:
            raise Refused("TF32 is %s and was to be %s" % (("off", "on")[rounded], ("off", "on")[wanted]))


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(description="Measure the fastest matrix product of a device with PyTorch.")
    parser.add_argument("precision", choices=PRECISIONS)
    parser.add_argument("device", choices=("cpu", "gpu"))
    given = parser.parse_args(arguments)
    try:
        import torch

        answer = probe(torch, given.precision, given.device)
    except (ImportError, Refused) as error:
        print("refused: %s" % error, file=sys.stderr)
        return EXIT_REFUSED
    print(json.dumps(answer, allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
