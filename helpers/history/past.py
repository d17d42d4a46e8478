"""What a night is held against: the case's nights before it, and those of its siblings."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from helpers.evidence import Night, Past
from helpers.history.codec import digest, night_of, to_text
from helpers.history.schema import documents, nights, segment_starts, series
from helpers.history.writing import learned_rates
from helpers.verdict import Status

# VERDICT.md, Judge: "the accepted nights of the current segment, newest 40".
ACCEPTED_NIGHTS = 40
SIBLINGS = 60


@dataclass(frozen=True)
class Bound:
    """The first night of a segment, by time and row (at the same time only nights from that row on belong to it);
    ``created`` is empty where every night does."""

    created: str = ""
    night_id: int = 0

    def condition(self) -> sa.ColumnElement[bool]:
        after = sa.or_(nights.c.created > self.created, nights.c.id >= self.night_id)
        return sa.and_(nights.c.created >= self.created, after)


def past(
    connection: sa.Connection, case_id: str, target: str, segment: Mapping[str, str], cards: int, session: str
) -> Past:
    """See records.Memory."""
    segment_id = segment_row(connection, segment)
    this = [series.c.case_id == case_id, series.c.target == target, series.c.segment_id == segment_id]
    series_id = None
    if segment_id is not None:
        series_id = connection.execute(sa.select(series.c.id).where(*this)).scalar_one_or_none()
    before = _judged_already(connection, series_id, session)
    found: tuple[Night, ...] = ()
    unexplained = False
    if series_id is not None:
        found, newest = _nights(connection, series_id, _others(session, before), before)
        unexplained = newest is not None and _unexplained(connection, newest)
    host = segment.get("host", "")
    others = _siblings(connection, case_id, target, host, cards, _others(session, before), before)
    return Past(found, tuple(others), unexplained)


def segment_row(connection: sa.Connection, segment: Mapping[str, str]) -> int | None:
    """The row of a segment, None where no night was in it."""
    wanted = documents.c.digest == digest(to_text(segment))
    return connection.execute(sa.select(documents.c.id).where(wanted)).scalar_one_or_none()


def start_of(connection: sa.Connection, series_id: int, before: str | None = None) -> Bound:
    """Where the newest segment of a series starts, as known ``before`` a moment.

    A night that starts one is its first where it was accepted, and is left behind where it was not.
    """
    chosen = [nights.c.series_id == series_id, nights.c.starts.is_(True)]
    if before is not None:
        chosen.append(nights.c.created < before)
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
    told = (
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
        told = told.where(segment_starts.c.created < before)
    by_word = connection.execute(told).scalar_one_or_none()
    if by_word is not None and by_word >= by_night.created:
        # The night that was recorded may have been judged in the same second: it is left behind too.
        return Bound(by_word, sys.maxsize)
    return by_night


def _judged_already(connection: sa.Connection, series_id: int | None, session: str) -> str | None:
    """When the session judged this case, None where it has not: a resumed one is held against what it was then."""
    own = sa.and_(nights.c.series_id == series_id, nights.c.session == session)
    return connection.execute(sa.select(sa.func.max(nights.c.created)).where(own)).scalar_one_or_none()


def _others(session: str, before: str | None) -> sa.ColumnElement[bool]:
    """Nights of other sessions that something is left of."""
    condition = sa.and_(nights.c.session != session, nights.c.first_rate.is_not(None))
    return condition if before is None else sa.and_(condition, nights.c.created < before)


def _nights(
    connection: sa.Connection, series_id: int, others: sa.ColumnElement[bool], before: str | None
) -> tuple[tuple[Night, ...], int | None]:
    """The newest accepted nights and what lies between and after them, oldest first; the row of the newest."""
    newest_first = (nights.c.created.desc(), nights.c.id.desc())
    inside = [nights.c.series_id == series_id, others, start_of(connection, series_id, before).condition()]
    oldest = connection.execute(
        sa.select(nights.c.created, nights.c.id)
        .where(*inside, nights.c.accepted.is_(True))
        .order_by(*newest_first)
        .offset(ACCEPTED_NIGHTS - 1)
        .limit(1)
    ).one_or_none()
    if oldest is not None:
        inside.append(Bound(oldest.created, oldest.id).condition())
    rows = connection.execute(
        sa.select(
            nights.c.id,
            nights.c.learned,
            nights.c.accepted,
            nights.c.evidence,
            nights.c.status,
            nights.c.stall_share,
            nights.c.created,
            nights.c.session,
        )
        .where(*inside)
        .order_by(*newest_first)
    ).all()
    found = [
        Night(
            log_rates=learned_rates(row.learned),
            accepted=row.accepted,
            evidence=row.evidence,
            confirmed_regression=row.status == Status.REGRESSION.value,
            stall_share=row.stall_share,
            created=row.created,
            session=row.session,
        )
        for row in rows
    ]
    return tuple(reversed(found)), rows[0].id if rows else None


def _unexplained(connection: sa.Connection, night_id: int) -> bool:
    """What a night left of Standing.unexplained."""
    row = connection.execute(sa.select(nights.c.uuid, nights.c.body).where(nights.c.id == night_id)).one()
    standing = night_of(row.body, f"history: night {row.uuid}").standing
    return standing is not None and standing.unexplained


def _siblings(
    connection: sa.Connection,
    case_id: str,
    target: str,
    host: str,
    cards: int,
    others: sa.ColumnElement[bool],
    before: str | None,
) -> Iterator[tuple[float, ...]]:
    """One series a case: its newest segment with a night before this session."""
    rows = connection.execute(
        sa.select(series.c.id, series.c.case_id)
        .where(series.c.host == host, series.c.target == target, series.c.cards == cards, series.c.case_id != case_id)
        .order_by(series.c.last_created.desc(), series.c.id.desc())
    ).all()
    told: set[str] = set()
    for series_id, name in rows:
        if name in told or len(told) == SIBLINGS:
            continue
        inside = [nights.c.series_id == series_id, others, start_of(connection, series_id, before).condition()]
        rates = connection.execute(
            sa.select(nights.c.first_rate)
            .where(*inside, nights.c.accepted.is_(True))
            .order_by(nights.c.created.desc(), nights.c.id.desc())
            .limit(ACCEPTED_NIGHTS)
        )
        if newest := rates.scalars().all():
            told.add(name)
            yield tuple(reversed([float(rate) for rate in newest if rate is not None]))
