"""Finding the format: by its records, and an error that shows what was looked for where there is none or two."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from helpers.logs.reading.detect import detect
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


def test_the_wanted_format_is_taken_whatever_the_log_holds() -> None:
    assert detect(text_log("speed=5/s"), FORMATS, "plain") is PLAIN


def test_an_unknown_name_lists_the_known_ones() -> None:
    assert refusal(text_log("x"), "tsv") == "format: got 'tsv', expected one of auto, plain, other"


def test_records_of_two_formats_are_ambiguous() -> None:
    text = refusal(text_log(record(1), record(2), "speed=5/s", *["text"] * 1000, "speed=6/s", block_bytes=64))
    assert "got 'records of several formats', expected those of one" in text
    assert "2 records of plain, line 1: e0 s1 rate: 100.5; 2 records of other, line 3: speed=5/s" in text
    assert "Give --log-format plain or other, or split the log" in text


def test_what_comes_later_is_left_to_the_reader() -> None:
    assert detect(text_log(record(1), *["text"] * 1000, "speed=5/s", block_bytes=64), FORMATS) is PLAIN


def test_a_format_with_proofs_needs_one_of_them() -> None:
    proven = replace(OTHER, proofs=(re.compile(rb"^banner", re.MULTILINE), re.compile(rb"signature")))
    formats = {"other": proven}
    assert detect(text_log("speed=5/s", "x", "banner"), formats) is proven
    assert detect(text_log("speed=5/s", *["x"] * 999, "my signature", block_bytes=64), formats) is proven
    with pytest.raises(LogError, match=r"Records without the rest of their format: 2 of other"):
        detect(text_log("speed=5/s", "speed=5/s", " banner"), formats)


def test_the_figures_that_a_script_printed_tell_a_log_without_records() -> None:
    assert detect(text_log("all in all 55.5"), FORMATS) is OTHER
    both = text_log("all in all 55.5", "average rate: 55.5")
    assert "a printed figure of plain, line 2: average rate: 55.5; a printed figure of other, line 1" in refusal(both)


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


def test_an_unknown_log_without_any_rate_says_so() -> None:
    assert refusal(text_log("one", "two 2")).endswith("No line has a rate or a step's time")


def test_an_unknown_log_of_other_ranks_says_that_these_are_not_read() -> None:
    text = refusal(text_log(f"[1,3]<stdout>:{record(1)}", f"[1,5]<stdout>:{record(1)}"))
    assert "only rank 0's lines are read; those of ranks 3 to 5 are not" in text


def test_a_long_line_is_shown_in_part() -> None:
    text = refusal(text_log("ips: 5 " + "x" * 50_000))
    assert "line 1: ips: 5 xxx" in text
    assert len(text) < 1000


def test_formats_are_told_apart_by_their_whole_records(monkeypatch: pytest.MonkeyPatch) -> None:
    same_marker = replace(OTHER, name="same", marker=PLAIN.marker)
    assert detect(text_log(*records(1, 4)), {"same": same_marker, "plain": PLAIN}) is PLAIN
