"""Runs one job from outside: starts it, watches every rank, ends all its processes, and says how it ended."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from helpers.judging.failure_class import FailureClass
from helpers.launch.guarded import GuardLostError, start_guarded
from helpers.launch.launchers.launcher import LaunchCommand, job_environment
from helpers.launch.nodes.others import OtherNodes
from helpers.launch.outcome import Ending, JobOutcome, OutcomeKind, ending_of, output_tail
from helpers.launch.signals import StopSignals, stop_signals
from helpers.launch.tail import Progress, RankWatch
from helpers.launch.watchdog import JobLimits as JobLimits
from helpers.launch.watchdog import Watchdog
from helpers.machine.watch.contention import Meter
from helpers.machine.watch.meters import CardWatch, window_of
from helpers.machine.watch.processes import JobProcesses, Processes, end_processes
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec

_SEGMENT = re.compile(r"(?:paddle|torch)_(?P<pid>\d+)_\d+(?:_\d+)?")


class StartedProcess(Protocol):
    def poll(self) -> int | None:
        """The exit code; None while it runs. Raises GuardLostError when nobody will know it."""

    def close(self) -> None:
        """Called when the job has ended."""


class Starter(Protocol):
    def __call__(
        self,
        argv: tuple[str, ...],
        environment: Mapping[str, str],
        output: IO[bytes],
        folder: Path,
        grace_seconds: float,
    ) -> StartedProcess: ...


@dataclass(frozen=True)
class SupervisorIO:
    """The clock, processes and environment with which a job is run; tests replace them."""

    # Must be the clock of the step logs if contention is measured.
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    start: Starter = start_guarded
    processes: Processes = field(default_factory=Processes)
    inherited: Mapping[str, str] | None = None


def clear_for(
    spec: JobSpec, command: LaunchCommand, mark: str, io: SupervisorIO, grace_seconds: float
) -> dict[str, str]:
    """End the processes that a killed suite left on this machine. Returns the environment of a job whose processes have
    ``mark``.

    Raises LaunchError if an orphan cannot be ended.
    """
    processes = io.processes
    if processes.orphans():
        end_processes(processes.orphans, grace_seconds, about="an orphan of a killed suite")
    inherited = os.environ if io.inherited is None else io.inherited
    return job_environment(inherited, spec, command, processes.marks(mark))


def run_job(
    spec: JobSpec,
    command: LaunchCommand,
    limits: JobLimits,
    meter: Meter,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    io: SupervisorIO | None = None,
    others: OtherNodes | None = None,
) -> JobOutcome:
    """Run a job to its end, and leave none of its processes behind.

    This call blocks. Outside the main thread signals are not handled. It writes ``spec.json`` and ``output.log`` into
    the run folder, which must be new. ``on_progress`` is called at every look at the job. ``command`` starts the ranks
    of this node, which is the first; ``others`` are the other nodes. Raises LaunchError if the job cannot be started or
    ended. After SIGINT, SIGTERM or SIGHUP the job is ended and KeyboardInterrupt is raised; a second signal ends the
    job without grace.
    """
    return _Run(spec, command, limits, meter, on_progress, io or SupervisorIO(), others or OtherNodes()).outcome()


class _Run:
    def __init__(
        self,
        spec: JobSpec,
        command: LaunchCommand,
        limits: JobLimits,
        meter: Meter,
        on_progress: Callable[[Progress], None] | None,
        io: SupervisorIO,
        others: OtherNodes,
    ) -> None:
        self._spec = spec
        self._command = command
        self._limits = limits
        self._meter = meter
        self._on_progress = on_progress
        self._io = io
        self._others = others
        self._job = JobProcesses(io.processes, spec.job_id)
        hosts = [host for host in command.hosts for _ in range(spec.ranks_per_node)] or [""] * spec.ranks
        self._ranks = [RankWatch(spec, rank, host) for rank, host in enumerate(hosts)]
        self._cards = CardWatch(meter, self._job, self._io.clock, limits.survey_seconds)
        self._process: StartedProcess | None = None

    def outcome(self) -> JobOutcome:
        environment = self._prepare()
        started = self._io.clock()
        self._watchdog = Watchdog(
            self._spec, self._command, self._limits, self._ranks, self._others, self._io.processes, started
        )
        self._cards.look(survey=True)
        with stop_signals() as stop:
            try:
                try:
                    ending, exit_code = self._watch(environment, stop)
                finally:
                    # A signal just before this line still raises; the outer block handles that.
                    stop.defer()
            finally:
                left = self._end(stop)
        wall_seconds = self._io.clock() - started
        window = window_of(ending.logs[: self._spec.ranks_per_node])
        cause, more = self._others.explained(ending.rank)
        return JobOutcome(
            kind=ending.kind,
            reason="; ".join(filter(None, (ending.reason, more, left))),
            log_tail="" if ending.kind is OutcomeKind.COMPLETE else output_tail(self._spec, self._command, ending.rank),
            exit_code=exit_code,
            logs=ending.logs,
            wall_seconds=wall_seconds,
            start_up_seconds=self._watchdog.start_up_seconds,
            contention=self._others.contention(self._meter.contention(window)),
            unhealthy=(*self._meter.unhealthy(window), *self._others.unhealthy()),
            guilty_rank=ending.rank,
            cause=cause or ending.cause,
            oom_evidence=None if ending.rank is None else self._others.oom_evidence(ending.rank),
        )

    def _prepare(self) -> dict[str, str]:
        """Make the run folder with its spec, end orphans of a killed suite, and return the job's environment."""
        spec = self._spec
        try:
            Path(spec.run_folder).mkdir(parents=True, exist_ok=True)
            with spec.spec_path.open("x", encoding="utf-8") as file:
                file.write(spec.to_json())
        except OSError as error:
            raise _unusable(Path(spec.run_folder), error) from error
        return clear_for(spec, self._command, spec.job_id, self._io, self._limits.grace_seconds)

    def _start(self, environment: Mapping[str, str]) -> StartedProcess:
        argv, folder = self._command.argv, Path(self._spec.run_folder)
        try:
            output = (folder / "output.log").open("xb")
        except OSError as error:
            raise _unusable(folder, error) from error
        with output:
            try:
                return self._io.start(argv, environment, output, folder, self._limits.grace_seconds)
            except OSError as error:
                raise LaunchError(
                    f"job {self._spec.job_id}",
                    field="command",
                    got=f"{' '.join(argv)[:150]} ({error})",
                    expected="a program that starts",
                    remedy="Correct the interpreter in perf.yaml",
                ) from error

    def _watch(self, environment: Mapping[str, str], stop: StopSignals) -> tuple[Ending, int | None]:
        process = self._process = self._start(environment)
        self._others.start()
        while True:
            stop.check()
            try:
                # The exit code is read before the logs: after it, the process writes nothing more.
                exit_code = process.poll()
            except GuardLostError as lost:
                begun = any(rank.step > 0 for rank in self._ranks)
                kind = OutcomeKind.CRASHED if begun else OutcomeKind.START_UP_FAILED
                return Ending(kind, str(lost), cause=FailureClass.LAUNCHER_DIED), None
            at = self._look(survey=exit_code is not None)
            code = exit_code or self._others.exit_code
            if exit_code is not None and self._others.over:
                return ending_of(self._spec, self._command, self._ranks, code), code
            ending = self._watchdog.given_up(at, code or None)
            if ending is not None:
                return ending, exit_code
            self._io.sleep(self._limits.poll_seconds)

    def _look(self, survey: bool) -> float:
        at = self._io.clock()
        self._others.look()
        self._watchdog.look(at)
        self._cards.look(survey)
        if self._on_progress is not None:
            self._on_progress(self._ranks[0].progress())
        return at

    def _end(self, stop: StopSignals) -> str:
        """End all processes of the job. Returns in words what may still run on another node."""
        grace_seconds, about = self._limits.grace_seconds, f"job {self._spec.job_id}"
        self._others.ask_to_end()
        try:
            end_processes(self._job.find, grace_seconds, about=about, at_once=stop.at_once)
        finally:
            if self._process is not None:
                self._process.close()
            left = self._others.wait_for_end(grace_seconds, stop.at_once)
        # Also ends a guard whose start was interrupted.
        end_processes(self._job.find_with_guard, 0.0, about=about)
        look = self._io.processes.look
        free_segments(self._job.known, lambda pid: look(pid) is not None)
        folder = Path(self._spec.run_folder)
        for pattern in self._command.discard:
            for path in folder.glob(pattern):
                path.unlink(missing_ok=True)
        return left


def _unusable(folder: Path, error: OSError) -> LaunchError:
    return LaunchError(
        f"run folder {folder}",
        got=str(error),
        expected="a new, writable folder",
        remedy="Free the disk, or name another folder for the runs",
    )


def free_segments(pids: Collection[int], lives: Callable[[int], bool], folder: Path = Path("/dev/shm")) -> int:
    """Remove the shared memory of those of a job's processes (``pids``) that have ended. Returns the number of files.

    Nothing else frees the shared memory of a killed job, and it would fill /dev/shm night by night. Paddle's and
    PyTorch's loaders pass batches in files whose names contain the process id of the maker. Files of another user stay.
    """
    freed = 0
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _SEGMENT.fullmatch(path.name)
        if match is None or int(match["pid"]) not in pids or lives(int(match["pid"])):
            continue
        with contextlib.suppress(FileNotFoundError, PermissionError):
            # Root could otherwise remove another user's file, whose maker once had the same process id.
            if path.lstat().st_uid == os.geteuid():
                path.unlink()
                freed += 1
    return freed
