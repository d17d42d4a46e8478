"""What the container's recipe promises."""

from __future__ import annotations

import json
import re
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests.requirements.scripts import load

installer: Any = load("installer")
ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "requirements" / "container" / "Dockerfile"
IGNORED = RECIPE.with_name("Dockerfile.dockerignore")


def instructions() -> list[list[str]]:
    """The recipe's lines as words, without comments, each continued line as one."""
    text = re.sub(r"^\s*#.*\n", "", RECIPE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [line.split() for line in text.splitlines() if line.strip()]


def stages() -> dict[str, list[list[str]]]:
    """The instructions of each stage, by its name."""
    found: dict[str, list[list[str]]] = {}
    for words in instructions():
        if words[0] == "FROM":
            found[words[-1]] = []
        if found:
            found[list(found)[-1]].append(words)
    return found


def test_images_are_named_by_digests_and_run_as_a_user_without_rights() -> None:
    arguments = dict(words[1].split("=", 1) for words in instructions() if words[0] == "ARG" and "=" in words[1])
    assert {words[1] for words in instructions() if words[0] == "FROM"} - set(stages()) == {"${PYTHON}"}
    assert re.fullmatch(r"docker\.io/[a-z/]+:[\w.-]+@sha256:[0-9a-f]{64}", arguments["PYTHON"])
    for target in ("cpu", "gpu"):
        assert [each[1] for each in stages()[target] if each[0] == "USER"] == ["10001:10001"]
        assert [each[0] for each in stages()[target]][-3:] == ["USER", "ENTRYPOINT", "CMD"]


def test_nothing_is_fetched_past_the_pins_and_no_secret_is_copied() -> None:
    for words in instructions():
        line = " ".join(words).replace("--mount=type=secret,id=pip", "")
        assert not re.search(r"\b(curl|wget|git clone|pip install|npm|https?://)|(?i:passw|token|secret)", line), line
        assert words[0] != "ADD"


@pytest.mark.parametrize("missing", [{}, {"dali-cuda12": "no host"}])
def test_an_image_is_made_whole_or_not_at_all(tmp_path: Path, missing: dict[str, str]) -> None:
    """The recipe's own check, on a stamp that bootstrap.py writes."""
    (tmp_path / ".venv").mkdir()
    stamp = {"parts": {}, "missing": missing, "python": "CPython 3.11.7", "base": "/usr/bin/python3"}
    (tmp_path / ".venv" / installer.STAMP).write_text(json.dumps(stamp, sort_keys=True))
    for target in ("cpu", "gpu"):
        (made,) = [" ".join(each) for each in stages()[f"{target}-environment"] if each[0] == "RUN"]
        check = made.partition(" && ")[2]
        assert "perfgate-stamp" in check
        assert (subprocess.run(["sh", "-c", check], cwd=tmp_path, check=False).returncode == 0) == (not missing)


def test_the_image_has_what_git_has_of_the_named_folders_and_no_results() -> None:
    first, *rest = [line for line in IGNORED.read_text().splitlines() if not line.startswith("#")]
    kept = [line[1:] for line in rest if line.startswith("!")]
    assert first == "*"
    assert all((ROOT / each).exists() for each in kept)
    assert not {"runs", ".git", ".cache", "tests", "benchmarks", "docs"} & set(kept)
    # Names that git leaves out have no place in the image, either.
    dropped = [line for line in rest if not line.startswith("!")]
    for name in (".venv", ".env", ".pgpass", "x.pyc", "__pycache__"):
        assert any(fnmatchcase(name, each.removeprefix("**/")) for each in dropped), name
