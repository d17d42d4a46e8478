"""What history answers with: nights, runs and what people said of them. Plain values."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from helpers.history.records import NightRecord
from helpers.history.results import RunResult

_DAY = len("2026-11-21")


@dataclass(frozen=True)
class Exclusion:
    """A result or a night that no later night learns from; it stays stored and is shown with the reason.

    ``subject`` is ``result`` or ``night``, ``uuid`` the one meant. ``created`` and ``restored`` are UTC, ISO 8601;
    ``restored`` is empty while the exclusion holds.
    """

    subject: str
    uuid: str
    who: str
    created: str
    reason: str
    restored: str = ""
    restored_by: str = ""
    restored_reason: str = ""

    @property
    def holds(self) -> bool:
        return not self.restored


@dataclass(frozen=True)
class StoredNight:
    """A night as it was judged, and what has become of it since.

    - ``uuid``: names it for ``exclude``; the same session, case, target and host always give the same.
    - ``rates``: the log rates that later nights learn from: those of the record without excluded runs and without
      runs that nothing is learned from; empty where none is left, or where the night itself is excluded.
    - ``segment_digest``: 12 hexadecimal digits, equal where the segment is.
    - ``current``: whether the night lies in the newest segment of its case, after its last start.
    - ``unlearned``: why runs of it are not learned from, for people; empty where all are.
    - ``exclusion``: the night's own, where one holds.
    """

    uuid: str
    record: NightRecord
    rates: tuple[float, ...]
    segment_digest: str
    current: bool = True
    unlearned: str = ""
    exclusion: Exclusion | None = None


@dataclass(frozen=True)
class StoredResult:
    """A run, why nothing is learned from it (empty: it is), and its exclusion, where one holds."""

    result: RunResult
    unlearned: str = ""
    exclusion: Exclusion | None = None


@dataclass(frozen=True)
class CaseLine:
    """A case that history knows: its nights in all segments, the first and the last of them (UTC, ISO 8601)."""

    case_id: str
    target: str
    host: str
    nights: int
    first: str
    last: str


@dataclass(frozen=True)
class Acknowledgement:
    """A change that somebody knows of: trend and history show it as known.

    ``pattern`` is a case id or a pattern over them (``*-amp_o2-*``); ``first`` and ``last`` bound the nights'
    ``created`` (UTC, ISO 8601, or a day; both inclusive, empty: open). ``commit`` is what caused it.
    """

    pattern: str
    first: str
    last: str
    commit: str
    reason: str
    who: str
    created: str

    def covers(self, case_id: str, created: str) -> bool:
        """Whether a night of the case, of that time, is meant; a bound that is a day holds the whole of it."""
        after_first = not self.first or _compared(created, self.first) >= 0
        before_last = not self.last or _compared(created, self.last) <= 0
        return fnmatchcase(case_id, self.pattern) and after_first and before_last


@dataclass(frozen=True)
class Calibration:
    """A case's noise as ``perfgate calibrate`` measured it (docs/verdicts.md, "Calibrate").

    Standard deviations of log rates between runs and between nights with 95% intervals; ``sigma_night`` is None
    where one night was measured. ``smallest_drop`` is the smallest found with 80% power, as a fraction, by
    ``runs`` runs; ``tolerance`` the recommended one.
    """

    case_id: str
    target: str
    segment: Mapping[str, str]
    created: str
    session: str
    runs: int
    sigma_run: float
    degrees_of_freedom: float
    sigma_run_low: float
    sigma_run_high: float
    smallest_drop: float
    tolerance: float | None = None
    sigma_night: float | None = None
    sigma_night_low: float | None = None
    sigma_night_high: float | None = None


@dataclass(frozen=True)
class SegmentStart:
    """The nights of a case judged until ``created`` are left behind; ``commit`` is what was recorded, if it was."""

    case_id: str
    target: str
    segment: Mapping[str, str]
    created: str
    reason: str
    commit: str = ""


@dataclass(frozen=True)
class Reindexed:
    """What ``reindex`` found: counts of runs and nights, and the files that it could not take, each with why."""

    sessions: int
    results: int
    nights: int
    refused: tuple[str, ...] = ()


def _compared(created: str, bound: str) -> int:
    """-1, 0 or 1: ``created`` lies before, at or after ``bound``, a day or a moment."""
    if len(bound) == _DAY:
        return (created[:_DAY] > bound) - (created[:_DAY] < bound)
    # Not as texts: one may tell microseconds and the other not.
    moment, limit = (datetime.datetime.fromisoformat(each) for each in (created, bound))
    return (moment > limit) - (moment < limit)
