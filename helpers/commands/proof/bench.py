"""Runs the suite for ``perfgate prove-gpu``: a session for each step, all in one folder with one history.

It uses the same Suite as pytest, with its leases, supervision, health checks and verdicts. pytest itself is not used,
because each step has its own runs, budget and build. The recorded cases are those of perf.yaml's target gpu.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from helpers.commands.proof.plan import ProofStep, StepKind
from helpers.common.files import make_folder
from helpers.history import default_url
from helpers.launch.launchers.launcher import LaunchCommand, card_variables, job_environment
from helpers.launch.programs import card_environment, run_process
from helpers.machine.devices import Card, Machine
from helpers.machine.environment import CPU
from helpers.machine.leases import Leases, default_folder
from helpers.machine.libraries import with_libraries
from helpers.machine.nvml import Gpu
from helpers.plan.case_plan import SuiteCase, draft_job
from helpers.plan.grown_dataset import FEW_IMAGES, GrownDataset
from helpers.plan.matrix import ByCase, MatrixCase
from helpers.plan.perf_yaml import Config
from helpers.plan.proposals import Accepted
from helpers.plan.recipes.recipe import settings_for
from helpers.report.reasons import reason_text
from helpers.report.row import CaseRow, row_of
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract.case import DataSource
from helpers.trainers.contract.errors import DeviceError, LaunchError
from helpers.trainers.contract.job import SLOWDOWN_VARIABLE, WEIGHTS_VARIABLE, JobSpec
from helpers.trainers.contract.models import Model

# Enough for several batches of 256 images.
_IMAGES_ON_GPU = 2048
# Foreign processes on the cores of a user's machine are reported but do not end the proof.
_ANY_SHARE = 0.99

# A neighbour imports its framework first.
_READY_SECONDS = 120.0
_BUSY_CPU = "print('ready', flush=True)\nwhile True: pass\n"
_BUSY_GPU = """
import torch
left = torch.randn(4096, 4096, device="cuda")
print("ready", flush=True)
while True:
    left @ left
    torch.cuda.synchronize()
"""


@dataclass(frozen=True)
class ProofBench:
    """Makes the sessions of one proof."""

    folder: Path
    steps: tuple[ProofStep, ...]
    device: str
    machine: Machine
    config: Config
    # The build under test as the user named it; None: what perf.yaml's interpreters have.
    build: str | None = None
    # The user's image folder; None for a small one that is made in ``folder``.
    data: Path | None = None
    # Called with one line about builds and the history.
    report: Callable[[str], None] = print

    def measure(self, step: ProofStep) -> CaseRow:
        """Measure the step's case in a session of its own, or continue the session of an earlier call. Raises
        SuiteError."""
        case, suite = self._case(step), self._suite(step)
        with _variables(step):
            suite.measurer.prepare([case])
            outcome = suite.measurer.measure(case)
        if step.kind is StepKind.MEASURE:
            proposals = suite.recorder.propose([outcome], self._accepted(case), reason_text)
            suite.recorder.write([outcome], proposals)
        for note in suite.history_notes():
            self.report(f"  {note}")
        return row_of(outcome)

    def why_not(self, step: ProofStep) -> str | None:
        """Why this machine cannot run the step's case with the installed software; None if it can."""
        return self._plain.why_not(self._case(step))

    def ask_probe(self, step: ProofStep) -> tuple[list[str], str, str]:
        """The faults that Paddle's probe of the step's name found on a leased card, its figures, and why there was
        nothing to probe. Raises SuiteError."""
        assert step.most_seconds is not None
        case, interpreter = self._case(step), self.interpreter(step)
        job_id = uuid.uuid4().hex
        run_folder = self.folder / "probes" / step.key / job_id[:8]
        make_folder(run_folder)
        settings, cards = settings_for(step.case, case.device), self.machine.cards_of(self.device)
        with Leases(default_folder(self.machine.host_id)).lease(cards, 1, f"probe of {step.case.id}") as (card,):
            spec = draft_job(case, settings, device=case.device, run_folder=str(run_folder), job_id=job_id)
            if isinstance(card, Gpu):
                spec = replace(spec, cards=(card.uuid,))
            else:
                spec = replace(spec, cards=(), cores=(card.cores,))
            return ask_probe(step.key, spec, interpreter, step.most_seconds)

    def interpreter(self, step: ProofStep) -> str:
        """The Python of the framework of the step's case. Raises DeviceError without one."""
        build = self._plain.installed.build(self._case(step))
        if isinstance(build, str):
            raise DeviceError(step.key, got=build, expected="a build of the framework")
        return build.interpreter

    def within(self, folder: str) -> str:
        """A run's folder relative to the proof's folder, as in the state file."""
        return Path(folder).resolve().relative_to(self.folder.resolve()).as_posix()

    def _accepted(self, case: SuiteCase) -> tuple[Accepted, ...]:
        """On a CPU, whose cores other processes may use, the proof records any figure."""
        reason = "a proof of the suite's steps, on cores with neighbours"
        return (Accepted(case.case.id, reason),) if self.device == CPU else ()

    def _case(self, step: ProofStep) -> SuiteCase:
        return SuiteCase(step.case, self.device, step.protocol)

    @cached_property
    def _plain(self) -> Suite:
        """A suite that is only asked for builds."""
        return self._named(Suite(self._options("asked"), self.config, {}, machine=self.machine))

    def _named(self, suite: Suite) -> Suite:
        suite.name_builds(self.report)
        return suite

    def _options(self, session: str) -> SuiteOptions:
        return SuiteOptions(
            config_path=self.config.path,
            baselines_folder=self.folder / "baselines",
            runs_folder=self.folder / "runs",
            session=session,
            resume=True,
            build=self.build,
            history_url=default_url(self.folder / "runs"),
        )

    def _suite(self, step: ProofStep) -> Suite:
        """A session for the step, whose matrix is that of the proof."""
        measured = {each.case: each.protocol for each in self.steps}
        config = replace(
            self.config,
            matrix=tuple(MatrixCase(case, self.device, protocol.name) for case, protocol in measured.items()),
            protocols={protocol.name: protocol for protocol in measured.values()},
            budgets=ByCase(step.budget),
        )
        if self.device == CPU and step.kind is not StepKind.NEIGHBOUR:
            config = replace(config, contention=replace(config.contention, max_foreign_share=_ANY_SHARE))
        if step.most_seconds is not None:
            most = dict.fromkeys(("start_up_seconds", "no_progress_seconds", "run_seconds"), step.most_seconds)
            config = replace(config, limits=replace(config.limits, **most))
        slowed = step.kind is StepKind.SLOWED
        options = replace(
            self._options(step.key),
            data_root=str(self._images) if step.case.data is not DataSource.SYNTHETIC else None,
            overrides=_rate_that_learns(step),
            # Results of a slowed build are marked, and only --allow-contention accepts marked results.
            allow_contention=slowed,
            reference_build=str(self._good_build(step)) if slowed else None,
            # The reference build is the same build without the slowdown.
            same_build=slowed,
            to_record=step.kind is StepKind.MEASURE,
        )
        return self._named(Suite(options, config, {}, machine=self.machine))

    @cached_property
    def _images(self) -> Path:
        if self.data is not None:
            return self.data
        count = FEW_IMAGES if self.device == CPU else _IMAGES_ON_GPU
        return GrownDataset(self.folder / "images").first(count).root

    def _good_build(self, step: ProofStep) -> Path:
        """A script that runs the same interpreter without the slowdown."""
        path = self.folder / "good-python"
        path.write_text(f'#!/bin/sh\nunset {SLOWDOWN_VARIABLE}\nexec {shlex.quote(self.interpreter(step))} "$@"\n')
        path.chmod(0o755)
        return path


