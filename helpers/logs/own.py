"""Reads this suite's own step logs. The logs of all ranks of one job are one run."""

from __future__ import annotations

import hashlib
import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from helpers.judging.rules.own import RULES, WALL_CLOCK, figures, reader_share, samples_per_step, step_seconds
from helpers.judging.rules.publishers import Rule, cards_of
from helpers.judging.rules.rates import rate_unit
from helpers.launch.steplog_reader import read_step_log
from helpers.logs.record import HONEST, Imported, RateSpread, RuleFigure
from helpers.logs.settings import AUTO, LogSetting, Stated, settle
from helpers.logs.source import LogFile
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError, LogError, StepLogError
from helpers.trainers.contract.job import SLOWDOWN_FACT
from helpers.trainers.contract.steplog import COMPLETE, StepLog

NAME = "steplog"
LOOKED_FOR = f'{NAME}: lines {{"kind": "header", ...}} and {{"kind": "step", ...}} of this suite'
_KINDS = ("header", "step", "footer")
# Header fields that are the same in the logs of all ranks of a job.
_SHARED = ("world_size", "cards_per_process", "case_id", "replicate", "framework", "framework_version")
Logs = Sequence[StepLog]

# The shortest measured window of the suite. Fewer steps say little about how much they scatter.
_FEW_STEPS = 30


def is_step_log(log: LogFile) -> bool:
    """Whether the first line that is not empty is a line of a step log."""
    return _first_record(log).get("kind") in _KINDS


def jobs(logs: Sequence[LogFile]) -> tuple[tuple[LogFile, ...], ...]:
    """The logs grouped by job, in the order of each job's first log; a log that names no job is a group of its own."""
    found: dict[object, list[LogFile]] = {}
    for log in logs:
        job_id = _first_record(log).get("job_id")
        found.setdefault(job_id if isinstance(job_id, str) else log, []).append(log)
    return tuple(tuple(each) for each in found.values())


def read_job(job: Sequence[LogFile], asked: Mapping[LogSetting, Stated], rule: str = AUTO) -> Imported:
    """The run whose ranks wrote these logs.

    Raises LogError if a rank is missing or there twice, if a log is damaged or its trainer did not complete, and if the
    case contradicts the settings in ``asked``.
    """
    by_rank = sorted(((_read(log), log) for log in job), key=lambda each: each[0].header.rank)
    logs = [log for log, _ in by_rank]
    first = logs[0].path
    source = first if len(logs) == 1 else f"{first} and {len(logs) - 1} more ranks"
    _check(source, logs)
    by_rule = tuple(_figure(RULES[name], rate, logs) for name, rate in figures(logs).items())
    if rule != AUTO and rule not in RULES:
        by_rule = (*by_rule, RuleFigure(rule, None, reason=f"rule {rule} is for other programs' logs"))
    wall_clock = next(each for each in by_rule if each.rule == WALL_CLOCK)
    return Imported(
        source=source,
        sha256=_sha256([file for _, file in by_rank]),
        format=NAME,
        number=1,
        runs_in_file=1,
        first_line=1,
        # One line for the header, one for each step, one for the footer.
        last_line=len(logs[0].steps) + 2,
        settings=settle(source, _settings(logs[0]), asked),
        figures=by_rule,
        usual=WALL_CLOCK if rule == AUTO else rule,
        honest=replace(wall_clock, rule=HONEST),
        reader_share=reader_share(logs) if logs[0].window else None,
        reader_reason="" if logs[0].window else "the log has no measured window",
        spread=spread_of(logs),
        dropped=(),
        warnings=tuple(doubts(logs)),
        unit=rate_unit(logs[0].header.case_id),
    )


def _first_record(log: LogFile) -> Mapping[str, object]:
    line = next((each.text for each in log.lines() if each.text), b"")
    try:
        record = json.loads(line) if line.startswith(b"{") else None
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _read(log: LogFile) -> StepLog:
    """Reads the log with the strict reader. That takes a file, and this log may be in an archive, so it is copied."""
    with tempfile.TemporaryDirectory(prefix="perfgate-steplog-") as folder:
        path = Path(folder) / "rank.jsonl"
        with path.open("wb") as file:
            file.writelines(log.blocks())
        try:
            return replace(read_step_log(path), path=log.source)
        except StepLogError as error:
            raise LogError(str(error).replace(str(path), log.source)) from error


