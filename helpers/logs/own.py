"""Our own step logs: those of all ranks of one job are one run."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from helpers.judging.rules import RULES, WALL_CLOCK, reader_share
from helpers.launch.steplog_reader import MOST_LINE_BYTES, read_step_log
from helpers.logs.imported import HONEST, Imported, RuleFigure
from helpers.logs.own_figures import doubts, rule_figures, spread_of
from helpers.logs.reading.settings import settle
from helpers.logs.record import Said, Setting
from helpers.logs.sources.source import LogFile
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError, LogError, StepLogError
from helpers.trainers.contract.steplog import COMPLETE, StepLog

NAME = "steplog"
LOOKED_FOR = f'{NAME}: lines {{"kind": "header", ...}} and {{"kind": "step", ...}} of this suite'
_AUTO = "auto"
_KINDS = ("header", "step", "footer")
# What the logs of one job's ranks have in common.
_SHARED = ("world_size", "case_id", "replicate", "framework", "framework_version")


def is_step_log(log: LogFile) -> bool:
    """Whether the first line that is not empty is one of a step log."""
    return _first_record(log).get("kind") in _KINDS


def jobs(logs: Sequence[LogFile]) -> tuple[tuple[LogFile, ...], ...]:
    """The logs by job, in the order of each job's first; one that tells no job stands alone."""
    found: dict[object, list[LogFile]] = {}
    for log in logs:
        job_id = _first_record(log).get("job_id")
        found.setdefault(job_id if isinstance(job_id, str) else log, []).append(log)
    return tuple(tuple(each) for each in found.values())


def read_job(job: Sequence[LogFile], asked: Mapping[Setting, Said], rule: str = _AUTO) -> Imported:
    """The run whose ranks these logs are.

    Raises LogError where a rank is missing or there twice, where a log is damaged or its trainer did not complete, and
    where what was asked for contradicts the case.
    """
    by_rank = sorted(((_read(log), log) for log in job), key=lambda each: each[0].header.rank)
    logs = [log for log, _ in by_rank]
    first = logs[0].path
    source = first if len(logs) == 1 else f"{first} and {len(logs) - 1} more ranks"
    _check(source, logs)
    figures = rule_figures(logs)
    if rule != _AUTO and rule not in RULES:
        figures = (*figures, RuleFigure(rule, None, reason=f"rule {rule} is for other programs' logs"))
    wall_clock = next(each for each in figures if each.rule == WALL_CLOCK)
    return Imported(
        source=source,
        sha256=_sha256([file for _, file in by_rank]),
        format=NAME,
        number=1,
        runs_in_file=1,
        first_line=1,
        # A header, the steps, a footer.
        last_line=len(logs[0].steps) + 2,
        settings=settle(source, _settings(logs[0]), asked),
        figures=figures,
        usual=WALL_CLOCK if rule == _AUTO else rule,
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
    """By the strict reader, which takes a file: a log may lie in an archive."""
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
    """That they are every rank of one job once, and completed."""
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
    for log in logs:
        if log.footer.status != COMPLETE:
            raise LogError(
                log.path,
                field="status",
                got=f"{log.footer.status}: {log.footer.reason}",
                expected=COMPLETE,
                remedy="A run that was broken off is no measurement",
            )


def _settings(log: StepLog) -> dict[Setting, Said]:
    """Of the case that the header names."""
    where = f"line 1: case_id {log.header.case_id}"
    try:
        case = Case.parse(log.header.case_id)
    except ConfigError as error:
        raise LogError(f"{log.path}: line 1: {error}") from error
    values = {
        Setting.FRAMEWORK: case.framework.value,
        Setting.MODEL: case.model.value,
        Setting.PRECISION: case.precision.value,
        Setting.BATCH_SIZE_PER_CARD: str(case.batch_size_per_card),
        Setting.CARDS: str(case.cards),
        Setting.NODES: str(case.nodes),
        Setting.DATA: case.data.value,
        Setting.XLA: str(case.xla).lower(),
    }
    if case.execution is not None:
        values[Setting.EXECUTION] = case.execution.value
    said = {setting: Said(value, where) for setting, value in values.items()}
    said[Setting.FRAMEWORK_VERSION] = Said(log.header.framework_version, "line 1: framework_version")
    return said


def _sha256(files: Sequence[LogFile]) -> str:
    """Of the one log; of several the hash of their hashes in the order of ranks."""
    if len(files) == 1:
        return files[0].sha256()
    return hashlib.sha256("\n".join(file.sha256() for file in files).encode("ascii")).hexdigest()


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
