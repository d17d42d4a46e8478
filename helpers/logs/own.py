"""Reads this suite's own step logs. The logs of all ranks of one job are one run."""

from __future__ import annotations

import hashlib
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from helpers.judging.rates import rate_unit
from helpers.judging.rules import RULES, WALL_CLOCK, figures, reader_share, samples_per_step, step_seconds
from helpers.judging.rules_publishers import (
    COUNTED_STEPS,
    PADDLECLAS_SKIPPED_RECORDS,
    SKIPPED_STEPS,
    Rule,
    cards_of,
    ngc_pytorch_skipped,
    paddleclas_ends,
    paddleclas_records,
)
from helpers.judging.statistics import number
from helpers.launch.steplog_reader import MOST_LINE_BYTES, read_step_log
from helpers.logs.record import HONEST, Imported, RateSpread, RuleFigure
from helpers.logs.settings import AUTO, LogSetting, Stated, settle
from helpers.logs.sources.source import LogFile
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
# How many steps or records a rule used, and in words which ones it left out.
StepsUsed = tuple[int, tuple[str, ...]]

# The shortest measured window of the suite. Fewer steps say little about how much they scatter.
_FEW_STEPS = 30
_SLOW_LAST = 0.10


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
    figures = rule_figures(logs)
    if rule != AUTO and rule not in RULES:
        figures = (*figures, RuleFigure(rule, None, reason=f"rule {rule} is for other programs' logs"))
    wall_clock = next(each for each in figures if each.rule == WALL_CLOCK)
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
        figures=figures,
        usual=WALL_CLOCK if rule == AUTO else rule,
        honest=replace(wall_clock, rule=HONEST),
        reader_share=reader_share(logs) if logs[0].window else None,
        reader_reason="" if logs[0].window else "the log has no measured window",
        spread=spread_of(logs),
        dropped=(),
        warnings=doubts(logs),
    )


def _first_record(log: LogFile) -> Mapping[str, object]:
    for chunk in log.chunks():
        line = chunk.data.lstrip(b"\n")[:MOST_LINE_BYTES].partition(b"\n")[0]
        if line:
            try:
                record = json.loads(line) if line.startswith(b"{") else None
            except (ValueError, RecursionError):
                return {}
            return record if isinstance(record, dict) else {}
    return {}


def _read(log: LogFile) -> StepLog:
    """Reads the log with the strict reader. That takes a file, and this log may be in an archive, so it is copied."""
    with tempfile.TemporaryDirectory(prefix="perfgate-steplog-") as folder:
        path = Path(folder) / "rank.jsonl"
        with path.open("wb") as file:
            for chunk in log.chunks():
                file.write(chunk.data[:-1] if chunk.cut else chunk.data)
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
            got=f"ranks {_numbers(ranks)} of {size}",
            expected="the step logs of all ranks",
            remedy=f"Give those of rank {_numbers(missing)} too: a lost rank would pass for a slower run",
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
        return files[0].sha256()
    return hashlib.sha256("\n".join(file.sha256() for file in files).encode("ascii")).hexdigest()


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def rule_figures(logs: Logs) -> tuple[RuleFigure, ...]:
    """The figures by the suite's own and by the publishers' rules; a figure that cannot be computed has its reason."""
    return tuple(_figure(name, samples_per_s, logs) for name, samples_per_s in figures(logs).items())


def spread_of(logs: Logs) -> RateSpread | None:
    """The spread of the steps in the measured window; None if a log has no window."""
    rates = _rates(logs)
    if not rates:
        return None
    variation = statistics.stdev(rates) / statistics.fmean(rates) if len(rates) > 1 else 0.0
    return RateSpread(len(rates), statistics.median(rates), variation, min(rates), max(rates))


def doubts(logs: Logs) -> tuple[str, ...]:
    return tuple(_doubts(logs, _rates(logs)))


