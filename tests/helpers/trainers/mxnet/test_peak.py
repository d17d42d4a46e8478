"""MXNet's products: which ways count for a precision, and the program for real with a tiny matrix."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from helpers.judging.utilisation import Peak
from helpers.trainers.common.process import Refused
from helpers.trainers.mxnet.peak import as_wanted, main
from tests.helpers.trainers.mxnet_environment import needs_mxnet, run_in_mxnet

WAYS: dict[str, Any] = {"connected": "c", "convolution": "v"}


def test_only_the_ways_that_round_as_the_precision_wants_are_tried() -> None:
    # cuBLAS is not told to take TF32 and cuDNN takes it by itself.
    assert as_wanted(WAYS, (False, True), True) == {"convolution": "v"}
    assert as_wanted(WAYS, (False, True), False) == {"connected": "c"}
    assert as_wanted(WAYS, (False, False), False) == WAYS


@pytest.mark.parametrize(
    ("rounded", "wanted", "told"),
    [((True, True), False, "TF32 is on and was to be off"), ((False, False), True, "TF32 is off and was to be on")],
)
def test_arithmetic_that_is_not_the_precisions_is_refused(rounded: tuple[bool, bool], wanted: bool, told: str) -> None:
    with pytest.raises(Refused, match=told):
        as_wanted(WAYS, rounded, wanted)


def test_an_interpreter_without_mxnet_is_refused_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("helpers.trainers.common.matrix_peak.prepare", lambda *_: None)
    monkeypatch.setitem(sys.modules, "mxnet", None)
    assert main(["fp32", "cpu"]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("refused: ") and told.err.count("\n") == 1


@needs_mxnet
@pytest.mark.training
@pytest.mark.untimed
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_program_measures_a_tiny_matrix_on_the_cpu(precision: str) -> None:
    words = ("-m", "helpers.trainers.mxnet.peak", precision, "cpu", "--largest", "64")
    answer: dict[str, Any] = json.loads(run_in_mxnet(*words, seconds=120.0).splitlines()[-1])
    peak = Peak.from_record(answer)
    assert (peak.precision, peak.device, peak.size, peak.uuid) == (precision, "cpu", 64, "")
    assert peak.tflops > 0
