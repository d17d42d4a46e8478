"""Where the tests of a framework's trainer run it: in its own environment, ``make env-NAME``."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec


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

    def run(self, *words: str, seconds: float = 600.0) -> str:
        """Run a Python program there; returns what it printed, and fails with its errors where it failed."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **self.variables}
        done = subprocess.run(
            [self.interpreter, *words], env=environment, cwd=ROOT, capture_output=True, text=True,
            timeout=seconds, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    def build(self, folder: Path, case_id: str, **overrides: Any) -> tuple[int, dict[str, Any]]:
        """Build the program of a GPU's case without a GPU: the exit status, and the answer
        (helpers/trainers/common/building.py). ``overrides`` are settings that differ from the case's recipe."""
        case = Case.parse(case_id)
        settings = {**settings_for(case, "gpu"), **overrides}
        spec = JobSpec("j", case, 0, str(folder), "gpu", 0, 1, settings=settings, overrides=overrides)
        spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
        argv = [self.interpreter, "-m", f"helpers.trainers.{self.name}.build", str(spec.spec_path)]
        environment = {**os.environ, **self.variables}
        done = subprocess.run(argv, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
        return done.returncode, json.loads(done.stdout.splitlines()[-1])


PYTORCH = FrameworkEnvironment("pytorch", {"OMP_NUM_THREADS": "1"})
TENSORFLOW = FrameworkEnvironment("tensorflow", {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""})
MXNET = FrameworkEnvironment("mxnet", {"OMP_NUM_THREADS": "1"})
# As a parameter of tests.
EACH = [pytest.param(each, marks=each.needs, id=each.name) for each in (PYTORCH, TENSORFLOW, MXNET)]
