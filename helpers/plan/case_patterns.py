"""Entries of perf.yaml about the cases that a pattern over case ids names: owners and quarantines."""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, TypeVar

from helpers.common.records import one_of
from helpers.judging.case.evidence import CaseKey
from helpers.plan.yaml_file import Pattern, Text
from helpers.trainers.contract.errors import ConfigError

# "gpu" is any NVIDIA card; the others name a model.
TARGETS = ("cpu", "v100", "a100", "gpu")
Target = Annotated[str, one_of(*TARGETS)]

_Entry = TypeVar("_Entry", bound="CasePattern")


@dataclass(frozen=True, kw_only=True)
class CasePattern:
    """The cases that an entry of a list is about. If several entries match a case, the last one counts."""

    # Over case ids.
    pattern: Pattern
    # Only the cases of this target; None for all that have such an id.
    target: Target | None = None

    def matches(self, case_id: str, target: str) -> bool:
        return self.target in (None, target) and fnmatchcase(case_id, self.pattern)


@dataclass(frozen=True, kw_only=True)
class Owner(CasePattern):
    """The owner that reports name beside a case."""

    owner: Text


@dataclass(frozen=True, kw_only=True)
class Quarantine(CasePattern):
    """Cases that are measured and shown, and cannot fail the gate until a day."""

    reason: Text
    # The last night on which it holds, by the local date on which a session begins. From the next date on such a case
    # fails the gate.
    until: datetime.date


def last_match(entries: Iterable[_Entry], case_id: str, target: str) -> _Entry | None:
    """The entry that counts for the case; None if none matches it."""
    return next((each for each in reversed(tuple(entries)) if each.matches(case_id, target)), None)


def refuse_unmatched(file: Path, field: str, entry: CasePattern, cases: Iterable[CaseKey]) -> None:
    """Raises ConfigError if the pattern in ``field`` of perf.yaml matches none of ``cases``, pairs of target and id."""
    cases = tuple(cases)
    if any(entry.matches(case_id, target) for target, case_id in cases):
        return
    known = sorted({case_id for target, case_id in cases if entry.target in (None, target)})
    near = difflib.get_close_matches(entry.pattern, known, n=2, cutoff=0)
    raise ConfigError(
        str(file),
        field=field,
        got=entry.pattern if entry.target is None else f"{entry.pattern} with target: {entry.target}",
        expected="a pattern that at least one case of the matrix matches",
        remedy=f"Nearest: {', '.join(near)}",
    )
