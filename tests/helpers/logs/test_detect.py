"""Finding the format: by its records, and an error that shows what was looked for where there is none or two."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from helpers.logs.detect import detect
from helpers.logs.record import FormatSpec, RateOf
from helpers.trainers.contract.errors import LogError
from tests.helpers.logs.reading_doubles import PLAIN, TextLog, record, records, text_log

OTHER = FormatSpec(
    name="other",
    title="another format",
    marker=b"speed=",
    record=re.compile(rb"speed=(?P<images_per_s>[\d.]+)/s"),
    looked_for="lines 'speed=N/s'",
    rate_of=RateOf.JOB,
    configure=lambda context: {},
    rules=(),
    printed={"average": re.compile(rb"all in all (?P<images_per_s>[\d.]+)")},
)
FORMATS = {each.name: each for each in (PLAIN, OTHER)}


def refusal(log: TextLog, wanted: str = "auto") -> str:
    with pytest.raises(LogError) as error:
        detect(log, FORMATS, wanted)
    return str(error.value)


def test_a_format_is_found_by_its_records() -> None:
    assert detect(text_log("text", "speed=nothing", record(1)), FORMATS) is PLAIN
    assert detect(text_log("text", "rate: unknown", "speed=5/s"), FORMATS) is OTHER


def test_a_format_is_found_behind_megabytes_of_other_text() -> None:
    log = text_log(*["other text " * 9] * 30_000, "speed=5/s", block_bytes=2**18)
    assert detect(log, FORMATS) is OTHER


def test_a_format_with_proofs_needs_one_of_them() -> None:
    proven = replace(OTHER, proofs=(re.compile(rb"^banner", re.MULTILINE), re.compile(rb"signature")))
    formats = {"other": proven}
    assert detect(text_log("speed=5/s", "x", "banner"), formats) is proven
    assert detect(text_log("speed=5/s", *["x"] * 999, "my signature", block_bytes=64), formats) is proven
    with pytest.raises(LogError, match=r"Without the rest of its format: 2 records of other"):
        detect(text_log("speed=5/s", "speed=5/s", " banner"), formats)


def test_the_figures_that_a_script_printed_tell_a_log_without_records() -> None:
    assert detect(text_log("all in all 55.5"), FORMATS) is OTHER
    both = text_log("all in all 55.5", "average rate: 55.5")
    assert "plain, line 2: average rate: 55.5; other, line 1" in refusal(both)


def test_an_unknown_log_names_all_that_was_looked_for_and_the_closest_lines() -> None:
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
    assert "got 'no records of a format that is known'" in text
    assert "plain: lines 'eN sN rate: N'; or other: lines 'speed=N/s'" in text
    shown = re.findall(r"line (\d+): ", text)
    # Those with a marker, then those with most words of rates; by number.
    assert shown == ["5", "6", "7", "8", "9"]
    assert "line 7: speed=12 and rate: 5; line 8: throughput 12 images/s" in text


def test_an_unknown_log_of_other_ranks_says_that_these_are_not_read() -> None:
    text = refusal(text_log(f"[1,3]<stdout>:{record(1)}", f"[1,5]<stdout>:{record(1)}"))
    assert "only rank 0's lines are read; those of 2 other ranks are not" in text


def test_formats_are_told_apart_by_their_whole_records(monkeypatch: pytest.MonkeyPatch) -> None:
    same_marker = replace(OTHER, name="same", marker=PLAIN.marker)
    assert detect(text_log(*records(1, 4)), {"same": same_marker, "plain": PLAIN}) is PLAIN
