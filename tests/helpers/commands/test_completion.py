"""``perfgate completion``: the script, run by the shells themselves."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.commands.completion import SHELLS
from helpers.commands.main import main

# A word per line: what the shell would offer for the last of the words.
_IN_BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMPREPLY=()
"$(complete -p perfgate | sed 's/.*-F \\([^ ]*\\).*/\\1/')"
printf '%s\\n' "${COMPREPLY[@]}"
"""
Complete = Callable[..., list[str]]


def script(shell: str) -> str:
    out = io.StringIO()
    assert main(["completion", shell], out) == 0
    return out.getvalue()


@pytest.fixture(scope="module")
def in_bash(tmp_path_factory: pytest.TempPathFactory) -> Complete:
    path = tmp_path_factory.mktemp("completion") / "perfgate.bash"
    path.write_text(script("bash"))

    def complete(*words: str) -> list[str]:
        argv = ["bash", "--norc", "-c", _IN_BASH, "bash", str(path), "perfgate", *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return [each.strip() for each in done.stdout.splitlines()]

    return complete


def test_bash_completes_commands(in_bash: Complete) -> None:
    assert in_bash("compare") == ["compare", "compare-frameworks"]
    assert in_bash("help", "hist") == ["history"]


def test_bash_completes_options(in_bash: Complete) -> None:
    assert in_bash("acknowledge", "--un") == ["--undo"]
    assert {"--perf-config", "--json"} <= set(in_bash("show", "--"))


def test_bash_completes_case_ids_and_the_values_of_an_option(in_bash: Complete) -> None:
    found = in_bash("show", "paddle-resnet50v1.5-")
    assert len(found) > 5 and all(each.startswith("paddle-resnet50v1.5-") for each in found)
    assert in_bash("cases", "--framework", "pad") == ["paddle"]


def test_bash_completes_the_files_of_a_folder(in_bash: Complete, tmp_path: Path) -> None:
    (tmp_path / "some.yaml").touch()
    assert in_bash("show", "--config", f"{tmp_path}/so") == [f"{tmp_path}/some.yaml"]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_one_that_its_shell_reads(shell: str, tmp_path: Path) -> None:
    text = script(shell)
    assert "acknowledge" in text and "runs" in text
    if (found := shutil.which(shell)) is not None:
        path = tmp_path / "script"
        path.write_text(text)
        subprocess.run([found, "-n", str(path)], check=True)


def test_the_names_of_sessions_are_looked_up_when_they_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helpers.commands.completion.ROOT", tmp_path)
    path = tmp_path / "perfgate.bash"
    path.write_text(script("bash"))
    # The last one holds the files of jobs, and no session has its name.
    for name in ("20261121-night", "20261122-night", "other", "2026$(touch obeyed)", "2026 two words", "slurm"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    for begun, found in (("2026", ["20261121-night", "20261122-night"]), ("slu", []), ("oth", ["other"])):
        argv = ["bash", "--norc", "-c", _IN_BASH, "bash", str(path), "perfgate", "calibrate", "--resume", begun]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path)
        assert done.stdout.split() == found
    assert not (tmp_path / "obeyed").exists()
