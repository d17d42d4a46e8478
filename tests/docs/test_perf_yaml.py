"""docs/reference.md has every setting that a perf.yaml may hold, and their defaults."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from helpers.judging.case.evidence import Budget
from helpers.launch.launchers import CHOICES
from helpers.plan.matrix import Tolerances
from helpers.plan.perf_yaml import (
    BuildsConfig,
    ContentionConfig,
    ExplainConfig,
    NodesConfig,
    TimeLimits,
    load_config,
)
from helpers.plan.yaml_file import YamlValue
from tests.docs.blocks import ROOT, Mode, all_blocks

_, PAGE = (ROOT / "docs/reference.md").read_text(encoding="utf-8").split("\n## perf.yaml\n")
ROWS = dict(re.findall(r"^\| `([a-z][\w.\[\]A-Z]*)` \| (.*?) \| .* \|$", PAGE, re.MULTILINE))
# A list without keys of its own.
LISTS = {"short", "cases"}
# What the page says in a sentence: an entry may have the keys of its section, and a pattern.
BY_CASE = {"tolerances.cases", "budgets.cases"}
# What a user names, as the page writes it.
NAMES = {
    r"^(frameworks)\.\w+": r"\1.FRAMEWORK",
    r"^(protocols|machines|clusters)\.[\w-]+": r"\1.NAME",
    r"^(matrix|cases)\.\w+": "matrix.TARGET",
    r"\[\d+\]": "[]",
}
# Sections that the page's own example lacks.
MORE = """
tolerances: {cases: [{pattern: "*", recorded: 0.01}]}
budgets: {cases: [{pattern: "*", pairs: 8}], night_minutes: 60}
history: {}
explain: {}
limits: {}
clusters: {c: {}}
contention: {}
nodes: {hosts: [{name: n0, address: 10.0.0.1}, {name: n1, address: 10.0.0.2}]}
"""
DEFAULTS = {
    "tolerances": Tolerances(),
    "budgets": Budget(),
    "limits": TimeLimits(),
    "contention": ContentionConfig(),
    "builds": BuildsConfig(),
    "nodes": NodesConfig(),
    "explain": ExplainConfig(),
}


@pytest.fixture
def read_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Every key that the reader of perf.yaml knows, in a file that has each section."""
    found: set[str] = set()
    inner = YamlValue.mapping

    def mapping(self: YamlValue, required: Iterable[str] = (), optional: Iterable[str] = ()) -> dict[str, YamlValue]:
        known = [*required, *optional]
        found.update(f"{self.place}.{key}".lstrip(".") for key in known)
        return inner(self, known[: len(list(required))], known)

    monkeypatch.setattr(YamlValue, "mapping", mapping)
    (example,) = [block.text for block in all_blocks() if block.mode is Mode.CONFIG and "reference" in block.place]
    sections = {
        **yaml.safe_load((ROOT / "helpers/plan/defaults.yaml").read_text(encoding="utf-8")),
        **yaml.safe_load(example + MORE),
    }
    (tmp_path / "perf.yaml").write_text(yaml.safe_dump(sections), encoding="utf-8")
    load_config(tmp_path / "perf.yaml", CHOICES)
    return found


def test_every_setting_has_a_row_and_every_row_is_a_setting(read_keys: set[str]) -> None:
    named = set()
    for key in read_keys:
        for pattern, name in NAMES.items():
            key = re.sub(pattern, name, key)
        named.add(key)
    # A section or a list that holds the keys below it.
    leaves = {key for key in named if not any(other.startswith((f"{key}.", f"{key}[]")) for other in named)}
    by_case = {key for key in leaves for name in BY_CASE if key.startswith(f"{name}[].")}
    assert leaves - LISTS - set(ROWS) == by_case
    patterns = {name.replace("cases", "pattern") for name in BY_CASE}
    assert {key.replace(".cases[]", "") for key in by_case} <= {*ROWS, *patterns}
    assert set(ROWS) - named == set()
    assert all(f"`{name}`" in PAGE for name in LISTS | BY_CASE)


@pytest.mark.parametrize(
    ("key", "default"),
    [
        (f"{section}.{item.name}", getattr(values, item.name))
        for section, values in DEFAULTS.items()
        for item in dataclasses.fields(values)  # type: ignore[arg-type] # each of them is a dataclass
        if type(getattr(values, item.name)) in (int, float)
    ],
)
def test_the_page_has_the_default(key: str, default: float) -> None:
    assert ROWS[key] == f"{default:g}"
