"""docs/reference.md has every setting that a perf.yaml may hold, and their defaults."""

from __future__ import annotations

import dataclasses
import re
import typing
from typing import Any

import pytest

from helpers.judging.case.evidence import Budget
from helpers.plan.matrix import Tolerances, _Block
from helpers.plan.perf_yaml import (
    BuildsConfig,
    ContentionConfig,
    ExplainConfig,
    NodesConfig,
    TimeLimits,
    _File,
)
from helpers.trainers.contract import ROOT

_, PAGE = (ROOT / "docs/reference.md").read_text(encoding="utf-8").split("\n## perf.yaml\n")
ROWS = dict(re.findall(r"^\| `([a-z][\w.\[\]A-Z]*)` \| (.*?) \| .* \|$", PAGE, re.MULTILINE))
# A list without keys of its own.
LISTS = {"short", "cases"}
# What the page says in a sentence: an entry may have the keys of its section, and a pattern.
BY_CASE = {"tolerances.cases", "budgets.cases"}
DEFAULTS = {
    "tolerances": Tolerances(),
    "budgets": Budget(),
    "limits": TimeLimits(),
    "contention": ContentionConfig(),
    "builds": BuildsConfig(),
    "nodes": NodesConfig(),
    "explain": ExplainConfig(),
}


# As the page writes what a user names.
PLACES = {"frameworks": "frameworks.FRAMEWORK"} | {
    name: f"{name}.NAME" for name in ("protocols", "machines", "clusters")
}
# These stand in no row: the key itself has the name, and Slurm says the other.
NO_KEYS = {"protocols.NAME.name", "machines.NAME.name", "clusters.NAME.name", "nodes.of_slurm"}


def keys_of(kind: Any, place: str) -> set[str]:
    """Every key below ``place``, whose value or entries are of the type ``kind``."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return set().union(*(keys_of(hints[each.name], f"{place}.{each.name}") for each in dataclasses.fields(kind)))
    below = [each for each in typing.get_args(kind) if dataclasses.is_dataclass(each)]
    if not below:
        return {place}
    listed = typing.get_origin(kind) is tuple
    return keys_of(below[0], f"{place}[]" if listed else PLACES.get(place, place))


def test_every_setting_has_a_row_and_every_row_is_a_setting() -> None:
    named = set().union(*(keys_of(hint, name) for name, hint in typing.get_type_hints(_File).items()))
    for section, kind in (("tolerances", Tolerances), ("budgets", Budget)):
        named |= keys_of(kind, section)
    named |= keys_of(_Block, "matrix.TARGET[]") | {"budgets.night_minutes"}
    assert named - NO_KEYS - LISTS - {"tolerances", "budgets", "matrix"} == set(ROWS)
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
