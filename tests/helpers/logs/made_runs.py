"""Runs of logs as the reader gives them, made by hand: invented numbers, no file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from helpers.logs.formats.common import Facts, finished
from helpers.logs.record import FormatSpec, LogRun, Printed, RateOf, RecordField
from helpers.logs.settings import LogSetting, Stated, join_global_batch

SETTINGS = {
    LogSetting.FRAMEWORK: "paddle",
    LogSetting.MODEL: "resnet50v1.5",
    LogSetting.PRECISION: "fp32",
    LogSetting.BATCH_SIZE_PER_CARD: "32",
    LogSetting.CARDS: "2",
}


def configured(format: FormatSpec, facts: Facts) -> dict[LogSetting, Stated]:
    """What a log says, with one card's share of a batch of all cards."""
    found = finished(facts, format.configure(facts))
    join_global_batch("a log", found)
    return found


def spec(*rules: str, rate_of: RateOf = RateOf.JOB, **values: Any) -> FormatSpec:
    values.setdefault("name", "made")
    return FormatSpec(
        marker=b"x",
        record=re.compile(b"x"),
        rate_of=rate_of,
        configure=lambda facts: {},
        rules=rules,
        **values,
    )


def run(
    format: FormatSpec,
    columns: Mapping[RecordField, Sequence[float]],
    settings: Mapping[LogSetting, str] | None = None,
    printed: Mapping[str, Sequence[tuple[int | None, float]]] | None = None,
    **values: Any,
) -> LogRun:
    said = {**SETTINGS, **(settings or {})}
    values.setdefault("source", "a.log")
    return LogRun(
        format=format,
        sha256="ab" * 32,
        number=1,
        runs_in_file=1,
        first_line=1,
        last_line=99,
        settings={each: Stated(value, "line 1") for each, value in said.items()},
        columns={each: list(map(float, numbers)) for each, numbers in columns.items()},
        rate_of=format.rate_of if isinstance(format.rate_of, RateOf) else RateOf.JOB,
        printed={
            key: tuple(Printed(rate, line, epoch) for line, (epoch, rate) in enumerate(lines, 1))
            for key, lines in (printed or {}).items()
        },
        **values,
    )


def paddleclas(
    batch_seconds: Sequence[Sequence[float]], settings: Mapping[LogSetting, str] | None = None, **values: Any
) -> LogRun:
    """What PaddleClas prints of epochs of steps that took so many seconds: every tenth step the mean since step 5.

    Steps count from 0, so those 0 to 4 are before the mean begins.
    """
    batch = int({**SETTINGS, **(settings or {})}[LogSetting.BATCH_SIZE_PER_CARD])
    columns: dict[RecordField, list[float]] = {
        each: [] for each in (RecordField.EPOCH, RecordField.STEP, RecordField.IMAGES_PER_S, RecordField.STEP_SECONDS)
    }
    for epoch, seconds in enumerate(batch_seconds):
        for step in range(10, len(seconds), 10):
            mean = sum(seconds[5 : step + 1]) / (step - 4)
            for each, value in zip(columns, (epoch, step, batch / mean, mean), strict=True):
                columns[each].append(value)
    format = spec("paddleclas-trimmed", "paddleclas-mean", rate_of=RateOf.CARD, running_mean=5, name="paddleclas")
    return run(format, columns, settings, **values)


def rates(format: FormatSpec, values: Sequence[float], first_step: int = 0, **more: Any) -> LogRun:
    """Records of each step with these images/s."""
    steps = [float(first_step + index) for index in range(len(values))]
    columns = {RecordField.EPOCH: [0.0] * len(steps), RecordField.STEP: steps, RecordField.IMAGES_PER_S: values}
    return run(format, columns, **more)
