"""The locked write of recorded baselines."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from helpers.plan.baseline_files import PUBLISHED
from helpers.plan.proposals import (
    AgainstEntry,
    Candidate,
    ProposalKind,
    write_recorded,
)
from helpers.plan.recorded import Provenance, load_recorded
from helpers.trainers.contract.errors import BaselineError
from tests.helpers.plan.recorded_entries import MACHINE, A, B, created, entry, proposed, recorded

ROOT = Path(__file__).resolve().parents[3]


def test_what_entries_share_stands_once_and_a_case_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    cases = [f"paddle-vgg16-fp32-bs{batch}-1x1-dali-static" for batch in range(1, 31)]
    facts = {f"fact {number}": "the same" for number in range(60)}
    entries = [
        replace(entry(case_id=each), segment={**facts, "case's own": str(at % 2)}) for at, each in enumerate(cases)
    ]
    write_recorded(path, MACHINE, created(*entries))

    assert load_recorded(path, MACHINE) == recorded(*entries)
    text = path.read_text(encoding="utf-8")
    assert (text.count("fact 7"), text.count("case's own")) == (1, 2)
    assert len(text.splitlines()) < 60 + 30 + 40


def test_a_name_is_not_read_with_other_facts_than_its_own(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    write_recorded(path, MACHINE, created(entry()))
    text = path.read_text(encoding="utf-8")
    for changed in (text.replace("11.2", "11.3"), text.replace('"segment": "', '"segment": "0')):
        path.write_text(changed, encoding="utf-8")
        with pytest.raises(BaselineError, match=f"entries.{A}.segment"):
            load_recorded(path, MACHINE)


def test_a_text_that_hides_or_turns_what_follows_stands_escaped_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    hostile = replace(entry(), provenance=Provenance("a\u202eb\x1b[2J", "2024-05-06", "h 猫", "measured"))
    write_recorded(path, MACHINE, created(hostile))

    text = path.read_text(encoding="utf-8")
    assert all(each.isprintable() for each in text.splitlines())
    assert "h 猫" in text
    assert load_recorded(path, MACHINE).entries[A] == hostile


def test_a_figure_judged_against_an_entry_that_is_gone_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    write_recorded(path, MACHINE, created(entry(100.0)))
    ours = proposed(load_recorded(path, MACHINE), Candidate(entry(120.0), answer=AgainstEntry.FASTER))
    theirs = proposed(load_recorded(path, MACHINE), Candidate(entry(150.0), answer=AgainstEntry.FASTER))
    write_recorded(path, MACHINE, theirs)

    (outcome,) = write_recorded(path, MACHINE, ours)

    assert (outcome.kind, outcome.old) == (ProposalKind.REFUSED, entry(150.0))
    assert "another process recorded 150.00 images/s meanwhile" in outcome.reason
    assert load_recorded(path, MACHINE) == recorded(entry(150.0))


WRITER = """
import sys
from pathlib import Path
from helpers.plan.recorded import Provenance, RecordedEntry, RecordedSet
from helpers.plan.proposals import Candidate, propose
from helpers.plan.proposals import write_recorded
path, model = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for batch in range(1, 21):
    case_id = f"paddle-{model}-fp32-bs{batch}-1x1-dali-static"
    entry = RecordedEntry(case_id, float(batch), "median-step", (float(batch),) * 3, None, {}, {"driver": "1"},
                          Provenance("abc", "2024-05-06", "h", "measured"))
    write_recorded(path, "host", propose(RecordedSet("host", {}), [Candidate(entry)], measured_case_ids=[case_id],
                   known_case_ids=[], accepted=()))
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_two_processes_that_update_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    writers = [start(WRITER, str(path), model) for model in ("vgg16", "resnet50v1.5")]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    errors = [writer.communicate(timeout=60)[1] for writer in writers]

    assert [writer.returncode for writer in writers] == [0, 0], errors
    entries = load_recorded(path, "host").entries
    assert {each.samples_per_s for each in entries.values()} == {float(batch) for batch in range(1, 21)}
    assert len(entries) == 40


