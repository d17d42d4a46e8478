"""Whether an installed build of a framework builds a case's program: asked in a process of its own, nothing trained.

``python -m helpers.trainers.<framework>_build SPEC.json`` prints one JSON object as its last line:
``built``, ``reason``, ``facts``, ``operators``, ``parameters``; exit status 0 built, 3 refused, 1 failed.
"""

from __future__ import annotations

import enum
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.case import Framework
from helpers.errors import LaunchError
from helpers.files import write_whole
from helpers.job import JobSpec
from helpers.launch.launcher import ROOT, LaunchCommand, card_variables, job_environment
from helpers.launch.processes import JobProcesses, Processes, end_processes

# Each holds a whole program and, with a GPU wheel, some gigabytes of libraries.
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
    """How a build went. ``facts`` are the trainer's own, ``operators`` and ``parameters`` counts of the program."""

    state: BuildState
    reason: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    operators: int | None = None
    parameters: int | None = None

    @property
    def not_applied(self) -> tuple[str, ...]:
        """Flags and options of the case that this build does not know."""
        return tuple(sorted(name for name, told in self.facts.items() if told.startswith(_NOT_APPLIED)))


@dataclass(frozen=True)
class Finished:
    """A process that ended; ``returncode`` None: it was ended after its time."""

    returncode: int | None
    stdout: str
    stderr: str


Run = Callable[[tuple[str, ...], Mapping[str, str], str, float], Finished]


def why_no_build_check(framework: Framework, root: Path = ROOT) -> str | None:
    """Why builds of this framework cannot be checked; None where they can."""
    file = f"helpers/trainers/{framework.value}_build.py"
    return None if (root / file).exists() else f"there is no build check for {framework.value} ({file})"


def check_builds(
    specs: Sequence[JobSpec],
    interpreter: str,
    *,
    timeout_seconds: float = TIMEOUT_SECONDS,
    on_report: Callable[[JobSpec, BuildReport], None] | None = None,
    run: Run | None = None,
) -> tuple[BuildReport, ...]:
    """Build each job's program with ``interpreter``, at most AT_ONCE side by side; reports in the jobs' order.

    ``on_report`` is told each one in that order, as soon as it and those before it are there.
    Writes each job's spec into its run folder, which must be there. Raises LaunchError where the
    interpreter cannot be started.
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
        # After Ctrl-C, which the builds have got too, no further one is started.
        pool.shutdown(cancel_futures=True)


def run_process(argv: tuple[str, ...], environment: Mapping[str, str], job_id: str, timeout_seconds: float) -> Finished:
    """Run to the end, or end it and all it has started when its time is over. Raises LaunchError."""
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
    argv = (interpreter, "-u", "-m", f"helpers.trainers.{spec.case.framework.value}_build", str(spec.spec_path))
    environment = job_environment(os.environ, spec, LaunchCommand(argv, card_variables(spec)), {})
    finished = run(argv, environment, spec.job_id, timeout_seconds)
    if finished.returncode is None:
        return BuildReport(BuildState.FAILED, f"not done within {timeout_seconds:g} s")
    return read_report(finished)


def read_report(finished: Finished) -> BuildReport:
    """The report of a process that ended; an exit and an answer that contradict each other are a failure."""
    lines = finished.stdout.strip().splitlines()
    record: Any
    try:
        record = json.loads(lines[-1] if lines else "null")
    except ValueError:
        record = None
    wrong = _wrong(record)
    if finished.returncode not in _EXITS or wrong is not None:
        told = record["reason"] if wrong is None else _last_words(finished)
        return BuildReport(BuildState.FAILED, f"exit status {finished.returncode}: {told}")
    if record["built"] is not _EXITS[finished.returncode]:
        return BuildReport(BuildState.FAILED, f"exit status {finished.returncode}, but built is {record['built']}")
    state = BuildState.BUILT if record["built"] else BuildState.REFUSED
    return BuildReport(state, record["reason"] or "", record["facts"], record["operators"], record["parameters"])


def _wrong(record: Any) -> str | None:
    """What keeps a record from being a build's answer."""
    checks: dict[str, Callable[[Any], bool]] = {
        "built": lambda value: isinstance(value, bool),
        "reason": lambda value: value is None or isinstance(value, str),
        "facts": lambda value: isinstance(value, dict) and all(isinstance(each, str) for each in value.values()),
        "operators": _is_count,
        "parameters": _is_count,
    }
    if not isinstance(record, dict) or set(record) != set(checks):
        return "not the five keys of an answer"
    return next((name for name, right in checks.items() if not right(record[name])), None)


def _is_count(value: Any) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0)


def _last_words(finished: Finished) -> str:
    for text in (finished.stderr, finished.stdout):
        if lines := text.strip().splitlines():
            return lines[-1][:300]
    return "no output"
