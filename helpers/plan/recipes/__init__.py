"""The parts of a recipe, which is a case's training configuration: settings, each with its source, and facts that
no setting changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OWN = "suite's choice"


@dataclass(frozen=True)
class Source:
    """Where a value comes from."""

    # A document (``publishers.py``) or OWN.
    where: str
    # Why the value is so, or the part of the document that says so; never empty for OWN.
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}" if self.reason else self.where


@dataclass(frozen=True)
class Setting:
    """A JSON value and where it comes from."""

    value: Any
    source: Source


# The settings by dotted key, in the order of a job file. A group without members is one setting, an empty mapping.
SettingsTable = Mapping[str, Setting]


@dataclass(frozen=True)
class Fixed:
    """Something that no setting changes, in words, with its source."""

    name: str
    value: str
    source: Source


def own(reason: str) -> Source:
    """A setting that the suite chose, with the reason."""
    return Source(OWN, reason)


def group(name: str, values: Mapping[str, Any], source: Source) -> dict[str, Setting]:
    """The members of the group ``name``, all from one source."""
    if not values:
        return {name: Setting({}, source)}
    return {f"{name}.{key}": Setting(value, source) for key, value in values.items()}


def plain_values(table: SettingsTable) -> dict[str, Any]:
    """The settings as in a job file: JSON values, with nested groups."""
    values: dict[str, Any] = {}
    for key, setting in table.items():
        name, dot, member = key.partition(".")
        if dot:
            values.setdefault(name, {})[member] = setting.value
        else:
            values[name] = setting.value
    return values
