"""What people add to the history: remarks on nights and runs (excluded, restored), calibrations, and the
starts of segments, before which nights no longer count.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

import sqlalchemy as sa

from helpers.history.codec import digest, to_text
from helpers.history.decisions import as_kept
from helpers.history.stored import Calibration, Exclusion, Pin, SegmentStart
from helpers.history.tables import (
    calibrations,
    documents,
    exclusions,
    nights,
    pins,
    results,
    segment_starts,
    series,
)
from helpers.history.writing import NIGHT, RESULT, alone
from helpers.trainers.contract.errors import HistoryError

_InSegment = TypeVar("_InSegment", Calibration, SegmentStart)

_SHORTEST_PREFIX = 6
# Both databases accept far more values in one statement.
AT_ONCE = 500


def exclusion(connection: sa.Connection, uuid: str, who: str, created: str, reason: str) -> Exclusion:
    """The exclusion of a run or a night, so that no later night learns from it. Raises HistoryError if it is excluded
    already."""
    _check_remark(uuid, who, reason)
    alone(connection, exclusions)
    subject, whole = _meant(connection, uuid)
    made = as_kept(Exclusion(subject, whole, who, created, reason))
    earlier = exclusions_of(connection, subject, [whole]).get(whole)
    if earlier and earlier != made:
        raise HistoryError(
            f"{subject} {whole}",
            field="excluded",
            got=f"by {earlier.who}, {earlier.created}: {earlier.reason}",
            expected="one that counts",
        )
    return made


def restoring(connection: sa.Connection, uuid: str, who: str, created: str, reason: str) -> Exclusion:
    """The exclusion that holds, taken back. Raises HistoryError if none holds."""
    _check_remark(uuid, who, reason)
    alone(connection, exclusions)
    subject, whole = _meant(connection, uuid)

    def taken_back(each: Exclusion) -> Exclusion:
        return as_kept(replace(each, restored=created, restored_by=who, restored_reason=reason))

    if earlier := exclusions_of(connection, subject, [whole]).get(whole):
        return taken_back(earlier)
    for each in all_exclusions(connection, holding_only=False):
        if (each.subject, each.uuid) == (subject, whole) and each == taken_back(each):
            return each
    raise HistoryError(f"{subject} {whole}", field="excluded", got="no", expected="an exclusion to take back")


def all_exclusions(connection: sa.Connection, holding_only: bool = True) -> tuple[Exclusion, ...]:
    """By the time they were made."""
    query = sa.select(*_columns(exclusions, Exclusion)).order_by(exclusions.c.created, exclusions.c.id)
    if holding_only:
        query = query.where(exclusions.c.restored == "")
    return tuple(map(_excluded, connection.execute(query)))


def exclusions_of(connection: sa.Connection, subject: str, uuids: Sequence[str]) -> dict[str, Exclusion]:
    """The exclusions that hold, by uuid."""
    found = {}
    for at in range(0, len(uuids), AT_ONCE):
        query = sa.select(*_columns(exclusions, Exclusion)).where(
            exclusions.c.subject == subject,
            exclusions.c.restored == "",
            exclusions.c.uuid.in_(uuids[at : at + AT_ONCE]),
        )
        found.update({row.uuid: _excluded(row) for row in connection.execute(query)})
    return found


def pin(made: Pin) -> Pin:
    """Raises HistoryError for one that does not say who and why."""
    _check_remark(made.build, made.who, made.reason)
    return as_kept(made)


def all_pins(connection: sa.Connection) -> tuple[Pin, ...]:
    """Every pin of a good build, by time. Raises HistoryError for one that no suite wrote."""
    rows = connection.execute(sa.select(*_columns(pins, Pin)).order_by(pins.c.created, pins.c.id))
    found = tuple(Pin(*row) for row in rows)
    for each in found:
        _check_texts(f"history: pin of {each.build}", asdict(each))
    return found


def _excluded(values: sa.Row[Any]) -> Exclusion:
    """A stored exclusion. Raises HistoryError for one that no suite wrote."""
    found = Exclusion(*tuple(values))
    _check_texts(f"history: exclusion of {found.subject} {found.uuid}", asdict(found))
    return found


def _check_texts(about: str, record: Mapping[str, object]) -> None:
    for name, value in record.items():
        if not isinstance(value, str):
            raise HistoryError(about, field=name, got=type(value).__name__, expected="text")


def calibration(connection: sa.Connection, case_id: str, target: str, segment: Mapping[str, str]) -> Calibration | None:
    """The case's newest calibration in that segment."""
    names = [item.name for item in fields(Calibration) if item.name != "segment"]
    row = connection.execute(
        sa.select(*(calibrations.c[name] for name in names))
        .where(
            calibrations.c.case_id == case_id,
            calibrations.c.target == target,
            calibrations.c.segment_id == segment_row(connection, segment),
        )
        .order_by(calibrations.c.created.desc(), calibrations.c.id.desc())
        .limit(1)
    ).one_or_none()
    return None if row is None else Calibration(segment=dict(segment), **row._mapping)


