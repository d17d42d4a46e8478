"""Where the newest segment of a series starts: nights before that are left behind."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import sqlalchemy as sa

from helpers.history.codec import digest, plain, to_text, utc
from helpers.history.stored import Calibration, SegmentStart
from helpers.history.tables import documents, nights, segment_starts, series
from helpers.history.writing import Documents


@dataclass(frozen=True)
class Bound:
    """The first night of a segment."""

    # Its time; empty where every night belongs to the segment.
    created: str = ""
    # Its row: of nights at the same time, only those from that row on belong to the segment.
    night_id: int = 0

    def condition(self) -> sa.ColumnElement[bool]:
        after = sa.or_(nights.c.created > self.created, nights.c.id >= self.night_id)
        return sa.and_(nights.c.created >= self.created, after)


def segment_row(connection: sa.Connection, segment: Mapping[str, str]) -> int | None:
    """The row of a segment, None where no night was in it."""
    wanted = documents.c.digest == digest(to_text(segment))
    return connection.execute(sa.select(documents.c.id).where(wanted)).scalar_one_or_none()


def start_of(connection: sa.Connection, series_id: int, before: str | None = None, besides: str = "") -> Bound:
    """Where the newest segment of a series starts, as it was known ``before`` a moment and without the nights of the
    session ``besides``.

    A night that starts a segment is its first where it was accepted, and is left behind where it was not.
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
        # The night that was recorded may have been judged in the same second: it is left behind too.
        return Bound(recorded, sys.maxsize)
    return by_night


def recorded_at(connection: sa.Connection, series_id: int, before: str | None) -> str | None:
    """When somebody began the newest segment of a series by recording the case, None where nobody did."""
    newest = (
        sa.select(sa.func.max(segment_starts.c.created))
        .join_from(
            segment_starts,
            series,
            sa.and_(
                segment_starts.c.case_id == series.c.case_id,
                segment_starts.c.target == series.c.target,
                segment_starts.c.segment_id == series.c.segment_id,
            ),
        )
        .where(series.c.id == series_id)
    )
    if before is not None:
        newest = newest.where(segment_starts.c.created < before)
    return connection.execute(newest).scalar_one_or_none()


def start_segment(connection: sa.Connection, known: Documents, start: SegmentStart) -> None:
    """Keep a start once: a spool that was cut off while it was emptied brings it a second time."""
    values = with_segment(connection, known, start)
    same = [segment_starts.c[name] == values[name] for name in ("case_id", "target", "segment_id", "created")]
    if connection.execute(sa.select(segment_starts.c.id).where(*same).limit(1)).first() is None:
        connection.execute(sa.insert(segment_starts), values)


def starts_of(connection: sa.Connection, case_id: str, target: str | None) -> tuple[tuple[str, dict[str, Any]], ...]:
    """The segments' JSON and the other fields of SegmentStart, by time."""
    names = [item.name for item in fields(SegmentStart) if item.name != "segment"]
    query = (
        sa.select(documents.c.body, *(segment_starts.c[name] for name in names))
        .join_from(segment_starts, documents)
        .where(segment_starts.c.case_id == case_id)
        .order_by(segment_starts.c.created, segment_starts.c.id)
    )
    if target is not None:
        query = query.where(segment_starts.c.target == target)
    rows = connection.execute(query).mappings()
    return tuple((row["body"], {name: row[name] for name in names}) for row in rows)


def with_segment(
    connection: sa.Connection, known: Documents, made: Calibration | SegmentStart
) -> dict[str, str | float | int | None]:
    """The fields as a row has them, in the segment's stead its row."""
    values = asdict(made)
    text = to_text(values.pop("segment"))
    values = {name: plain(value) if isinstance(value, str) else value for name, value in values.items()}
    return {
        **values,
        "created": utc(made.created, f"entry of {made.case_id}"),
        "segment_id": known.keep(connection, [text])[text],
    }
