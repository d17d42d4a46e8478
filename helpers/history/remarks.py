"""What people added to the history: exclusions of nights and runs, pins, calibrations, and the starts of segments,
before which nights no longer count."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import sqlalchemy as sa

from helpers.history.codec import digest, to_text
from helpers.history.decisions import KIND_OF, Decision, decision_of
from helpers.history.stored import Calibration, Exclusion, Pin, SegmentStart
from helpers.history.tables import decisions, nights, segments, series

_Made = TypeVar("_Made", bound=Decision)

# Both databases accept far more values in one statement.
AT_ONCE = 500


def all_exclusions(connection: sa.Connection, holding_only: bool = True) -> tuple[Exclusion, ...]:
    """By the time they were made."""
    return _told(_all_of(connection, Exclusion), holding_only)


def exclusions_of(connection: sa.Connection, uuids: Sequence[str], holding_only: bool = True) -> list[Exclusion]:
    """The exclusions of these runs and nights."""
    found: list[Exclusion] = []
    for at in range(0, len(uuids), AT_ONCE):
        few = _all_of(connection, Exclusion, decisions.c.subject.in_(uuids[at : at + AT_ONCE]))
        found += _told(few, holding_only)
    return found


def _told(found: Sequence[Exclusion], holding_only: bool) -> tuple[Exclusion, ...]:
    """Each exclusion once, as it was taken back if it was: that is a decision of its own."""
    last: dict[Exclusion, Exclusion] = {}
    for each in found:
        made = replace(each, restored="", restored_by="", restored_reason="")
        if each.restored or made not in last:
            last[made] = each
    return tuple(each for each in last.values() if each.holds or not holding_only)


def all_pins(connection: sa.Connection) -> tuple[Pin, ...]:
    """Every pin of a reference build, by time."""
    return tuple(_all_of(connection, Pin))


def calibration(connection: sa.Connection, case_id: str, target: str, segment: Mapping[str, str]) -> Calibration | None:
    """The case's newest calibration in that segment."""
    here = decisions.c.segment_id == segment_row(connection, segment)
    found = _all_of(connection, Calibration, decisions.c.subject == case_id, decisions.c.target == target, here)
    return found[-1] if found else None


def starts_of(connection: sa.Connection, case_id: str, target: str | None = None) -> tuple[SegmentStart, ...]:
    """The case's starts, by time."""
    chosen = [decisions.c.subject == case_id]
    if target is not None:
        chosen.append(decisions.c.target == target)
    return tuple(_all_of(connection, SegmentStart, *chosen))


def _all_of(connection: sa.Connection, kind: type[_Made], *chosen: sa.ColumnElement[bool]) -> list[_Made]:
    """The chosen decisions of a kind, by time. Raises HistoryError for one that no suite wrote."""
    rows = connection.execute(
        sa.select(decisions.c.body, decisions.c.subject)
        .where(decisions.c.kind == KIND_OF[kind], *chosen)
        .order_by(decisions.c.created, decisions.c.id)
    )
    found = (decision_of(row.body, f"history: {KIND_OF[kind]} of {row.subject}") for row in rows)
    return [each for each in found if isinstance(each, kind)]


# ---- where the newest segment of a series starts


@dataclass(frozen=True)
class Bound:
    """The first night of a segment."""

    # Its time; empty if every night belongs to the segment.
    created: str = ""
    # Its row. Of nights at the same time, only those from this row on belong to the segment.
    night_id: int = 0

    def condition(self) -> sa.ColumnElement[bool]:
        after = sa.or_(nights.c.created > self.created, nights.c.id >= self.night_id)
        return sa.and_(nights.c.created >= self.created, after)


def segment_row(connection: sa.Connection, segment: Mapping[str, str]) -> int | None:
    """The row of a segment; None if no night was in it."""
    wanted = segments.c.digest == digest(to_text(segment))
    return connection.execute(sa.select(segments.c.id).where(wanted)).scalar_one_or_none()


def start_of(connection: sa.Connection, series_id: int, before: str | None = None, besides: str = "") -> Bound:
    """Where the newest segment of a series starts, as known ``before`` a moment, without the nights of the session
    ``besides``.

    A night that starts a segment is its first night if it was accepted. If not, it does not count any more.
    """
    chosen = [nights.c.series_id == series_id, nights.c.starts.is_(True)]
    if before is not None:
        chosen.append(nights.c.created < before)
    if besides:
        chosen.append(nights.c.session != besides)
    night = connection.execute(
        sa.select(nights.c.created, nights.c.id, nights.c.accepted, nights.c.first_rate)
        .where(*chosen)
        .order_by(nights.c.created.desc(), nights.c.id.desc())
        .limit(1)
    ).one_or_none()
    by_night = Bound()
    if night is not None:
        first = night.accepted and night.first_rate is not None
        by_night = Bound(night.created, night.id if first else night.id + 1)
    recorded = recorded_at(connection, series_id, before)
    if recorded is not None and recorded >= by_night.created:
        # The night that was recorded may have been judged in the same second. It does not count any more either.
        return Bound(recorded, sys.maxsize)
    return by_night


def recorded_at(connection: sa.Connection, series_id: int, before: str | None) -> str | None:
    """When the newest segment of a series was begun by recording the case; None if it was not."""
    same = sa.and_(
        decisions.c.subject == series.c.case_id,
        decisions.c.target == series.c.target,
        decisions.c.segment_id == series.c.segment_id,
    )
    newest = (
        sa.select(sa.func.max(decisions.c.created))
        .join_from(decisions, series, same)
        .where(series.c.id == series_id, decisions.c.kind == KIND_OF[SegmentStart])
    )
    if before is not None:
        newest = newest.where(decisions.c.created < before)
    return connection.execute(newest).scalar_one_or_none()
