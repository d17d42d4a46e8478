"""Values set in perf.yaml: everything else stays, comments among it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from helpers.plan.perf_yaml import load_config
from helpers.plan.yaml_edit import set_values, with_values
from helpers.trainers.contract.errors import ConfigError

VALUES = {"reference": "paddlepaddle==3.2.2", "reason": 'it\'s "good": # yes'}


def test_every_other_line_stays_and_a_file_that_is_missing_is_made(tmp_path: Path) -> None:
    path = tmp_path / "perf.yaml"
    assert set_values(path, "builds", VALUES) == ""
    assert load_config(path).builds.reference == VALUES["reference"]
    text = "# what\nhistory: {url: null}\n\n# The build.\nbuilds:\n  reference: null # none\n  reason: null\n# end\n"
    path.write_text(text)
    assert set_values(path, "builds", VALUES) == text
    found = load_config(path).builds
    assert {"reference": found.reference, "reason": found.reason} == VALUES
    kept = [line for line in text.splitlines() if "null #" not in line and "reason" not in line]
    assert [
        line for line in path.read_text().splitlines() if "reference: " not in line and "reason" not in line
    ] == kept


def test_a_file_with_a_password_is_never_readable_for_others_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "perf.yaml"
    path.write_text("history: {url: null}\n")
    path.chmod(0o600)
    modes = set()
    sync = os.fsync

    def look(descriptor: int) -> None:
        modes.update(each.stat().st_mode & 0o777 for each in tmp_path.iterdir())
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    umask = os.umask(0)
    try:
        set_values(path, "builds", VALUES)
    finally:
        os.umask(umask)
    assert modes == {0o600} and path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text",
    [
        "a: 1",
        "builds: # why\na: 1\n",
        "builds: null\na: 1\n",
        "builds: {}\na: 1\n",
        "builds:\n  reference:\n  reason: # none yet\na: 1\n",
        "builds:\n    python: p\n    # a comment\n    reference: old\na: 1\n",
        "# only a comment\n",
    ],
)
def test_every_form_of_a_section_takes_the_values(text: str) -> None:
    found = yaml.safe_load(with_values(text, "builds", VALUES))
    before = yaml.safe_load(text) or {}
    assert found["builds"] == {**(before.get("builds") or {}), **VALUES}
    assert {**found, "builds": 0} == {**before, "builds": 0}


@pytest.mark.parametrize(
    "text",
    [
        "x: &a {reference: 1}\nbuilds: *a\n",
        "builds: [1]\n",
        "builds: {reference: x}\n",
        "builds:\n  reference: >\n    two\n",
    ],
)
def test_a_form_that_no_program_should_change_is_refused_and_left(tmp_path: Path, text: str) -> None:
    path = tmp_path / "perf.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="Set these yourself"):
        set_values(path, "builds", VALUES)
    assert path.read_text() == text
