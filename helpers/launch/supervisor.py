"""Runs one job from outside: starts it, watches every rank, ends all of it, and says how it went."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

from helpers.errors import LaunchError
from helpers.job import JobSpec
from helpers.launch.contention import Meter
from helpers.launch.launcher import LaunchCommand, job_environment
from helpers.launch.meters import CardWatch
from helpers.launch.outcome import Ending, JobOutcome, OutcomeKind, ending_of, output_tail
from helpers.launch.peers import NoPeers, Peers
from helpers.launch.processes import JobProcesses, Processes, end_processes
from helpers.launch.signals import sigterm_interrupts, uninterrupted
from helpers.launch.tail import Progress, RankWatch
from helpers.steplog import FAILED, REFUSED


@dataclass(frozen=True)
class JobLimits:
    """When the supervisor gives up on a job.

    - ``start_up_seconds``: until every rank is in its first step.
    - ``no_progress_seconds``: afterwards, without a sign of life from a rank that is not finished, or
      without an exit when all are.
    - ``run_seconds``: the whole job.
    - ``grace_seconds``: between SIGTERM and SIGKILL.
    - ``rank_death_seconds``: the launcher's time to notice a dead rank itself and to say how it died.
    - ``poll_seconds``: between two looks; ``survey_seconds``: between two looks at all processes.
    """

    start_up_seconds: float
    no_progress_seconds: float
    run_seconds: float
    grace_seconds: float
    rank_death_seconds: float = 5.0
    poll_seconds: float = 0.25
    survey_seconds: float = 2.0


class StartedProcess(Protocol):
    def poll(self) -> int | None: ...


class Starter(Protocol):
    def __call__(
        self, argv: tuple[str, ...], environment: Mapping[str, str], output: IO[bytes], folder: Path
    ) -> StartedProcess: ...


def start_process(
    argv: tuple[str, ...], environment: Mapping[str, str], output: IO[bytes], folder: Path
) -> StartedProcess:
    """In a session of its own, so that Ctrl-C reaches the suite alone, which then ends the job in order; and in
    ``folder``, the run's, because frameworks drop files where they are started (fleet: ``main_sharding_0``)."""
    return subprocess.Popen(
        argv, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip


@dataclass(frozen=True)
class Edges:
    """What a test replaces. ``clock`` must be the step logs' clock where contention is measured."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    start: Starter = start_process
    processes: Processes = field(default_factory=Processes)
    inherited: Mapping[str, str] | None = None


def clear_for(spec: JobSpec, command: LaunchCommand, mark: str, edges: Edges, grace_seconds: float) -> dict[str, str]:
    """End what a killed suite left on this machine; then the variables of a job whose processes bear ``mark``.

    Raises LaunchError when an orphan cannot be ended.
    """
    processes = edges.processes
    if processes.orphans():
        end_processes(processes.orphans, grace_seconds, about="an orphan of a killed suite")
    inherited = os.environ if edges.inherited is None else edges.inherited
    return job_environment(inherited, spec, command, processes.marks(mark))


def run_job(
    spec: JobSpec,
    command: LaunchCommand,
    limits: JobLimits,
    meter: Meter,
    *,
    on_progress: Callable[[Progress], None] | None = None,
    edges: Edges | None = None,
    peers: Peers | None = None,
) -> JobOutcome:
    """Run a job to its end and leave none of its processes behind.

    Blocks; call it from the main thread, else SIGTERM is not handled. Writes ``spec.json`` and
    ``output.log`` into the run folder, which must be new. ``on_progress`` is called at every look.
    ``peers`` are the other nodes, ``command`` starts the ranks of this one, the first.
    Raises LaunchError when the job cannot be started or ended; KeyboardInterrupt passes through
    after the job was ended, and SIGTERM becomes one.
    """
    return _Run(spec, command, limits, meter, on_progress, edges or Edges(), peers or NoPeers()).outcome()


class _Run:
    def __init__(
        self,
        spec: JobSpec,
        command: LaunchCommand,
        limits: JobLimits,
        meter: Meter,
        on_progress: Callable[[Progress], None] | None,
        edges: Edges,
        peers: Peers,
    ) -> None:
        self._spec = spec
        self._command = command
        self._limits = limits
        self._meter = meter
        self._on_progress = on_progress
        self._edges = edges
        self._peers = peers
        self._job = JobProcesses(edges.processes, spec.job_id)
        hosts = [host for host in command.hosts for _ in range(spec.case.cards_per_node)] or [""] * spec.case.cards
        self._ranks = [RankWatch(spec, rank, host) for rank, host in enumerate(hosts)]
        self._cards = CardWatch(meter, self._job, self._edges.clock, limits.survey_seconds)
        self._trouble_since: float | None = None
        self._started = 0.0
        self._start_up_seconds: float | None = None

    def outcome(self) -> JobOutcome:
        environment = self._prepare()
        self._started = self._edges.clock()
        self._cards.look(survey=True)
        try:
            with sigterm_interrupts():
                ending, exit_code = self._watch(environment)
        finally:
            with uninterrupted():
                left = self._end()
        wall_seconds = self._edges.clock() - self._started
        window = self._window(ending)
        return JobOutcome(
            kind=ending.kind,
            reason=f"{ending.reason}; {left}" if left else ending.reason,
            log_tail="" if ending.kind is OutcomeKind.COMPLETE else output_tail(self._spec, self._command, ending.rank),
            exit_code=exit_code,
            logs=ending.logs,
            wall_seconds=wall_seconds,
            start_up_seconds=self._start_up_seconds,
            contention=self._peers.contention(self._meter.contention(window)),
            unhealthy=(*self._meter.unhealthy(window), *self._peers.unhealthy()),
            guilty_rank=ending.rank,
        )

    def _prepare(self) -> dict[str, str]:
        """The run folder with its spec, and no orphan of a killed suite on the cards."""
        spec = self._spec
        try:
            Path(spec.run_folder).mkdir(parents=True, exist_ok=True)
            with spec.spec_path.open("x", encoding="utf-8") as file:
                file.write(spec.to_json())
        except OSError as error:
            raise LaunchError(
                f"run folder {spec.run_folder}",
                got=str(error),
                expected="a new, writable folder",
                remedy="Free the disk, or name another folder for the runs",
            ) from error
        return clear_for(spec, self._command, spec.job_id, self._edges, self._limits.grace_seconds)

    def _watch(self, environment: Mapping[str, str]) -> tuple[Ending, int | None]:
        argv = self._command.argv
        try:
            with (Path(self._spec.run_folder) / "output.log").open("xb") as output:
                process = self._edges.start(argv, environment, output, Path(self._spec.run_folder))
        except OSError as error:
            raise LaunchError(
                f"job {self._spec.job_id}",
                field="command",
                got=f"{' '.join(argv)[:150]} ({error})",
                expected="a program that starts",
                remedy="Correct the interpreter in perf.yaml",
            ) from error
        self._peers.start()
        while True:
            # Asked before the logs are read: whoever has exited writes no more.
            exit_code = process.poll()
            at = self._look(survey=exit_code is not None)
            code = exit_code or self._peers.exit_code
            if exit_code is not None and self._peers.over:
                return ending_of(self._spec, self._command, self._ranks, code), code
            ending = self._given_up(at, code or None)
            if ending is not None:
                return ending, process.poll()
            self._edges.sleep(self._limits.poll_seconds)

    def _look(self, survey: bool) -> float:
        at = self._edges.clock()
        self._peers.look()
        for rank in self._ranks:
            rank.poll(at)
            self._miss(rank, at)
        if self._start_up_seconds is None and all(rank.step > 0 for rank in self._ranks):
            self._start_up_seconds = at - self._started
        self._cards.look(survey)
        if self._on_progress is not None:
            self._on_progress(self._ranks[0].progress())
        return at

    def _given_up(self, at: float, bad_exit: int | None) -> Ending | None:
        """Why the job is not to go on; None while it may. ``bad_exit``: a node's launcher has failed so."""
        limits, ranks, lost = self._limits, self._ranks, self._peers.lost
        if lost is not None:
            kind = OutcomeKind.CRASHED if any(rank.step > 0 for rank in ranks) else OutcomeKind.START_UP_FAILED
            return Ending(kind, lost.reason, lost.rank)
        troubled = any(rank.gone_at is not None or rank.footer_status in (FAILED, REFUSED) for rank in ranks)
        if troubled or bad_exit is not None:
            if self._trouble_since is None:
                self._trouble_since = at
            if at - self._trouble_since >= limits.rank_death_seconds:
                return ending_of(self._spec, self._command, ranks, bad_exit)
        running = at - self._started
        if running >= limits.run_seconds:
            return Ending(OutcomeKind.TIMED_OUT, f"not done after {limits.run_seconds:g} s: {self._where()}", None)
        if self._start_up_seconds is None:
            if running < limits.start_up_seconds:
                return None
            slowest = min(ranks, key=lambda rank: rank.step)
            reason = f"no first step within {limits.start_up_seconds:g} s: {self._where()}"
            return Ending(OutcomeKind.START_UP_FAILED, reason, slowest.rank)
        return self._hung(at)

    def _hung(self, at: float) -> Ending | None:
        limit = self._limits.no_progress_seconds
        waiting = [rank for rank in self._ranks if rank.footer is None]
        if not waiting:
            last = max(rank.last_growth or self._started for rank in self._ranks)
            if at - last < limit:
                return None
            return Ending(OutcomeKind.HUNG, f"all ranks finished, but the job did not exit within {limit:g} s")
        silent = [rank for rank in waiting if at - (rank.last_growth or self._started) >= limit]
        if not silent:
            return None
        # Ranks wait for each other in every step, so the one furthest behind is the one that hangs.
        guilty = min(silent, key=lambda rank: (rank.step, rank.last_growth or 0.0))
        reason = f"{guilty.name} gave no sign of life for {limit:g} s: {self._where()}"
        return Ending(OutcomeKind.HUNG, reason, guilty.rank)

    def _miss(self, rank: RankWatch, at: float) -> None:
        """Note when a rank's process is gone although its log has no footer."""
        if rank.footer is not None or rank.gone_at is not None or rank.pid is None:
            return
        if rank in self._own_ranks:
            process = self._edges.processes.look(rank.pid)
            gone = process is None or not process.alive
        else:
            # A process id of another host means nothing here: its own agent looks.
            gone = rank.rank in self._peers.gone
        if gone:
            rank.gone_at = at

    def _where(self) -> str:
        return ", ".join(
            f"{rank.name} at " + (f"step {rank.step} of {rank.steps}" if rank.step else repr(rank.phase))
            for rank in self._ranks
        )

    def _end(self) -> str:
        """Leave nothing of the job behind; returns what may still run on another node."""
        grace_seconds = self._limits.grace_seconds
        self._peers.ask_to_end()
        try:
            end_processes(self._job.find, grace_seconds, about=f"job {self._spec.job_id}")
        finally:
            left = self._peers.wait_for_end(grace_seconds)
        folder = Path(self._spec.run_folder)
        for pattern in self._command.discard:
            for path in folder.glob(pattern):
                path.unlink(missing_ok=True)
        return left

    @property
    def _own_ranks(self) -> list[RankWatch]:
        """Those of this node, the first."""
        return self._ranks[: self._spec.case.cards_per_node]

    def _window(self, ending: Ending) -> tuple[float, float] | None:
        """Of this node's ranks: the clocks of other hosts have nothing to do with this one's."""
        steps = [step for log in ending.logs[: len(self._own_ranks)] for step in log.window]
        return (min(step.start for step in steps), max(step.end for step in steps)) if steps else None
