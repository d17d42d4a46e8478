"""Checks jobs without running them: do the trainers take their settings, and can a GPU's program be built?"""

from __future__ import annotations

import enum
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.launch.launchers.launcher import LaunchCommand, card_variables, job_environment
from helpers.machine.files import write_whole
from helpers.machine.records_check import Checker
from helpers.machine.watch.processes import JobProcesses, Processes, end_processes
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec

_SETTINGS_CHECK = "helpers.trainers.common.settings"
_SETTINGS_SECONDS = 60
_COUNT = {"type": ["integer", "null"], "minimum": 0}
# The answer of a program that builds.
_ANSWER = Checker(
    {
        "type": "object",
        "properties": {
            "built": {"type": "boolean"},
            "reason": {"type": ["string", "null"]},
            "facts": {"type": "object", "additionalProperties": {"type": "string"}},
            "operators": _COUNT,
            "parameters": _COUNT,
        },
        "required": ["built", "reason", "facts", "operators", "parameters"],
        "additionalProperties": False,
    }
)
# Each check holds a whole program in memory and, with a GPU wheel, some gigabytes of libraries.
AT_ONCE = 2
# A program builds in seconds; a cold wheel of several gigabytes is read first.
TIMEOUT_SECONDS = 300.0
_GRACE_SECONDS = 5.0
_NOT_APPLIED = "not applied"
_EXITS = {0: True, 3: False}


class BuildState(enum.Enum):
    BUILT = "built"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class BuildReport:
    """How a build went."""

    state: BuildState
    reason: str = ""
    # The trainer's own facts.
    facts: Mapping[str, str] = field(default_factory=dict)
    # Counts of the program.
    operators: int | None = None
    parameters: int | None = None

    @property
    def not_applied(self) -> tuple[str, ...]:
        """Flags and options of the case that this build does not know."""
        return tuple(sorted(name for name, text in self.facts.items() if text.startswith(_NOT_APPLIED)))


@dataclass(frozen=True)
class Finished:
    """A process that ended."""

    # None where the process was ended because its time was over.
    returncode: int | None
    stdout: str
    stderr: str


Run = Callable[[tuple[str, ...], Mapping[str, str], str, float], Finished]


def why_no_build_check(framework: Framework, root: Path = ROOT) -> str | None:
    """Why builds of this framework cannot be checked; None where they can."""
    file = f"helpers/trainers/{framework.value}/build.py"
    return None if (root / file).exists() else f"there is no build check for {framework.value} ({file})"


def check_builds(
    specs: Sequence[JobSpec],
    interpreter: str,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    on_report: Callable[[JobSpec, BuildReport], None] | None = None,
    run: Run | None = None,
) -> tuple[BuildReport, ...]:
    """Build each job's program with ``interpreter``, at most AT_ONCE side by side; returns reports in the jobs' order.

    ``on_report`` is called with each report in that order, as soon as it and those before it are there.
    Writes each job's spec into its run folder, which must exist. Raises LaunchError where the interpreter cannot be
    started.
    """
    start = run or run_process
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        reports = []
        answers = pool.map(lambda spec: _check(spec, interpreter, timeout_seconds, start), specs)
        for spec, report in zip(specs, answers, strict=True):
            reports.append(report)
            if on_report is not None:
                on_report(spec, report)
        return tuple(reports)
    finally:
        # After Ctrl-C, which reaches the builds too, no further one is started.
        pool.shutdown(cancel_futures=True)


def run_process(argv: tuple[str, ...], environment: Mapping[str, str], job_id: str, timeout_seconds: float) -> Finished:
    """Run a program to its end, or end it and all that it started when its time is over.

    Raises LaunchError where the program cannot be started.
    """
    processes = Processes()
    try:
        process = subprocess.Popen(
            argv,
            env={**environment, **processes.marks(job_id)},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise LaunchError(
            f"build check with {argv[0]}", got=str(error), expected="a Python with the framework"
        ) from error
    with process:
        try:
            stdout, stderr = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            job = JobProcesses(processes, job_id)
            end_processes(job.find, _GRACE_SECONDS, about=f"build check {job_id}")
            stdout, stderr = process.communicate()
            return Finished(None, stdout, stderr)
    return Finished(process.returncode, stdout, stderr)


def _check(spec: JobSpec, interpreter: str, timeout_seconds: float, run: Run) -> BuildReport:
    write_whole(spec.spec_path, spec.to_json().encode())
    argv = (interpreter, "-u", "-m", f"helpers.trainers.{spec.case.framework.value}.build", str(spec.spec_path))
    environment = job_environment(os.environ, spec, LaunchCommand(argv, card_variables(spec)), {})
    finished = run(argv, environment, spec.job_id, timeout_seconds)
    if finished.returncode is None:
        return BuildReport(BuildState.FAILED, f"not done within {timeout_seconds:g} s")
    return read_report(finished)


def read_report(finished: Finished) -> BuildReport:
    """The report of a process that ended; the check failed where exit status and answer contradict each other."""
    lines = finished.stdout.strip().splitlines()
    record: Any
    try:
        record = json.loads(lines[-1] if lines else "null")
    except ValueError:
        record = None
    wrong = _ANSWER.violation(record)
    if finished.returncode not in _EXITS or wrong is not None:
        reason = record["reason"] if wrong is None else _last_line(finished)
        return BuildReport(BuildState.FAILED, f"exit status {finished.returncode}: {reason}")
    if record["built"] is not _EXITS[finished.returncode]:
        return BuildReport(BuildState.FAILED, f"exit status {finished.returncode}, but built is {record['built']}")
    state = BuildState.BUILT if record["built"] else BuildState.REFUSED
    return BuildReport(state, record["reason"] or "", record["facts"], record["operators"], record["parameters"])


def _last_line(finished: Finished) -> str:
    for text in (finished.stderr, finished.stdout):
        if lines := text.strip().splitlines():
            return lines[-1][:300]
    return "no output"


def check_settings(specs: Sequence[JobSpec], interpreter: str = sys.executable) -> tuple[str | None, ...]:
    """For each job, what is wrong with its settings in one line; None where they are complete and right.

    No framework is imported. Raises LaunchError when the check itself gives no answer.
    """
    if not specs:
        return ()
    argv = [interpreter, "-m", _SETTINGS_CHECK]
    try:
        done = subprocess.run(
            argv,
            input=json.dumps([spec.to_json() for spec in specs]),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
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
