"""Entries on disk: whole, once, in order, and kept where they cannot be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from helpers.history import default_url
from helpers.history.run_folders import sessions
from helpers.history.spool import Entry, Spool, spools_of
from helpers.trainers.contract.errors import HistoryError, HistoryUnreachable
from tests.helpers.history.made import moment, night, run
from tests.helpers.memory_double import MemoryDouble

URL = "postgresql://me:secret@db/perf"
ROOT = Path(__file__).parents[3]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool.of(tmp_path / "runs", URL)


@dataclass
class Away(MemoryDouble):
    """Takes so many entries and is then away."""

    takes: int = 0
    order: list[str] = field(default_factory=list)

    def _check(self, call: str) -> None:
        if self.takes == 0:
            raise HistoryUnreachable("history", got="gone", expected="an answer")
        self.takes -= 1
        self.order.append(call)


def files(spool: Spool) -> list[str]:
    return sorted(path.name for path in spool.folder.iterdir() if not path.name.startswith("."))


def test_what_goes_in_comes_out_equal_and_the_folder_is_empty(spool: Spool) -> None:
    result, judged = run("u", losses=(1.5, 1e-310)), night(1, 4.5, run_uuids=("u",))
    for entry in (judged, result):
        spool.put(entry)
    assert spool.waiting() == 2
    memory = MemoryDouble()
    assert spool.empty_into(memory).went_in == 2
    assert (memory.results, memory.nights) == ([result], [judged])
    assert (spool.waiting(), files(spool)) == (0, [])


def test_runs_go_in_before_the_nights_that_rest_on_them_and_the_older_first(spool: Spool) -> None:
    for entry in (night(2), night(1), run("b", created=moment(2)), run("a", created=moment(5))):
        spool.put(entry)
    memory = Away(takes=4)
    spool.empty_into(memory)
    assert memory.order == ["add_result", "add_result", "add_night", "add_night"]
    assert [each.uuid for each in memory.results] == ["b", "a"]
    assert [each.session for each in memory.nights] == ["s1", "s2"]


def test_a_repeat_replaces_the_earlier_one(spool: Spool) -> None:
    spool.put(run("u"))
    spool.put(replace(run("u"), failure="killed"))
    spool.put(night(1, 4.5))
    spool.put(replace(night(1, 4.6), status="REGRESSION"))
    memory = MemoryDouble()
    spool.empty_into(memory)
    assert [each.failure for each in memory.results] == ["killed"]
    assert [each.status for each in memory.nights] == ["REGRESSION"]


def test_what_was_not_taken_stays_and_goes_in_once(spool: Spool) -> None:
    for name in "abc":
        spool.put(run(name))
    with pytest.raises(HistoryUnreachable):
        spool.empty_into(Away(takes=1))
    assert spool.waiting() == 2
    memory = MemoryDouble()
    spool.empty_into(memory)
    assert len(memory.results) == 2


def test_what_comes_anew_while_it_is_taken_in_is_not_dropped(spool: Spool) -> None:
    spool.put(night(1, 4.5))

    class Meanwhile(MemoryDouble):
        def add_night(self, record: object) -> None:
            spool.put(replace(night(1, 4.6), status="REGRESSION"))

    spool.empty_into(Meanwhile())
    memory = MemoryDouble()
    spool.empty_into(memory)
    assert [each.status for each in memory.nights] == ["REGRESSION"]


def test_a_newer_one_counts_where_a_killed_process_had_begun_with_an_older(spool: Spool) -> None:
    spool.put(night(1, 4.5))
    with pytest.raises(HistoryUnreachable):
        spool.empty_into(Away())
    assert files(spool)[0].endswith(".taken")
    spool.put(replace(night(1, 4.6), status="REGRESSION"))
    memory = MemoryDouble()
    emptied = spool.empty_into(memory)
    assert (emptied.went_in, emptied.refused) == (1, ())
    assert [each.status for each in memory.nights] == ["REGRESSION"]
    assert files(spool) == []


DAMAGES = {
    "cut": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "bit": lambda text: text.replace("median-step", "nedian-step"),
    "newer": lambda text: text.replace('"schema_version":1}', '"schema_version":99}'),
    "kind": lambda text: text.replace('"kind":"result"', '"kind":"opinion"'),
    "other": lambda text: json.dumps([1]),
    "deep": lambda text: "[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_and_kept_and_the_rest_goes_in(spool: Spool, damage: str) -> None:
    path = spool.put(run("a"))
    spool.put(run("b"))
    before = path.read_text()
    path.write_text(DAMAGES[damage](before))
    assert path.read_text() != before
    memory = MemoryDouble()
    emptied = spool.empty_into(memory)
    assert [each.uuid for each in memory.results] == ["b"]
    (kept,) = spool.damaged()
    assert kept.read_text() == DAMAGES[damage](before)
    assert str(kept) in emptied.refused[0] and "reindex" in emptied.refused[0]
    # It is not asked again, and not forgotten.
    assert (spool.empty_into(memory).refused, len(spool.damaged())) == ((), 1)


def test_what_the_database_itself_refuses_is_kept_and_named(spool: Spool) -> None:
    spool.put(run("a"))
    emptied = spool.empty_into(MemoryDouble(fails=("add_result",)))
    assert "is kept" in emptied.refused[0]
    assert spool.waiting() == 1
    assert spool.empty_into(MemoryDouble(), emptied.left).went_in == 0
    assert spool.empty_into(MemoryDouble()).went_in == 1


def test_each_history_has_its_own_and_none_shows_a_password(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    urls = [URL, "postgresql://me:secret@other/perf", f"sqlite:///{tmp_path}/x.sqlite", default_url(runs)]
    spools = [Spool.of(runs, url) for url in urls]
    assert len({spool.folder for spool in spools}) == 4
    assert Spool.of(runs, "postgres://me:changed@db/perf").folder == spools[0].folder
    for spool in spools:
        path = spool.put(run("u"))
        assert "secret" not in path.read_text() + str(path)
    assert spools_of(runs)["postgresql://me:***@db/perf"] == 1
    assert len(spools_of(runs)) == 4
    # The spool is no session.
    assert sessions(runs) == ()


def test_the_own_file_s_spool_moves_with_its_folder(tmp_path: Path) -> None:
    Spool.of(tmp_path / "runs", default_url(tmp_path / "runs")).put(run("u"))
    (tmp_path / "runs").rename(tmp_path / "moved")
    assert Spool.of(tmp_path / "moved", default_url(tmp_path / "moved")).waiting() == 1


@pytest.mark.parametrize("linked", ["folder", "parent"])
def test_a_link_is_never_written_through(spool: Spool, tmp_path: Path, linked: str) -> None:
    place = spool.folder if linked == "folder" else spool.folder.parent
    place.parent.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    place.symlink_to(tmp_path / "elsewhere")
    for keep in (spool.check, lambda: spool.put(run("u"))):
        with pytest.raises(HistoryError, match="symbolic link"):
            keep()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_hostile_uuid_stays_in_the_folder(spool: Spool, tmp_path: Path) -> None:
    for uuid in ("../../../escaped", "/etc/escaped", "a\x00b", "x" * 10_000, "ä\n\x1b[31m"):
        assert spool.put(run(uuid)).parent == spool.folder
    assert spool.waiting() == 5
    assert list(tmp_path.rglob("*escaped*")) == []


def test_a_full_disk_is_an_error_that_says_what_is_left(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for keep in (spool.check, lambda: spool.put(run("u"))):
        with pytest.raises(HistoryError, match=r"No space left on device.*reindex"):
            keep()
    assert spool.waiting() == 0


EMPTIER = """
import os, sys
from pathlib import Path
from typing import Any
from helpers.history.spool import Spool
from tests.helpers.memory_double import MemoryDouble
class Slow(MemoryDouble):
    def add_result(self, result):
        if sys.argv[3] == result.uuid:
            os.kill(os.getpid(), 9)
        super().add_result(result)
