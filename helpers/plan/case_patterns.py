"""Entries of perf.yaml about the cases that a pattern over case ids names: owners and quarantines."""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from helpers.plan.matrix import TARGETS
from helpers.plan.yaml_file import YamlValue
from helpers.trainers.contract.errors import ConfigError

Entry = TypeVar("Entry", bound="CasePattern")


@dataclass(frozen=True)
class CasePattern:
    """The cases that an entry of a list is about. If several entries match a case, the last one counts."""

    # Over case ids.
    pattern: str
    # Only the cases of this target; None for all that have such an id.
    target: str | None
    # The entry's place in the file, such as ``quarantine[0]``.
    place: str

    def matches(self, case_id: str, target: str) -> bool:
        return self.target in (None, target) and fnmatchcase(case_id, self.pattern)


@dataclass(frozen=True)
class Owner(CasePattern):
    """The owner that reports name beside a case."""

    owner: str


@dataclass(frozen=True)
class Quarantine(CasePattern):
    """Cases that are measured and shown, and cannot fail the gate until a day."""

    reason: str
    # The last night on which it holds, by the local date on which a session begins. From the next date on such a case
    # fails the gate.
    until: datetime.date


def last_match(entries: Iterable[Entry], case_id: str, target: str) -> Entry | None:
    """The entry that counts for the case; None if none matches it."""
    return next((each for each in reversed(tuple(entries)) if each.matches(case_id, target)), None)


def refuse_unmatched(file: Path, field: str, entry: CasePattern, cases: Iterable[tuple[str, str]]) -> None:
    """Raises ConfigError if the pattern in ``field`` of perf.yaml matches none of ``cases``, pairs of target and id."""
    cases = tuple(cases)
    if any(entry.matches(case_id, target) for target, case_id in cases):
        return
    elsewhere = sorted({target for target, case_id in cases if fnmatchcase(case_id, entry.pattern)})
    mine = sorted({case_id for target, case_id in cases if entry.target in (None, target)})
    near = difflib.get_close_matches(entry.pattern, mine, n=2, cutoff=0)
    raise ConfigError(
        str(file),
        field=field,
        got=entry.pattern if entry.target is None else f"{entry.pattern} with target: {entry.target}",
        expected="a pattern that at least one case of the matrix matches",
        remedy=f"It matches cases of target {', '.join(elsewhere)}" if elsewhere else f"Nearest: {', '.join(near)}",
    )


def read_owners(field: YamlValue | None) -> tuple[Owner, ...]:
    return tuple(
        Owner(*_case_pattern(entry, keys), keys["owner"].text()) for entry, keys in _entries(field, ("owner",))
    )


def read_quarantine(field: YamlValue | None) -> tuple[Quarantine, ...]:
    return tuple(
        Quarantine(*_case_pattern(entry, keys), keys["reason"].text(), keys["until"].date())
        for entry, keys in _entries(field, ("reason", "until"))
    )


def _entries(field: YamlValue | None, own: tuple[str, ...]) -> Iterable[tuple[YamlValue, Mapping[str, YamlValue]]]:
    for entry in field.sequence() if field else []:
        yield entry, entry.mapping(required=("pattern", *own), optional=("target",))


def _case_pattern(entry: YamlValue, keys: Mapping[str, YamlValue]) -> tuple[str, str | None, str]:
    target = keys["target"].one_of(TARGETS) if "target" in keys else None
    return keys["pattern"].pattern(), target, entry.place
