"""The suite as ``benchmarks.gpu_proof`` uses it: one session a step, all in one folder with one history.

The same Suite that pytest uses, so leases, supervision, health and verdicts are the suite's own. Not through pytest,
because a step has runs, a budget and a build of its own; what is recorded are cases of perf.yaml's target gpu.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from benchmarks.gpu_proof_plan import CPU, Kind, Proof, Step
from helpers.history.results import RunResult, read_result
from helpers.machine.devices import Machine
from helpers.machine.files import write_whole
from helpers.plan.accepted import Accepted
from helpers.plan.budgets import Budgets
from helpers.plan.case_plan import SuiteCase
from helpers.plan.dataset import make_small_dataset
from helpers.plan.matrix import MatrixCase
from helpers.plan.perf_yaml import Config, load_config
from helpers.report import results_json
from helpers.session.policy import EXIT_OK
from helpers.session.rows import CaseRow
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import SLOWDOWN_VARIABLE
from helpers.trainers.contract.paths import ROOT

CONFIG = "perf.yaml"
# Enough for several batches of 256; the usual small dataset is one.
_IMAGES_PER_CLASS_ON_GPU = 256
# As benchmarks.real_training: who else is on the cores of a newcomer's machine is told, and does not end the proof.
_ANY_SHARE = 0.99


@dataclass(frozen=True)
class Bench:
    """Sessions in ``folder`` on ``machine``; ``data`` is the user's image folder, None for a small one."""

    folder: Path
    proof: Proof
    machine: Machine
    data: Path | None = None

    @cached_property
    def config(self) -> Config:
        config = load_config(self.folder / CONFIG)
        cases = tuple(MatrixCase(case, self.proof.device, protocol.name) for case, protocol in self.proof.cases)
        return replace(config, matrix=cases, protocols={each.name: each for _, each in self.proof.cases})

    @property
    def interpreter(self) -> str:
        """The Python that has PyTorch. ConfigError where none is named."""
        found = self.config.frameworks[Framework.PYTORCH].interpreter
        if found is None:
            raise ConfigError(
                str(self.config.path),
                field="frameworks.pytorch.interpreter",
                expected="the Python that has PyTorch",
                remedy="make env-pytorch makes one; or name one with --pytorch",
            )
        return found

    def measure(self, step: Step) -> CaseRow:
        """One session of the step's case, gone on with where an earlier call left it. Raises SuiteError."""
        case, suite = self._case(step), self._suite(step)
        with _slowdown(step.slowdown):
            suite.prepare([case])
            row = suite.measure(case)
        if step.kind is Kind.MEASURE:
            suite.write_baselines([row], suite.propose([row], self._accepted(case)))
        for note in suite.history_notes():
            print(f"  {note}", flush=True)
        self._keep(step, row)
        return row

    def why_not(self, step: Step) -> str | None:
        """Why this machine cannot run the step's case with what is installed."""
        return self._suite(step).why_not(self._case(step))

    def runs_of(self, folders: tuple[str, ...]) -> list[RunResult]:
        return [read_result(self.folder / each / "result.json") for each in folders]

    def within(self, folder: str) -> str:
        """A run's folder as the state names it: from this proof's own."""
        return Path(folder).resolve().relative_to(self.folder.resolve()).as_posix()

    def _accepted(self, case: SuiteCase) -> tuple[Accepted, ...]:
        """On a CPU, where anybody may be on the cores, the proof records what it gets."""
        reason = "a proof of the suite's steps, on cores with neighbours"
        return (Accepted(case.case.id, reason),) if self.proof.device == CPU else ()

    def _case(self, step: Step) -> SuiteCase:
        if step.case is None or step.protocol is None:
            raise ConfigError(f"step {step.key}", got="no case", expected="a case and its protocol")
        return SuiteCase(step.case, self.proof.device, step.protocol)

    def _suite(self, step: Step) -> Suite:
        on_cpu, slowed = self.proof.device == CPU, step.kind is Kind.SLOWED
        config = replace(self.config, budgets=Budgets(step.budget))
        if on_cpu and step.kind is not Kind.NEIGHBOUR:
            config = replace(config, contention=replace(config.contention, max_foreign_share=_ANY_SHARE))
        options = SuiteOptions(
            config_path=config.path,
            baselines_folder=self.folder / "baselines",
            runs_folder=self.folder / "runs",
            session=step.key,
            resume=True,
            data_root=str(self._images) if step.case and step.case.data.value.startswith("dali") else None,
            # A slowed build is marked, and measured only where marks are allowed.
            allow_contention=slowed,
            reference_env=str(self._good_build) if slowed else None,
            # The good build is the slowed one without its slowdown.
            same_build=slowed,
            to_record=step.kind is Kind.MEASURE,
            utilisation=step.kind is Kind.MEASURE,
            # One for all steps, which are sessions of their own.
            peaks_folder=str(self.folder / "peaks"),
        )
        return Suite(options, config, {}, machine=self.machine)

    @cached_property
    def _images(self) -> Path:
        if self.data is not None:
            return self.data
        if self.proof.device == CPU:
            return make_small_dataset(self.folder / "images").root
        return make_small_dataset(self.folder / "images", images_per_class=_IMAGES_PER_CLASS_ON_GPU).root

    @cached_property
    def _good_build(self) -> Path:
        """The same interpreter, without the slowdown."""
        path = self.folder / "good-python"
        path.write_text(f'#!/bin/sh\nunset {SLOWDOWN_VARIABLE}\nexec {shlex.quote(self.interpreter)} "$@"\n')
        path.chmod(0o755)
        return path

    def _keep(self, step: Step, row: CaseRow) -> None:
        text = results_json.document(
            [row],
            session=step.key,
            exit_code=EXIT_OK,
            machine={"host": self.machine.host, "found": self.machine.describe()},
            command=["python", "-m", "benchmarks.gpu_proof"],
            not_reached=0,
        )
        path = self.folder / "results" / f"{step.key}.json"
        path.parent.mkdir(exist_ok=True)
        write_whole(path, text.encode())


def write_config(folder: Path, pytorch: str | None) -> None:
    """The project's perf.yaml in ``folder``, with the interpreter of PyTorch that was named; its paths made whole."""
    found: dict[str, Any] = yaml.safe_load((ROOT / CONFIG).read_text(encoding="utf-8"))
    known = load_config(ROOT / CONFIG)
    for framework, entry in known.frameworks.items():
        if entry.interpreter is not None:
            found["frameworks"][framework.value]["interpreter"] = entry.interpreter
    if pytorch is not None:
        # Another one than the suite's own is nobody's to make.
        found["frameworks"]["pytorch"] = {"interpreter": str(Path(pytorch).expanduser().absolute())}
    found["data"] = {"root": known.data.root}
    write_whole(folder / CONFIG, yaml.safe_dump(found, sort_keys=False).encode())


@contextmanager
def _slowdown(share: float) -> Iterator[None]:
    """Every job started meanwhile is slowed down by ``share``; 0 leaves it as it is."""
    if share:
        os.environ[SLOWDOWN_VARIABLE] = f"{share:g}"
    try:
        yield
    finally:
        if share:
            del os.environ[SLOWDOWN_VARIABLE]