def _check(source: str, logs: Sequence[StepLog]) -> None:
    """Raises LogError unless the logs are those of all ranks of one completed job, each rank once."""
    for log, after in pairwise(logs):
        if log.header.rank == after.header.rank:
            raise LogError(
                after.path, field="rank", got=after.header.rank, expected=f"each rank once: {log.path} is that rank too"
            )
        for field in _SHARED:
            expected, got = getattr(log.header, field), getattr(after.header, field)
            if expected != got:
                raise LogError(
                    after.path, field=field, got=got, expected=f"{expected!r}, as in {log.path} of the same job"
                )
    ranks, size = [log.header.rank for log in logs], logs[0].header.world_size
    missing = sorted(set(range(size)) - set(ranks))
    if missing:
        raise LogError(
            source,
            field="rank",
            got=f"ranks {', '.join(map(str, ranks))} of {size}",
            expected="the step logs of all ranks",
            remedy=f"Give those of rank {', '.join(map(str, missing))} too: a lost rank would pass for a slower run",
        )
    case = _case_of(logs[0])
    if (cards := cards_of(logs)) != case.cards:
        raise LogError(
            source, field="cards", got=f"{cards} in {len(logs)} step logs", expected=f"the {case.cards} of {case.id}"
        )
    for log in logs:
        if log.footer.status != COMPLETE:
            raise LogError(
                log.path,
                field="status",
                got=f"{log.footer.status}: {log.footer.reason}",
                expected=COMPLETE,
                remedy="An incomplete run is not a measurement",
            )


def _case_of(log: StepLog) -> Case:
    try:
        return Case.parse(log.header.case_id)
    except ConfigError as error:
        raise LogError(f"{log.path}: line 1: {error}") from error


def _settings(log: StepLog) -> dict[LogSetting, Stated]:
    """The settings of the case that the header names."""
    where, case = f"line 1: case_id {log.header.case_id}", _case_of(log)
    values = {
        LogSetting.FRAMEWORK: case.framework.value,
        LogSetting.MODEL: case.model.value,
        LogSetting.PRECISION: case.precision.value,
        LogSetting.BATCH_SIZE_PER_CARD: str(case.batch_size_per_card),
        LogSetting.CARDS: str(case.cards),
        LogSetting.NODES: str(case.nodes),
        LogSetting.DATA: case.data.value,
        LogSetting.XLA: str(case.xla).lower(),
    }
    if case.execution is not None:
        values[LogSetting.EXECUTION] = case.execution.value
    stated = {setting: Stated(value, where) for setting, value in values.items()}
    stated[LogSetting.FRAMEWORK_VERSION] = Stated(log.header.framework_version, "line 1: framework_version")
    return stated


def _sha256(files: Sequence[LogFile]) -> str:
    """The hash of a single log; for several logs the hash of their hashes, in the order of ranks."""
    if len(files) == 1:
        return files[0].sha256
    return hashlib.sha256("\n".join(file.sha256 for file in files).encode("ascii")).hexdigest()


def spread_of(logs: Logs) -> RateSpread | None:
    """The spread of the steps in the measured window; None if a log has no window."""
    rates = _rates(logs)
    if not rates:
        return None
    variation = statistics.stdev(rates) / statistics.fmean(rates) if len(rates) > 1 else 0.0
    return RateSpread(len(rates), statistics.median(rates), variation, min(rates), max(rates))


def doubts(logs: Logs) -> Iterator[str]:
    for log in logs:
        if share := log.header.facts.get(SLOWDOWN_FACT):
            yield f"rank {log.header.rank} was slowed down on purpose, by {share} of each step: no measurement"
    steps = len(logs[0].window)
    if steps < _FEW_STEPS:
        yield f"few steps: {steps} in the measured window, fewer than {_FEW_STEPS}"


def _rates(logs: Logs) -> list[float]:
    if not all(log.window for log in logs):
        return []
    return [images / seconds for images, seconds in zip(samples_per_step(logs), step_seconds(logs), strict=True)]


def _figure(rule: Rule, samples_per_s: float | str, logs: Logs) -> RuleFigure:
    if isinstance(samples_per_s, str):
        return RuleFigure(rule.name, None, how=rule.source, reason=samples_per_s)
    value = rule.of_steps(logs)
    return RuleFigure(rule.name, samples_per_s, value.used, value.left_out, rule.source)
