"""Runs go in and come out equal, whatever stands in them; pairs and selections."""

from __future__ import annotations

import zlib
from dataclasses import fields, replace
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from helpers.history.codec import run_of, run_row
from helpers.history.history import History
from helpers.history.results import CONTENDED, MACHINE_SHARED, SLOWED, RunResult
from helpers.trainers.contract.errors import HistoryError, ResultError
from tests.helpers.history.made import CASE, OTHER, moment, night, run

EVERYTHING = run(
    "u-all",
    origin="imported",
    role="reference",
    stage="confirm",
    replicate=7,
    overrides={"lr": [0.1, None, True]},
    figures={"wall-clock": 12.5, "median-step": 0.1 + 0.2, "other": "not here"},
    step_seconds=tuple(0.1 + n / 3 for n in range(100)),
    samples_per_step=(16,) * 100,
    start_up_seconds=1.5,
    training_seconds=2.5,
    window_seconds=1e-9,
    reader_share=0.25,
    foreign_share=0.1,
    contention="7% by \x00 somebody \ud800 ü €",
    peak_host_bytes=2**40,
    peak_device_bytes=3,
    marks=(CONTENDED, "x"),
    failure="rank 1 was killed\x00",
    invalid="throttled",
    refusal="no such card",
    log_tail="a\x00b\udfff\n" * 50,
    verdict={"status": "PASS", "code": "c", "reason": "r\x00"},
)


def stored(history: History, **chosen: Any) -> list[RunResult]:
    return [each.result for each in history.results_of(**chosen)]


def test_a_run_reads_back_equal(history: History) -> None:
    untouched = {item.name for item in fields(RunResult) if getattr(EVERYTHING, item.name) == item.default}
    assert untouched == set()
    history.add_result(EVERYTHING)
    assert stored(history, session="s0") == [EVERYTHING]


def test_the_same_uuid_again_replaces_what_is_kept(history: History) -> None:
    history.add_result(run("u"))
    judged = replace(run("u"), verdict={"status": "PASS"}, step_seconds=(0.5,), build={"version": "9"})
    history.add_result(judged)
    assert stored(history, session="s0") == [judged]


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({}, ""),
        ({"marks": (CONTENDED,)}, "contended"),
        ({"marks": (MACHINE_SHARED,)}, "machine shared"),
        ({"marks": (SLOWED,)}, "slowed down for a test"),
        ({"marks": ("page cache cold",)}, ""),
        ({"overrides": {"learning_rate": 0.1}}, "settings changed (learning_rate)"),
        ({"origin": "imported", "marks": (CONTENDED,)}, "contended; imported"),
    ],
)
def test_says_why_nothing_is_learned_from_a_run(values: dict[str, Any], why: str) -> None:
    assert run_row(run("u", **values))["unlearned"] == why


@pytest.mark.parametrize("problem", ["failure", "invalid", "refusal"])
def test_an_unusable_run_has_no_log_rate(problem: str) -> None:
    assert run_row(run("u", **{problem: "why"}))["log_rate"] is None
    assert run_row(run("u"))["log_rate"] == run("u").log_rate


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_is_never_stored(history: History, value: float) -> None:
    with pytest.raises(HistoryError):
        history.add_result(run("u", figures={"median-step": value}))
    assert stored(history, session="s0") == []


@pytest.mark.parametrize("created", ["", "yesterday", "2024-05-06T07:08:09"])
def test_a_time_without_date_or_zone_is_refused(history: History, created: str) -> None:
    with pytest.raises(HistoryError, match="created"):
        history.add_result(run("u", created=created))


def test_an_error_in_the_middle_leaves_nothing_behind(history: History) -> None:
    with pytest.raises(HistoryError):
        history.add_case([run("u")], night(1, created="yesterday"))
    assert stored(history, session="s0") == []
    history.add_case([run("u")], night(1))
    assert stored(history, session="s0") == [run("u")]


@pytest.mark.parametrize(
    "body",
    [b"x", b"", *map(zlib.compress, (b"{", b'{"schema_version": 99}', b"{}", bytes(2**26)))],
    ids=range(6),
)
def test_a_damaged_row_is_an_error_with_its_name(history: History, body: bytes) -> None:
    history.add_result(run("u-damaged"))
    with history._database.writing() as connection:
        connection.execute(sa.text("UPDATE results SET body = :value"), {"value": body})
    with pytest.raises((HistoryError, ResultError), match="history"):
        history.results_of(session="s0")


@given(
    st.lists(st.floats(1e-300, 1e300), max_size=30),
    st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=30),
    st.text(),
)
def test_no_number_and_no_text_is_changed_on_the_way(seconds: list[float], losses: list[float], tail: str) -> None:
    result = run("u", step_seconds=tuple(seconds), losses=tuple(losses), log_tail=tail)
    assert run_of("u", run_row(result)["body"]) == result


# --- selections


def test_runs_are_chosen_by_every_filter_given_and_come_in_their_order(history: History) -> None:
    runs = [
        run("a", session="s1", replicate=1, created=moment(0, 5)),
        run("b", session="s1", replicate=0, created=moment(0, 4)),
        run("c", session="s1", case_id=OTHER, created=moment(0, 3)),
        run("d", session="s2", target="v100", created=moment(1)),
    ]
    for each in runs:
        history.add_result(each)

    def names(**chosen: Any) -> str:
        return "".join(each.uuid for each in stored(history, **chosen))

    assert names(session="s1") == "cba"
    assert names(session="s1", case_id=CASE) == "ba"
    assert names(case_id=CASE) == "bad"
    assert names(target="v100") == "d"
    assert names(uuids=("d", "c", "nobody")) == "cd"
    assert names(uuids=("d", "c"), session="s1") == "c"
    assert names(session="none") == ""
    assert names(uuids=[*(f"x{n}" for n in range(1200)), "a"]) == "a"
    with pytest.raises(HistoryError, match="all are too many"):
        history.results_of()