def ask_probe(name: str, spec: JobSpec, interpreter: str, most_seconds: float) -> tuple[list[str], str, str]:
    """The faults that Paddle's probe of this name found, its figures, and why there was nothing to probe. Raises
    LaunchError if it gives no answer in time."""
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    argv = (interpreter, "-u", "-m", "helpers.trainers.paddle.probes", name, str(spec.spec_path))
    environment = job_environment(os.environ, spec, LaunchCommand(argv, card_variables(spec)), {})
    try:
        finished = run_process(argv, environment, spec.job_id, most_seconds)
    except OSError as error:
        raise LaunchError(interpreter, got=str(error), expected="a Python with Paddle") from error
    output, errors = (text.strip().splitlines() for text in (finished.stdout, finished.stderr))
    try:
        answer = json.loads(output[-1])
        message = "; ".join(f"{key} {value}" for key, value in answer["facts"].items())
        return list(map(str, answer["faults"])), message, str(answer["not_run"] or "")
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        last = ["no output", *output, *errors][-1][:300]
        ended = f"exit status {finished.returncode}: {last}"
        got = f"no end within {most_seconds:g} s" if finished.returncode is None else ended
        raise LaunchError(f"probe {name}", got=got, expected="its answer as JSON") from error


@contextmanager
def _variables(step: ProofStep) -> Iterator[None]:
    """Start all jobs in the ``with`` block with the variables of the step's kind."""
    wanted = {SLOWDOWN_VARIABLE: f"{step.slowdown:g}"} if step.slowdown else {}
    wanted |= {WEIGHTS_VARIABLE: "1"} if step.kind is StepKind.TRAINS and step.case.cards > 1 else {}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in wanted:
            del os.environ[name]


def _rate_that_learns(step: ProofStep) -> dict[str, float]:
    """For a few steps of training, the learning rate at which they learn: the published rates are for an average over
    thousands of steps, and the first ten only oscillate."""
    if step.kind is not StepKind.TRAINS:
        return {}
    return {"learning_rate": 0.002 if step.case.model is Model.RESNET50 else 0.0003}


@contextmanager
def neighbour(card: Card, interpreter: str) -> Iterator[int]:
    """Run a process that keeps the card (of a CPU card, one core) busy; yields its id. Raises LaunchError if it
    ends."""
    on_gpu = isinstance(card, Gpu)
    argv: Sequence[str] = [interpreter, "-c", _BUSY_GPU] if on_gpu else [sys.executable, "-c", _BUSY_CPU]
    variables = with_libraries(card_environment(card), interpreter)
    process = subprocess.Popen(
        argv, env=variables, cwd=Path("/"), preexec_fn=_pin(card), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    with process:
        try:
            assert process.stdout is not None
            began = bool(select.select([process.stdout], [], [], _READY_SECONDS)[0])
            if not began or process.stdout.readline().strip() != "ready":
                process.kill()
                errors = (process.communicate()[1] or "no word").strip().splitlines()
                raise LaunchError("a process beside the job", got=errors[-1], expected="one that keeps the card busy")
            yield process.pid
        finally:
            process.kill()


def _pin(card: Card) -> Callable[[], None] | None:
    return None if isinstance(card, Gpu) else lambda: os.sched_setaffinity(0, card.cores)
