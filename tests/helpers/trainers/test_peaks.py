"""The programs that measure a card's peak, each in its framework's own environment, with a tiny matrix."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

import pytest

from helpers.judging.utilisation import Peak
from tests.helpers.trainers.environments import EACH, MXNET, PYTORCH, TENSORFLOW, FrameworkEnvironment

# The module that each imports.
MODULES = {PYTORCH.name: "torch", TENSORFLOW.name: "tensorflow", MXNET.name: "mxnet"}


@pytest.mark.parametrize(("name", "module"), MODULES.items())
def test_an_interpreter_without_the_framework_is_refused_in_a_line(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("helpers.trainers.common.matrix_peak.prepare", lambda *_: None)
    monkeypatch.setitem(sys.modules, module, None)
    assert import_module(f"helpers.trainers.{name}.peak").main(["fp32", "cpu"]) == 3
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("refused: ") and told.err.count("\n") == 1


@pytest.mark.training
@pytest.mark.untimed
@pytest.mark.parametrize("environment", EACH)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_program_measures_a_tiny_matrix_on_the_cpu(environment: FrameworkEnvironment, precision: str) -> None:
    words = ("-m", f"helpers.trainers.{environment.name}.peak", precision, "cpu", "--largest", "64")
    answer: dict[str, Any] = json.loads(environment.run(*words).splitlines()[-1])
    peak = Peak.from_record(answer)
    assert (peak.precision, peak.device, peak.size, peak.uuid) == (precision, "cpu", 64, "")
    assert peak.tflops > 0
