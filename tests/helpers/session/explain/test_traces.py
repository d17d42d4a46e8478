"""The profilers' traces that are kept, and which of them are removed."""

from __future__ import annotations

import os
from pathlib import Path

from helpers.session.explain.runs import FOLDER, clean_traces

CASE = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"


def test_a_trace_that_an_interrupted_run_left_is_removed_by_its_size_too(tmp_path: Path) -> None:
    path = tmp_path / "s" / FOLDER / CASE / "r0" / "trace-rank0.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * 30)
    clean_traces(tmp_path, 25)
    assert not path.exists()


def test_of_all_traces_the_oldest_are_removed_until_the_others_fit(tmp_path: Path) -> None:
    paths = []
    for age, name in enumerate(("new", "old", "oldest")):
        path = tmp_path / name / FOLDER / CASE / "r0" / "trace-rank0.json.gz"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * 10)
        os.utime(path, (1000 - age, 1000 - age))
        paths.append(path)
    clean_traces(tmp_path, 25)
    assert [path.exists() for path in paths] == [True, True, False]
