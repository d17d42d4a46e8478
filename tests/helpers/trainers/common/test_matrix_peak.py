"""The growing matrix behind a clock that nobody waits for, and the program around it with a stand-in framework."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from helpers.judging.utilisation import Peak
from helpers.trainers.common import matrix_peak
from helpers.trainers.common.matrix_peak import Bench, BestProduct, Limits, PeakRequest, Product, grow, prepare, run
from helpers.trainers.common.process import Refused

LIMITS = Limits(first=1024, largest=16384, repeats=3, repeat_seconds=0.01, longest_seconds=10.0)


class Device:
    """Multiplies at ``tflops`` by size, in no time."""

    def __init__(self, tflops: dict[int, float]) -> None:
        self.tflops = tflops
        self.sizes: list[int] = []

    def product_of(self, size: int) -> Callable[[], int]:
        self.sizes.append(size)
        return lambda: size

    def timer(self, product: Product, times: int) -> float:
        size = product()
        return times * 2.0 * size**3 / (self.tflops[size] * 1e12)


def test_the_matrix_grows_until_two_sizes_are_no_faster() -> None:
    device = Device({1024: 100.0, 2048: 400.0, 4096: 700.0, 8192: 705.0, 16384: 690.0})
    assert grow(device.product_of, device.timer, LIMITS) == BestProduct(pytest.approx(705.0), 8192)  # type: ignore[arg-type]
    assert device.sizes == [1024, 2048, 4096, 8192, 16384]


def test_one_size_that_met_somebody_elses_work_does_not_end_it() -> None:
    device = Device({1024: 100.0, 2048: 90.0, 4096: 700.0, 8192: 700.0, 16384: 700.0})
    assert grow(device.product_of, device.timer, LIMITS).tflops == pytest.approx(700.0)


def test_a_product_that_takes_too_long_is_the_last() -> None:
    device = Device({1024: 0.001, 2048: 0.0011})
    limits = Limits(first=1024, largest=16384, repeats=3, repeat_seconds=0.01, longest_seconds=5.0)
    assert grow(device.product_of, device.timer, limits).size == 2048
    assert device.sizes == [1024, 2048]


def test_the_largest_size_is_the_last() -> None:
    device = Device({1024: 1.0, 2048: 2.0})
    limits = Limits(first=1024, largest=2048, repeats=3, repeat_seconds=0.01, longest_seconds=5.0)
    assert grow(device.product_of, device.timer, limits).size == 2048


def test_a_repeat_holds_as_many_products_as_its_clock_needs() -> None:
    timed: list[int] = []

    def timer(product: Product, times: int) -> float:
        timed.append(times)
        return times * 0.001

    grow(lambda size: lambda: None, timer, Limits(1024, 1024, repeats=3, repeat_seconds=0.01, longest_seconds=5.0))
    assert timed[-3:] == [10, 10, 10]


def test_the_median_of_the_repeats_counts() -> None:
    # Warm-up, one product, then three repeats of which the first met somebody.
    seconds = iter([0.3, 0.1, 9.0, 0.1, 0.1])
    found = grow(lambda size: lambda: None, lambda product, times: next(seconds), Limits(1000, 1000, 3, 0.1, 5.0))
    assert found.tflops == pytest.approx(2.0 * 1000**3 / 0.1 / 1e12)


def test_a_bound_on_the_size_also_lowers_the_first_one() -> None:
    limits = PeakRequest("fp32", "cpu", largest=128).limits
    assert (limits.first, limits.largest) == (128, 128)
    assert PeakRequest("fp32", "gpu").limits == matrix_peak.ON_GPU


def test_the_faster_way_is_told_as_a_peak(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_peak, "prepare", lambda request, environment: None)
    requests: list[PeakRequest] = []

    def bench_of(each: PeakRequest) -> Bench:
        requests.append(each)
        # A product answers the seconds that it takes.
        ways = {"a slow way": lambda size: lambda: 0.004, "a way": lambda size: lambda: 0.002}
        return Bench("a card", "GPU-1", "9.9", lambda product, times: times * product(), "a clock", ways)

    assert run(["bf16", "gpu", "--cores", "2,3", "--largest", "1008"], "Stand-in", bench_of) == 0
    assert requests == [PeakRequest("bf16", "gpu", (2, 3), 1008)]
    peak = Peak.from_record(json.loads(capsys.readouterr().out.splitlines()[-1]))
    how = "a way of square random matrices, timed by a clock"
    assert peak == Peak("bf16", "gpu", "a card", "GPU-1", peak.tflops, 1008, 10, how, "9.9")
    assert peak.tflops == pytest.approx(2 * 1008**3 / 0.002 / 1e12)


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        (["fp32", "cpu"], ImportError("No module named 'x'"), "refused: No module named 'x'\n"),
        (["fp16", "cpu"], Refused("no such arithmetic"), "refused: no such arithmetic\n"),
        (["tf32", "cpu"], None, "refused: TF32 is arithmetic of NVIDIA GPUs from Ampere on; a CPU has none\n"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    arguments: list[str],
    error: Exception | None,
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(matrix_peak, "prepare", lambda request, environment: None)

    def bench_of(request: PeakRequest) -> Bench:
        assert error is not None
        raise error

    assert run(arguments, "Stand-in", bench_of) == 3
    assert capsys.readouterr() == ("", told)


def test_the_process_computes_on_its_cores_alone_with_a_thread_for_each() -> None:
    usual = os.sched_getaffinity(0)
    core = min(usual)
    variables: dict[str, str] = {"OMP_NUM_THREADS": "7"}
    try:
        prepare(PeakRequest("fp32", "cpu", (core,)), variables)
        assert os.sched_getaffinity(0) == {core}
    finally:
        os.sched_setaffinity(0, usual)
    assert variables == dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@pytest.mark.parametrize(("precision", "override"), [("fp32", "0"), ("tf32", None), ("bf16", "1")])
def test_cuda_is_told_of_tf32_before_it_is_loaded(precision: str, override: str | None) -> None:
    variables = {"NVIDIA_TF32_OVERRIDE": "1"}
    prepare(PeakRequest(precision, "gpu"), variables)
    assert variables.get("NVIDIA_TF32_OVERRIDE") == override


def test_a_convolution_multiplies_square_matrices() -> None:
    (images, inputs, height, width), kernels = matrix_peak.convolved(1024)
    assert images * height * width == inputs == 1024
    assert kernels == (1024, 1024, 1, 1)


@pytest.mark.parametrize("largest", ["100", "0", "-16"])
def test_a_bound_that_no_convolution_has_is_a_mistake(largest: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["fp32", "cpu", f"--largest={largest}"], "Stand-in", lambda request: pytest.fail("not reached"))
    assert "expected a multiple of 16" in capsys.readouterr().err
