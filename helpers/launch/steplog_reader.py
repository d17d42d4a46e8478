"""Reads step logs strictly: a log must be whole and consistent, or it is refused with file and line."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from helpers.machine.files import open_regular
from helpers.trainers.contract.errors import StepLogError
from helpers.trainers.contract.job import finite
from helpers.trainers.contract.steplog import (
    COMPLETE,
    FAILED,
    REFUSED,
    STEP_LOG_SCHEMAS_READ,
    WARMUP,
    WINDOW,
    Footer,
    Header,
    Step,
    StepLog,
)

# Larger than any uptime, memory size or batch, and small enough that no sum over a log overflows.
_MOST_SECONDS = 1e12
_MOST_COUNT = 2**53
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


T = TypeVar("T", Header, Step, Footer)


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
        record = self._parse(text)
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

    def _parse(self, line: str) -> dict[str, Any]:
        try:
            # NaN and infinity become numbers here, so that the check of their field can name it.
            record = json.loads(line, parse_constant=float, object_pairs_hook=self._object)
        except (ValueError, RecursionError) as error:
            raise self._error(got=line.strip()[:80], expected=f"a JSON object ({error})") from error
        if not isinstance(record, dict):
            raise self._error(got=type(record).__name__, expected="a JSON object")
        return record

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record = dict(pairs)
        if len(record) != len(pairs):
            raise self._error(got=[name for name, _ in pairs], expected="each key once")
        return record

    def _take_header(self, record: dict[str, Any]) -> Header:
        schema = record.pop("schema", None)
        if schema not in STEP_LOG_SCHEMAS_READ:
            raise self._error(field="schema", got=schema, expected=" or ".join(map(str, STEP_LOG_SCHEMAS_READ)))
        if ("cards_per_process" in record) != (schema > 1):
            expected = "a whole number" if schema > 1 else "no such key in schema 1"
            raise self._error(field="cards_per_process", got=record.get("cards_per_process"), expected=expected)
        header = self._build(Header, record)
        for name in ("replicate", "rank", "world_size", "pid", "cards_per_process"):
            self._count(name, getattr(header, name))
        for name in ("job_id", "case_id", "host", "framework", "framework_version", "framework_commit", "device"):
            self._text(name, getattr(header, name))
        if not isinstance(header.facts, dict):
            raise self._error(field="facts", got=type(header.facts).__name__, expected="a JSON object")
        for name, value in header.facts.items():
            self._text(f"facts.{name}", value)
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
        step = self._build(Step, record)
        for name in ("epoch", "step", "samples"):
            self._count(name, getattr(step, name))
        for name in ("start", "end", "reader_seconds"):
            value = getattr(step, name)
            if not finite(value) or not 0 <= value <= _MOST_SECONDS:
                raise self._error(field=name, got=value, expected="seconds, finite and not negative")
        if step.loss is not None and not finite(step.loss):
            raise self._error(
                field="loss", got=step.loss, expected="a finite number or null",
                remedy="A diverged or broken run is not a measurement",
            )  # fmt: skip
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
        footer = self._build(Footer, record)
        if footer.status not in (COMPLETE, REFUSED, FAILED):
            raise self._error(field="status", got=footer.status, expected=f"{COMPLETE}, {REFUSED} or {FAILED}")
        self._text("reason", footer.reason)
        for name in ("peak_host_bytes", "peak_device_bytes"):
            self._count(name, getattr(footer, name))
        return footer

    def _build(self, kind: type[T], record: dict[str, Any]) -> T:
        names = [item.name for item in fields(kind)]
        for name in record:
            if name not in names:
                raise self._error(field=name, got=record[name], expected=f"a known key of a {kind.__name__.lower()}")
        try:
            return kind(**record)
        except TypeError as error:
            raise self._error(
                got=sorted(record), expected=f"all keys of a {kind.__name__.lower()} ({error})"
            ) from error

    def _count(self, name: str, value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_COUNT:
            raise self._error(field=name, got=value, expected=f"a whole number from 0 to {_MOST_COUNT}")

    def _text(self, name: str, value: object) -> None:
        if not isinstance(value, str):
            raise self._error(field=name, got=value, expected="text")

    def _error(self, **words: Any) -> StepLogError:
        return StepLogError(f"step log {self._path}:{self._number}", **words)
