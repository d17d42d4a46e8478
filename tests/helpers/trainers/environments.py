"""Where the tests of a framework's trainer run it: in its own environment, ``make env-NAME``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers.trainers.contract import ROOT


@dataclass(frozen=True)
class FrameworkEnvironment:
    """A framework's own environment. `make test` makes it, MXNet's apart; `make check` does without."""

    name: str
    # Besides the caller's.
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def interpreter(self) -> str:
        return str(ROOT / f".venv-{self.name}/bin/python")

    @property
    def needs(self) -> pytest.MarkDecorator:
        """The mark of a test that needs it."""
        reason = f"no .venv-{self.name}: 'make env-{self.name}' makes it"
        return pytest.mark.skipif(not Path(self.interpreter).exists(), reason=reason)

    def run(self, *words: str, seconds: float = 300.0) -> str:
        """Run a Python program there; returns what it printed, and fails with its errors where it failed."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **self.variables}
        done = subprocess.run(
            [self.interpreter, *words], env=environment, cwd=ROOT, capture_output=True, text=True,
            timeout=seconds, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout


PYTORCH = FrameworkEnvironment("pytorch", {"OMP_NUM_THREADS": "1"})
TENSORFLOW = FrameworkEnvironment("tensorflow", {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""})
MXNET = FrameworkEnvironment("mxnet", {"OMP_NUM_THREADS": "1"})
# As a parameter of tests.
EACH = [pytest.param(each, marks=each.needs, id=each.name) for each in (PYTORCH, TENSORFLOW, MXNET)]
