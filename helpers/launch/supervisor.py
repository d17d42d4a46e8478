"""Runs one job from outside: starts it, watches every rank, ends all its processes, and says how it ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from helpers.common.files import make_folder
from helpers.launch.failure import LAUNCHER_DIED, NEVER_STARTED, UNREACHABLE, waits_for_rendezvous
from helpers.launch.guarded import GuardedProcess, GuardLostError, end_orphans, start_guarded
from helpers.launch.launchers.launcher import LaunchCommand, job_environment
from helpers.launch.nodes.others import OtherNodes
from helpers.launch.outcome import Ending, JobOutcome, OutcomeKind, ending_of, output_tail
from helpers.launch.signals import StopSignals, stop_signals
from helpers.launch.tail import Progress, RankWatch
from helpers.launch.watchdog import JobLimits as JobLimits
from helpers.launch.watchdog import Watchdog
from helpers.machine.watch.contention import Meter
from helpers.machine.watch.meters import CardWatch, window_of
from helpers.machine.watch.processes import JobProcesses, Processes
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec


def run_job(
    spec: JobSpec,
    command: LaunchCommand,
    limits: JobLimits,
    meter: Meter,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    processes: Processes | None = None,
    others: OtherNodes | None = None,
) -> JobOutcome:
    """Run a job to its end, and leave none of its processes behind.

    This call blocks. Outside the main thread signals are not handled. It writes ``spec.json`` and ``output.log`` into
    the run folder, which must be new. ``on_progress`` is called at every look at the job. ``command`` starts the ranks
    of this node, which is the first; ``others`` are the other nodes. Raises LaunchError if the job cannot be started or
    ended. After SIGINT, SIGTERM or SIGHUP the job is ended and KeyboardInterrupt is raised; a second signal ends the
    job without grace.
    """
    processes, others = processes or Processes(), others or OtherNodes()
    return _Run(spec, command, limits, meter, on_progress, processes, others).outcome()


class _Run:
    def __init__(
        self,
        spec: JobSpec,
        command: LaunchCommand,
        limits: JobLimits,
        meter: Meter,
        on_progress: Callable[[Progress], None] | None,
        processes: Processes,
        others: OtherNodes,
    ) -> None:
        self._spec = spec
        self._command = command
        self._limits = limits
        self._meter = meter
        self._on_progress = on_progress
        self._processes = processes
        self._others = others
        self._job = JobProcesses(processes, spec.job_id)
        hosts = [host for host in command.hosts for _ in range(spec.ranks_per_node)] or [""] * spec.ranks
        self._ranks = [RankWatch(spec, rank, host) for rank, host in enumerate(hosts)]
        self._cards = CardWatch(meter, self._job, time.monotonic, limits.survey_seconds)
        self._process: GuardedProcess | None = None

    def outcome(self) -> JobOutcome:
        environment = self._prepare()
        started = time.monotonic()
        self._watchdog = Watchdog(
            self._spec, self._command, self._limits, self._ranks, self._others, self._processes, started
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
        wall_seconds = time.monotonic() - started
        tail = "" if ending.kind is OutcomeKind.COMPLETE else output_tail(self._spec, self._command, ending.rank)
        unmet = ending.failure is NEVER_STARTED and waits_for_rendezvous(tail)
        window = window_of(ending.logs[: self._spec.ranks_per_node])
        return JobOutcome(
            kind=ending.kind,
            reason="; ".join(filter(None, (ending.reason, left))),
            log_tail=tail,
            exit_code=exit_code,
            logs=ending.logs,
            wall_seconds=wall_seconds,
            start_up_seconds=self._watchdog.start_up_seconds,
            contention=self._others.contention(self._meter.contention(window)),
            unhealthy=(*self._meter.unhealthy(window), *self._others.unhealthy()),
            guilty_rank=ending.rank,
            failure=UNREACHABLE if unmet else ending.failure,
            oom_evidence=None if ending.rank is None else self._others.oom_evidence(ending.rank),
        )

    def _prepare(self) -> dict[str, str]:
        """Make the run folder with its spec, end orphans of a killed suite, and return the job's environment."""
        spec = self._spec
        try:
            make_folder(Path(spec.run_folder))
            with spec.spec_path.open("x", encoding="utf-8") as file:
                file.write(spec.to_json())
        except OSError as error:
            raise _unusable(Path(spec.run_folder), error) from error
        end_orphans(self._processes, self._limits.grace_seconds)
        return job_environment(os.environ, spec, self._command, self._processes.marks(spec.job_id))

    def _start(self, environment: Mapping[str, str]) -> GuardedProcess:
        argv, folder = self._command.argv, Path(self._spec.run_folder)
        try:
            output = (folder / "output.log").open("xb")
        except OSError as error:
            raise _unusable(folder, error) from error
        with output:
            try:
                return start_guarded(argv, environment, output, folder, self._limits.grace_seconds)
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
                return Ending.failed(LAUNCHER_DIED, str(lost)), None
            at = self._look(survey=exit_code is not None)
            code = exit_code or self._others.exit_code
            if exit_code is not None and self._others.over:
                return ending_of(self._spec, self._command, self._ranks, code), code
            ending = self._watchdog.given_up(at, code or None)
            if ending is not None:
                return ending, exit_code
            time.sleep(self._limits.poll_seconds)

    def _look(self, survey: bool) -> float:
        at = time.monotonic()
        self._others.look()
        self._watchdog.look(at)
        self._cards.look(survey)
        if self._on_progress is not None:
            self._on_progress(self._ranks[0].progress())
        return at

    def _end(self, stop: StopSignals) -> str:
        """End all processes of the job. Returns in words what may still run on another node."""
        self._others.ask_to_end()
        try:
            if self._process is not None:
                self._process.end(stop.at_once, lambda: [process.pid for process in self._job.find()])
        finally:
            left = self._others.wait_for_end(self._limits.grace_seconds, stop.at_once)
        self._command.discard_files(self._spec)
        return left


def _unusable(folder: Path, error: OSError) -> LaunchError:
    return LaunchError(
        f"run folder {folder}",
        got=str(error),
        expected="a new, writable folder",
        remedy="Free the disk, or name another folder for the runs",
    )
