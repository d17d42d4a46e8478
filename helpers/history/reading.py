"""Questions to the history: a case's nights, the nights of a build or a date, runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase
from typing import Any

import sqlalchemy as sa

from helpers.history.codec import run_of
from helpers.history.nights import NightRecord, night_of, stored_name
from helpers.history.remarks import (
    AT_ONCE,
    Bound,
    exclusions_of,
    start_of,
    starts_of,
)
from helpers.history.results import RunResult
from helpers.history.stored import CaseNights, StoredNight, StoredResult
from helpers.history.tables import nights, results, segments, series
from helpers.machine.environment import POOL
from helpers.trainers.contract.errors import HistoryError

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-fA-F]{4,40}", re.ASCII)
_SELECTOR = "a session, a day (2024-05-06), days (2024-05-01..2024-05-06), a commit (4 or more digits) or a version"
_KINDS = ("session", "date", "commit", "build")


def cases(connection: sa.Connection, pattern: str = "*", target: str | None = None) -> tuple[tuple[str, str], ...]:
    """Id and target of the cases that have nights in the history."""
    rows = connection.execute(sa.select(series.c.case_id, series.c.target).join_from(series, nights).distinct())
    found = [(row.case_id, row.target) for row in rows]
    return tuple(sorted(each for each in found if fnmatchcase(each[0], pattern) and target in (None, each[1])))


def case_nights(connection: sa.Connection, case_id: str, target: str | None = None) -> tuple[StoredNight, ...]:
    """A case's nights of all segments, oldest first."""
    chosen = [series.c.case_id == case_id]
    if target is not None:
        chosen.append(series.c.target == target)
    return _nights(connection, chosen)


def nights_here(connection: sa.Connection, case_id: str, target: str, host: str, last: int) -> tuple[StoredNight, ...]:
    """The ``last`` newest nights of the case on ``host`` (the host of segments), oldest first. Nights on which nothing
    ran belong to no host."""
    return _nights(connection, [series.c.case_id == case_id, series.c.target == target, series.c.host == host], last)


def nights_so_far(connection: sa.Connection, case_id: str, target: str, session: str, last: int) -> CaseNights:
    """The ``last`` newest nights of the case on the host of ``session``, or of the newest night where that has none."""
    this = [series.c.case_id == case_id, series.c.target == target]
    # A night of which nothing ran has no segment, and so no host of its own.
    hosts = connection.execute(
        sa.select(series.c.host)
        .join_from(series, nights)
        .where(*this, series.c.host != "")
        .order_by((nights.c.session == session).desc(), nights.c.created.desc(), nights.c.id.desc())
        .limit(1)
    )
    host = hosts.scalar_one_or_none() or ""
    found = tuple(
        each
        for each in _nights(connection, [*this, series.c.host.in_(["", host])], last)
        if each.record.segment or host in ("", each.record.host) or host.startswith(POOL)
    )
    before = next((each for each in reversed(found) if each.record.session != session and each.record.run_uuids), None)
    untold = [uuid for each in found if not each.record.log_rates for uuid in each.record.run_uuids]
    first = [before.record.run_uuids[0]] if before is not None else []
    uuids = [*untold, *first]
    runs = {each.result.uuid: each.result for each in (results_of(connection, uuids=uuids) if uuids else ())}
    return CaseNights(
        found,
        tuple(each.record.log_rates or _screened_rates(each.record, runs) for each in found),
        starts_of(connection, case_id, target),
        next((runs[uuid] for uuid in first if uuid in runs), None),
    )


def _screened_rates(night: NightRecord, runs: Mapping[str, RunResult]) -> tuple[float, ...]:
    """Log rates of the night's usable screening runs of the build under test."""
    found = [runs[uuid] for uuid in night.run_uuids if uuid in runs]
    screened = [each for each in found if each.is_screening and each.measured]
    return tuple(each.log_rate for each in screened if each.log_rate is not None)


def nights_of(connection: sa.Connection, selector: str, pattern: str = "*") -> tuple[StoredNight, ...]:
    """The nights of a session, a day, ``DAY..DAY``, a commit (4 or more hexadecimal digits) or a build version, oldest
    first. Raises HistoryError if ``selector`` means none, or two commits."""
    if not selector:
        raise HistoryError("selection of nights", field="selector", got=selector, expected=_SELECTOR)
    for chosen in _meanings(selector):
        found = tuple(each for each in _nights(connection, [chosen]) if fnmatchcase(each.record.case_id, pattern))
        if found:
            _check_one_commit(selector, found)
            return found
    raise HistoryError(
        "selection of nights",
        field="selector",
        got=selector,
        expected=f"{_SELECTOR} that history holds nights of",
        remedy="List what there is: perfgate history",
    )


def _meanings(selector: str) -> Iterable[sa.ColumnElement[bool]]:
    """The possible meanings of the selector. The first one that has nights counts. ``commit:`` and the like leave one
    meaning."""
    kind, colon, value = selector.partition(":")
    if not colon or kind not in _KINDS:
        kind, value = "", selector
    if kind in ("", "session"):
        yield nights.c.session == value
    if kind in ("", "date") and (days := _days(value)) is not None:
        yield days
        return
    if kind in ("", "commit") and _COMMIT.fullmatch(value):
        yield nights.c.build_commit.startswith(value.lower(), autoescape=True)
    if kind in ("", "build"):
        yield nights.c.build_version == value