KILLED = """
import os, signal, sys
import statistics
from pathlib import Path
def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)
point, real_sync, real_replace = sys.argv[3], os.fsync, Path.replace
calls = []
def sync(descriptor):
    calls.append(descriptor)
    if point == "before the file is synced" or (point == "before the folder is synced" and len(calls) == 2):
        die()
    real_sync(descriptor)
def replace(self, target):
    if point == "before the rename":
        die()
    return real_replace(self, target)
os.fsync, Path.replace = sync, replace
print("ready", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "survivor", "left_over"),
    [
        ("before the file is synced", "old", 1),
        ("before the rename", "old", 1),
        ("before the folder is synced", "new", 0),
    ],
)
def test_a_process_killed_while_writing_leaves_the_old_or_the_new_file_whole(
    tmp_path: Path, point: str, survivor: str, left_over: int
) -> None:
    path = tmp_path / "m.json"
    write_recorded(path, "host", created(entry(case_id=A)))
    writer = start(KILLED + WRITER, str(path), "resnet50v1.5", point)
    writer.communicate("go\n", timeout=60)

    assert writer.returncode == -9
    names = {A} if survivor == "old" else {A, "paddle-resnet50v1.5-fp32-bs1-1x1-dali-static"}
    assert set(load_recorded(path, "host").entries) == names
    assert len(list(tmp_path.glob(".*.tmp"))) == left_over

    write_recorded(path, "host", created(entry(case_id=B)))
    assert set(load_recorded(path, "host").entries) == names | {B}
    assert list(tmp_path.glob(".*.tmp")) == []


@pytest.mark.parametrize("refused_call", ["fsync", "open"])
def test_a_full_disk_names_the_file_and_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused_call: str
) -> None:
    path = tmp_path / "m.json"
    write_recorded(path, MACHINE, created(entry(case_id=A)))
    before = path.read_bytes()
    real_open = os.open

    def full(target: object, *arguments: object, **options: object) -> int:
        if refused_call == "fsync" or str(target).endswith(".tmp"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_open(target, *arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, refused_call, full)
        with pytest.raises(BaselineError) as caught:
            write_recorded(path, MACHINE, created(entry(case_id=B)))

    assert str(path) in str(caught.value)
    assert "Free some disk space" in str(caught.value)
    assert path.read_bytes() == before
    assert list(tmp_path.glob(".*.tmp")) == []


def test_a_lock_that_stays_held_is_an_error_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    with FileLock(tmp_path / "m.json.lock"), pytest.raises(BaselineError, match="held by another process") as caught:
        write_recorded(path, MACHINE, created(entry()), lock_timeout_seconds=0.0)

    assert str(path) in str(caught.value)
    assert not path.exists()


@pytest.mark.parametrize("damage", ["{", '{"schema_version": 2}'])
def test_a_file_that_cannot_be_read_is_never_overwritten(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(damage, encoding="utf-8")

    with pytest.raises(BaselineError):
        write_recorded(path, MACHINE, created(entry()))
    assert path.read_text(encoding="utf-8") == damage


def test_published_figures_are_never_written() -> None:
    before = (PUBLISHED / "v100.json").read_bytes()

    for name in ("v100.json", "host.json", "sub/host.json", "../published/host.json"):
        with pytest.raises(BaselineError, match="published"):
            write_recorded(PUBLISHED / name, MACHINE, created(entry()))
    assert (PUBLISHED / "v100.json").read_bytes() == before
    assert {path.name for path in PUBLISHED.iterdir()} == {"v100.json", "a100.json"}


def test_a_link_to_the_published_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "baselines" / "published").mkdir(parents=True)
    (tmp_path / "recorded").symlink_to(tmp_path / "baselines" / "published")

    with pytest.raises(BaselineError, match="published figures"):
        write_recorded(tmp_path / "recorded" / "m.json", MACHINE, created(entry()))


@pytest.mark.parametrize("name", ["m.json", "m.json.lock"])
def test_a_link_is_never_written_through(tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_text("precious", encoding="utf-8")
    (tmp_path / name).symlink_to(target)

    with pytest.raises(BaselineError, match="symbolic link"):
        write_recorded(tmp_path / "m.json", MACHINE, created(entry()))
    assert target.read_text(encoding="utf-8") == "precious"