def _columns(table: sa.Table, kind: type[Exclusion] | type[Pin]) -> list[sa.Column[Any]]:
    return [table.c[item.name] for item in fields(kind)]


def _check_remark(what: str, who: str, reason: str) -> None:
    for name, value in (("what", what), ("who", who), ("reason", reason)):
        if not value.strip():
            raise HistoryError("a remark in history", field=name, got=value, expected="a text: later readers need it")


def _meant(connection: sa.Connection, uuid: str) -> tuple[str, str]:
    """Whether a uuid, or its first characters, means a run or a night (RESULT, NIGHT), and the whole uuid."""
    for exact in (True, False):
        found = []
        for subject, column in ((RESULT, results.c.uuid), (NIGHT, nights.c.uuid)):
            same = column == uuid if exact else column.startswith(uuid, autoescape=True)
            rows = connection.execute(sa.select(column).where(same).limit(2)).scalars()
            found += [(subject, str(each)) for each in rows]
        if len(found) == 1:
            return found[0]
        if len(uuid) < _SHORTEST_PREFIX:
            break
    raise HistoryError(
        "a result or a night",
        field="uuid",
        got=uuid,
        expected=f"the uuid of one, or its first {_SHORTEST_PREFIX} or more characters",
        remedy="List them: perfgate history CASE",
    )


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
    wanted = documents.c.digest == digest(to_text(segment))
    return connection.execute(sa.select(documents.c.id).where(wanted)).scalar_one_or_none()


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


def starts_of(connection: sa.Connection, case_id: str, target: str | None = None) -> tuple[SegmentStart, ...]:
    """The case's starts, by time."""
    chosen = [segment_starts.c.case_id == case_id]
    if target is not None:
        chosen.append(segment_starts.c.target == target)
    return tuple(all_in_segments(connection, SegmentStart, segment_starts, *chosen))


def all_in_segments(
    connection: sa.Connection, kind: type[_InSegment], table: sa.Table, *chosen: sa.ColumnElement[bool]
) -> list[_InSegment]:
    """The chosen decisions of a kind, by time. Raises HistoryError for one that no suite wrote."""
    names = [item.name for item in fields(kind) if item.name != "segment"]
    query = (
        sa.select(documents.c.body, *(table.c[name] for name in names))
        .join_from(table, documents)
        .where(*chosen)
        .order_by(table.c.created, table.c.id)
    )
    found = [
        kind(**{name: row[name] for name in names}, segment=_segment_of(row["body"]))
        for row in connection.execute(query).mappings()
    ]
    return [as_kept(each, f"history: {table.name} of {each.case_id}") for each in found]


def _segment_of(text: str) -> dict[str, str]:
    """A stored segment. Raises ValueError for anything else."""
    found = json.loads(text)
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError("a segment that is no object of texts")
    return found
