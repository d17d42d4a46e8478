"""What the history returns: nights, runs and people's remarks on them. Plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from helpers.history.nights import NightRecord
from helpers.history.results import RunResult

# What an exclusion is about.
NIGHT, RESULT = "night", "result"


@dataclass(frozen=True)
class Exclusion:
    """A run or a night from which no later night learns. It stays stored and is shown with the reason."""

    # RESULT or NIGHT.
    subject: str
    # The uuid of the run or the night.
    uuid: str
    who: str
    # UTC, ISO 8601.
    created: str
    reason: str
    # UTC, ISO 8601; empty while the exclusion holds.
    restored: str = ""
    restored_by: str = ""
    restored_reason: str = ""

    @property
    def holds(self) -> bool:
        return not self.restored


@dataclass(frozen=True)
class StoredNight:
    """A night as it was judged, and what was decided about it since."""

    # Names it for ``exclude``; see ``nights.night_uuid``.
    uuid: str
    record: NightRecord
    # 12 hexadecimal digits, equal for equal segments.
    segment_digest: str
    # Whether the night lies in the newest segment of its case, after its last start.
    current: bool = True
    # Why nothing is learned from some of its runs, in words; empty if something is learned from all.
    unlearned: str = ""
    # The night's own exclusion, if one holds.
    exclusion: Exclusion | None = None


@dataclass(frozen=True)
class StoredResult:
    """A run; why nothing is learned from it (empty if something is); and its exclusion, if one holds."""

    result: RunResult
    unlearned: str = ""
    exclusion: Exclusion | None = None


@dataclass(frozen=True)
class Pin:
    """Somebody pinned a reference build in perf.yaml."""

    # The build's name in perf.yaml from then on.
    build: str
    # Its distribution and version.
    name: str
    version: str
    commit: str
    digest: str
    # What was pinned until then; empty if nothing was.
    before: str
    reason: str
    who: str
    # UTC, ISO 8601.
    created: str


@dataclass(frozen=True)
class Calibration:
    """A case's noise as ``perfgate calibrate`` measured it (docs/verdicts.md, "The minimum detectable drop").

    ``sigma_run`` and ``sigma_night`` are the standard deviations of log rates between runs and between nights, each
    with its 95% interval.
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
    # The smallest drop that ``runs`` runs find with 80% power, as a fraction.
    smallest_drop: float
    # The recommended one.
    tolerance: float | None = None
    # None if one night was measured.
    sigma_night: float | None = None
    sigma_night_low: float | None = None
    sigma_night_high: float | None = None


@dataclass(frozen=True)
class SegmentStart:
    """The nights of a case that were judged until ``created`` no longer count."""

    case_id: str
    target: str
    segment: Mapping[str, str]
    created: str
    reason: str
    # The commit whose figure was recorded, if one was.
    commit: str = ""


@dataclass(frozen=True)
class CaseNights:
    """A case's nights for somebody who looks at them, on the host of the newest one."""

    # Oldest first.
    nights: tuple[StoredNight, ...] = ()
    # Of the runs of each night, in the same order: what it was judged by, also if nothing is learned from it.
    log_rates: tuple[tuple[float, ...], ...] = ()
    starts: tuple[SegmentStart, ...] = ()
    # A run of the night before the session's own, whose environment the session's is compared with; None without one.
    before: RunResult | None = None
    # Why there are none; empty if the history answered.
    unknown: str = ""


@dataclass(frozen=True)
class Reindexed:
    """How much ``reindex`` found."""

    sessions: int
    results: int
    nights: int
    decisions: int = 0
    # The files that it could not take in, each with the reason.
    refused: tuple[str, ...] = ()
