"""What watches, times and leases asks the monotonic clock only: a wall clock may be set back while a case runs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WATCHED = (
    "helpers/launch",
    "helpers/machine/watch",
    "helpers/machine/framework_probe.py",
    "helpers/machine/frameworks.py",
    "helpers/machine/leases.py",
    "helpers/trainers",
    "fixtures/progress.py",
)
# Of time, datetime and a file's status. time.strftime may write a date for a reader.
WALL_CLOCK = ("time", "time_ns", "localtime", "gmtime", "now", "utcnow", "today", "fromtimestamp")
FILE_TIMES = ("st_mtime", "st_mtime_ns", "st_ctime", "st_ctime_ns", "st_atime", "st_atime_ns", "getmtime", "getctime")


def wall_clocks(path: str, text: str) -> list[str]:
    """Every place that reads the wall clock, as ``path:line: name``."""
    found = []
    for node in ast.walk(ast.parse(text, path)):
        name = ""
        if isinstance(node, ast.Attribute):
            of = node.value
            owner = of.id if isinstance(of, ast.Name) else of.attr if isinstance(of, ast.Attribute) else ""
            clock = owner in ("time", "datetime", "date") and node.attr in WALL_CLOCK
            name = f"{owner}.{node.attr}" if clock or node.attr in FILE_TIMES else ""
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            name = next((f"time.{each.name}" for each in node.names if each.name in WALL_CLOCK), "")
        if name:
            found.append(f"{path}:{node.lineno}: {name}")
    return found


def test_no_wait_no_limit_and_no_order_hangs_on_the_wall_clock() -> None:
    files = [path for each in WATCHED for path in sorted({ROOT / each, *(ROOT / each).rglob("*.py")}) if path.is_file()]
    assert len(files) > 40
    assert [line for path in files for line in wall_clocks(path.relative_to(ROOT).as_posix(), path.read_text())] == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import time\nx = time.time()", "time.time"),
        ("import time\nf(clock=time.time_ns)", "time.time_ns"),
        ("from time import time", "time.time"),
        ("import datetime\nx = datetime.datetime.now() - y", "datetime.now"),
        ("from datetime import date\nx = date.today()", "date.today"),
        ("x = path.stat().st_mtime_ns", ".st_mtime_ns"),
        ("import os\nx = os.path.getmtime(p)", "path.getmtime"),
    ],
)
def test_a_wall_clock_is_found(text: str, name: str) -> None:
    (found,) = wall_clocks("helpers/launch/x.py", text)
    assert found.endswith(f": {name}")


def test_the_monotonic_clock_and_a_date_for_the_reader_are_left_alone() -> None:
    text = "import time\nx = time.monotonic() - time.perf_counter()\nprint(time.strftime('%Y'))"
    assert wall_clocks("helpers/launch/x.py", text) == []
