"""A file that is read again, as a search for the first bad build does before each of its builds."""

from __future__ import annotations

from pathlib import Path

from helpers.plan.yaml_file import read_yaml


def test_what_one_reader_changes_no_other_sees(tmp_path: Path) -> None:
    path = tmp_path / "perf.yaml"
    path.write_text("matrix: {cpu: [{cards: 1}]}\n")
    changed = read_yaml(path).value
    assert isinstance(changed, dict)
    changed["matrix"]["cpu"][0]["cards"] = 8
    assert read_yaml(path).value == {"matrix": {"cpu": [{"cards": 1}]}}


def test_a_file_that_changed_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "perf.yaml"
    for content in ("runs: 1\n", "runs: 2\n"):
        path.write_text(content)
        assert read_yaml(path).value == {"runs": int(content[-2])}
