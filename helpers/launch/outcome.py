"""How a job ended, judged from its exit status and every rank's step log."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.errors import StepLogError
from helpers.job import JobSpec
from helpers.launch.contention import ContentionSample
from helpers.launch.crash import crash_reason, is_consequence, last_words, tail_of
from helpers.launch.launcher import LaunchCommand
from helpers.launch.tail import RankWatch
from helpers.steplog import COMPLETE, FAILED, REFUSED, StepLog
from helpers.steplog_reader import read_step_log


class OutcomeKind(enum.Enum):
    """COMPLETE alone is a measurement. REFUSED: the trainer says that this device or build cannot run the case."""

    COMPLETE = "complete"
    REFUSED = "refused"
    CRASHED = "crashed"
    HUNG = "hung"
    TIMED_OUT = "timed out"
    START_UP_FAILED = "start-up failed"
    BAD_LOG = "bad log"


@dataclass(frozen=True)
class Ending:
    """``kind`` and ``reason``, with the rank to blame where there is one; ``logs`` only when COMPLETE."""

    kind: OutcomeKind
    reason: str
    rank: int | None = None
    logs: tuple[StepLog, ...] = ()


@dataclass(frozen=True)
class JobOutcome:
    """What became of a job.

    ``logs`` are the step logs in rank order, only of a COMPLETE job. ``log_tail`` is the end of the
    guilty rank's output. ``start_up_seconds`` run to the first step of the slowest rank (None: never).
    ``unhealthy`` says why the cards were not fit.
    """

    kind: OutcomeKind
    reason: str
    log_tail: str
    exit_code: int | None
    logs: tuple[StepLog, ...]
    wall_seconds: float
    start_up_seconds: float | None
    contention: ContentionSample
    unhealthy: tuple[str, ...] = ()
    guilty_rank: int | None = None


def ending_of(spec: JobSpec, command: LaunchCommand, ranks: Sequence[RankWatch], exit_code: int | None) -> Ending:
    """The ending of a job that ended by itself, or in which a rank died. Fails closed: COMPLETE needs all."""
    refused = [rank for rank in ranks if rank.footer_status == REFUSED]
    if refused:
        return Ending(OutcomeKind.REFUSED, refused[0].footer_reason or "refused without a reason", refused[0].rank)
    guilty = guilty_rank(ranks)
    if exit_code == 0 and guilty is None:
        return _read(spec)
    if exit_code == 0 and guilty is not None and guilty.footer_status is None:
        lost = f"{guilty.name} ended without its log's footer, although the job exited with 0"
        return Ending(OutcomeKind.BAD_LOG, lost, guilty.rank)
    first_rank = 0 if guilty is None else guilty.rank - guilty.rank % spec.case.cards_per_node
    reason = crash_reason(exit_code, tail_of([_launchers_output(spec, command, first_rank)]), first_rank)
    if guilty is not None:
        reason = _blame(command, spec, guilty, reason)
    started = any(rank.step > 0 for rank in ranks)
    kind = OutcomeKind.CRASHED if started else OutcomeKind.START_UP_FAILED
    return Ending(kind, reason, None if guilty is None else guilty.rank)


def guilty_rank(ranks: Sequence[RankWatch]) -> RankWatch | None:
    """The rank that ended first and badly; None when every rank's log is complete.

    A rank that failed on its own account comes before one that was missed while others lived, that
    before one that only lost its peer, and all before ranks that were ended with the job; among equals,
    the one that fell silent first.
    """
    unfinished = [rank for rank in ranks if rank.footer_status != COMPLETE]
    return min(unfinished, key=_blame_order, default=None)


def output_tail(spec: JobSpec, command: LaunchCommand, rank: int | None) -> str:
    """The end of the rank's own output, or of the job's where ranks have none."""
    common = _launchers_output(spec, command, rank or 0)
    own = [Path(command.rank_logs[rank])] if rank is not None and rank < len(command.rank_logs) else []
    return tail_of(own) or tail_of([common])


def _launchers_output(spec: JobSpec, command: LaunchCommand, rank: int) -> Path:
    """The output of whatever started this rank."""
    node = rank // spec.case.cards_per_node
    return Path(command.outputs[node]) if node < len(command.outputs) else Path(spec.run_folder) / "output.log"


def _blame_order(rank: RankWatch) -> tuple[int, float, int]:
    silent_since = rank.log_path.stat().st_mtime_ns if rank.log_path.exists() else 0
    if rank.footer_status == FAILED:
        return (2 if is_consequence(rank.footer_reason) else 0), 0.0, silent_since
    if rank.gone_at is not None:
        return 1, rank.gone_at, silent_since
    return 3, 0.0, silent_since


def _blame(command: LaunchCommand, spec: JobSpec, guilty: RankWatch, how_it_ended: str) -> str:
    if guilty.footer_status == FAILED:
        return f"{guilty.name} failed: {guilty.footer_reason or how_it_ended}"
    where = f"step {guilty.step}" if guilty.step else f"phase {guilty.phase!r}"
    told = how_it_ended.removeprefix(f"rank {guilty.rank} ")
    words = last_words(output_tail(spec, command, guilty.rank)) if command.rank_logs else ""
    if words and words not in told:
        told += f": {words}"
    return f"{guilty.name} ended without a footer at {where}: {told}"


def _read(spec: JobSpec) -> Ending:
    logs: list[StepLog] = []
    for rank in range(spec.case.cards):
        try:
            log = read_step_log(spec.step_log_path(rank), spec.job_id, rank)
            _check(spec, log, first=logs[0] if logs else log)
        except StepLogError as error:
            return Ending(OutcomeKind.BAD_LOG, str(error), rank)
        logs.append(log)
    return Ending(OutcomeKind.COMPLETE, "", logs=tuple(logs))


def _check(spec: JobSpec, log: StepLog, first: StepLog) -> None:
    """The log is of this job and whole: a shorter run is another measurement. ``first`` is rank 0's."""
    facts = (
        ("case_id", log.header.case_id, spec.case.id),
        ("replicate", log.header.replicate, spec.replicate),
        ("world_size", log.header.world_size, spec.case.cards),
        ("device", log.header.device, spec.device),
        ("window steps", len(log.window), spec.window_steps),
    )
    for name, got, expected in facts:
        if got != expected:
            raise StepLogError(f"step log {log.path}", field=name, got=got, expected=f"{expected!r}, as the job says")
    about, made = f"step log {log.path}", len(log.warmup)
    least, most = spec.warmup_steps, spec.longest_warmup_steps
    if not least <= made <= most:
        expected = f"{least}" if least == most else f"{least} to {most}"
        raise StepLogError(about, field="warm-up steps", got=made, expected=f"{expected}, as the job says")
    if made != len(first.warmup):
        raise StepLogError(about, field="warm-up steps", got=made, expected=f"{len(first.warmup)}, as in rank 0")
