"""Measures the fastest matrix product of a device, for each framework's ``peak.py``; imports no framework.

``python -m helpers.trainers.<framework>.peak PRECISION DEVICE``: PRECISION is fp32, tf32, fp16 or bf16; DEVICE is
``cpu`` or ``gpu`` (the first visible card). It multiplies square matrices of random numbers (zeros would need less
power and so be faster) and doubles their size until that is no longer faster. The figure of a size is the median of
repeats, each long enough for the clock, which is the card's events or the host's monotonic clock. The last line of
output is a JSON object. Exit status: 0 measured, 3 refused (``process.EXIT_REFUSED``).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, MutableMapping, Optional, Sequence, Tuple

from helpers.trainers.common.process import EXIT_REFUSED, THREAD_VARIABLES, Refused

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
# A size counts as faster only if it gains this factor over the fastest so far. The search ends after two sizes in a row
# that are not faster; a single one may have been disturbed.
LEAST_GAIN = 1.02
PATIENCE = 2
WARMUPS = 3
SEED = 1234
# A 1 x 1 convolution over this many images is the same product; it is computed by oneDNN even on a single core.
IMAGES = 16
_TERA = 1e12

Product = Callable[[], Any]
# Returns a function that computes a product of square matrices of the given size.
Way = Callable[[int], Product]
# Returns the seconds that a number of products take, from the start of the first to the end of the last.
Timer = Callable[[Product, int], float]


@dataclass(frozen=True)
class Limits:
    """The limits of the search."""

    # The sizes of the first and the largest matrices.
    first: int
    largest: int
    # How many timings of each size.
    repeats: int
    # How long each timing is, or one product if that is longer.
    repeat_seconds: float
    # A size whose product takes longer is the last.
    longest_seconds: float


ON_GPU = Limits(first=2048, largest=32768, repeats=10, repeat_seconds=0.05, longest_seconds=0.25)
ON_CPU = Limits(first=1024, largest=2048, repeats=5, repeat_seconds=0.02, longest_seconds=0.25)


@dataclass(frozen=True)
class PeakRequest:
    """The peak to be measured."""

    precision: str
    device: str
    # The CPU's cores to compute on; empty means all.
    cores: Sequence[int] = ()
    # The largest size of a matrix; None leaves it to the device's limits.
    largest: Optional[int] = None

    @property
    def on_gpu(self) -> bool:
        return self.device == "gpu"

    @property
    def limits(self) -> Limits:
        limits = ON_GPU if self.on_gpu else ON_CPU
        if self.largest is None:
            return limits
        return replace(limits, first=min(limits.first, self.largest), largest=self.largest)


@dataclass(frozen=True)
class Bench:
    """A framework that is ready to multiply on the device."""

    device_name: str
    # The card's UUID; empty on a CPU, or if the framework does not report it.
    uuid: str
    framework_version: str
    timer: Timer
    # The timer's clock in words.
    clock: str
    # The products to try, by name.
    ways: Dict[str, Way]


@dataclass(frozen=True)
class BestProduct:
    """The fastest matrix product."""

    tflops: float
    size: int


def grow(product_of: Way, timer: Timer, limits: Limits) -> BestProduct:
    """The fastest size. Sizes are doubled until PATIENCE sizes in a row were not faster by LEAST_GAIN."""
    best = BestProduct(0.0, 0)
    size, patience = limits.first, PATIENCE
    while True:
        product = product_of(size)
        timer(product, WARMUPS)
        one = timer(product, 1)
        times = max(1, round(limits.repeat_seconds / one))
        seconds = statistics.median([timer(product, times) / times for _ in range(limits.repeats)])
        found = BestProduct(2.0 * size**3 / seconds / _TERA, size)
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


def convolved(size: int) -> Tuple[Tuple[int, ...], Tuple[int, ...]]:
    """The shapes of images and kernels whose 1 x 1 convolution is a product of square matrices."""
    return (IMAGES, size, 1, size // IMAGES), (size, size, 1, 1)


def host_clock(threads: int) -> str:
    return "the monotonic clock, %d threads" % threads


def probe(request: PeakRequest, bench: Bench) -> Dict[str, Any]:
    """The answer to be printed (read by ``helpers.judging.utilisation.Peak``)."""
    tried = {name: grow(way, bench.timer, request.limits) for name, way in bench.ways.items()}
    way, found = max(tried.items(), key=lambda each: each[1].tflops)
    return {
        "precision": request.precision,
        "device": request.device,
        "device_name": bench.device_name,
        "uuid": bench.uuid,
        "tflops": found.tflops,
        "size": found.size,
        "repeats": request.limits.repeats,
        "how": "%s of square random matrices, timed by %s" % (way, bench.clock),
        "framework_version": bench.framework_version,
    }


def prepare(request: PeakRequest, environment: MutableMapping[str, str]) -> None:
    """Pin this process, and set the variables that CUDA and the framework read when they are loaded, as the trainers
    do."""
    if request.cores:
        os.sched_setaffinity(0, request.cores)
    threads = str(len(os.sched_getaffinity(0)))
    environment.update(dict.fromkeys(THREAD_VARIABLES, threads))
    if request.on_gpu and request.precision == "fp32":
        environment["NVIDIA_TF32_OVERRIDE"] = "0"
    elif request.precision == "tf32":
        environment.pop("NVIDIA_TF32_OVERRIDE", None)


def run(arguments: Optional[List[str]], framework: str, bench_of: Callable[[PeakRequest], Bench]) -> int:
    """The main program. ``bench_of`` imports the framework after this process was prepared for it.

    ``bench_of`` raises ImportError if the framework is missing, and Refused if the device or the build lacks the
    precision.
    """
    request = _read(arguments, framework)
    prepare(request, os.environ)
    try:
        if request.precision == "tf32" and not request.on_gpu:
            raise Refused("TF32 is arithmetic of NVIDIA GPUs from Ampere on; a CPU has none")
        answer = probe(request, bench_of(request))
    except (ImportError, Refused) as error:
        print("refused: %s" % error, file=sys.stderr)
        return EXIT_REFUSED
    print(json.dumps(answer, allow_nan=False))
    return 0


def _read(arguments: Optional[List[str]], framework: str) -> PeakRequest:
    parser = argparse.ArgumentParser(description="Measure the fastest matrix product of a device with %s." % framework)
    parser.add_argument("precision", choices=PRECISIONS)
    parser.add_argument("device", choices=("cpu", "gpu"))
    parser.add_argument("--cores", default="", metavar="N,N", help="Compute on these logical CPUs. Default: all")
    parser.add_argument("--largest", type=int, metavar="N", help="Try no matrix larger than N x N")
    given = parser.parse_args(arguments)
    if given.largest is not None and (given.largest < 1 or given.largest % IMAGES):
        parser.error("--largest: expected a multiple of %d, got %d" % (IMAGES, given.largest))
    cores = tuple(int(each) for each in given.cores.split(",") if each)
    return PeakRequest(given.precision, given.device, cores, given.largest)
