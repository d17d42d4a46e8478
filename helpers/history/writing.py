"""Writes rows: runs, nights, and what later nights learn from a night."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from helpers.history.codec import digest, is_screening, plain, run_row, to_text, utc, without
from helpers.history.nights import NightRecord, night_of, night_text, night_uuid, stored_name
from helpers.history.remarks import exclusions_of
from helpers.history.results import RunResult
from helpers.history.stored import NIGHT, RESULT
from helpers.history.tables import night_runs, nights, results, segments, series
from helpers.trainers.contract.errors import HistoryError


def put(connection: sa.Connection, table: sa.Table, values: Mapping[str, Any], key: Sequence[str]) -> tuple[int, bool]:
    """Insert ``values``, or set them in the row that has the key already. Returns that row's id, and whether it is new.

    Another writer may insert the key in between. The database then refuses, and the whole transaction must be made
    again. (INSERT with ON CONFLICT is compiled anew each time, which takes longer than all the rest.)
    """
    same = sa.and_(*(table.c[name] == values[name] for name in key))
    found = connection.execute(sa.select(table.c.id).where(same)).scalar_one_or_none()
    if found is None:
        made = connection.execute(sa.insert(table), dict(values)).inserted_primary_key
        assert made is not None
        return int(made[0]), True
    if changed := {name: value for name, value in values.items() if name not in key}:
        connection.execute(sa.update(table).where(table.c.id == found), changed)
    return int(found), False


def write_runs(connection: sa.Connection, runs: Sequence[RunResult]) -> None:
    """Write runs, and set again what is learned from their nights."""
    # All writers write in the same order. Otherwise two could wait for each other's rows for ever.
    for run in sorted(runs, key=lambda each: each.uuid):
        put(connection, results, run_row(run), ["uuid"])
        relearn_nights_of(connection, plain(run.uuid))


def segment_row_of(connection: sa.Connection, segment: Mapping[str, str]) -> int:
    """The row of a segment, which is made if there is none."""
    text = to_text(segment)
    return put(connection, segments, {"digest": digest(text), "body": text}, ["digest"])[0]


def write_night(connection: sa.Connection, night: NightRecord) -> None:
    """Write a night in place of an earlier one of the same session, target, case and host.

    Raises HistoryError for a night that could not be read again.
    """
    night_of(night_text(night), f"night of {night.case_id}, session {night.session}")
    created = utc(night.created, f"night of {night.case_id}")
    standing = night.standing
    values = {
        "uuid": night_uuid(night),
        "session": plain(night.session),
        "series_id": _series_of(connection, night, created),
        "created": created,
        "date": night.date,
        "status": plain(night.status),
        "build_version": plain(night.build.get("version", "")),
        "build_commit": plain(night.build.get("commit", "")).lower(),
        "accepted": standing is not None and standing.accepted,
        "starts": standing is not None and standing.new_segment,
        "first_rate": None,
        "evidence": 1.0,
        "stall_share": night.stall_share,
        "learned": "[]",
        "unlearned": "",
        "body": night_text(night),
    }
    night_id, new = put(connection, nights, values, ["uuid"])
    if not new:
        connection.execute(sa.delete(night_runs).where(night_runs.c.night_id == night_id))
    runs = [{"night_id": night_id, "position": at, "run_uuid": uuid} for at, uuid in enumerate(night.run_uuids)]
    if runs:
        # One statement. psycopg sends several in a pipeline, and PostgreSQL ends no transaction, however long it is
        # idle, before it has read the pipeline's end: a runner whose process is stopped in it would hold all others.
        connection.execute(sa.insert(night_runs).values(runs))
    relearn(connection, night_id)


def _series_of(connection: sa.Connection, night: NightRecord, created: str) -> int:
    key = {
        "case_id": plain(night.case_id),
        "target": plain(night.target),
        "segment_id": segment_row_of(connection, night.segment),
    }
    found = connection.execute(
        sa.select(series.c.id, series.c.last_created).where(*(series.c[name] == value for name, value in key.items()))
    ).one_or_none()
    if found is None:
        own = {"host": plain(night.segment.get("host", "")), "cards": night.cards, "last_created": created}
        return put(connection, series, {**key, **own}, list(key))[0]
    if found.last_created < created:
        this = sa.and_(series.c.id == found.id, series.c.last_created < created)
        connection.execute(sa.update(series).where(this), {"last_created": created})
    return int(found.id)


def relearn_nights_of(connection: sa.Connection, run_uuid: str) -> None:
    found = connection.execute(sa.select(night_runs.c.night_id).where(night_runs.c.run_uuid == run_uuid))
    for night_id in found.scalars().all():
        relearn(connection, night_id)


def relearn(connection: sa.Connection, night_id: int) -> None:
    """Set what later nights learn from a night: its numbers, without the runs that do not count."""
    row = connection.execute(sa.select(nights.c.uuid, nights.c.body).where(nights.c.id == night_id)).one()
    excluded = _exclusion_reason(connection, NIGHT, row.uuid)
    try:
        night = night_of(row.body, stored_name(row.uuid))
    except HistoryError:
        if not excluded:
            raise
        # A night that an earlier suite or a person stored in a form that cannot be read can still be excluded.
        nothing = {"learned": "[]", "first_rate": None, "evidence": 1.0, "starts": False, "accepted": False}
        values = {**nothing, "compared": "", "unlearned": excluded}
        connection.execute(sa.update(nights).where(nights.c.id == night_id).values(**values))
        return
    standing = night.standing
    out, pairs_out = _taken_out(connection, night_id)
    reasons = [f"run {uuid[:12]}: {why}" for uuid, _, why in out]
    if standing is None:
        reasons.insert(0, "no answer against earlier nights")
    if excluded:
        reasons.insert(0, excluded)
    counts = standing is not None and not excluded
    rates = without(night.log_rates, [rate for _, rate, _ in out]) if counts else ()
    connection.execute(
        sa.update(nights)
        .where(nights.c.id == night_id)
        .values(
            learned=to_text(rates),
            first_rate=rates[0] if rates else None,
            # Evidence from a run that does not count is not carried on.
            evidence=standing.evidence if standing is not None and not reasons else 1.0,
            starts=standing is not None and standing.new_segment and not excluded,
            unlearned="; ".join(reasons),
            compared=_compared_text(night) if counts and not pairs_out else "",
        )
    )


def _compared_text(night: NightRecord) -> str:
    """What later nights learn from the pairs, as ``nights.compared_of`` reads it; empty if there are none."""
    return "" if night.compared is None else to_text(asdict(night.compared))


_TakenOut = list[tuple[str, float, str]]


def _taken_out(connection: sa.Connection, night_id: int) -> tuple[_TakenOut, _TakenOut]:
    """The night's runs that do not count, of the screening and of the pairs: uuid, log rate and reason."""
    found = connection.execute(
        sa.select(results.c.uuid, results.c.log_rate, results.c.unlearned, results.c.role, results.c.stage)
        .join_from(night_runs, results, results.c.uuid == night_runs.c.run_uuid)
        .where(night_runs.c.night_id == night_id, results.c.log_rate.is_not(None))
        .order_by(night_runs.c.position)
    )
    screening: _TakenOut = []
    pairs: _TakenOut = []
    for uuid, rate, unlearned, role, stage in found.all():
        if why := unlearned or _exclusion_reason(connection, RESULT, uuid):
            (screening if is_screening(role, stage) else pairs).append((uuid, rate, why))
    return screening, pairs


def _exclusion_reason(connection: sa.Connection, subject: str, uuid: str) -> str:
    """``excluded by WHO: REASON``; empty if no exclusion holds."""
    found = (each for each in exclusions_of(connection, [uuid]) if each.subject == subject)
    return next((f"excluded by {each.who}: {each.reason}" for each in found), "")
