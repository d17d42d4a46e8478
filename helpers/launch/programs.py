"""Runs a framework's programs other than its trainer. They check whether the trainers accept a job's settings and
whether the program of a case can be built, and measure a card's peak.

A peak is measured by multiplying matrices on a leased card, once for each build, precision and card. It is kept in a
file, so that other processes of the session and a later ``--resume`` find it. A probe that failed is not tried again by
the same process.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from helpers.judging.utilisation import PEAK_PRECISIONS, Peak
from helpers.launch.launchers.launcher import LaunchCommand, card_variables, job_environment
from helpers.machine.devices import Card, CpuCard
from helpers.machine.files import MOST_NOTE_BYTES, read_text_limited, write_whole
from helpers.machine.libraries import with_libraries
from helpers.machine.nvml import Gpu
from helpers.machine.records_check import Checker
from helpers.machine.watch.processes import JobProcesses, Processes, end_processes
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError, ResultError, SuiteError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec

_SETTINGS_CHECK = "helpers.trainers.common.settings"
_SETTINGS_SECONDS = 60
_COUNT = {"type": ["integer", "null"], "minimum": 0}
# The form of a build check's answer.
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
# How many build checks run at the same time. Each holds a whole program in memory and, with a GPU wheel, some gigabytes
# of libraries.
AT_ONCE = 2
# A program is built within seconds, but a wheel of several gigabytes may have to be read from disk first.
TIMEOUT_SECONDS = 300.0
# What a job that is tried alone has of that limit, after its process gave no answer: the wheel was read by then.
_ALONE = 1 / 3
# So many hanging jobs of a process are waited for. Then the build hangs, and the rest would only cost the same time.
_MOST_HANGING = 2
_NOT_APPLIED = "not applied"
_EXITS = {0: True, 3: False}
# Whose build check takes several jobs, and the most of one process: reports come after each process, and a crash costs
# that many builds.
_SEVERAL_AT_ONCE = {Framework.PADDLE: 8}
# A probe takes about five seconds, but a wheel of several gigabytes may have to be read from disk first.
PROBE_SECONDS = 120.0
_REASON_LENGTH = 300


class BuildState(enum.Enum):
    BUILT = "built"
    REFUSED = "refused"
    FAILED = "failed"


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

    @property
    def not_applied(self) -> tuple[str, ...]:
        """Flags and options of the case that this build does not know."""
        return tuple(sorted(name for name, text in self.facts.items() if text.startswith(_NOT_APPLIED)))


@dataclass(frozen=True)
class Finished:
    """A process that ended."""

    # None if the process was ended because it exceeded its time limit.
    returncode: int | None
    stdout: str
    stderr: str


Run = Callable[[tuple[str, ...], Mapping[str, str], str, float], Finished]


def why_no_build_check(framework: Framework, root: Path = ROOT) -> str | None:
    """Why programs of this framework cannot be built without a card; None if they can."""
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
    """Build each job's program with ``interpreter``, in at most AT_ONCE processes at the same time. Returns the reports
    in the order of the jobs. ``timeout_seconds`` are for each process.

    Jobs in a row with the same variables share a process, so that a large framework is imported once. If such a process
    gives no answer, each of its jobs gets one of its own, with a third of the time; after two that hang the others of
    the process are not tried, and fail.

    ``on_report`` is called with each report in that order, as soon as it and those before it are available. Writes each
    job's spec into its run folder, which must exist. Raises LaunchError if the interpreter cannot be started.
    """
    start = run or run_process
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        reports: list[BuildReport] = []
        groups = _groups(specs)
        answers = pool.map(lambda group: _check(group, interpreter, timeout_seconds, start), groups)
        for group, answered in zip(groups, answers, strict=True):
            reports += answered
            for spec, report in zip(group, answered, strict=True):
                if on_report is not None:
                    on_report(spec, report)
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
            end_processes(JobProcesses(processes, job_id).find, 0.0, about=f"{argv[0]} {job_id}")
        process.poll()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _groups(specs: Sequence[JobSpec]) -> list[list[JobSpec]]:
    """The jobs in their order, those in a row together that one process can build."""
    groups: list[list[JobSpec]] = []
    last = None
    for spec in specs:
        framework = spec.case.framework
        same = (framework, dict(spec.environment), spec.settings.get("environment"))
        # Fleet ignores its switch once any other strategy was set in the process.
        if same == last and not spec.case.auto and len(groups[-1]) < _SEVERAL_AT_ONCE.get(framework, 1):
            groups[-1].append(spec)
        else:
            groups.append([spec])
        last = same
    return groups


def _check(specs: Sequence[JobSpec], interpreter: str, timeout_seconds: float, run: Run) -> Sequence[BuildReport]:
    for spec in specs:
        write_whole(spec.spec_path, spec.to_json().encode())
    finished = _start(specs, interpreter, timeout_seconds, run)
    if len(specs) == 1:
        return (_report_of(finished, timeout_seconds),)
    return _read_reports(finished, len(specs)) or _check_alone(specs, interpreter, timeout_seconds * _ALONE, run)


def _check_alone(specs: Sequence[JobSpec], interpreter: str, timeout_seconds: float, run: Run) -> Sequence[BuildReport]:
    reports: list[BuildReport] = []
    hanging = 0
    for spec in specs:
        if hanging == _MOST_HANGING:
            reports.append(BuildReport(BuildState.FAILED, f"not tried alone: {hanging} programs before it hang"))
            continue
        finished = _start([spec], interpreter, timeout_seconds, run)
        hanging += finished.returncode is None
        reports.append(_report_of(finished, timeout_seconds))
    return reports


def _start(specs: Sequence[JobSpec], interpreter: str, timeout_seconds: float, run: Run) -> Finished:
    first = specs[0]
    paths = [str(spec.spec_path) for spec in specs]
    argv = (interpreter, "-u", "-m", f"helpers.trainers.{first.case.framework.value}.build", *paths)
    environment = job_environment(os.environ, first, LaunchCommand(argv, card_variables(first)), {})
    try:
        return run(argv, environment, first.job_id, timeout_seconds)
    except OSError as error:
        raise LaunchError(
            f"build check with {interpreter}", got=str(error), expected="a Python with the framework"
        ) from error


def _report_of(finished: Finished, timeout_seconds: float) -> BuildReport:
    if finished.returncode is None:
        return BuildReport(BuildState.FAILED, f"it hangs: not done within {timeout_seconds:g} s")
    return read_report(finished)


def _read_reports(finished: Finished, count: int) -> tuple[BuildReport, ...] | None:
    """The reports of a check of several jobs whose process ended; None if it gave no answers."""
    lines = finished.stdout.strip().splitlines()
    try:
        answers = json.loads(lines[-1] if lines else "null")
    except ValueError:
        return None
    pairs = isinstance(answers, list) and all(isinstance(each, list) and len(each) == 2 for each in answers)
    if finished.returncode != 0 or not pairs or len(answers) != count:
        return None
    return tuple(read_report(Finished(status, json.dumps(answer), "")) for status, answer in answers)


def read_report(finished: Finished) -> BuildReport:
    """The report of a check whose process ended. It failed if exit status and answer contradict each other."""
    lines = finished.stdout.strip().splitlines()
    record: Any
    try:
        record = json.loads(lines[-1] if lines else "null")
    except ValueError:
        record = None
    wrong = _ANSWER.violation(record)
    if finished.returncode not in _EXITS or wrong is not None:
        reason, facts = (record["reason"], record["facts"]) if wrong is None else (_last_line(finished), {})
        return BuildReport(BuildState.FAILED, f"exit status {finished.returncode}: {reason}", facts)
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


@dataclass(frozen=True)
class Probe:
    """A peak that is to be measured: on which card, with which build and precision."""

    # As in a case's plan.
    build: Mapping[str, str]
    # The precision of the matrix product.
    precision: str
    device: str
    card: Card
    # The host of the card.
    host_id: str
    # The variables of the framework's jobs.
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def framework(self) -> str:
        return self.build["framework"]

    @property
    def module(self) -> str:
        return f"helpers.trainers.{self.framework}.peak"

    @property
    def name(self) -> str:
        """The name of the file for the peak; it depends on build, host, card and variables."""
        cores = self.card.cores if isinstance(self.card, CpuCard) else ()
        parts = [dict(self.build), self.host_id, self.device, self.card.id, cores, dict(self.variables)]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        return f"peak-{self.framework}-{self.precision}-{digest[:16]}.json"


Measure = Callable[[Probe], Peak]


def measure_peak(probe: Probe, timeout_seconds: float = PROBE_SECONDS) -> Peak:
    """Run the probe on its card, which must be leased.

    Raises LaunchError if the probe takes too long (it is then ended), fails, or ran on another card, and ResultError if
    its record is not a peak.
    """
    about = f"{probe.module} {probe.precision} {probe.device}"
    argv = [probe.build["interpreter"], "-m", probe.module, probe.precision, probe.device]
    if isinstance(probe.card, CpuCard):
        argv += ["--cores", ",".join(map(str, probe.card.cores))]
    try:
        variables = with_libraries({**card_environment(probe.card), **probe.variables}, argv[0])
        record = json.loads(_answer_of(argv, variables, timeout_seconds))
    except subprocess.TimeoutExpired as error:
        raise LaunchError(about, got=f"no answer within {timeout_seconds:g} s", expected="a measured peak") from error
    except (OSError, subprocess.SubprocessError, ValueError, RecursionError) as error:
        raise LaunchError(about, got=_reason_of(error), expected="a measured peak") from error
    peak = Peak.from_record(record, about)
    if peak.precision != probe.precision or peak.uuid not in ("", probe.card.id):
        got = f"{peak.precision} on {peak.uuid or peak.device_name}"
        raise LaunchError(about, got=got, expected=f"{probe.precision} on {probe.card.id}")
    return peak


class Peaks:
    """The peaks kept in ``folder``, which is created with the first peak."""

    def __init__(self, folder: Path, measure: Measure = measure_peak) -> None:
        self._folder = folder
        self._measure = measure
        self._failed: dict[str, str] = {}

    def of(self, probe: Probe, on_probe: Callable[[], None] = lambda: None) -> Peak | str:
        """The peak, or a text that says why there is none. ``on_probe`` is called before a peak is measured."""
        if probe.precision not in PEAK_PRECISIONS:
            return f"no matrix product is known for precision {probe.precision}"
        if not (ROOT / f"{probe.module.replace('.', '/')}.py").exists():
            return f"{probe.framework} has no program that measures the peak ({probe.module})"
        if probe.name in self._failed:
            return self._failed[probe.name]
        path = self._folder / probe.name
        if (known := _read(path)) is not None:
            return known
        on_probe()
        try:
            peak = self._measure(probe)
        except (SuiteError, OSError) as error:
            reason = " ".join(str(error).split())
            self._failed[probe.name] = f"the peak could not be measured: {reason[:_REASON_LENGTH]}"
            return self._failed[probe.name]
        self._keep(path, peak)
        return peak

    def _keep(self, path: Path, peak: Peak) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, (json.dumps(asdict(peak), allow_nan=False) + "\n").encode())
        except OSError:
            # This case has its peak anyway; the next case measures it again.
            return


def _answer_of(argv: Sequence[str], environment: Mapping[str, str], timeout_seconds: float) -> str:
    """Runs a program that must succeed; returns the last line that it prints."""
    done = run_process(tuple(argv), environment, uuid.uuid4().hex, timeout_seconds)
    if done.returncode is None:
        raise subprocess.TimeoutExpired(argv, timeout_seconds)
    if done.returncode != 0:
        raise subprocess.CalledProcessError(done.returncode, argv, done.stdout, done.stderr)
    return next(reversed(done.stdout.strip().splitlines()), "nothing")


def card_environment(card: Card, inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's variables, changed so that only this card is visible: a GPU by its UUID; for a CPU card, no GPU."""
    inherited = os.environ if inherited is None else inherited
    path = inherited.get("PYTHONPATH")
    return {
        **inherited,
        "PYTHONPATH": f"{ROOT}:{path}" if path else str(ROOT),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": card.uuid if isinstance(card, Gpu) else "",
    }


def _read(path: Path) -> Peak | None:
    """The peak that an earlier process kept; None if there is none, or if the file is damaged and will be replaced."""
    try:
        return Peak.from_record(json.loads(read_text_limited(path, MOST_NOTE_BYTES, within=path.parent)), str(path))
    except (OSError, ValueError, RecursionError, ResultError):
        return None


def _reason_of(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return "no JSON object in its output"
    lines = (getattr(error, "stderr", None) or str(error) or repr(error)).strip().splitlines()
    return lines[-1] if lines else repr(error)
