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


def test_in_a_hook_of_another_repository_it_is_still_the_suite_s_own(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, other = _git(checkout, "rev-parse", "HEAD")[:12], tmp_path_factory.mktemp("other")
    _git(other, "init", "-q")
    _git(other, "commit", "-qm", "another", "--allow-empty")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert suite_commit(checkout) == commit


def test_git_s_reason_and_advice_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = tmp_path / "git"
    lines = [
        "fatal: detected dubious ownership in repository at '/x'", "To add an exception for this directory, call:", "",
        "\tgit config --global --add safe.directory /x",
    ]  # fmt: skip
    git.write_text("#!/bin/sh\ncat >&2 <<'END'\n" + "\n".join(lines) + "\nEND\nexit 128\n")
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(
        ValueError, match=r"^fatal: detected dubious ownership in repository at '/x' To add an exception"
    ):
        suite_commit(tmp_path)
