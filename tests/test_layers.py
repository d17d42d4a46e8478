"""docs/architecture.md: a room of helpers/ imports from itself and from those below it, only trainers a framework, and
what the frameworks' own interpreters run is Python 3.8."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# From the ground up. contract is trainers/contract, the only part of the trainers that the suite imports.
ORDER = [
    "contract", "common", "drawing", "machine", "judging", "plan", "builds", "launch", "history", "session", "logs",
    "report", "commands",
]  # fmt: skip
FRAMEWORK_OF = {
    "paddle": "paddle", "torch": "pytorch", "torchvision": "pytorch", "tensorflow": "tensorflow", "mxnet": "mxnet",
    "gluoncv": "mxnet",
}  # fmt: skip
TRAINERS_LIBRARIES = {"numpy", "nvidia", "cv2"}
IMPORT = re.compile(r"^[ \t]*(?:from ([\w.]+) import|import ([\w.]+)(?: as \w+)?$)", re.MULTILINE)
# A docstring, or a program for another interpreter.
LONG_TEXT = re.compile(r'"""(?:.|\n)*?"""')
PYTEST = {"pytest", "_pytest", "pluggy", "xdist", "pytest_benchmark"}


def imports() -> Iterator[tuple[list[str], list[str]]]:
    """The words of each module's path, and of each module that it imports, also within functions."""
    for path in (path for area in ("helpers", "fixtures", "perf_tests") for path in (ROOT / area).rglob("*.py")):
        own = path.relative_to(ROOT).with_suffix("").parts
        for several, one in IMPORT.findall(LONG_TEXT.sub("", path.read_text(encoding="utf-8"))):
            yield list(own), (several or one).split(".")


def room_of(words: list[str]) -> str:
    if words[:3] == ["helpers", "trainers", "contract"]:
        return "contract"
    return words[1] if words[0] == "helpers" and len(words) > 1 else words[0]


def is_allowed(own: list[str], name: list[str]) -> bool:
    room, other = room_of(own), room_of(name)
    if own[:2] == ["helpers", "trainers"]:
        ours = own[2] if len(own) > 2 else ""
        if name[0] == "helpers":
            return name[2:3] == ["contract"] or (ours != "contract" and name[2:3] in ([ours], ["common"]))
        return name[0] in {*sys.stdlib_module_names, *TRAINERS_LIBRARIES} or FRAMEWORK_OF.get(name[0]) == ours
    if name[0] in FRAMEWORK_OF or other in ("trainers", "tests", "benchmarks"):
        return False
    if room in ORDER:
        above = ORDER[ORDER.index(room) + 1 :]
        return name[0] not in PYTEST and other not in (*above, "fixtures", "perf_tests")
    return True


def test_the_project_keeps_to_its_layers() -> None:
    found = list(imports())
    assert len(found) > 2000
    assert [(".".join(own), ".".join(name)) for own, name in found if not is_allowed(own, name)] == []


def test_every_folder_of_the_engine_has_its_place() -> None:
    assert {path.parent.name for path in ROOT.glob("helpers/*/__init__.py")} == {*ORDER, "trainers"} - {"contract"}
    assert [path.name for path in ROOT.glob("helpers/*.py")] == ["__init__.py"]


def test_what_the_frameworks_pythons_run_is_python_3_8() -> None:
    files = [*ROOT.glob("helpers/trainers/**/*.py"), ROOT / "helpers/machine/framework_probe.py"]
    for path in files:
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 8))


def test_a_mark_stands_where_make_test_looks_for_it() -> None:
    """``MARKED`` of the Makefile: in a test file, or in the conftest.py of a folder of tests."""
    marks = re.compile(r"mark\.(?:slow|training|untimed)\b")
    naming = {path.name for path in ROOT.glob("tests/**/*.py") if marks.search(path.read_text(encoding="utf-8"))}
    assert "conftest.py" in naming
    assert [name for name in naming if name != "conftest.py" and not name.startswith("test_")] == []
