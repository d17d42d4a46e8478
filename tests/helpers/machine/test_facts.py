"""The suite's own commit, asked of real git work trees."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from helpers.machine.facts import suite_commit

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def _git(folder: Path, *words: str) -> str:
    names = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", "-C", str(folder), *names, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    _git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("1")
    _git(tmp_path, "add", "file")
    _git(tmp_path, "commit", "-qm", "one")
    return tmp_path


def test_a_clean_checkout_is_its_commit_whatever_its_tags(checkout: Path) -> None:
    _git(checkout, "tag", "v1")
    assert suite_commit(checkout) == _git(checkout, "rev-parse", "HEAD")[:12]


def test_changed_files_are_told(checkout: Path) -> None:
    (checkout / "file").write_text("2")
    assert suite_commit(checkout) == _git(checkout, "rev-parse", "HEAD")[:12] + "-dirty"


def test_a_folder_without_git_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(ValueError, match="not a git repository"):
        suite_commit(tmp_path)


def test_a_machine_without_git_says_so(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(checkout))
    with pytest.raises(FileNotFoundError):
        suite_commit(checkout)