def _days(selector: str) -> sa.ColumnElement[bool] | None:
    """A day, or a range of days that includes both ends; None if the selector is neither."""
    first, dots, last = selector.partition("..")
    last = last if dots else first
    if not all(_DAY.fullmatch(day) for day in (first, last) if day) or not first + last:
        return None
    conditions = []
    try:
        if first:
            conditions.append(nights.c.date >= date.fromisoformat(first).isoformat())
        if last:
            conditions.append(nights.c.date <= date.fromisoformat(last).isoformat())
    except ValueError as error:
        raise HistoryError("selection of nights", field="selector", got=selector, expected="days of a month") from error
    return sa.and_(*conditions)


def _check_one_commit(selector: str, found: Sequence[StoredNight]) -> None:
    commits = sorted({night.record.build.get("commit", "").lower() for night in found})
    matching = [commit for commit in commits if commit.startswith(selector.removeprefix("commit:").lower())]
    if len(matching) > 1:
        raise HistoryError(
            "selection of nights",
            field="commit",
            got=selector,
            expected="the start of one commit",
            remedy="Give more of it: " + ", ".join(matching[:5]),
        )


def _nights(
    connection: sa.Connection, chosen: Sequence[sa.ColumnElement[bool]], last: int | None = None
) -> tuple[StoredNight, ...]:
    rows = connection.execute(
        sa.select(
            nights.c.id,
            nights.c.uuid,
            nights.c.created,
            nights.c.unlearned,
            nights.c.body,
            nights.c.series_id,
            segments.c.digest,
        )
        .join_from(nights, series)
        .join(segments, segments.c.id == series.c.segment_id)
        .where(*chosen)
        .order_by(nights.c.created.desc(), nights.c.id.desc())
        .limit(last)
    ).all()
    excluded = {each.uuid: each for each in exclusions_of(connection, [row.uuid for row in rows])}
    starts = _newest_starts(connection)
    return tuple(
        StoredNight(
            uuid=row.uuid,
            record=record,
            segment_digest=row.digest[:12],
            current=_in(starts(row.series_id), row.created, row.id),
            unlearned=row.unlearned,
            exclusion=excluded.get(row.uuid),
        )
        for row in reversed(rows)
        if (record := _record_of(row, excluded=row.uuid in excluded)) is not None
    )


def _record_of(row: sa.Row[Any], *, excluded: bool) -> NightRecord | None:
    """A row's night; None if it cannot be read and is excluded. Otherwise an unreadable night raises HistoryError with
    its uuid."""
    try:
        return night_of(row.body, stored_name(row.uuid))
    except HistoryError:
        if excluded:
            return None
        raise


def _newest_starts(connection: sa.Connection) -> Callable[[int], Bound | None]:
    """A function from a series to the start of its newest segment; None if the case has other facts by now."""
    known: dict[int, Bound | None] = {}

    def start(series_id: int) -> Bound | None:
        if series_id not in known:
            this, other = series.alias(), series.alias()
            newest = (
                sa.select(other.c.id)
                .join_from(
                    this,
                    other,
                    sa.and_(
                        this.c.case_id == other.c.case_id,
                        this.c.target == other.c.target,
                        this.c.host == other.c.host,
                    ),
                )
                .where(this.c.id == series_id)
                .order_by(other.c.last_created.desc(), other.c.id.desc())
                .limit(1)
            )
            is_newest = connection.execute(newest).scalar_one() == series_id
            known[series_id] = start_of(connection, series_id) if is_newest else None
        return known[series_id]

    return start


def _in(start: Bound | None, created: str, night_id: int) -> bool:
    return start is not None and (created, night_id) >= (start.created, start.night_id)


# ---- runs


def results_of(
    connection: sa.Connection,
    session: str | None = None,
    case_id: str | None = None,
    target: str | None = None,
    uuids: Sequence[str] = (),
) -> tuple[StoredResult, ...]:
    """The runs, with their raw steps, that meet every given filter, sorted by time. Raises HistoryError without a
    filter."""
    given = ((results.c.session, session), (results.c.case_id, case_id), (results.c.target, target))
    chosen = [column == value for column, value in given if value is not None]
    if not chosen and not uuids:
        raise HistoryError("selection of results", expected="a session, a case, a target or uuids: all are too many")
    groups = [uuids[at : at + AT_ONCE] for at in range(0, len(uuids), AT_ONCE)] or [()]
    rows: list[sa.Row[Any]] = []
    for group in groups:
        query = sa.select(results.c.uuid, results.c.created, results.c.unlearned, results.c.body).where(*chosen)
        rows += connection.execute(query.where(results.c.uuid.in_(group)) if group else query)
    excluded = {each.uuid: each for each in exclusions_of(connection, [row.uuid for row in rows])}
    found = [(row, run_of(row.uuid, row.body)) for row in rows]
    found.sort(key=lambda each: (each[0].created, each[1].replicate, each[1].uuid))
    return tuple(StoredResult(run, row.unlearned, excluded.get(row.uuid)) for row, run in found)
