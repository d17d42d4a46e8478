"""Runs the probes of ``perfgate prove-gpu`` that are no sessions: a probe of Paddle in a process of its own, and the
programs of the published rows."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from helpers.common.files import make_folder
from helpers.launch.launchers.launcher import LaunchCommand, card_variables, job_environment
from helpers.launch.programs import BuildState, Finished, run_process
from helpers.machine.devices import Machine
from helpers.machine.leases import Leases, default_folder
from helpers.machine.nvml import Gpu
from helpers.plan.case_plan import SuiteCase, draft_job
from helpers.plan.recipes.recipe import settings_for
from helpers.session.programs import BuiltProgram, built_ahead
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.program import PROGRAM_FACT, counts_of, kind_of


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
    cards = machine.cards_of(suite_case.target)
    job_id = uuid.uuid4().hex
    run_folder = folder / job_id[:8]
    make_folder(run_folder)
    with Leases(default_folder(machine.host_id)).lease(cards, 1, f"probe of {suite_case.case.id}") as (card,):
        spec = draft_job(
            suite_case,
            settings_for(suite_case.case, suite_case.device),
            device=suite_case.device,
            run_folder=str(run_folder),
            data_root="",
            job_id=job_id,
        )
        if isinstance(card, Gpu):
            yield replace(spec, cards=(card.uuid,))
        else:
            yield replace(spec, cards=(), cores=(card.cores,))


def ask_probe(name: str, spec: JobSpec, interpreter: str, most_seconds: float) -> ProbeAnswer:
    """The answer of Paddle's probe of this name. Raises LaunchError if it gives none in time."""
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    argv = (interpreter, "-u", "-m", f"helpers.trainers.{spec.case.framework.value}.probes", name, str(spec.spec_path))
    finished = _run(argv, spec, most_seconds)
    try:
        answer = json.loads(finished.stdout.strip().splitlines()[-1])
        faults, facts, not_run = tuple(map(str, answer["faults"])), answer["facts"], answer["not_run"]
        message = "; ".join(f"{key} {value}" for key, value in facts.items())
    except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
        raise LaunchError(f"probe {name}", got=_last_words(finished), expected="its answer as JSON") from error
    return ProbeAnswer(message, faults, str(not_run or ""))


def _run(argv: Sequence[str], spec: JobSpec, most_seconds: float) -> Finished:
    environment = job_environment(os.environ, spec, LaunchCommand(tuple(argv), card_variables(spec)), {})
    try:
        finished = run_process(tuple(argv), environment, spec.job_id, most_seconds)
    except OSError as error:
        raise LaunchError(argv[0], got=str(error), expected="a Python with Paddle") from error
    if finished.returncode is None:
        raise LaunchError(" ".join(argv[3:5]), got=f"no end within {most_seconds:g} s", expected="an answer")
    return finished


def _last_words(finished: Finished) -> str:
    lines = [*finished.stdout.strip().splitlines()[-1:], *finished.stderr.strip().splitlines()[-1:]]
    return f"exit status {finished.returncode}: {(lines or ['no output'])[-1][:300]}"


# ---- the programs of the published rows


def look_at_programs(
    rows: Sequence[SuiteCase],
    interpreter: str,
    most_seconds: float,
    build: Callable[..., tuple[BuiltProgram, ...]] = built_ahead,
) -> ProbeAnswer:
    """Build the rows' programs without a card, equal ones once. Right if each is built, is the published kind of
    program, and has the published operators. Raises LaunchError when the time is over."""
    ends = time.monotonic() + most_seconds

    def in_time(_: str) -> None:
        if time.monotonic() > ends:
            raise LaunchError("programs", got=f"no end within {most_seconds:g} s", expected=f"{len(rows)} rows")

    programs = build(rows, interpreter, in_time)
    if not programs:
        raise LaunchError("programs", got="no row with a program", expected="a published row of Paddle")
    kinds = Counter(each.report.facts.get(PROGRAM_FACT, each.report.state.value) for each in programs)
    faults = [
        f"{each.suite_case.case.id} and {len(each.cases) - 1} more rows: {fault}"
        for each in programs
        for fault in program_faults(each)
    ]
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    message = f"{len(programs)} programs of {len(rows)} published rows: {counted}"
    return ProbeAnswer(message, tuple(faults))


def program_faults(program: BuiltProgram) -> list[str]:
    """What is wrong with a published row's program. Raises ConfigError if its facts cannot be read."""
    if program.report.state is not BuildState.BUILT:
        return [f"{program.report.state.value}: {program.report.reason}"]
    kind = kind_of(program.report.facts)
    if kind is None or counts_of(program.report.facts) is None:
        return ["the build check states no kind of program, or no operators"]
    return [*program.differences, *([] if kind.is_published else [f"{kind.value} is not the published program"])]
