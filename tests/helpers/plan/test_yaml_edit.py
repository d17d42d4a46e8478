"""Values set in perf.yaml: everything else stays, comments among it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from helpers.plan.perf_yaml import load_config
from helpers.plan.yaml_edit import set_values, with_values
from helpers.trainers.contract.errors import ConfigError

ROOT = Path(__file__).parents[3]
VALUES = {"good": "paddlepaddle==3.2.2", "reason": 'it\'s "good": # yes'}


def test_the_shipped_file_keeps_every_other_line(tmp_path: Path) -> None:
    path = tmp_path / "perf.yaml"
    text = (ROOT / "perf.yaml").read_text()
    path.write_text(text)
    path.chmod(0o640)
    assert set_values(path, "builds", VALUES) == text
    lines = path.read_text().splitlines()
    changed = [line for line in lines if line not in text.splitlines()]
    assert changed == ['  good: "paddlepaddle==3.2.2"', '  reason: "it\'s \\"good\\": # yes"']
    assert len(lines) == len(text.splitlines())
    found = load_config(path).builds
    assert {"good": found.good, "reason": found.reason} == VALUES
    assert path.stat().st_mode & 0o777 == 0o640
    set_values(path, "builds", {"good": "b", "reason": "c"})
    assert load_config(path).builds.good == "b"


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\n",
        "a: 1",
        "builds:\na: 1 # one\n",
        "builds: # why\na: 1\n",
        "builds: null\na: 1\n",
        "builds: {}\na: 1\n",
        "builds: {python: p}  # why\na: 1\n",
        "builds: {good: x, reason: y}\na: 1\n",
        "builds:\n  good:\n  reason: # none yet\na: 1\n",
        "builds:\n    python: p\n    # a comment\n    good: old # its comment\na: 1\n",
        "builds:\n  reason: >\n    words\n    more\n  good: |\n    x\na: 1\n",
        "a: 1\nbuilds:\n  good: 'quoted'",
        "# only a comment\n",
    ],
)
def test_every_form_of_a_section_takes_the_values(text: str) -> None:
    new = with_values(text, "builds", VALUES)
    found = yaml.safe_load(new)
    before = yaml.safe_load(text) or {}
    assert found["builds"] == {**(before.get("builds") or {}), **VALUES}
    assert {**found, "builds": 0} == {**before, "builds": 0}
    assert all(comment.strip() in new for comment in text.split("#")[1:] for comment in [comment.partition("\n")[0]])


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1))
def test_any_text_is_read_back(value: str) -> None:
    new = with_values("builds:\n  good: null\n", "builds", {"good": value})
    assert yaml.safe_load(new)["builds"]["good"] == value


@pytest.mark.parametrize("text", ["x: &a {good: 1}\nbuilds: *a\n", "builds: [1]\n", "x: &a q\nbuilds: {good: *a}\n"])
def test_a_form_that_no_program_should_change_is_refused_and_left(tmp_path: Path, text: str) -> None:
    path = tmp_path / "perf.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="Set these yourself"):
        set_values(path, "builds", VALUES)
    assert path.read_text() == text