def _doubts(logs: Logs, rates: Sequence[float]) -> Iterator[str]:
    for log in logs:
        if share := log.header.facts.get(SLOWDOWN_FACT):
            rank = log.header.rank
            yield f"rank {rank} was slowed down on purpose, by {share} of each step: no measurement of its case"
    if len(rates) < _FEW_STEPS:
        yield f"few steps: {len(rates)} in the measured window, fewer than {_FEW_STEPS}"
    if len(rates) > 2 and rates[-1] / statistics.median(rates) - 1 < -_SLOW_LAST:
        below = rates[-1] / statistics.median(rates) - 1
        yield f"slow last step: {number(rates[-1])} {_unit_of(logs)}, {below:+.1%} from the median"


def _unit_of(logs: Logs) -> str:
    return rate_unit(*(log.header.case_id for log in logs))


def _rates(logs: Logs) -> list[float]:
    if not all(log.window for log in logs):
        return []
    return [images / seconds for images, seconds in zip(samples_per_step(logs), step_seconds(logs), strict=True)]


def _figure(name: str, samples_per_s: float | str, logs: Logs) -> RuleFigure:
    how = RULES[name].source
    if isinstance(samples_per_s, str):
        return RuleFigure(name, None, how=how, reason=samples_per_s)
    used, unused = _used(RULES[name])(logs)
    return RuleFigure(name, samples_per_s, used, unused, how)


def _used(rule: Rule) -> Callable[[Logs], StepsUsed]:
    """How many steps a rule used: by _USED, else all the steps that it needs, or the measured window."""
    return _USED.get(rule.name) or (_of_first(rule.steps, rule.steps) if rule.steps else _window)


def _window(logs: Logs) -> StepsUsed:
    warmup = len(logs[0].warmup)
    return len(logs[0].window), (f"{warmup} steps of warm-up",) if warmup else ()


def _paddleclas(ends_of: Callable[[int], int]) -> Callable[[Logs], StepsUsed]:
    def used(logs: Logs) -> StepsUsed:
        left = len(paddleclas_records(logs)) - PADDLECLAS_SKIPPED_RECORDS
        ends = ends_of(left)
        left_out = (f"{PADDLECLAS_SKIPPED_RECORDS} records of warm-up",)
        return left - 2 * ends, (*left_out, f"the {ends} lowest and the {ends} highest") if ends else left_out

    return used


def _counted(steps: int) -> Callable[[Logs], StepsUsed]:
    skipped = SKIPPED_STEPS + COUNTED_STEPS - steps
    return _of_first(skipped + steps, steps, f"{skipped} steps of warm-up")


def _of_first(steps: int, counted: int, *left_out: str) -> Callable[[Logs], StepsUsed]:
    """For a rule that uses ``counted`` steps, records or epochs of a run's first ``steps`` steps."""

    def used(logs: Logs) -> StepsUsed:
        behind = len(logs[0].steps) - steps
        return counted, (*left_out, f"{behind} steps behind them") if behind else left_out

    return used


def _pytorch_mean(logs: Logs) -> StepsUsed:
    skipped = ngc_pytorch_skipped(cards_of(logs))
    return _of_first(100, 99 - skipped, f"{skipped} steps of warm-up", "the 100th")(logs)


# Rules that need more steps than they use.
_USED: Mapping[str, Callable[[Logs], StepsUsed]] = MappingProxyType(
    {
        "paddleclas-mean": _paddleclas(lambda _: 0),
        "paddleclas-trimmed": _paddleclas(paddleclas_ends),
        "fleetx-20-100-median7": _of_first(
            SKIPPED_STEPS + COUNTED_STEPS + 1, COUNTED_STEPS, f"{SKIPPED_STEPS + 1} steps of warm-up", "waits for data"
        ),
        "dlperf-log": _counted(COUNTED_STEPS),
        "dlperf-time": _counted(COUNTED_STEPS - 1),
        "dlperf-tf2": _of_first(600, 500, "100 steps of warm-up"),
        "ngc-tf-mean": _of_first(500, 25, "200 steps and 5 records of warm-up", "9 of 10 steps, which have no record"),
        "ngc-tf-average": _of_first(500, 300, "200 steps of warm-up"),
        "ngc-tf-summary": _of_first(500, 300, "200 steps of warm-up"),
        "ngc-pytorch-mean": _pytorch_mean,
        "ngc-mxnet-epochs": _of_first(1500, 2, "1 epoch of warm-up", "the first 50 steps of each epoch"),
    }
)
