"""Reads step logs strictly: a log must be whole and consistent, or it is refused with file and line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.common.files import open_regular
from helpers.trainers.contract.errors import StepLogError
from helpers.trainers.contract.records import Unfit, finite, or_null, parsed, read_record
from helpers.trainers.contract.steplog import (
    COMPLETE,
    FAILED,
    REFUSED,
    STEP_LOG_SCHEMA_VERSION,
    WARMUP,
    WINDOW,
    Footer,
    Header,
    Step,
    StepLog,
)

# Larger than any uptime, and small enough that no sum over a log overflows.
_MOST_SECONDS = 1e12
# The shortest step: one tick of a clock. From it on, no rate and no share overflows either.
_LEAST_STEP_SECONDS = 1e-9
# A header with all its facts has a few kilobytes. The limit keeps a line without end from filling the memory.
MOST_LINE_BYTES = 2**20


def read_step_log(path: Path, job_id: str | None = None, rank: int | None = None) -> StepLog:
    """Read a log strictly.

    Raises StepLogError with file and line on: no header or footer, another job id or rank than expected, an unknown or
    missing key, a value that is not finite, a negative time, a step that overlaps the previous one, a missing or
    repeated step, a warm-up step after the window began, or a line above 1 MiB. Raises it with the file's name if that
    is not a regular file.
    """
    reader = _Reader(path, job_id, rank)
    try:
        with open_regular(path) as lines:
            number = 0
            while line := lines.readline(MOST_LINE_BYTES):
                number += 1
                reader.read(number, line)
    except OSError as error:
        raise StepLogError(f"step log {path}", got=str(error), expected="a readable file") from error
    return reader.finish()


def _number(value: Any) -> float:
    if not finite(value):
        raise Unfit("a finite number or null", value)
    return float(value)


class _Reader:
    def __init__(self, path: Path, job_id: str | None, rank: int | None) -> None:
        self._path = path
        self._number = 0
        self._job_id = job_id
        self._rank = rank
        self._header: Header | None = None
        self._steps: list[Step] = []
        self._footer: Footer | None = None

    def read(self, number: int, line: bytes) -> None:
        self._number = number
        if len(line) >= MOST_LINE_BYTES:
            raise self._error(got=line[:40], expected=f"a line below {MOST_LINE_BYTES} bytes")
        if not line.endswith(b"\n"):
            raise self._error(got=line[-40:], expected="a line with its end; the file was cut while being written")
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._error(got=line[:40], expected=f"UTF-8 ({error.reason} at byte {error.start})") from error
        record = parsed(text, self._fail)
        kind = record.pop("kind", None)
        if self._footer is not None:
            raise self._error(field="kind", got=kind, expected="nothing after the footer")
        if (kind == "header") != (self._header is None):
            raise self._error(field="kind", got=kind, expected="one header, on the first line")
        if kind == "header":
            self._header = self._take_header(record)
        elif kind == "step":
            self._steps.append(self._take_step(record))
        elif kind == "footer":
            self._footer = self._take_footer(record)
        else:
            raise self._error(field="kind", got=kind, expected="header, step or footer")

    def finish(self) -> StepLog:
        if self._header is None or self._footer is None:
            missing = "header" if self._header is None else "footer"
            raise self._error(field=missing, expected="one", remedy="The trainer died before it wrote it: see its log")
        return StepLog(str(self._path), self._header, tuple(self._steps), self._footer)

    def _take_header(self, record: dict[str, Any]) -> Header:
        schema = record.pop("schema", None)
        if schema != STEP_LOG_SCHEMA_VERSION or isinstance(schema, bool):
            raise self._error(field="schema", got=schema, expected=str(STEP_LOG_SCHEMA_VERSION))
        header = read_record(Header, record, self._fail)
        if header.cards_per_process == 0:
            raise self._error(field="cards_per_process", got=0, expected="at least 1 card")
        if header.rank >= header.world_size:
            raise self._error(field="rank", got=header.rank, expected=f"below the world size {header.world_size}")
        if self._job_id is not None and header.job_id != self._job_id:
            raise self._error(field="job_id", got=header.job_id, expected=repr(self._job_id))
        if self._rank is not None and header.rank != self._rank:
            raise self._error(field="rank", got=header.rank, expected=str(self._rank))
        return header

    def _take_step(self, record: dict[str, Any]) -> Step:
        step = read_record(Step, record, self._fail, {"float | None": or_null(_number)})
        for name in ("start", "end", "reader_seconds"):
            value = getattr(step, name)
            if value > _MOST_SECONDS:
                raise self._error(field=name, got=value, expected=f"seconds up to {_MOST_SECONDS:g}")
        if step.samples == 0:
            raise self._error(field="samples", got=0, expected="at least 1 image")
        if step.end - step.start < _LEAST_STEP_SECONDS:
            raise self._error(field="end", got=step.end, expected=f"a time after its start {step.start}")
        if step.phase not in (WARMUP, WINDOW):
            raise self._error(field="phase", got=step.phase, expected=f"{WARMUP} or {WINDOW}")
        self._follows(step)
        return step

    def _follows(self, step: Step) -> None:
        if not self._steps:
            if (step.epoch, step.step) != (0, 1):
                raise self._error(field="step", got=[step.epoch, step.step], expected="epoch 0, step 1 first")
            return
        before = self._steps[-1]
        if (step.epoch, step.step) not in ((before.epoch, before.step + 1), (before.epoch + 1, 1)):
            raise self._error(
                field="step",
                got=[step.epoch, step.step],
                expected=f"the step after {[before.epoch, before.step]}: none missing, none twice",
            )
        if step.start < before.end:
            raise self._error(field="start", got=step.start, expected=f"not before the last step's end {before.end}")
        if before.phase == WINDOW and step.phase == WARMUP:
            raise self._error(field="phase", got=step.phase, expected=f"{WINDOW}: the window has begun")

    def _take_footer(self, record: dict[str, Any]) -> Footer:
        footer = read_record(Footer, record, self._fail)
        if footer.status not in (COMPLETE, REFUSED, FAILED):
            raise self._error(field="status", got=footer.status, expected=f"{COMPLETE}, {REFUSED} or {FAILED}")
        return footer

    def _fail(self, name: str | None, got: Any, expected: str) -> StepLogError:
        remedy = "A diverged or broken run is not a measurement" if name == "loss" else None
        return self._error(field=name, got=got, expected=expected, remedy=remedy)

    def _error(self, **words: Any) -> StepLogError:
        return StepLogError(f"step log {self._path}:{self._number}", **words)
