"""TensorFlow's products with a stand-in for it."""

from __future__ import annotations

import pytest

from helpers.trainers.common.process import Refused
from helpers.trainers.tensorflow.peak import _force_tf32, _ways, waiting_timer


class StandInTensorflow:
    """A card whose products are rounded as TF32 does, or are not, whatever it is told."""

    float16, bfloat16, float32 = "fp16", "bf16", "fp32"

    def __init__(self, rounds: bool) -> None:
        self._rounds = rounds
        self.switched: list[bool] = []
        self.linalg = self.config = self.experimental = self

    def enable_tensor_float_32_execution(self, on: bool) -> None:
        self.switched.append(on)

    def fill(self, shape: list[int], value: float) -> float:
        return value

    def eye(self, size: int) -> float:
        return 1.0

    def matmul(self, left: float, right: float) -> dict[tuple[int, int], float]:
        return {(0, 0): 1.0 if self._rounds else left}


@pytest.mark.parametrize(("precision", "rounds"), [("fp32", True), ("tf32", False)])
def test_arithmetic_that_is_not_the_precisions_is_refused(precision: str, rounds: bool) -> None:
    with pytest.raises(Refused, match="TF32 is"):
        _force_tf32(StandInTensorflow(rounds), precision)


@pytest.mark.parametrize(("precision", "rounds"), [("fp32", False), ("tf32", True)])
def test_the_switch_is_set_as_the_precision_wants_it(precision: str, rounds: bool) -> None:
    tensorflow = StandInTensorflow(rounds)
    _force_tf32(tensorflow, precision)
    assert tensorflow.switched == [precision == "tf32"]


def test_a_gpu_has_one_way_and_a_cpu_two() -> None:
    tensorflow = StandInTensorflow(False)
    assert list(_ways(tensorflow, "bf16", "GPU:0")) == ["tf.linalg.matmul"]
    assert len(_ways(tensorflow, "bf16", "CPU:0")) == 2


def test_products_are_timed_from_an_idle_device_to_one_that_has_done_them() -> None:
    done: list[str] = []
    clock = iter((5.0, 8.5))
    timed = waiting_timer(lambda: done.append("wait"), lambda: next(clock))
    assert timed(lambda: done.append("product"), 2) == 3.5
    assert done == ["wait", "product", "product", "wait"]
