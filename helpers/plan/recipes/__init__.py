"""What a recipe, a case's training configuration, is made of: settings, each with its source, facts that no setting
changes, and departures from the publisher's program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from helpers.trainers.contract.case import Case

OWN = "suite's choice"


@dataclass(frozen=True)
class Source:
    """Where a value comes from."""

    # A document (``publishers.py``) or OWN.
    where: str
    # Why the value is so, or which part of the document says it; never empty for OWN.
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}" if self.reason else self.where


@dataclass(frozen=True)
class Setting:
    """A JSON value and where it comes from."""

    value: Any
    source: Source


# By dotted key, in the order in which a job file has them; a group without members is one setting, an empty mapping.
SettingsTable = Mapping[str, Setting]


@dataclass(frozen=True)
class Fixed:
    """Something that no setting changes, in words, with its source."""

    name: str
    value: str
    source: Source


@dataclass(frozen=True)
class Departure:
    """Something in which the suite's program is not the one behind the published figures."""

    about: str
    # What the publisher had, and what the suite has in its place.
    published: str
    here: str
    # Where it stands what the publisher had.
    source: Source
    # Of which of the framework's published cases it is true.
    applies: Callable[[Case], bool] = lambda case: True


def own(reason: str) -> Source:
    """The suite's choice, and why."""
    return Source(OWN, reason)


def group(name: str, values: Mapping[str, Any], source: Source) -> dict[str, Setting]:
    """The members of the group ``name``, all from one source."""
    if not values:
        return {name: Setting({}, source)}
    return {f"{name}.{key}": Setting(value, source) for key, value in values.items()}


def plain_values(table: SettingsTable) -> dict[str, Any]:
    """The settings as a job file has them: JSON values, groups nested."""
    values: dict[str, Any] = {}
    for key, setting in table.items():
        name, dot, member = key.partition(".")
        if dot:
            values.setdefault(name, {})[member] = setting.value
        else:
            values[name] = setting.value
    return values
