"""Where the tests of the MXNet trainer run it: in its own environment, ``make env-mxnet``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INTERPRETER = ROOT / ".venv-mxnet/bin/python"
# `make test` makes the environment; `make check` does without.
needs_mxnet = pytest.mark.skipif(not INTERPRETER.exists(), reason="no .venv-mxnet: 'make env-mxnet' makes it")


def run_in_mxnet(*words: str, seconds: float = 300.0) -> str:
    """Run a Python program there; returns what it printed, and fails with its errors where it failed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(INTERPRETER), *words], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=seconds,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
