"""Questions for people and reports: a case's series, and the nights that a selector means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helpers.history.history import History
from helpers.history.nights import night_uuid
from helpers.history.stored import SegmentStart
from helpers.judging.case.evidence import Compared
from helpers.trainers.contract.errors import HistoryError
from tests.helpers.history.made import BUILD, CASE, OTHER, SEGMENT, moment, night, run, segment

FULL = night(
    1, 1.5, 2.5, status="REGRESSION", code="confirmed", reason="slow \x00 \ud800 ü", stall_share=0.1, pairs=4,
    e_confirm=250.0, low=-0.03, high=-0.01, smallest_drop=0.01, machine_slow=True,
    run_uuids=("a", "b"), compared=Compared("paddle 3.3.1 @good", (1.5,), (1.25,), teaches_good=False), level=0.02,
)  # fmt: skip


@pytest.fixture
def nights(history: History) -> History:
    for day, commit, version in ((1, "abcdef12", "3.0.0"), (2, "abcdef12", "3.0.0"), (3, "ABC0ffee", "3.1.0")):
        history.add_night(night(day, build={**BUILD, "commit": commit, "version": version}))
    history.add_night(night(4, created="2024-01-05T23:59:59.999999+00:00", case_id=OTHER, target="v100", build={}))
    return history


# --- a case's series


def test_a_night_reads_back_equal(history: History) -> None:
    history.add_night(FULL)
    (found,) = history.series(CASE)
    assert found.record == FULL
    assert (found.uuid, found.current) == (night_uuid(FULL), True)
    assert len(found.segment_digest) == 12


def test_the_series_is_of_all_segments_and_says_which_is_current(history: History) -> None:
    old = segment(driver="old")
    for each in (night(1, segment=old), night(2), night(3, new_segment=True), night(4), night(5, case_id=OTHER)):
        history.add_night(each)
    found = history.series(CASE)
    assert [each.record.session for each in found] == ["s1", "s2", "s3", "s4"]
    assert history.series(CASE, "v100") == () and history.series(CASE, "cpu") == found
    assert [each.current for each in found] == [False, False, True, True]
    assert found[0].segment_digest != found[1].segment_digest == found[3].segment_digest
    history.start_segment(SegmentStart(CASE, "cpu", SEGMENT, moment(3, 1), "r"))
    assert [each.current for each in history.series(CASE)] == [False, False, False, True]


def test_a_page_gets_the_newest_nights_of_the_session_s_host_and_a_run_of_the_night_before(history: History) -> None:
    for result in (run("a", 4.1, "s1"), run("b", 4.2, "s2"), run("c", 4.3, "s3")):
        history.add_result(result)
    for each in (night(1, 4.1, run_uuids=("a",)), night(2, 4.2, run_uuids=("b",)), night(3, 4.3, run_uuids=("c",))):
        history.add_night(each)
    history.add_night(night(4, 4.4, segment=segment(host="another")))
    # Nothing ran on either.
    history.add_night(replace(night(5), log_rates=(), segment={}, host="another"))
    history.add_night(replace(night(6), log_rates=(), segment={}, host=SEGMENT["host"]))
    assert [each.record.session for each in history.nights_so_far(CASE, "cpu", "s3", 9).nights][-2:] == ["s3", "s6"]
    found = history.nights_so_far(CASE, "cpu", "s3", 4)
    assert [each.record.session for each in found.nights] == ["s2", "s3", "s6"]
    assert found.log_rates == ((4.2,), (4.3,), ()) and found.before is not None and found.before.uuid == "b"
    assert history.nights_so_far(CASE, "cpu", "a session without a night", 9).nights[-1].record.session == "s5"
    assert history.nights_so_far("nobody's", "cpu", "s3", 2).nights == ()


def test_a_night_from_which_nothing_is_learned_shows_what_its_runs_gave(history: History) -> None:
    history.add_result(run("a", 4.1, "s1"))
    history.add_result(run("b", 4.2, "s1", replicate=1, invalid="contended"))
    history.add_night(replace(night(1), log_rates=(), run_uuids=("a", "b")))
    assert history.nights_so_far(CASE, "cpu", "s1", 2).log_rates == ((pytest.approx(4.1),),)


def test_a_case_with_nights_is_named_once(nights: History) -> None:
    assert nights.cases() == ((OTHER, "v100"), (CASE, "cpu"))
    assert nights.cases("*vgg16*") == ((CASE, "cpu"),)
    assert nights.cases(target="v100") == ((OTHER, "v100"),)
    assert nights.cases("nobody") == ()


# --- selectors


@pytest.mark.parametrize(
    ("selector", "meant"),
    [
        ("s2", ["s2"]),
        ("2024-01-02", ["s1"]),
        ("2024-01-05", ["s4"]),
        ("2024-01-02..2024-01-03", ["s1", "s2"]),
        ("2024-01-04..", ["s3", "s4"]),
        ("..2024-01-03", ["s1", "s2"]),
        ("abcd", ["s1", "s2"]),
        ("ABCDEF12", ["s1", "s2"]),
        ("abc0", ["s3"]),
        ("3.1.0", ["s3"]),
    ],
)
def test_a_selector_means_a_session_a_day_days_a_commit_or_a_version(
    nights: History, selector: str, meant: list[str]
) -> None:
    assert [each.record.session for each in nights.nights_of(selector)] == meant


@pytest.mark.parametrize(
    "selector",
    ["", "..", "abc", "dddd", "9.9.9", "2024-13-01", "2024-02-30", "9999-12-31", "1999-01-01", "%", "2024-01-02..x"],
)
def test_a_selector_that_means_nothing_is_refused(nights: History, selector: str) -> None:
    with pytest.raises(HistoryError, match="selector"):
        nights.nights_of(selector)


def test_the_start_of_two_commits_is_refused_with_both(history: History) -> None:
    for day, commit in ((1, "abcdef12"), (2, "abcd0000")):
        history.add_night(night(day, build={**BUILD, "commit": commit}))
    with pytest.raises(HistoryError, match="abcd0000, abcdef12"):
        history.nights_of("abcd")
