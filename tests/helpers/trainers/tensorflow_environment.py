"""Where the tests of the TensorFlow trainer run it: in its own environment, ``make env-tensorflow``."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.helpers.trainers.pytorch_environment import ROOT

INTERPRETER = ROOT / ".venv-tensorflow/bin/python"
# `make test` makes the environment; `make check` does without.
needs_tensorflow = pytest.mark.skipif(
    not INTERPRETER.exists(), reason="no .venv-tensorflow: 'make env-tensorflow' makes it"
)


def run_in_tensorflow(*words: str, seconds: float = 300.0) -> str:
    """Run a Python program there; returns what it printed, and fails with its errors where it failed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [str(INTERPRETER), *words], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=seconds,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
