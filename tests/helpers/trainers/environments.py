"""Where the tests of a framework's trainer run it: in its own environment, ``make env-NAME``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from tests.helpers.trainers.cores import own_cores
from tests.helpers.trainers.once import made_once

# Importing a framework takes longer than building a program: one process builds all.
_BUILD_EACH = """
import importlib, json, os, sys
from pathlib import Path
from helpers.trainers.common.process import set_environment
from helpers.trainers.common.settings import Settings
from helpers.trainers.contract.job import JobSpec
worker = importlib.import_module(f"tests.helpers.trainers.{sys.argv[1]}.build_worker")
for path in sys.argv[2:]:
    spec = JobSpec.from_json(Path(path).read_text())
    settings = Settings.of(spec)
    set_environment(spec, settings, os.environ)
    print(json.dumps(worker.build(spec, settings)))
"""


CORES = own_cores()


@dataclass(frozen=True)
class Built:
    """The program of one card: the header's facts, and how many operators and parameters it has."""

    facts: Mapping[str, str]
    operators: int
    parameters: int


@dataclass(frozen=True)
class FrameworkEnvironment:
    """A framework's own environment. `make test` makes it, MXNet's apart; `make check` does without. Paddle has that of
    the tests."""

    name: str
    # Besides the caller's.
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def interpreter(self) -> str:
        return sys.executable if self.name == "paddle" else str(ROOT / f".venv-{self.name}/bin/python")

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

    def units(self, factory: pytest.TempPathFactory, *cases: str) -> dict[str, Any]:
        """What its step_units.py tells of jobs of these cases on a CPU; one process asks it for all."""

        def ask() -> Any:
            folder = factory.mktemp("units")
            jobs = [job_file(folder, Case.parse(f"{self.name}-{case}"), "cpu") for case in cases]
            told = self.run("-m", f"tests.helpers.trainers.{self.name}.step_units", *jobs)
            return json.loads(told.splitlines()[-1])

        return dict(made_once(factory, f"steps-{self.name}", ask))

    def build(self, folder: Path, cases: Sequence[Case]) -> list[Built]:
        """Build the programs of GPU cases without a GPU, in one process."""
        told = self.run("-c", _BUILD_EACH, self.name, *(job_file(folder, case, "gpu") for case in cases))
        return [Built(**json.loads(line)) for line in told.splitlines() if line.startswith("{")]


PADDLE = FrameworkEnvironment("paddle", {"OMP_NUM_THREADS": "1"})
PYTORCH = FrameworkEnvironment("pytorch", {"OMP_NUM_THREADS": "1"})
TENSORFLOW = FrameworkEnvironment("tensorflow", {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""})
MXNET = FrameworkEnvironment("mxnet", {"OMP_NUM_THREADS": "1"})


def job_file(folder: Path, case: Case, device: str, steps: int = 1) -> str:
    """Writes a job of the case below ``folder``; returns its file."""
    (folder / case.id).mkdir()
    cores = tuple((CORES[card % len(CORES)],) for card in range(case.cards_per_node))
    settings = settings_for(case, device)
    spec = JobSpec("j", case, 0, str(folder / case.id), device, 0, steps, settings=settings, cores=cores)
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    return str(spec.spec_path)


# As a parameter of tests.
EACH = [pytest.param(each, marks=each.needs, id=each.name) for each in (PYTORCH, TENSORFLOW, MXNET)]
