"""``perfgate history``, ``exclude`` and ``reindex`` on a real history."""

from __future__ import annotations

import datetime
import io
import json
from pathlib import Path
from typing import Any

import pytest

from helpers.commands.main import EXIT_USAGE, main
from helpers.history import default_url
from helpers.history.history import History
from helpers.history.run_folders import ResultStore, write_night
from helpers.history.session_file import SessionRecord
from helpers.history.stored import SegmentStart
from helpers.session.gate import EXIT_OK
from helpers.trainers.contract.errors import HistoryError
from tests.helpers.commands.known import CASE, NEW, OTHER, add_night, history_in, moment, two_builds
from tests.helpers.history.made import SEGMENT, night, run
from tests.helpers.hostile_files import UNREADABLE, in_time

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("machine")]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def asked(runs: Path, *argv: str) -> str:
    out = io.StringIO()
    assert main([*argv, "--runs-dir", str(runs)], out) == EXIT_OK
    return out.getvalue()


def refused(runs: Path, capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main([*argv, "--runs-dir", str(runs)], io.StringIO()) == EXIT_USAGE
    return capsys.readouterr().err


def nights(runs: Path, *argv: str) -> list[dict[str, Any]]:
    (case,) = json.loads(asked(runs, "history", CASE, "--json", *argv))["cases"]
    return list(case["nights"])


# --- history


def test_a_night_has_the_local_date_on_which_its_session_began(runs: Path) -> None:
    """A session in California from 22:00 to 05:00, another that began at 23:50, and one in Shanghai at 02:00."""
    began = {
        "evening": "2026-11-20T22:00:00-08:00",
        "late": "2026-11-20T23:50:00-08:00",
        "shanghai": "2026-11-22T02:00:00+08:00",
    }
    with history_in(runs) as history:
        for number, (session, text) in enumerate(began.items()):
            date = SessionRecord(began=text).date.isoformat()
            for hours, case_id in ((1, CASE), (7, OTHER)):
                judged = datetime.datetime.fromisoformat(text) + datetime.timedelta(hours=hours)
                created = judged.astimezone(datetime.UTC).isoformat()
                history.add_night(night(number, 4.5, session=session, case_id=case_id, created=created, date=date))
        of_the_20th = {(each.record.session, each.record.case_id) for each in history.nights_of("2026-11-20")}
        assert of_the_20th == {(session, case_id) for session in ("evening", "late") for case_id in (CASE, OTHER)}
        assert {each.record.session for each in history.nights_of("2026-11-22..")} == {"shanghai"}
        with pytest.raises(HistoryError):
            history.nights_of("2026-11-21")
    for case_id in (CASE, OTHER):
        lines = [line.split()[:2] for line in asked(runs, "history", case_id).splitlines() if line.startswith("2026")]
        assert lines == [["2026-11-20", "evening"], ["2026-11-20", "late"], ["2026-11-22", "shanghai"]]


def test_nights_on_which_nothing_ran_are_shown_among_those_of_their_machine(runs: Path) -> None:
    nothing_ran = {"segment": {}, "status": "INFRA_ERROR", "log_rates": ()}
    with history_in(runs) as history:
        for day in range(1, 6):
            lost = nothing_ran if day in (1, 3, 5) else {}
            history.add_night(night(day, 4.5, host="h0", **lost))
        history.add_night(night(9, 4.5, host="h1", **nothing_ran))
    told = asked(runs, "history", CASE)
    assert f"{CASE} [cpu] on h0: 5 nights" in told
    assert f"{CASE} [cpu] on h1: 1 night" in told
    assert " on :" not in told


def test_a_line_a_night_with_session_build_figure_and_verdict(runs: Path) -> None:
    with history_in(runs) as history:
        add_night(history, 1, [4.5, 4.51, 4.52])
        add_night(history, 2, [4.4], build=NEW, status="REGRESSION", effect=-0.0952, evidence=1e6)
    first, second = (line.split() for line in asked(runs, "history", CASE).splitlines() if line.startswith("2026"))
    assert first == ["2026-11-01", "night01", "3.3.0", "@aaaa111", "90.92", "3", "-0.10%", "1.5", "PASS"]
    assert second == ["2026-11-02", "night02", "3.3.1", "@bbbb222", "81.45", "1", "-9.52%", "1000000", "REGRESSION"]


def test_other_segments_are_counted_and_shown_on_demand(runs: Path) -> None:
    with history_in(runs) as history:
        add_night(history, 1, [4.5])
        add_night(history, 2, [4.5])
        add_night(history, 3, [4.2], environment={"threads": "8"})
    assert "2 nights of other segments left out" in asked(runs, "history", CASE)
    assert [each["session"] for each in nights(runs)] == ["night03"]
    every = nights(runs, "--all-segments")
    assert [each["segment"] for each in every] == [1, 1, 2]
    assert every[2]["notes"] == ["other segment: threads: threads → 8"]


def test_the_night_that_was_just_recorded_is_shown_and_those_before_it_are_not(runs: Path) -> None:
    with history_in(runs) as history:
        add_night(history, 1, [4.5])
        add_night(history, 2, [4.4], status="NO_BASELINE")
        after = f"{moment(2)[:11]}23:00:00+00:00"
        history.start_segment(SegmentStart(CASE, "cpu", SEGMENT, after, "baseline created: none recorded before"))
    (shown,) = nights(runs)
    assert (shown["session"], shown["notes"]) == ("night02", ["recorded: baseline created: none recorded before"])
    with history_in(runs) as history:
        add_night(history, 3, [4.4])
    assert [each["session"] for each in nights(runs)] == ["night02", "night03"]
    assert "1 nights of other segments left out" in asked(runs, "history", CASE)


def test_what_was_said_of_a_night_is_told(runs: Path) -> None:
    with history_in(runs) as history:
        for day in (1, 2, 3, 4):
            add_night(history, day, [4.5])
        add_night(history, 5, [4.5], run_values={"marks": ("contended",)})
        add_night(history, 6, [4.5], new_segment=True, machine_slow=True)
        (third,) = history.nights_of("night03")
        history.exclude(third.uuid, "ada", moment(9), "the fan was broken")
        after = f"{moment(3)[:11]}23:00:00+00:00"
        history.start_segment(SegmentStart(CASE, "cpu", SEGMENT, after, "recorded again", "beef"))
    notes = {each["session"]: each["notes"] for each in nights(runs, "--all-segments")}
    assert notes["night01"] == notes["night02"] == []
    assert notes["night03"] == ["excluded by ada on 2026-11-09: the fan was broken", "recorded: recorded again"]
    assert notes["night04"] == ["new segment: recorded again"]
    assert "contended" in notes["night05"][0]
    assert [note.split(":")[0] for note in notes["night06"]] == ["new segment from here", "the machine was slow"]
    text = asked(runs, "history", CASE, "--all-segments")
    assert "PASS (excluded)" in text and "▄▄×" in text.replace("▁", "▄")


def test_a_case_without_nights_and_a_case_that_is_none(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_builds(runs, drop=0.0)
    assert "no nights" in refused(runs, capsys, "history", "paddle-vgg16-fp32-bs1-1x1-dali-dynamic")
    assert "Nearest" in refused(runs, capsys, "history", "paddle-vgg16-fp99-bs1-1x1-dali-dynamic")
    assert "no such file" in refused(runs / "nowhere", capsys, "history", CASE)


# --- exclude


def test_a_night_is_excluded_by_its_place_and_put_back(runs: Path) -> None:
    two_builds(runs, drop=0.0, case_ids=(CASE, OTHER))
    place = f"night03/{CASE}"
    assert asked(runs, "mark", place, "--reason", "the fan").startswith("excluded: night ")
    assert "the fan" in asked(runs, "mark", "--list") and "1 excluded" in asked(runs, "mark", "--list")
    with history_in(runs) as history:
        assert [each.record.session for each in history.series(CASE) if each.exclusion] == ["night03"]
        assert not any(each.exclusion for each in history.series(OTHER))
    asked(runs, "mark", place, "--restore", "--reason", "it was the other one")
    assert asked(runs, "mark", "--list") == "0 excluded\n"
    with history_in(runs) as history:
        (said,) = history.exclusions(holding_only=False)
    assert (said.reason, said.restored_reason) == ("the fan", "it was the other one")


def learned(history: History) -> list[tuple[float, ...]]:
    """The log rates from which a later session learns."""
    return [night.log_rates for night in history.past(CASE, "cpu", SEGMENT, 1, "later").nights]


def test_a_run_is_excluded_by_the_place_of_its_folder_and_nothing_is_learned_from_it(runs: Path) -> None:
    # 0.33079984097747606: a rate whose logarithm, once it is an image/s, is another one in the last digit.
    with history_in(runs) as history:
        add_night(history, 7, [-0.33079984097747606, -0.33109420740303924])
    told = asked(runs, "mark", f"night07/{CASE}/r1", "--reason", "x")
    assert told.startswith("excluded: result night07-paddle-vgg-1")
    with history_in(runs) as history:
        assert learned(history) == [(-0.33079984097747606,)]
    asked(runs, "mark", f"night07/{CASE}/r0", "--reason", "x")
    with history_in(runs) as history:
        assert learned(history) == []


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["night03/" + CASE + "/r7", "--reason", "x"], "0 results"),
        (["night03/none", "--reason", "x"], "none"),
        (["nosuch/" + CASE, "--reason", "x"], "nosuch"),
        (["ffffffff", "--reason", "x"], "ffffffff"),
        (["night03/" + CASE], "--reason"),
        (["night03/" + CASE, "--reason", " "], "--reason"),
        (["--reason", "x"], "--list"),
        (["night03/" + CASE, "--list"], "--list"),
        (["night03/" + CASE, "--restore", "--reason", "x"], "an exclusion to take back"),
    ],
)
def test_what_cannot_be_excluded_is_refused(
    runs: Path, capsys: pytest.CaptureFixture[str], argv: list[str], told: str
) -> None:
    two_builds(runs, drop=0.0)
    assert told in refused(runs, capsys, "mark", *argv)


