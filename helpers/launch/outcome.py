"""Decides how a job ended, from its exit status and every rank's step log."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.launch.failure import (
    BAD_LOG,
    DIVERGED,
    LAUNCHER_DIED,
    Failure,
    crash_reason,
    ended_by_launcher,
    exit_text,
    failed_first,
    failure_of_exit,
    failure_of_rank,
    is_consequence,
    last_words,
    launcher_tail,
    status_of,
    tail_of,
)
from helpers.launch.launchers.launcher import LaunchCommand
from helpers.launch.steplog_reader import read_step_log
from helpers.launch.tail import RankWatch
from helpers.machine.watch.contention import ContentionSample
from helpers.trainers.contract.errors import StepLogError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.steplog import COMPLETE, FAILED, PROFILE, REFUSED, StepLog


class OutcomeKind(enum.Enum):
    """How a job ended; only COMPLETE is a measurement."""

    COMPLETE = "complete"
    # According to the trainer, this device or build cannot run the case.
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True)
class Ending:
    """How a job ended, as known before its last processes are ended and its contention is computed."""

    kind: OutcomeKind
    reason: str
    # The rank to blame; None if there is none.
    guilty_rank: int | None = None
    # The step logs in rank order; only for a COMPLETE job.
    logs: tuple[StepLog, ...] = ()
    # Only for a FAILED job.
    failure: Failure | None = None

    @staticmethod
    def failed(failure: Failure, reason: str, rank: int | None = None) -> Ending:
        return Ending(OutcomeKind.FAILED, reason, rank, failure=failure)

    @property
    def what(self) -> str:
        """What ended a FAILED job."""
        return "" if self.failure is None else self.failure.what


@dataclass(frozen=True, kw_only=True)
class JobOutcome(Ending):
    """How a job ended, and what disturbed it."""

    # The end of the guilty rank's output.
    log_tail: str
    wall_seconds: float
    # The time until the slowest rank began its first step; None if a rank made no step.
    start_up_seconds: float | None
    contention: ContentionSample
    # Why the cards were not fit for measuring; empty if they were.
    unhealthy: tuple[str, ...] = ()
    # What the node of the guilty rank says about the kernel's OOM killer, if it is not the first node.
    oom_evidence: tuple[bool, str] | None = None


def ending_of(spec: JobSpec, command: LaunchCommand, ranks: Sequence[RankWatch], exit_code: int | None) -> Ending:
    """The ending of a job that ended by itself, or in which a rank died or hung. A job is COMPLETE only if all its
    ranks are complete and every log can be read."""
    refused = [rank for rank in ranks if rank.footer_status == REFUSED]
    if refused:
        return Ending(OutcomeKind.REFUSED, refused[0].footer_reason or "refused without a reason", refused[0].rank)
    guilty = _unborn(spec, command, ranks) or guilty_rank(_not_ended(spec, command, ranks)) or guilty_rank(ranks)
    if guilty is None and (exit_code == 0 or was_profiling(ranks)):
        return _read(spec)
    started = any(rank.step > 0 for rank in ranks)
    alone = _left_alone(spec, command, ranks, exit_code)
    if alone is not None:
        return Ending.failed(LAUNCHER_DIED, alone)
    if exit_code == 0 and guilty is not None and guilty.footer_status is None:
        return _without_footer(spec, guilty)
    first_rank = 0 if guilty is None else guilty.rank - guilty.rank % spec.ranks_per_node
    tail = launcher_tail(_launchers_output(spec, command, first_rank))
    if guilty is None:
        return Ending.failed(failure_of_exit(exit_code, tail, started), crash_reason(exit_code, tail, first_rank))
    own, local_rank = output_tail(spec, command, guilty.rank), guilty.rank - first_rank
    reason = crash_reason(exit_code, tail, first_rank, local_rank)
    # If two ranks end between two checks of the launcher, it names the lower rank, which may only have lost the
    # connection to the other.
    failure = failure_of_exit(status_of(exit_code, tail, local_rank), own, started)
    if guilty.footer_status == FAILED:
        failure = failure_of_rank(guilty.footer_reason or own, started)
    return Ending.failed(failure, _blame(command, spec, guilty, reason), guilty.rank)


def was_profiling(ranks: Sequence[RankWatch]) -> bool:
    """Whether all was measured and logged, and a rank was profiling the steps after the window, which no figure
    contains (contract/step_profile.py)."""
    return all(rank.footer_status == COMPLETE for rank in ranks) and any(rank.phase == PROFILE for rank in ranks)


def _left_alone(spec: JobSpec, command: LaunchCommand, ranks: Sequence[RankWatch], exit_code: int | None) -> str | None:
    """How the launcher ended, if it ended by itself; None if a rank's failure ended it, or if there is no launcher.

    A negative exit code is a signal to the launcher itself; after a signal to a rank it exits with a status above 0.
    Always None for several nodes, since the code may be that of any node.
    """
    if exit_code is None or spec.case.nodes > 1 or any(rank.footer_status == FAILED for rank in ranks):
        return None
    if status_of(None, launcher_tail(_launchers_output(spec, command, 0))) is not None:
        return None
    unfinished = [rank for rank in ranks if rank.footer is None]
    living = [rank for rank in unfinished if rank.pid is not None and rank.gone_at is None]
    deserted = bool(living) and all(rank.gone_at is None for rank in unfinished)
    if not deserted and not (exit_code < 0 and spec.ranks > 1):
        return None
    names = ", ".join(rank.name for rank in unfinished)
    return f"the launcher {exit_text(exit_code)} " + (f"before {names} had finished" if names else "after all ranks")


def _without_footer(spec: JobSpec, guilty: RankWatch) -> Ending:
    """The ending of a job that exited with 0 although a rank's log has no footer. It says what is wrong with that log,
    with file and line."""
    lost = f"{guilty.name} ended without its log's footer, although the job exited with 0"
    try:
        read_step_log(guilty.log_path, spec.job_id, guilty.rank)
    except StepLogError as error:
        return Ending.failed(_failure_of_log(error), f"{lost}: {error}", guilty.rank)
    return Ending.failed(BAD_LOG, lost, guilty.rank)


def _failure_of_log(error: StepLogError) -> Failure:
    """The failure of a job whose log the reader refused. A loss that is not finite is a failure of the training, not of
    the log."""
    return DIVERGED if error.field == "loss" else BAD_LOG


def guilty_rank(ranks: Sequence[RankWatch]) -> RankWatch | None:
    """The rank that caused the failure; None if every rank's log is complete.

    A rank that failed by itself comes before one whose process ended while others ran, and that before a rank that only
    lost the connection to another. Ranks that were ended with the job come last. Among equals it is the rank that fell
    silent first.
    """
    unfinished = [rank for rank in ranks if rank.footer_status != COMPLETE]
    return min(unfinished, key=_blame_order, default=None)


def _unborn(spec: JobSpec, command: LaunchCommand, ranks: Sequence[RankWatch]) -> RankWatch | None:
    """The rank that failed before it wrote a heartbeat, by the launcher's output: the others were ended because of
    it."""
    each = spec.ranks_per_node
    for first in range(0, len(ranks), each):
        number = failed_first(launcher_tail(_launchers_output(spec, command, first)))
        if number is not None and number < each and ranks[first + number].last_growth is None:
            return ranks[first + number]
    return None


def _not_ended(spec: JobSpec, command: LaunchCommand, ranks: Sequence[RankWatch]) -> Sequence[RankWatch]:
    """The ranks that no launcher ended itself. Ranks that it ended may disappear between the same two checks as the
    rank that failed."""
    each, left = spec.ranks_per_node, []
    for first in range(0, len(ranks), each):
        ended = ended_by_launcher(launcher_tail(_launchers_output(spec, command, first)))
        left += [rank for rank in ranks[first : first + each] if rank.rank - first not in ended or rank.footer]
    return left


def output_tail(spec: JobSpec, command: LaunchCommand, rank: int | None) -> str:
    """The end of the rank's own output, or of the job's output if ranks have none of their own."""
    common = _launchers_output(spec, command, rank or 0)
    own = [Path(command.rank_logs[rank])] if rank is not None and rank < len(command.rank_logs) else []
    return tail_of(own) or tail_of([common])


def _launchers_output(spec: JobSpec, command: LaunchCommand, rank: int) -> Path:
    """The output file of the launcher that started this rank."""
    node = rank // spec.ranks_per_node
    return Path(command.outputs[node]) if node < len(command.outputs) else Path(spec.run_folder) / "output.log"


def _blame_order(rank: RankWatch) -> tuple[int, float, float, int]:
    # Of two ranks that fell silent between the same two checks, the one with fewer steps is to blame.
    silent_since, step = rank.last_growth or 0.0, rank.step
    if rank.footer_status == FAILED:
        return (2 if is_consequence(rank.footer_reason) else 0), 0.0, silent_since, step
    if rank.gone_at is not None:
        return 1, rank.gone_at, silent_since, step
    return 3, 0.0, silent_since, step


def _blame(command: LaunchCommand, spec: JobSpec, guilty: RankWatch, how_it_ended: str) -> str:
    if guilty.footer_status == FAILED:
        return f"{guilty.name} failed: {guilty.footer_reason or how_it_ended}"
    where = f"step {guilty.step}" if guilty.step else f"phase {guilty.phase!r}"
    text = how_it_ended.removeprefix(f"rank {guilty.rank} ")
    if text.startswith("rank "):
        # The text is about another rank, which ended because of the loss of this one; it does not say how this one
        # ended.
        text = f"the launcher says only how another rank ended: {text}"
    words = last_words(output_tail(spec, command, guilty.rank)) if command.rank_logs else ""
    if words and words not in text:
        text += f": {words}"
    return f"{guilty.name} ended without a footer at {where}: {text}"


def _read(spec: JobSpec) -> Ending:
    logs: list[StepLog] = []
    for rank in range(spec.ranks):
        try:
            log = read_step_log(spec.step_log_path(rank), spec.job_id, rank)
            _check(spec, log, before=logs)
        except StepLogError as error:
            return Ending.failed(_failure_of_log(error), str(error), rank)
        logs.append(log)
    known = {Path(log.path).name for log in logs}
    for stray in sorted(Path(spec.run_folder).glob("rank*.jsonl")):
        if stray.name not in known:
            surplus = StepLogError(
                f"step log {stray}", field="rank", expected=f"logs of ranks 0 to {spec.ranks - 1} alone"
            )
            return Ending.failed(BAD_LOG, str(surplus))
    return Ending(OutcomeKind.COMPLETE, "", logs=tuple(logs))


def _check(spec: JobSpec, log: StepLog, before: Sequence[StepLog]) -> None:
    """Raise StepLogError if a log is not of this job, or not whole: a shorter run would be another measurement.

    ``before`` are the lower ranks' logs.
    """
    about, made, header = f"step log {log.path}", len(log.warmup), log.header
    facts = (
        ("case_id", header.case_id, spec.case.id),
        ("replicate", header.replicate, spec.replicate),
        ("world_size", header.world_size, spec.ranks),
        ("device", header.device, spec.device),
        ("cards_per_process", header.cards_per_process, spec.cards_per_process),
        ("window steps", len(log.window), spec.window_steps),
    )
    for name, got, expected in facts:
        if got != expected:
            raise StepLogError(about, field=name, got=got, expected=f"{expected!r}, as the job says")
    least, most = spec.warmup_steps, spec.longest_warmup_steps
    if not least <= made <= most:
        expected = f"{least}" if least == most else f"{least} to {most}"
        raise StepLogError(about, field="warm-up steps", got=made, expected=f"{expected}, as the job says")
    if before and made != len(before[0].warmup):
        raise StepLogError(about, field="warm-up steps", got=made, expected=f"{len(before[0].warmup)}, as in rank 0")
    images = spec.case.batch_size_per_card * spec.cards_per_process
    for step in log.steps:
        if step.samples != images:
            cards = f"{spec.cards_per_process} cards" if spec.cards_per_process > 1 else "card"
            raise StepLogError(
                f"{about}, step {step.step} of epoch {step.epoch}",
                field="samples",
                got=step.samples,
                expected=f"{images}, the batch of its rank's {cards}",
            )
    node = header.rank - header.rank % spec.ranks_per_node
    for other in before[node:]:
        if other.header.pid == header.pid:
            twice = f"a process of its own; rank {other.header.rank} has this one"
            raise StepLogError(f"{about}:1", field="pid", got=header.pid, expected=twice)
