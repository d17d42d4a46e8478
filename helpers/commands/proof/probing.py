"""Runs Paddle's probes for ``perfgate prove-gpu``, each in a process of its own."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from helpers.common.files import make_folder
from helpers.launch.launchers.launcher import LaunchCommand, card_variables, job_environment
from helpers.launch.programs import Finished, run_process
from helpers.machine.devices import Machine
from helpers.machine.leases import Leases, default_folder
from helpers.machine.nvml import Gpu
from helpers.plan.case_plan import SuiteCase, draft_job
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec


@dataclass(frozen=True)
class ProbeAnswer:
    """What a probe found."""

    message: str
    faults: tuple[str, ...] = ()
    # Why there was nothing to probe; empty if there was.
    not_run: str = ""


@contextmanager
def seated(suite_case: SuiteCase, machine: Machine, folder: Path) -> Iterator[JobSpec]:
    """A job of the case on a card that is leased meanwhile; its folder is new. Raises DeviceError without a card."""
    job_id = uuid.uuid4().hex
    run_folder = folder / job_id[:8]
    make_folder(run_folder)
    cards, settings = machine.cards_of(suite_case.target), settings_for(suite_case.case, suite_case.device)
    with Leases(default_folder(machine.host_id)).lease(cards, 1, f"probe of {suite_case.case.id}") as (card,):
        spec = draft_job(
            suite_case, settings, device=suite_case.device, run_folder=str(run_folder), data_root="", job_id=job_id
        )
        if isinstance(card, Gpu):
            yield replace(spec, cards=(card.uuid,))
        else:
            yield replace(spec, cards=(), cores=(card.cores,))


def ask_probe(name: str, spec: JobSpec, interpreter: str, most_seconds: float) -> ProbeAnswer:
    """The answer of Paddle's probe of this name. Raises LaunchError if it gives none in time."""
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    argv = (interpreter, "-u", "-m", f"helpers.trainers.{spec.case.framework.value}.probes", name, str(spec.spec_path))
    environment = job_environment(os.environ, spec, LaunchCommand(argv, card_variables(spec)), {})
    try:
        finished = run_process(argv, environment, spec.job_id, most_seconds)
    except OSError as error:
        raise LaunchError(interpreter, got=str(error), expected="a Python with Paddle") from error
    try:
        answer = json.loads(finished.stdout.strip().splitlines()[-1])
        message = "; ".join(f"{key} {value}" for key, value in answer["facts"].items())
        return ProbeAnswer(message, tuple(map(str, answer["faults"])), str(answer["not_run"] or ""))
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        got = f"no end within {most_seconds:g} s" if finished.returncode is None else _last_words(finished)
        raise LaunchError(f"probe {name}", got=got, expected="its answer as JSON") from error


def _last_words(finished: Finished) -> str:
    lines = [*finished.stdout.strip().splitlines()[-1:], *finished.stderr.strip().splitlines()[-1:]]
    return f"exit status {finished.returncode}: {(lines or ['no output'])[-1][:300]}"
