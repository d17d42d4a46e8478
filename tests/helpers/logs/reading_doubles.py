"""A log in memory and a format of its own, to try the reader without any program's format."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import replace

from helpers.logs.formats.common import Facts
from helpers.logs.record import FormatSpec, LogRun, RateOf, RecordField
from helpers.logs.settings import LogSetting, Stated
from helpers.logs.source import LogFile

SAID = {
    LogSetting.FRAMEWORK: Stated("paddle", "test"),
    LogSetting.MODEL: Stated("resnet50v1.5", "test"),
    LogSetting.PRECISION: Stated("fp32", "test"),
    LogSetting.BATCH_SIZE_PER_CARD: Stated("256", "test"),
    LogSetting.CARDS: Stated("8", "test"),
}


def configure(facts: Facts) -> Mapping[LogSetting, Stated]:
    """What lines ``setting NAME=VALUE`` say; the last of each counts."""
    said = {}
    for line in facts.lines:
        if line.text.startswith("setting "):
            name, _, value = line.text.removeprefix("setting ").partition("=")
            said[LogSetting(name)] = Stated(value, f"line {line.number}: {line.text}")
    return said


PLAIN = FormatSpec(
    name="plain",
    marker=b"rate: ",
    record=re.compile(
        rb"(?:(?P<time>\d\d\d\d-\d\d-\d\d [\d:]+) )?e(?P<epoch>\d+) s(?P<step>\d+) "
        rb"rate: (?P<images_per_s>[-+.\w]+)(?: wait (?P<reader_seconds>[-.\d]+))?"
    ),
    rate_of=RateOf.CARD,
    configure=configure,
    rules=(),
    starts=(re.compile(rb"^== begin ==$", re.MULTILINE),),
    printed={
        "average": re.compile(rb"average rate: (?P<images_per_s>[\d.]+)"),
        "epoch": re.compile(rb"end of e(?P<epoch>\d+): (?P<images_per_s>[\d.]+)"),
    },
)
NO_FINAL = replace(PLAIN, printed={})


def text_log(*lines: str, end: str = "\n") -> LogFile:
    """A log of these lines in memory; ``end`` is what its last line ends with."""
    return LogFile("made.log", "folder/made.log", io.BytesIO(("\n".join(lines) + end).encode()))


def record(step: int, epoch: int = 0, rate: object = 100.5, time: str = "") -> str:
    return f"{time + ' ' if time else ''}e{epoch} s{step} rate: {rate}"


def records(first: int, end: int, epoch: int = 0) -> list[str]:
    return [record(step, epoch, 100 + step) for step in range(first, end)]


def rates(run: LogRun) -> list[float]:
    return list(run.columns[RecordField.IMAGES_PER_S])


def drops(run: LogRun) -> dict[str, tuple[int, int]]:
    """How many by reason, and the line of the first."""
    return {each.reason: (each.count, each.first.number) for each in run.dropped}
