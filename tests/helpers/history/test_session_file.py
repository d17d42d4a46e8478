"""What a session is: kept before its first run, never written anew, and read strictly."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from helpers.history.run_folders import ResultStore, session_record, sessions_of
from helpers.history.session_file import SESSION_FILE, SessionRecord
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ResultError

LATE = SessionRecord("night", "2026-11-20T23:50:00-08:00")


def test_a_session_is_kept_before_its_first_run_and_stays_as_it_began(tmp_path: Path) -> None:
    ResultStore(tmp_path, "s", LATE).new_run_folder("case", 0)
    ResultStore(tmp_path, "s", SessionRecord("night", "2026-11-21T09:00:00-08:00")).new_run_folder("case", 1)
    assert session_record(tmp_path, "s") == LATE
    assert (str(LATE.date), LATE.moment.isoformat()) == ("2026-11-20", "2026-11-20T23:50:00-08:00")


def test_sessions_are_told_by_kind(tmp_path: Path) -> None:
    for name, kind in (("a", "night"), ("b", "bisect"), ("c", "night")):
        ResultStore(tmp_path, name, SessionRecord(kind)).begin()
    (tmp_path / "foreign").mkdir()
    assert set(sessions_of(tmp_path, "night")) == {"a", "c"}
    assert list(sessions_of(tmp_path, "bisect")) == ["b"]
    assert session_record(tmp_path, "foreign") is session_record(tmp_path, "nobody") is None
    assert session_record(tmp_path / "a", "../b") is None


def test_a_session_says_which_command_goes_on_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is typed: no path of this machine in the checkout, and what is there from anywhere else."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "executable", str(ROOT / ".venv/bin/python"))
    assert SessionRecord("night").going_on("s") == ".venv/bin/python -m pytest perf_tests --resume=s"
    assert SessionRecord("bisect").going_on("s") == ".venv/bin/perfgate bisect --resume=s"
    monkeypatch.chdir(tmp_path)
    assert SessionRecord("night").going_on("s") == f"{sys.executable} -m pytest {ROOT}/perf_tests --resume=s"


@pytest.mark.parametrize(
    "change",
    [
        {"began": "2026-11-20T23:50:00"},
        {"began": "2026-11-20"},
        {"began": "yesterday"},
        {"schema_version": 2},
        {"more": "x"},
        None,
    ],
)
def test_a_file_that_no_suite_wrote_is_refused(tmp_path: Path, change: dict[str, object] | None) -> None:
    ResultStore(tmp_path, "s", LATE).begin()
    file = tmp_path / "s" / SESSION_FILE
    file.write_text("{" if change is None else json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(ResultError, match=SESSION_FILE):
        session_record(tmp_path, "s")
