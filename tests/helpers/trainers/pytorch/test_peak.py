"""PyTorch's products with a stand-in for it."""

from __future__ import annotations

import pytest

from helpers.trainers.common.process import Refused
from helpers.trainers.pytorch.peak import _force_tf32, _ways


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
        _force_tf32(StandInTorch(rounds), precision)


@pytest.mark.parametrize(("precision", "rounds"), [("fp32", False), ("tf32", True)])
def test_the_switch_is_set_as_the_precision_wants_it(precision: str, rounds: bool) -> None:
    torch = StandInTorch(rounds)
    _force_tf32(torch, precision)
    assert torch.backends.cuda.matmul.allow_tf32 is (precision == "tf32")


def test_a_gpu_has_one_way_and_a_cpu_two() -> None:
    torch = StandInTorch(False)
    assert list(_ways(torch, "bf16", "cuda")) == ["torch.matmul"]
    assert list(_ways(torch, "bf16", "cpu")) == ["torch.matmul", "a 1 x 1 convolution"]
