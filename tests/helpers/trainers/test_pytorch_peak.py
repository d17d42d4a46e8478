"""The growing matrix behind a clock that nobody waits for; what the real one measures, benchmarks.gpu_proof shows."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from helpers.trainers.process import Refused
from helpers.trainers.pytorch_peak import Found, Limits, Product, _force_tf32, _ways, grow, main

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
    assert grow(device.product_of, device.timer, LIMITS) == Found(pytest.approx(705.0), 8192)  # type: ignore[arg-type]
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


def test_tf32_is_refused_on_a_cpu() -> None:
    with pytest.raises(Refused, match="a CPU has none"):
        _force_tf32(None, "tf32", on_gpu=False)


class StandInTorch:
    """A card whose products are rounded as TF32 does, or are not, whatever it is told."""

    class _Switch:
        allow_tf32 = False

    def __init__(self, rounds: bool) -> None:
        self.float16, self.bfloat16, self.float32 = "fp16", "bf16", "fp32"
        self.backends = type("B", (), {"cuda": type("C", (), {"matmul": self._Switch()})()})()
        self._rounds = rounds

    def full(self, shape: tuple[int, int], value: float, device: str) -> float:
        return value

    def eye(self, size: int, device: str) -> float:
        return 1.0

    def matmul(self, left: float, right: float) -> dict[tuple[int, int], float]:
        return {(0, 0): 1.0 if self._rounds else left}


@pytest.mark.parametrize(("precision", "rounds"), [("fp32", True), ("tf32", False)])
def test_arithmetic_that_is_not_the_precisions_is_refused(precision: str, rounds: bool) -> None:
    with pytest.raises(Refused, match="TF32 is"):
        _force_tf32(StandInTorch(rounds), precision, on_gpu=True)


@pytest.mark.parametrize(("precision", "rounds"), [("fp32", False), ("tf32", True)])
def test_the_switch_is_set_as_the_precision_wants_it(precision: str, rounds: bool) -> None:
    torch = StandInTorch(rounds)
    _force_tf32(torch, precision, on_gpu=True)
    assert torch.backends.cuda.matmul.allow_tf32 is (precision == "tf32")


def test_a_gpu_has_one_way_and_a_cpu_two() -> None:
    torch = StandInTorch(False)
    assert list(_ways(torch, "bf16", "cuda")) == ["torch.matmul"]
    assert list(_ways(torch, "bf16", "cpu")) == ["torch.matmul", "a 1 x 1 convolution"]


def test_an_interpreter_without_pytorch_is_refused_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["fp32", "cpu"]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("refused: ") and told.err.count("\n") == 1
