"""Decides when a running job must be ended, and which rank is to blame: the one that died, fell silent, was stopped or
never started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helpers.launch.failure import HUNG, NEVER_STARTED, TIMED_OUT, UNREACHABLE
from helpers.launch.launchers.launcher import LaunchCommand
from helpers.launch.nodes.others import OtherNodes
from helpers.launch.outcome import Ending, ending_of, was_profiling
from helpers.launch.tail import RankWatch
from helpers.machine.watch.processes import Processes
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
    # The longest time between the first sign of life of the first rank and that of the last rank. A rank gives it
    # before it loads its framework.
    rank_start_seconds: float = 60.0
    # How much later the signs of life of other nodes may arrive: a file server shows a file as it was a minute ago.
    late_seconds: float = 60.0
    # The time between two looks at the job.
    poll_seconds: float = 0.25
    # The time between two looks at all processes of the machine.
    survey_seconds: float = 2.0


class Watchdog:
    """Looks at the ranks of one job. All times are monotonic seconds of one clock.

    ``start_up_seconds`` is how long the slowest rank took to its first step; None before that.
    """

    def __init__(
        self, spec: JobSpec, command: LaunchCommand, limits: JobLimits, ranks: Sequence[RankWatch], others: OtherNodes,
        processes: Processes, started: float,
    ) -> None:  # fmt: skip
        self._spec = spec
        self._command = command
        self._limits = limits
        self._ranks = ranks
        self._own_ranks = ranks[: spec.ranks_per_node]
        self._others = others
        self._processes = processes
        self._started = started
        self._late_seconds = limits.late_seconds if spec.case.nodes > 1 else 0.0
        self._first_sign: float | None = None
        self._trouble_since: float | None = None
        self.start_up_seconds: float | None = None

    def look(self, at: float) -> None:
        """Read what the ranks have written, and note the ranks whose process is gone."""
        for rank in self._ranks:
            rank.poll(at)
            self._note_gone(rank, at)
        if self.start_up_seconds is None and all(rank.step > 0 for rank in self._ranks):
            self.start_up_seconds = at - self._started

    def given_up(self, at: float, bad_exit: int | None) -> Ending | None:
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
        if self.start_up_seconds is None:
            if running < limits.start_up_seconds:
                return self._not_started(at)
            if (apart := self._never_met()) is not None:
                return apart
            slowest = min(ranks, key=lambda rank: (rank.step, rank.begun, rank.last_growth or 0.0))
            reason = f"{slowest.name} made no first step within {limits.start_up_seconds:g} s: {self._where()}"
            return Ending.failed(NEVER_STARTED, reason, slowest.rank)
        return self._hung(at)

    def _not_started(self, at: float) -> Ending | None:
        """The ending of a job in which one rank never started: all others wait for it without a message."""
        unborn = [rank for rank in self._ranks if rank.last_growth is None]
        if self._first_sign is None and len(unborn) < len(self._ranks):
            self._first_sign = at
        limit = self._limits.rank_start_seconds + self._late_seconds
        if not unborn or self._first_sign is None or at - self._first_sign < limit:
            return None
        reason = f"{unborn[0].name} never started: no sign of life {limit:g} s after another rank's: {self._where()}"
        return Ending.failed(NEVER_STARTED, reason, unborn[0].rank)

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
        limit = self._limits.no_progress_seconds + self._late_seconds
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
        stopped = [rank for rank in silent if self._is_stopped(rank)]
        # Ranks wait for each other in every step, so the one furthest behind is the one that hangs.
        guilty = min(stopped or silent, key=lambda rank: (rank.step, rank.begun, rank.last_growth or 0.0))
        why = ", its process is stopped (SIGSTOP or a debugger)" if stopped else ""
        seconds = min(limit, silence[guilty.rank])
        reason = f"{guilty.name} gave no sign of life for {seconds:.3g} s{why}: {self._where()}"
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
        process = self._processes.look(rank.pid) if rank in self._own_ranks and rank.pid is not None else None
        return process is not None and process.state in ("T", "t")

    def _where(self) -> str:
        return ", ".join(
            f"{rank.name} at " + (f"step {rank.step} of {rank.steps}" if rank.step else repr(rank.phase))
            for rank in self._ranks
        )
