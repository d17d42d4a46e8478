"""When a running job is given up, and which rank is to blame: a dead, a silent, a stopped one, one never started."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helpers.job import JobSpec
from helpers.launch.failure import FailureClass
from helpers.launch.launcher import LaunchCommand
from helpers.launch.outcome import Ending, OutcomeKind, ending_of
from helpers.launch.peers import Peers
from helpers.launch.processes import Processes
from helpers.launch.tail import RankWatch
from helpers.steplog import FAILED, REFUSED


@dataclass(frozen=True)
class JobLimits:
    """When the supervisor gives up on a job.

    - ``start_up_seconds``: until every rank is in its first step.
    - ``no_progress_seconds``: afterwards, without a sign of life from a rank that is not finished, or
      without an exit when all are.
    - ``run_seconds``: the whole job.
    - ``grace_seconds``: between SIGTERM and SIGKILL.
    - ``rank_death_seconds``: the launcher's time to notice a dead rank itself and to say how it died (Paddle's looks
      once a second). With the grace and the kill it keeps the end of a job within 10 s of a rank's death.
    - ``rank_start_seconds``: between the first rank's first sign of life, which comes before it loads its framework,
      and the last one's.
    - ``poll_seconds``: between two looks; ``survey_seconds``: between two looks at all processes.
    """

    start_up_seconds: float
    no_progress_seconds: float
    run_seconds: float
    grace_seconds: float
    rank_death_seconds: float = 3.0
    rank_start_seconds: float = 60.0
    poll_seconds: float = 0.25
    survey_seconds: float = 2.0


class Watchdog:
    """Looks at the ranks of one job, ``started`` in the clock of ``at``, all monotonic seconds.

    ``start_up_seconds`` is how long the slowest rank took to its first step; None before it.
    """

    def __init__(
        self, spec: JobSpec, command: LaunchCommand, limits: JobLimits, ranks: Sequence[RankWatch], peers: Peers,
        processes: Processes, started: float,
    ) -> None:  # fmt: skip
        self._spec = spec
        self._command = command
        self._limits = limits
        self._ranks = ranks
        self._own_ranks = ranks[: spec.case.cards_per_node]
        self._peers = peers
        self._processes = processes
        self._started = started
        self._first_sign: float | None = None
        self._trouble_since: float | None = None
        self.start_up_seconds: float | None = None

    def look(self, at: float) -> None:
        """Take in what the ranks have written, and who is gone."""
        for rank in self._ranks:
            rank.poll(at)
            self._miss(rank, at)
        if self.start_up_seconds is None and all(rank.step > 0 for rank in self._ranks):
            self.start_up_seconds = at - self._started

    def given_up(self, at: float, bad_exit: int | None) -> Ending | None:
        """Why the job is not to go on; None while it may. ``bad_exit``: a node's launcher has failed so."""
        limits, ranks, lost = self._limits, self._ranks, self._peers.lost
        if lost is not None:
            kind = OutcomeKind.CRASHED if any(rank.step > 0 for rank in ranks) else OutcomeKind.START_UP_FAILED
            return Ending(kind, lost.reason, lost.rank, cause=FailureClass.RANK_LOST)
        troubled = any(rank.gone_at is not None or rank.footer_status in (FAILED, REFUSED) for rank in ranks)
        if troubled or bad_exit is not None:
            if self._trouble_since is None:
                self._trouble_since = at
            if at - self._trouble_since >= limits.rank_death_seconds:
                return ending_of(self._spec, self._command, ranks, bad_exit)
        running = at - self._started
        if running >= limits.run_seconds:
            return Ending(OutcomeKind.TIMED_OUT, f"not done after {limits.run_seconds:g} s: {self._where()}", None)
        if self.start_up_seconds is None:
            if running < limits.start_up_seconds:
                return self._not_started(at)
            if (apart := self._never_met()) is not None:
                return apart
            slowest = min(ranks, key=lambda rank: (rank.step, rank.begun, rank.last_growth or 0.0))
            reason = f"{slowest.name} made no first step within {limits.start_up_seconds:g} s: {self._where()}"
            return Ending(OutcomeKind.START_UP_FAILED, reason, slowest.rank)
        return self._hung(at)

    def _not_started(self, at: float) -> Ending | None:
        """A rank that its launcher forgot is waited for by all others, and nobody says so."""
        unborn = [rank for rank in self._ranks if rank.last_growth is None]
        if self._first_sign is None and len(unborn) < len(self._ranks):
            self._first_sign = at
        limit = self._limits.rank_start_seconds
        if not unborn or self._first_sign is None or at - self._first_sign < limit:
            return None
        reason = f"{unborn[0].name} never started: no sign of life {limit:g} s after another rank's: {self._where()}"
        return Ending(OutcomeKind.START_UP_FAILED, reason, unborn[0].rank)

    def _never_met(self) -> Ending | None:
        """Launchers of several nodes start no rank before they have met."""
        meeting = self._command.rendezvous
        if not meeting or any(rank.last_growth is not None for rank in self._ranks):
            return None
        reason = (
            f"the nodes' launchers did not meet at {meeting} within {self._limits.start_up_seconds:g} s: another"
            " program has the port, or a node cannot reach it (nodes.port and the addresses in perf.yaml; firewalls)"
        )
        return Ending(OutcomeKind.START_UP_FAILED, reason, None, cause=FailureClass.UNREACHABLE)

    def _hung(self, at: float) -> Ending | None:
        limit = self._limits.no_progress_seconds
        waiting = [rank for rank in self._ranks if rank.footer is None]
        if not waiting:
            last = max(rank.last_growth or self._started for rank in self._ranks)
            if at - last < limit:
                return None
            living = [rank for rank in self._own_ranks if self._lives(rank)]
            there = ", ".join(rank.name for rank in living) or "the launcher"
            reason = f"all ranks finished, but the job did not exit within {limit:g} s; still there: {there}"
            return Ending(OutcomeKind.HUNG, reason, living[0].rank if living else None)
        silence = {rank.rank: at - (rank.last_growth or self._started) for rank in waiting}
        if max(silence.values()) < limit:
            return None
        # Who waits for another rank may have fallen silent before it.
        silent = [rank for rank in waiting if silence[rank.rank] >= limit / 2]
        stopped = [rank for rank in silent if self._is_stopped(rank)]
        # Ranks wait for each other in every step, so the one furthest behind is the one that hangs.
        guilty = min(stopped or silent, key=lambda rank: (rank.step, rank.begun, rank.last_growth or 0.0))
        why = ", its process is stopped (SIGSTOP or a debugger)" if stopped else ""
        seconds = min(limit, silence[guilty.rank])
        reason = f"{guilty.name} gave no sign of life for {seconds:.3g} s{why}: {self._where()}"
        return Ending(OutcomeKind.HUNG, reason, guilty.rank)

    def _miss(self, rank: RankWatch, at: float) -> None:
        """Note when a rank's process is gone although its log has no footer."""
        if rank.footer is not None or rank.gone_at is not None or rank.pid is None:
            return
        # A process id of another host means nothing here: its own agent looks.
        if not self._lives(rank) if rank in self._own_ranks else rank.rank in self._peers.gone:
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
