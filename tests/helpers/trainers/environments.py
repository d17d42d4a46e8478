"""Where the tests of a framework's trainer run it: in its own environment, ``make env-NAME``."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec

# Importing a framework takes longer than building a program: one process builds all.
_BUILD_EACH = """
import importlib, sys
from helpers.trainers.common.building import run_build
worker = importlib.import_module(f"tests.helpers.trainers.{sys.argv[1]}.build_worker")
print([run_build([spec], worker.build) for spec in sys.argv[2:]])
"""


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

    def build(self, folder: Path, cases: Sequence[Case]) -> list[tuple[int, dict[str, Any]]]:
        """Build the programs of GPU cases without a GPU, in one process: of each the exit status and the answer
        (helpers/trainers/common/building.py)."""
        specs = []
        for case in cases:
            (folder / case.id).mkdir()
            settings = settings_for(case, "gpu")
            specs.append(JobSpec("j", case, 0, str(folder / case.id), "gpu", 0, 1, settings=settings))
            specs[-1].spec_path.write_text(specs[-1].to_json(), encoding="utf-8")
        told = self.run("-c", _BUILD_EACH, self.name, *(str(each.spec_path) for each in specs))
        answers = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
        statuses = json.loads(told.splitlines()[-1])
        return list(zip(statuses, answers, strict=True))


PYTORCH = FrameworkEnvironment("pytorch", {"OMP_NUM_THREADS": "1"})
TENSORFLOW = FrameworkEnvironment("tensorflow", {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""})
MXNET = FrameworkEnvironment("mxnet", {"OMP_NUM_THREADS": "1"})
# As a parameter of tests.
EACH = [pytest.param(each, marks=each.needs, id=each.name) for each in (PYTORCH, TENSORFLOW, MXNET)]
