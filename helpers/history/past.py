"""The nights with which a new night is compared: the case's own earlier nights, and those of its siblings."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from helpers.common.records import WrongRecord, parse
from helpers.history.nights import check_learned, check_log_rate, compared_of, night_of, stored_name
from helpers.history.remarks import Bound, calibration, recorded_at, segment_row, start_of
from helpers.history.tables import nights, series
from helpers.judging.case.evidence import Compared, Night, Past
from helpers.judging.case.noise import levelled
from helpers.judging.case.verdict import Status
from helpers.machine.environment import POOL
from helpers.trainers.contract.errors import HistoryError

# docs/verdicts.md, "One case, one night": the accepted nights of the segment, the newest 40.
ACCEPTED_NIGHTS = 40
SIBLINGS = 60
# A level is learned from its oldest nights, so that it does not follow a build that gets slower bit by bit.
COMPARED_NIGHTS = 40


def past(
    connection: sa.Connection, case_id: str, target: str, segment: Mapping[str, str], cards: int, session: str
) -> Past:
    """The newest 40 accepted nights of the case in ``segment``, the nights between and after them, and its siblings.

    These nights are left out: those before the segment's last start; ``session``'s own and, if it has judged the case
    already, all that were judged since; and nights from which nothing may be learned.
    """
    segment_id = segment_row(connection, segment)
    this = [series.c.case_id == case_id, series.c.target == target, series.c.segment_id == segment_id]
    series_id = None
    if segment_id is not None:
        series_id = connection.execute(sa.select(series.c.id).where(*this)).scalar_one_or_none()
    before = _judged_already(connection, series_id, session)
    found: tuple[Night, ...] = ()
    others_nights = _others(session, before)
    if series_id is not None:
        found = _nights(connection, series_id, segment, others_nights, before)
    host = segment.get("host", "")
    alike = [series.c.case_id == case_id, series.c.target == target, series.c.host == host]
    all_stacks = connection.execute(sa.select(series.c.id).where(*alike)).scalars().all()
    compared, elsewhere, gained = _compared(connection, all_stacks, series_id, others_nights, before)
    measured = calibration(connection, case_id, target, segment)
    others = _siblings(connection, case_id, target, host, cards, session, before)
    return Past(
        found,
        tuple(others),
        compared=compared,
        elsewhere=elsewhere,
        gained=gained,
        pool=_is_pool(host),
        calibrated=0.0 if measured is None else measured.sigma_run,
    )


def _compared(
    connection: sa.Connection,
    all_series: Sequence[int],
    tonight: int | None,
    others: sa.ColumnElement[bool],
    before: str | None,
) -> tuple[tuple[Compared, ...], tuple[Compared, ...], bool]:
    """Past.compared, Past.elsewhere and Past.gained. They begin at the night that was recorded or at a confirmed gain,
    whichever is newer, in ``tonight``'s series or another of the case's series on this machine."""
    mine = [nights.c.series_id.in_(all_series), others]
    gain = connection.execute(
        sa.select(nights.c.created, nights.c.id)
        .where(*mine, nights.c.starts.is_(True))
        .order_by(nights.c.created.desc(), nights.c.id.desc())
        .limit(1)
    ).one_or_none()
    by_record = max((each for one in all_series if (each := recorded_at(connection, one, before))), default=None)
    pairs = sa.select(nights.c.series_id, nights.c.compared).where(*mine)
    found: list[tuple[int, Compared]] = []
    bound = Bound() if gain is None else Bound(gain.created, gain.id)
    if by_record is not None and by_record >= bound.created:
        bound, gain = Bound(by_record, sys.maxsize), None
        newest = pairs.where(nights.c.created <= by_record).order_by(nights.c.created.desc(), nights.c.id.desc())
        row = connection.execute(newest.limit(1)).one_or_none()
        if row is not None and row.compared:
            # Its runs are the level that somebody recorded, whatever its verdict was.
            found.append((row.series_id, replace(_pairs_of(row.compared), teaches_level=True, teaches_good=True)))
    since = pairs.where(bound.condition(), nights.c.compared != "").order_by(nights.c.created, nights.c.id)
    rows = connection.execute(since.limit(COMPARED_NIGHTS - len(found)))
    found += [(row.series_id, _pairs_of(row.compared)) for row in rows]
    here, elsewhere = (tuple(each for one, each in found if (one == tonight) is same) for same in (True, False))
    return here, elsewhere, gain is not None


def _pairs_of(text: str) -> Compared:
    return compared_of(json.loads(text))


def _judged_already(connection: sa.Connection, series_id: int | None, session: str) -> str | None:
    """When the session judged this case; None if it has not. A resumed session is compared with the same nights
    again."""
    own = sa.and_(nights.c.series_id == series_id, nights.c.session == session)
    return connection.execute(sa.select(sa.func.max(nights.c.created)).where(own)).scalar_one_or_none()


def _others(session: str, before: str | None) -> sa.ColumnElement[bool]:
    """Nights of other sessions from which something can be learned."""
    condition = sa.and_(nights.c.session != session, nights.c.first_rate.is_not(None))
    return condition if before is None else sa.and_(condition, nights.c.created < before)


def _nights(
    connection: sa.Connection,
    series_id: int,
    segment: Mapping[str, str],
    others: sa.ColumnElement[bool],
    before: str | None,
) -> tuple[Night, ...]:
    """The newest accepted nights and the nights between and after them, oldest first."""
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
            nights.c.uuid,
            nights.c.learned,
            nights.c.accepted,
            nights.c.evidence,
            nights.c.status,
            nights.c.stall_share,
            nights.c.date,
            nights.c.session,
            _body(segment.get("host", "")),
        )
        .where(*inside)
        .order_by(*newest_first)
    ).all()
    found = [
        Night(
            log_rates=_learned(row),
            accepted=row.accepted,
            evidence=row.evidence,
            confirmed_regression=row.status == Status.REGRESSION.value,
            stall_share=row.stall_share,
            date=row.date,
            session=row.session,
            node=_node_of(row),
        )
        for row in rows
    ]
    return tuple(reversed(found))


def _learned(row: sa.Row[Any]) -> tuple[float, ...]:
    """The log rates of a night's row. Raises HistoryError, with the night's name, for a number that no real night
    has."""
    try:
        return check_learned(parse(row.learned), row.evidence, row.stall_share)
    except WrongRecord as wrong:
        raise _no_past(row.uuid, wrong) from wrong
    except (ValueError, RecursionError) as error:
        raise _no_past(row.uuid, WrongRecord("learned", str(error), "a list of log rates")) from error


def _no_past(uuid: str, wrong: WrongRecord) -> HistoryError:
    return HistoryError(stored_name(uuid), field=wrong.field, got=wrong.got, expected=wrong.expected)


def _siblings(
    connection: sa.Connection,
    case_id: str,
    target: str,
    host: str,
    cards: int,
    session: str,
    before: str | None,
) -> Iterator[tuple[float, ...]]:
    """The log rates of each sibling, oldest first, in its newest segment that has a night before this session."""
    rows = connection.execute(
        sa.select(series.c.id, series.c.case_id)
        .where(series.c.host == host, series.c.target == target, series.c.cards == cards, series.c.case_id != case_id)
        .order_by(series.c.last_created.desc(), series.c.id.desc())
    ).all()
    done: set[str] = set()
    for series_id, name in rows:
        if name in done or len(done) == SIBLINGS:
            continue
        # A segment that began tonight has no nights yet, but the one before it has.
        start = start_of(connection, series_id, before, besides=session)
        inside = [nights.c.series_id == series_id, _others(session, before), start.condition()]
        rates = connection.execute(
            sa.select(nights.c.uuid, nights.c.first_rate, _body(host))
            .where(*inside, nights.c.accepted.is_(True))
            .order_by(nights.c.created.desc(), nights.c.id.desc())
            .limit(ACCEPTED_NIGHTS)
        )
        if newest := [(_first_rate(row), _node_of(row)) for row in rates]:
            done.add(name)
            oldest_first = newest[::-1]
            yield tuple(levelled([rate for rate, _ in oldest_first], [node for _, node in oldest_first]))


def _first_rate(row: sa.Row[Any]) -> float:
    try:
        return check_log_rate(row.first_rate)
    except WrongRecord as wrong:
        raise _no_past(row.uuid, wrong) from wrong


def _is_pool(host: str) -> bool:
    return host.startswith(POOL)


def _body(host: str) -> sa.ColumnElement[str]:
    """The column with a night's node. It is empty outside of pools, where thousands of nights do not need it."""
    return nights.c.body.label("body") if _is_pool(host) else sa.literal("").label("body")


def _node_of(row: sa.Row[Any]) -> str:
    return night_of(row.body, stored_name(row.uuid)).host if row.body else ""