memory = Slow()
Spool.of(Path(sys.argv[1]), sys.argv[2]).empty_into(memory)
print(" ".join(each.uuid for each in memory.results))
"""


def emptier(runs: Path, killed_at: str = "") -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", EMPTIER, str(runs), URL, killed_at]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_two_processes_that_empty_it_at_once_take_each_entry_once(spool: Spool, tmp_path: Path) -> None:
    names = [f"u{number}" for number in range(60)]
    for name in names:
        spool.put(run(name))
    both = [emptier(tmp_path / "runs") for _ in range(2)]
    taken = [name for process in both for name in process.communicate(timeout=120)[0].split()]
    assert sorted(taken) == sorted(names)


def test_a_process_killed_while_it_empties_frees_the_lock_and_loses_nothing(spool: Spool, tmp_path: Path) -> None:
    names = [f"u{number}" for number in range(5)]
    for number, name in enumerate(names):
        spool.put(run(name, created=moment(number)))
    killed = emptier(tmp_path / "runs", killed_at="u2")
    killed.communicate(timeout=120)
    assert killed.returncode == -9
    memory = MemoryDouble()
    spool.empty_into(memory)
    assert [each.uuid for each in memory.results] == ["u2", "u3", "u4"]


def test_nothing_is_made_where_nothing_is_spooled(spool: Spool) -> None:
    entries: list[Entry] = []
    assert (spool.waiting(), spool.damaged(), spool.empty_into(MemoryDouble()).went_in) == (0, (), len(entries))
    assert not spool.folder.parent.exists()
