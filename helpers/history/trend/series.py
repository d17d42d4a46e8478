"""From stored nights to the series that are searched for steps: nightly medians, and A/B ratios."""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from helpers.history.stored import StoredNight


class Kind(enum.Enum):
    """What a point is: a night's median images/s, or the build under test over the pinned good build."""

    NIGHTS = "nightly medians"
    PAIRS = "A/B ratios"


@dataclass(frozen=True)
class Point:
    """One night. ``value`` is images/s by the median step, or a ratio of A/B pairs; ``created`` UTC, ISO 8601.

    ``build`` names what was measured, in words; ``commit`` is its commit, empty where the build has none.
    """

    created: str
    session: str
    value: float
    build: str = ""
    commit: str = ""

    @property
    def day(self) -> str:
        return self.created[:10]


@dataclass(frozen=True)
class Series:
    """The points of one case on one target of one host, oldest first, all of one segment.

    ``pinned_from`` is the index from which the nights are held against the present reference: the last start of a
    segment (a baseline recorded anew, a confirmed improvement).
    """

    case_id: str
    target: str
    host: str
    kind: Kind
    points: tuple[Point, ...]
    pinned_from: int = 0

    @property
    def values(self) -> list[float]:
        """For Otava: a list."""
        return [point.value for point in self.points]


def series_of(
    nights: Iterable[StoredNight], excluded: Collection[str] = (), last: int | None = None
) -> tuple[Series, ...]:
    """The series of one case's ``nights`` (oldest first): of each target and host, in the newest segment there.

    Left out is what nothing is learned from: excluded nights and runs, contended ones. ``excluded`` holds the
    excluded runs' uuids, for the A/B ratio of a night rests on all of its runs; ``last`` keeps the newest nights.
    A/B ratios are those against the reference that is pinned now.
    """
    by_place: dict[tuple[str, str, str], list[StoredNight]] = {}
    for night in nights:
        record = night.record
        by_place.setdefault((record.case_id, record.target, record.segment.get("host", "")), []).append(night)
    found: list[Series] = []
    for (case_id, target, host), several in sorted(by_place.items()):
        here = [night for night in several if night.segment_digest == several[-1].segment_digest]
        here = here[-last:] if last else here
        usable = [night for night in here if night.rates]
        medians = tuple(_point(night, math.exp(statistics.median(night.rates))) for night in usable)
        pinned = sum(not night.current for night in usable)
        ratios = _ratios([night for night in usable if night.current], excluded)
        found.append(Series(case_id, target, host, Kind.NIGHTS, medians, pinned))
        if ratios:
            found.append(Series(case_id, target, host, Kind.PAIRS, ratios))
    return tuple(found)


def _ratios(nights: Sequence[StoredNight], excluded: Collection[str]) -> tuple[Point, ...]:
    points = []
    for night in nights:
        standing = night.record.standing
        if standing is None or not standing.pairs or standing.effect is None or standing.effect <= -1:
            continue
        if not set(night.record.run_uuids) & set(excluded):
            points.append(_point(night, 1 + standing.effect))
    return tuple(points)


def _point(night: StoredNight, value: float) -> Point:
    build = night.record.build
    commit = build.get("commit", "")
    words = [build.get("framework", ""), build.get("version", ""), f"@{commit[:12]}" if commit else ""]
    return Point(night.record.created, night.record.session, value, " ".join(filter(None, words)), commit)
