"""Finding the format: by its records, and an error that shows the closest lines where there is none or two."""

from __future__ import annotations

import re

import pytest

from helpers.logs.detect import detect
from helpers.logs.record import FormatSpec, RateOf
from helpers.logs.source import LogFile
from helpers.trainers.contract.errors import LogError
from tests.helpers.logs.reading_doubles import PLAIN, record, records, text_log

OTHER = FormatSpec(
    name="other",
    marker=b"speed=",
    record=re.compile(rb"speed=(?P<images_per_s>[\d.]+)/s"),
    rate_of=RateOf.JOB,
    configure=lambda context: {},
    rules=(),
    printed={"average": re.compile(rb"all in all (?P<images_per_s>[\d.]+)")},
)
FORMATS = {each.name: each for each in (PLAIN, OTHER)}


def refusal(log: LogFile) -> str:
    with pytest.raises(LogError) as error:
        detect(log, FORMATS)
    return str(error.value)


def test_a_format_is_found_by_its_records() -> None:
    assert detect(text_log("text", "speed=nothing", record(1)), FORMATS) is PLAIN
    assert detect(text_log("text", "rate: unknown", *["text"] * 9999, "speed=5/s"), FORMATS) is OTHER


def test_records_of_several_formats_are_refused_unless_one_is_named() -> None:
    log = text_log(*records(1, 2000), "speed=5/s", "speed=6/s")
    told = refusal(log)
    assert "plain, line 1: e0 s1 rate: 101; other, line 2000: speed=5/s" in told
    assert "Give --log-format plain or other" in told
    assert detect(log, FORMATS, "other") is OTHER


def test_the_figures_that_a_script_printed_tell_a_log_without_records() -> None:
    assert detect(text_log("all in all 55.5"), FORMATS) is OTHER
    assert "records of several formats" in refusal(text_log("all in all 55.5", "average rate: 55.5"))


def test_an_unknown_log_shows_the_closest_lines() -> None:
    lines = [
        "started",
        "step 1 ips: 12.5",
        "speed of the fan",
        "epoch 1 took 3 images",
        "step 2 speed 10 images/sec",
        "images_per_second rate: unknown 5",
        "speed=12 and rate: 5",
        "throughput 12 images/s",
        "elapse 3 s, ips 12.5 images/s",
    ]
    text = refusal(text_log(*lines))
    assert "got 'no records of a format that is known', expected those of plain, other" in text
    # Those with a marker, then those with most words of rates; by number.
    assert re.findall(r"line (\d+): ", text) == ["5", "6", "7", "8", "9"]
    assert "No line of rank 0 has a rate" in refusal(text_log(f"[1,3]<stdout>:{record(1)}"))
