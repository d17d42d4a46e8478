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


def test_the_suite_s_commit_is_told_whatever_its_tags_and_the_hook_of_another_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
        (folder / "file").write_text(folder.name)
        for words in (("init", "-q"), ("add", "file"), ("commit", "-qm", "one"), ("tag", "v1")):
            _git(folder, *words)
    commit = _git(own, "rev-parse", "HEAD")[:12]
    for name, path in (("GIT_DIR", ".git"), ("GIT_WORK_TREE", "."), ("GIT_INDEX_FILE", ".git/index")):
        monkeypatch.setenv(name, str(other / path))
    assert suite_commit(own) == commit
    (own / "file").write_text("changed")
    assert suite_commit(own) == f"{commit}-dirty"


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
