"""What people decided is on file before the database has it, and the files alone bring it back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.history import open_history, taking_in
from helpers.history.decisions import Decision, DecisionFiles
from helpers.history.history import History
from helpers.history.stored import Calibration, Exclusion, Pin, Reindexed, SegmentStart
from helpers.trainers.contract.errors import HistoryError
from tests.helpers.history.made import CASE, SEGMENT, moment, night, run

NOW = moment(60)
PIN = Pin("paddlepaddle==3.3.1", "paddlepaddle", "3.3.1", "abc", "d1", "", "the release \x00 ü", "ada", NOW)
CALIBRATION = Calibration(CASE, "cpu", SEGMENT, NOW, "s1", 10, 0.1 + 0.2, 9.0, 0.002, 1e-300, 0.01)
START = SegmentStart(CASE, "cpu", SEGMENT, moment(3), "recorded anew", "abc")


@pytest.fixture
def judged(history: History) -> History:
    for number in (1, 2):
        history.add_result(run(f"aaaaaa{number}", 4.5 + number / 100, session=f"s{number}"))
        history.add_night(night(number, 4.5 + number / 100, run_uuids=(f"aaaaaa{number}",)))
    return history


def everything(history: History) -> list[object]:
    return [
        history.exclusions(holding_only=False),
        history.pins(),
        history.calibration(CASE, "cpu", SEGMENT),
        history.segment_starts(CASE),
        history.series(CASE),
        history.past(CASE, "cpu", SEGMENT, 2, "tonight"),
    ]


def decide_all(history: History) -> None:
    history.exclude("aaaaaa1", "ada", NOW, "coffee")
    history.restore("aaaaaa1", "bob", moment(61), "it was tea")
    history.exclude("aaaaaa1", "ada", moment(62), "coffee after all")
    history.exclude(history.series(CASE)[1].uuid, "ada", moment(63), "a broken fan")
    history.pin(PIN)
    history.add_calibration(CALIBRATION)
    history.start_segment(START)


@pytest.mark.parametrize("nights_first", [True, False])
def test_the_files_bring_every_decision_back_whatever_comes_first(
    judged: History, tmp_path: Path, nights_first: bool
) -> None:
    decide_all(judged)
    before = everything(judged)
    files = judged.decisions
    records = [each.record for each in judged.series(CASE)]
    results = [each.result for each in judged.results_of(case_id=CASE)]
    with open_history(f"sqlite:///{tmp_path / 'new' / 'history.sqlite'}", runs_folder=files.runs_folder) as again:
        if nights_first:
            again.add_results(results)
            _ = [again.add_night(each) for each in records]
        assert again.take_in_decisions() == ()
        if not nights_first:
            _ = [again.add_night(each) for each in records]
            again.add_results(results)
        assert everything(again) == before
        assert again.take_in_decisions() == ()
        assert everything(again) == before
        # Whoever contacts it later finds nothing to write.
        with again._database.reading() as connection:
            assert taking_in.lacking(connection, files.read()[0]) == []
    assert len(files.read()[0]) == 7


def test_decisions_are_read_by_the_time_of_each(tmp_path: Path) -> None:
    files = DecisionFiles(tmp_path)
    back = Exclusion("result", "v", "ada", moment(1), "r", moment(9), "bob", "r")
    made: list[Decision] = [back, START, Exclusion("result", "u", "ada", moment(2), "r"), CALIBRATION, PIN]
    for each in made:
        files.write(each)
    assert [type(each).__name__ for each in files.read()[0]] == [
        "Exclusion",
        "SegmentStart",
        "Exclusion",
        "Calibration",
        "Pin",
    ]


WRONG: dict[str, Callable[[dict[str, object]], object]] = {
    "no kind": lambda record: record.pop("kind"),
    "an unknown kind": lambda record: record.update(kind="opinion"),
    "a newer version": lambda record: record.update(schema_version=2),
    "no build": lambda record: _decision(record).pop("build"),
    "an unknown key": lambda record: _decision(record).update(mood="good"),
    "a number as a text": lambda record: _decision(record).update(who=3),
    "no moment": lambda record: _decision(record).update(created="yesterday"),
}


def _decision(record: dict[str, object]) -> dict[str, object]:
    found = record["decision"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("wrong", WRONG)
def test_a_file_that_no_suite_wrote_is_named_and_the_others_count(tmp_path: Path, wrong: str) -> None:
    files = DecisionFiles(tmp_path)
    path = files.write(PIN)
    files.write(START)
    record = json.loads(path.read_text())
    WRONG[wrong](record)
    path.write_text(json.dumps(record))
    found, (refused,) = files.read()
    assert [type(each) for each in found] == [SegmentStart]
    assert str(path) in refused


def test_a_decision_that_cannot_be_written_is_not_made(judged: History) -> None:
    folder = judged.decisions.runs_folder
    folder.mkdir(parents=True)
    (folder / "decisions").touch()
    with pytest.raises(HistoryError, match="nothing was decided"):
        judged.exclude("aaaaaa1", "ada", NOW, "coffee")
    with pytest.raises(HistoryError, match="nothing was decided"):
        judged.start_segment(START)
    assert (judged.exclusions(), judged.segment_starts(CASE)) == ((), ())


def test_a_decision_that_the_database_did_not_get_is_made_and_goes_in_later(
    judged: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise HistoryError("history", got="disk full", expected="room")

    with monkeypatch.context() as patched:
        patched.setattr(taking_in, "take_in", full)
        with pytest.raises(HistoryError, match="It is decided, in ") as caught:
            judged.exclude("aaaaaa1", "ada", NOW, "coffee")
    (path,) = judged.decisions.runs_folder.glob("decisions/*.json")
    assert str(path) in str(caught.value)
    assert judged.exclusions() == ()
    # Said again, it is there already.
    with pytest.raises(HistoryError, match=r"by ada, .*: coffee"):
        judged.exclude("aaaaaa1", "bob", moment(61), "a broken fan")
    (known,) = judged.exclusions()
    assert known.who == "ada"
    assert [each.session for each in judged.past(CASE, "cpu", SEGMENT, 2, "x").nights] == ["s2"]


def test_reindex_counts_the_decisions_and_names_what_it_cannot_read(history: History, tmp_path: Path) -> None:
    files = DecisionFiles(tmp_path / "copied")
    files.write(PIN)
    files.write(START)
    assert history.reindex(files.runs_folder) == Reindexed(0, 0, 0, decisions=2)
    files.path(PIN).write_text("{")
    found = history.reindex(files.runs_folder)
    assert (found.decisions, len(found.refused)) == (1, 1)
    # What is read from another folder stays there.
    assert not history.decisions.runs_folder.exists()
