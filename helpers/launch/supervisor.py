"""Runs one job from outside: starts it, watches every rank, decides when it must end and which rank is to blame, ends
all its processes, and says how it ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from helpers.common.files import make_folder
from helpers.launch.failure import HUNG, LAUNCHER_DIED, NEVER_STARTED, TIMED_OUT, UNREACHABLE, waits_for_rendezvous
from helpers.launch.guarded import GuardedProcess, GuardLostError, end_orphans, start_guarded
from helpers.launch.launchers.launcher import LaunchCommand, job_environment
from helpers.launch.nodes.node import OtherNodes
from helpers.launch.outcome import Ending, JobOutcome, OutcomeKind, ending_of, output_tail, was_profiling
from helpers.launch.signals import StopSignals, stop_signals
from helpers.launch.tail import Progress, RankWatch
from helpers.machine.watch.contention import Meter
from helpers.machine.watch.meters import CardWatch, window_of
from helpers.machine.watch.processes import JobProcesses, Processes
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.steplog import FAILED, REFUSED


@dataclass(frozen=True)
class JobLimits:
    """The times after which the supervisor ends a job, and the times between its looks at the job."""

    # The longest time until every rank is in its first step.
    start_up_seconds: float
    # After that: the longest time without a sign of life from an unfinished rank, or without an exit after all ranks
    # have finished.
    no_progress_seconds: float
    # The longest time of the whole job.
    run_seconds: float
    # The time between SIGTERM and SIGKILL.
    grace_seconds: float
    # How long the launcher has to notice a dead rank itself and to say how it died (Paddle's checks once a second).
    # With the grace and the kill, a job ends within 10 s of a rank's death.
    rank_death_seconds: float = 3.0
    # How much later the signs of life of other nodes may arrive: a file server shows a file as it was a minute ago.
    late_seconds: float = 60.0
    # The time between two looks at the job.
    poll_seconds: float = 0.25
    # The time between two looks at all processes of the machine.
    survey_seconds: float = 2.0


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


@dataclass
class _Run:
    _spec: JobSpec
    _command: LaunchCommand
    _limits: JobLimits
    _meter: Meter
    _on_progress: Callable[[Progress], None] | None
    _processes: Processes
    _others: OtherNodes
    _process: GuardedProcess | None = None
    # In monotonic seconds, as all times here.
    _started: float = 0.0
    _trouble_since: float | None = None
    _start_up_seconds: float | None = None

    def __post_init__(self) -> None:
        spec = self._spec
        self._job = JobProcesses(self._processes, spec.job_id)
        hosts = [host for host in self._command.hosts for _ in range(spec.ranks_per_node)] or [""] * spec.ranks
        self._ranks = [RankWatch(spec, rank, host) for rank, host in enumerate(hosts)]
        self._own_ranks = self._ranks[: spec.ranks_per_node]
        self._cards = CardWatch(self._meter, self._job, time.monotonic, self._limits.survey_seconds)

    def outcome(self) -> JobOutcome:
        with self._prepare() as output:
            # What a killed suite left.
            end_orphans(self._processes, self._limits.grace_seconds)
            return self._run(output)

    def _run(self, output: IO[bytes]) -> JobOutcome:
        self._started = time.monotonic()
        self._cards.look(survey=True)
        with stop_signals() as stop:
            try:
                try:
                    ending = self._watch(output, stop)
                finally:
                    # A signal just before this line still raises; the outer block handles that.
                    stop.defer()
            finally:
                left = self._end(stop)
        wall_seconds = time.monotonic() - self._started
        tail = "" if ending.kind is OutcomeKind.COMPLETE else output_tail(self._spec, self._command, ending.guilty_rank)
        if ending.failure is NEVER_STARTED and waits_for_rendezvous(tail):
            ending = replace(ending, failure=UNREACHABLE)
        window = window_of(ending.logs[: self._spec.ranks_per_node])
        rank = ending.guilty_rank
        return JobOutcome(
            **{**vars(ending), "reason": "; ".join(filter(None, (ending.reason, left)))},
            log_tail=tail,
            wall_seconds=wall_seconds,
            start_up_seconds=self._start_up_seconds,
            contention=self._others.contention(self._meter.contention(window)),
            unhealthy=(*self._meter.unhealthy(window), *self._others.unhealthy()),
            oom_evidence=None if rank is None else self._others.oom_evidence(rank),
        )

    def _prepare(self) -> IO[bytes]:
        """Make the run folder with its spec, and return the file for the job's output."""
        folder = Path(self._spec.run_folder)
        try:
            make_folder(folder)
            with self._spec.spec_path.open("x", encoding="utf-8") as file:
                file.write(self._spec.to_json())
            return (folder / "output.log").open("xb")
        except OSError as error:
            raise LaunchError(
                f"run folder {folder}",
                got=str(error),
                expected="a new, writable folder",
                remedy="Free the disk, or name another folder for the runs",
            ) from error

    def _start(self, output: IO[bytes]) -> GuardedProcess:
        spec, argv = self._spec, self._command.argv
        environment = job_environment(os.environ, spec, self._command, self._processes.marks(spec.job_id))
        try:
            return start_guarded(argv, environment, output, Path(spec.run_folder), self._limits.grace_seconds)
        except OSError as error:
            raise LaunchError(
                f"job {spec.job_id}",
                field="command",
                got=f"{' '.join(argv)[:150]} ({error})",
                expected="a program that starts",
                remedy="Correct the interpreter in perf.yaml",
            ) from error

    def _watch(self, output: IO[bytes], stop: StopSignals) -> Ending:
        process = self._process = self._start(output)
        self._others.start()
        while True:
            stop.check()
            try:
                # The exit code is read before the logs: after it, the process writes nothing more.
                exit_code = process.poll()
            except GuardLostError as lost:
                return Ending.failed(LAUNCHER_DIED, str(lost))
            at = self._look(survey=exit_code is not None)
            code = exit_code or self._others.exit_code
            if exit_code is not None and self._others.over:
                return ending_of(self._spec, self._command, self._ranks, code)
            ending = self._given_up(at, code or None)
            if ending is not None:
                return ending
            time.sleep(self._limits.poll_seconds)

    def _look(self, survey: bool) -> float:
        at = time.monotonic()
        self._others.look()
        self._look_at_ranks(at)
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

    def _look_at_ranks(self, at: float) -> None:
        """Read what the ranks have written, and note the ranks whose process is gone."""
        for rank in self._ranks:
            rank.poll(at)
            self._note_gone(rank, at)
        if self._start_up_seconds is None and all(rank.step > 0 for rank in self._ranks):
            self._start_up_seconds = at - self._started

    def _given_up(self, at: float, bad_exit: int | None) -> Ending | None:
        """Why the job must end; None while it may go on. ``bad_exit`` is the exit code of a launcher that failed."""
        limits, ranks, lost = self._limits, self._ranks, self._others.lost
        if lost is not None:
            return Ending.failed(*lost)
        troubled = any(rank.gone_at is not None or rank.footer_status in (FAILED, REFUSED) for rank in ranks)
        if troubled or bad_exit is not None:
            if self._trouble_since is None:
                self._trouble_since = at
            if at - self._trouble_since >= limits.rank_death_seconds:
                return ending_of(self._spec, self._command, ranks, bad_exit)
        running = at - self._started
        if running >= limits.run_seconds:
            if was_profiling(ranks):
                return ending_of(self._spec, self._command, ranks, bad_exit)
            return Ending.failed(TIMED_OUT, f"not done after {limits.run_seconds:g} s: {self._where()}")
        if self._start_up_seconds is None:
            if running < limits.start_up_seconds:
                return None
            if (apart := self._never_met()) is not None:
                return apart
            slowest = _furthest_behind(ranks)
            reason = f"{slowest.name} made no first step within {limits.start_up_seconds:g} s: {self._where()}"
            return Ending.failed(NEVER_STARTED, reason, slowest.rank)
        return self._hung(at)

    def _never_met(self) -> Ending | None:
        """The ending of a job on several nodes whose launchers never met: before that they start no rank."""
        meeting = self._command.rendezvous
        if not meeting or any(rank.last_growth is not None for rank in self._ranks):
            return None
        reason = (
            f"the nodes' launchers did not meet at {meeting} within {self._limits.start_up_seconds:g} s: another"
            " program has the port, or a node cannot reach it (nodes.port and the addresses in perf.yaml; firewalls)"
        )
        return Ending.failed(UNREACHABLE, reason)

    def _hung(self, at: float) -> Ending | None:
        limit = self._limits.no_progress_seconds + (self._limits.late_seconds if self._spec.case.nodes > 1 else 0.0)
        waiting = [rank for rank in self._ranks if rank.footer is None]
        if not waiting:
            last = max(rank.last_growth or self._started for rank in self._ranks)
            if at - last < limit:
                return None
            if was_profiling(self._ranks):
                return ending_of(self._spec, self._command, self._ranks, None)
            living = [rank for rank in self._own_ranks if self._lives(rank)]
            there = ", ".join(rank.name for rank in living) or "the launcher"
            reason = f"all ranks finished, but the job did not exit within {limit:g} s; still there: {there}"
            return Ending.failed(HUNG, reason, living[0].rank if living else None)
        silence = {rank.rank: at - (rank.last_growth or self._started) for rank in waiting}
        if max(silence.values()) < limit:
            return None
        # A rank that waits for the guilty one may have fallen silent earlier.
        silent = [rank for rank in waiting if silence[rank.rank] >= limit / 2]
        # Ranks wait for each other in every step, so the one furthest behind is the one that hangs.
        guilty = _furthest_behind([rank for rank in silent if self._is_stopped(rank)] or silent)
        seconds = min(limit, silence[guilty.rank])
        reason = f"{guilty.name} gave no sign of life for {seconds:.3g} s: {self._where()}"
        return Ending.failed(HUNG, reason, guilty.rank)

    def _note_gone(self, rank: RankWatch, at: float) -> None:
        """Note when a rank's process is gone although its log has no footer."""
        if rank.footer is not None or rank.gone_at is not None or rank.pid is None:
            return
        # Process ids of another host have no meaning here; that node's own program looks for its ranks.
        if not self._lives(rank) if rank in self._own_ranks else rank.rank in self._others.gone:
            rank.gone_at = at

    def _lives(self, rank: RankWatch) -> bool:
        process = None if rank.pid is None else self._processes.look(rank.pid)
        return process is not None and process.alive

    def _is_stopped(self, rank: RankWatch) -> bool:
        """Whether the rank's process got a SIGSTOP."""
        process = self._processes.look(rank.pid) if rank in self._own_ranks and rank.pid is not None else None
        return process is not None and process.state in ("T", "t")

    def _where(self) -> str:
        return ", ".join(
            f"{rank.name} at " + (f"step {rank.step} of {rank.steps}" if rank.step else repr(rank.phase))
            for rank in self._ranks
        )


def _furthest_behind(ranks: Sequence[RankWatch]) -> RankWatch:
    return min(ranks, key=lambda rank: (rank.step, rank.begun, rank.last_growth or 0.0))