# --- reindex


def test_the_run_folders_make_the_history_again(runs: Path) -> None:
    store = ResultStore(runs, "s1")
    made = run("u1", 4.5, session="s1", created=moment(1))
    store.new_run_folder(CASE, 0)
    store.write(made)
    write_night(runs, night(1, 4.5, session="s1", created=moment(1), run_uuids=("u1",)))
    assert asked(runs, "reindex").startswith("1 sessions, 1 results, 1 nights")
    assert [each["session"] for each in nights(runs)] == ["s1"]
    asked(runs, "reindex")
    assert len(nights(runs)) == 1


def test_runs_of_another_folder_go_into_no_history_unasked(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``reindex COPY`` wrote into the checkout's own history without a word."""
    with history_in(runs) as history:
        add_night(history, 1, [4.5])
    copy = tmp_path / "copy"
    ResultStore(copy, "s1").new_run_folder(CASE, 0)
    ResultStore(copy, "s1").write(run("u1", 4.5, session="s1", created=moment(1)))
    write_night(copy, night(1, 4.5, session="s1", created=moment(1), run_uuids=("u1",)))
    told = refused(runs, capsys, "reindex", str(copy))
    assert f"--history {default_url(copy)}" in told and f"--history {default_url(runs)}" in told
    assert [each["session"] for each in nights(runs)] == ["night01"]
    assert not (copy / "history.sqlite").exists()
    assert f"are in {default_url(copy)}" in asked(runs, "reindex", str(copy), "--history", default_url(copy))
    assert f"{copy} goes into {default_url(copy)}" in capsys.readouterr().err
    assert [each["session"] for each in nights(runs)] == ["night01"]
    asked(runs, "reindex", str(copy), "--history", default_url(runs))
    assert {each["session"] for each in nights(runs)} == {"night01", "s1"}
    # The checkout's own folder may be named, too.
    ResultStore(runs, "s2").new_run_folder(CASE, 0)
    ResultStore(runs, "s2").write(run("u2", 4.5, session="s2", created=moment(2)))
    assert f"are in {default_url(runs)}" in asked(runs, "reindex", str(runs / ".." / "runs"))


@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_hostile_file_in_a_run_folder_is_named_and_the_rest_goes_in(runs: Path, kind: str) -> None:
    make, told = UNREADABLE[kind]
    store = ResultStore(runs, "s1")
    store.new_run_folder(CASE, 0)
    store.write(run("u1", 4.5, session="s1", created=moment(1)))
    write_night(runs, night(1, 4.5, session="s1", created=moment(1), run_uuids=("u1",)))
    hostile = [runs / "s0" / CASE / "r0" / "result.json", runs / "s0" / CASE / "night.json"]
    hostile[0].parent.mkdir(parents=True)
    for path in hostile:
        make(path)
    out = io.StringIO()
    with in_time():
        assert main(["reindex", "--runs-dir", str(runs)], out) == 6
    refused = [line for line in out.getvalue().splitlines() if line.startswith("not taken:")]
    assert [str(path) in line and told in line for path, line in zip(hostile, refused, strict=True)] == [True, True]
    assert "2 sessions, 1 results, 1 nights" in out.getvalue()
