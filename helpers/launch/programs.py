"""Runs the trainers' programs other than training. They check whether the trainers accept a job's settings, and
whether Paddle builds a case's static program.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from helpers.common.files import write_whole
from helpers.common.inherited import passed_on
from helpers.common.records import Count, WrongRecord, parse, read_as
from helpers.launch.guarded import sweep
from helpers.launch.launchers.launcher import LaunchCommand, card_variables, job_environment
from helpers.machine.devices import Card
from helpers.machine.nvml import Gpu
from helpers.machine.watch.processes import JOB_VARIABLE, Processes
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec

_SETTINGS_CHECK = "helpers.trainers.common.settings"
_SETTINGS_SECONDS = 60
_BUILD_CHECK = "helpers.trainers.paddle.build"
# How many build checks run at the same time. Each holds a whole program in memory and, with a GPU wheel, some gigabytes
# of libraries.
AT_ONCE = 2
# A program is built within seconds, but a wheel of several gigabytes may have to be read from disk first.
_BUILD_SECONDS = 300.0
_EXITS = {0: True, 3: False}


class BuildState(enum.Enum):
    BUILT = "built"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class _Answer:
    """What a build check prints."""

    built: bool
    reason: str | None
    facts: dict[str, str]
    operators: Count | None
    parameters: Count | None


@dataclass(frozen=True)
class BuildReport:
    """The result of a build check."""

    state: BuildState
    reason: str = ""
    # The trainer's own facts.
    facts: Mapping[str, str] = field(default_factory=dict)
    # How many the program has; None if it was not built.
    operators: int | None = None
    parameters: int | None = None


@dataclass(frozen=True)
class Finished:
    """A process that ended."""

    # None if the process was ended because it exceeded its time limit.
    returncode: int | None
    stdout: str
    stderr: str


Run = Callable[[tuple[str, ...], Mapping[str, str], str, float], Finished]


def check_builds(
    specs: Sequence[JobSpec],
    interpreter: str,
    *,
    on_report: Callable[[JobSpec, BuildReport], None] | None = None,
    run: Run | None = None,
) -> tuple[BuildReport, ...]:
    """Build each Paddle job's program with ``interpreter``, in a process of its own, AT_ONCE at the same time. Returns
    the reports in the order of the jobs.

    ``on_report`` is called with each report in that order, as soon as it and those before it are available. Writes each
    job's spec into its run folder, which must exist. Raises LaunchError if the interpreter cannot be started.
    """
    start = run or run_process
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        reports: list[BuildReport] = []
        for report in pool.map(lambda spec: _check(spec, interpreter, start), specs):
            if on_report is not None:
                on_report(specs[len(reports)], report)
            reports.append(report)
        return tuple(reports)
    finally:
        # After Ctrl-C, which also reaches the running checks, no further check is started.
        pool.shutdown(cancel_futures=True)


def run_process(argv: tuple[str, ...], environment: Mapping[str, str], job_id: str, timeout_seconds: float) -> Finished:
    """Run a program until it ends or exceeds its time limit. Raises OSError if it cannot be started.

    All processes that the program started are ended in any case. It never waits longer than the limit, not even for a
    process inside a system call or one that holds the program's output open. The program is marked as a job, so that
    the next job ends it if this suite is killed meanwhile.
    """
    processes = Processes()
    process = subprocess.Popen(
        argv, env={**environment, **processes.marks(job_id)}, cwd=ROOT, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
    )  # fmt: skip
    try:
        stdout, stderr = process.communicate(timeout=timeout_seconds)
        return Finished(process.returncode, stdout, stderr)
    except subprocess.TimeoutExpired:
        return Finished(None, "", "")
    finally:
        # If a process remains, later jobs find it as an orphan, and until then it counts as a foreign process on the
        # card.
        with contextlib.suppress(LaunchError):
            if any(processes.marked(job_id)):
                sweep(f"{JOB_VARIABLE}={job_id}", 0.0)
        process.poll()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _check(spec: JobSpec, interpreter: str, run: Run) -> BuildReport:
    write_whole(spec.spec_path, spec.to_json().encode())
    argv = (interpreter, "-u", "-m", _BUILD_CHECK, str(spec.spec_path))
    environment = job_environment(os.environ, spec, LaunchCommand(argv, card_variables(spec)), {})
    try:
        finished = run(argv, environment, spec.job_id, _BUILD_SECONDS)
    except OSError as error:
        raise LaunchError(
            f"build check with {interpreter}", got=str(error), expected="a Python with the framework"
        ) from error
    if finished.returncode is None:
        return BuildReport(BuildState.FAILED, f"it hangs: not done within {_BUILD_SECONDS:g} s")
    return read_report(finished)


def read_report(finished: Finished) -> BuildReport:
    """The report of a check whose process ended. It failed if exit status and answer contradict each other."""
    lines = finished.stdout.strip().splitlines()
    answer = None
    with contextlib.suppress(ValueError, RecursionError, WrongRecord):
        answer = read_as(parse(lines[-1] if lines else "null"), _Answer)
    if finished.returncode not in _EXITS or answer is None:
        reason, facts = (_last_line(finished), {}) if answer is None else (answer.reason, answer.facts)
        return BuildReport(BuildState.FAILED, f"exit status {finished.returncode}: {reason}", facts)
    if answer.built is not _EXITS[finished.returncode]:
        return BuildReport(BuildState.FAILED, f"exit status {finished.returncode}, but built is {answer.built}")
    state = BuildState.BUILT if answer.built else BuildState.REFUSED
    return BuildReport(state, answer.reason or "", answer.facts, answer.operators, answer.parameters)


def _last_line(finished: Finished) -> str:
    for text in (finished.stderr, finished.stdout):
        if lines := text.strip().splitlines():
            return lines[-1][:300]
    return "no output"


def check_settings(specs: Sequence[JobSpec], interpreter: str = sys.executable) -> tuple[str | None, ...]:
    """For each job one line on what is wrong with its settings; None if they are complete and right.

    No framework is imported. Raises LaunchError if the check gives no answer.
    """
    if not specs:
        return ()
    argv = [interpreter, "-m", _SETTINGS_CHECK]
    try:
        done = subprocess.run(
            argv,
            input=json.dumps([spec.to_json() for spec in specs]),
            env=passed_on(),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_SETTINGS_SECONDS,
            check=True,
        )
        answers = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        reason = lines[-1] if lines else repr(error)
        raise LaunchError(_SETTINGS_CHECK, got=reason, expected="an answer for each job") from error
    right = isinstance(answers, list) and all(answer is None or isinstance(answer, str) for answer in answers)
    if not right or len(answers) != len(specs):
        raise LaunchError(_SETTINGS_CHECK, got=done.stdout[:100], expected=f"{len(specs)} answers")
    return tuple(answers)


def card_environment(card: Card) -> dict[str, str]:
    """The caller's variables that may pass, so that only this card is visible: a GPU by its UUID; for a CPU card, no
    GPU."""
    return {
        **passed_on(),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": card.uuid if isinstance(card, Gpu) else "",
    }
