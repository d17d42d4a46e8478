"""PyTorch's products with a stand-in for it, and the program for real with a tiny matrix."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from helpers.judging.utilisation import Peak
from helpers.trainers.common.process import Refused
from helpers.trainers.pytorch.peak import _force_tf32, _ways, main
from tests.helpers.trainers.pytorch_environment import needs_pytorch, run_in_pytorch


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


def test_an_interpreter_without_pytorch_is_refused_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("helpers.trainers.common.matrix_peak.prepare", lambda *_: None)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["fp32", "cpu"]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("refused: ") and told.err.count("\n") == 1


@needs_pytorch
@pytest.mark.training
@pytest.mark.untimed
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_program_measures_a_tiny_matrix_on_the_cpu(precision: str) -> None:
    words = ("-m", "helpers.trainers.pytorch.peak", precision, "cpu", "--largest", "64")
    answer: dict[str, Any] = json.loads(run_in_pytorch(*words, seconds=120.0).splitlines()[-1])
    peak = Peak.from_record(answer)
    assert (peak.precision, peak.device, peak.size, peak.uuid) == (precision, "cpu", 64, "")
    assert peak.tflops > 0
