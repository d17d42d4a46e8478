"""What people add to the history: remarks on nights and runs (excluded, restored, acknowledged), calibrations, and the
starts of segments, before which nights no longer count.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any

import sqlalchemy as sa

from helpers.history.codec import digest, plain, to_text, utc
from helpers.history.stored import Acknowledgement, Calibration, Exclusion, Pin, SegmentStart
from helpers.history.tables import (
    acknowledgements,
    calibrations,
    documents,
    exclusions,
    nights,
    pins,
    results,
    segment_starts,
    series,
)
from helpers.history.writing import NIGHT, RESULT, Documents, relearn, relearn_nights_of
from helpers.trainers.contract.errors import HistoryError

_SHORTEST_PREFIX = 6
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
# Both databases accept far more values in one statement.
AT_ONCE = 500


def exclude(connection: sa.Connection, uuid: str, who: str, created: str, reason: str) -> Exclusion:
    """Exclude a run or a night, so that no later night learns from it. Raises HistoryError if it is excluded
    already."""
    _check_remark(uuid, who, reason)
    _alone(connection, exclusions)
    subject, whole = _meant(connection, uuid)
    made = Exclusion(subject, whole, plain(who), utc(created, f"exclusion of {whole}"), plain(reason))
    earlier = exclusions_of(connection, subject, [whole]).get(whole)
    if earlier == made:
        return made
    if earlier:
        raise HistoryError(
            f"{subject} {whole}",
            field="excluded",
            got=f"by {earlier.who}, {earlier.created}: {earlier.reason}",
            expected="one that counts",
        )
    connection.execute(sa.insert(exclusions), asdict(made))
    _relearn(connection, subject, whole)
    return made


def restore(connection: sa.Connection, uuid: str, who: str, created: str, reason: str) -> Exclusion:
    """Take an exclusion back; both remarks stay stored. Raises HistoryError if no exclusion holds."""
    _check_remark(uuid, who, reason)
    _alone(connection, exclusions)
    subject, whole = _meant(connection, uuid)
    taken_back = {
        "restored": utc(created, f"restoring of {whole}"),
        "restored_by": plain(who),
        "restored_reason": plain(reason),
    }
    earlier = exclusions_of(connection, subject, [whole]).get(whole)
    if earlier is None:
        for each in all_exclusions(connection, holding_only=False):
            if (each.subject, each.uuid) == (subject, whole) and each == replace(each, **taken_back):
                return each
        raise HistoryError(f"{subject} {whole}", field="excluded", got="no", expected="an exclusion to take back")
    this = sa.and_(exclusions.c.uuid == whole, exclusions.c.subject == subject, exclusions.c.restored == "")
    connection.execute(sa.update(exclusions).where(this).values(**taken_back))
    _relearn(connection, subject, whole)
    return replace(earlier, **taken_back)


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


def acknowledge(connection: sa.Connection, made: Acknowledgement) -> None:
    _check_remark(made.pattern, made.who, made.reason)
    values = {name: plain(value) for name, value in asdict(made).items()}
    _insert_once(
        connection, acknowledgements, {**values, "created": utc(made.created, f"acknowledgement of {made.pattern}")}
    )


def take_back(connection: sa.Connection, made: Acknowledgement, who: str, created: str, reason: str) -> Acknowledgement:
    """Take an acknowledgement back; both remarks stay stored. Raises HistoryError if it does not hold (any more)."""
    _check_remark(made.pattern, who, reason)
    about = f"acknowledgement of {made.pattern}"
    taken_back = {
        "taken_back": utc(created, f"taking back of the {about}"),
        "taken_back_by": plain(who),
        "taken_back_reason": plain(reason),
    }
    this = _same(acknowledgements, asdict(made))
    changed = connection.execute(sa.update(acknowledgements).where(this).values(**taken_back)).rowcount
    done = _same(acknowledgements, {**asdict(made), **taken_back})
    changed = changed or len(connection.execute(sa.select(acknowledgements.c.id).where(done)).all())
    if made.taken_back or not changed:
        raise HistoryError(about, got="none like it, or one that is taken back", expected="one that holds")
    return replace(made, **taken_back)


def acknowledged(
    connection: sa.Connection, case_id: str | None = None, holding_only: bool = True
) -> tuple[Acknowledgement, ...]:
    """The acknowledgements by time; for one case, those whose pattern matches it."""
    query = sa.select(acknowledgements.c.id, *_columns(acknowledgements, Acknowledgement))
    if holding_only:
        query = query.where(acknowledgements.c.taken_back == "")
    rows = connection.execute(query.order_by(acknowledgements.c.created, acknowledgements.c.id))
    found = [_checked(number, Acknowledgement(*values)) for number, *values in rows]
    return tuple(each for each in found if case_id is None or fnmatchcase(case_id, each.pattern))


def pin(connection: sa.Connection, made: Pin) -> None:
    """Keep the remark who made which build the good one."""
    _check_remark(made.build, made.who, made.reason)
    values = {name: plain(value) for name, value in asdict(made).items()}
    _insert_once(connection, pins, {**values, "created": utc(made.created, f"pin of {made.build}")})


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


def _checked(number: int, stored: Acknowledgement) -> Acknowledgement:
    """A stored acknowledgement. Raises HistoryError, with its number, for one that no suite wrote.

    The check is needed because SQLite keeps anything in any column.
    """
    about = f"history: acknowledgement {number}"
    _check_texts(about, asdict(stored))
    for name in ("first", "last"):
        value = getattr(stored, name)
        if value and not DAY.fullmatch(value):
            utc(value, about, name)
    return stored


def add_calibration(connection: sa.Connection, known: Documents, made: Calibration) -> None:
    _insert_once(connection, calibrations, with_segment(connection, known, made))


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


def _insert_once(
    connection: sa.Connection, table: sa.Table, values: Mapping[str, object], key: Sequence[str] = ()
) -> None:
    """Insert a row, unless there is one with the same values of ``key`` (default: of all): after a connection was lost
    nobody knows whether its transaction was made, so it is made again."""
    _alone(connection, table)
    same = _same(table, {name: values[name] for name in key or values})
    if connection.execute(sa.select(table.c.id).where(same).limit(1)).first() is None:
        connection.execute(sa.insert(table), dict(values))


def _same(table: sa.Table, values: Mapping[str, object]) -> sa.ColumnElement[bool]:
    return sa.and_(*(table.c[name].is_not_distinct_from(value) for name, value in values.items()))


def _alone(connection: sa.Connection, table: sa.Table) -> None:
    """Until the transaction ends nobody else writes the table, and everybody reads it. In SQLite a writer is alone."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"LOCK TABLE {table.name} IN SHARE ROW EXCLUSIVE MODE")


def _columns(table: sa.Table, kind: type[Exclusion] | type[Acknowledgement] | type[Pin]) -> list[sa.Column[Any]]:
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


def _relearn(connection: sa.Connection, subject: str, uuid: str) -> None:
    if subject == RESULT:
        relearn_nights_of(connection, uuid)
        return
    relearn(connection, connection.execute(sa.select(nights.c.id).where(nights.c.uuid == uuid)).scalar_one())


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


def start_segment(connection: sa.Connection, known: Documents, start: SegmentStart) -> None:
    """Keep a start once, although a spool that was cut off while it was emptied brings it a second time."""
    values = with_segment(connection, known, start)
    _insert_once(connection, segment_starts, values, ("case_id", "target", "segment_id", "created"))


def starts_of(connection: sa.Connection, case_id: str, target: str | None = None) -> tuple[SegmentStart, ...]:
    """The case's starts that ``start_segment`` kept, by time."""
    names = [item.name for item in fields(SegmentStart) if item.name != "segment"]
    query = (
        sa.select(documents.c.body, *(segment_starts.c[name] for name in names))
        .join_from(segment_starts, documents)
        .where(segment_starts.c.case_id == case_id)
        .order_by(segment_starts.c.created, segment_starts.c.id)
    )
    if target is not None:
        query = query.where(segment_starts.c.target == target)
    about = f"history: the start of a segment of {case_id}"
    return tuple(
        SegmentStart(
            **{name: row[name] for name in names if name != "created"},
            created=utc(row["created"], about),
            segment=_segment_of(row["body"]),
        )
        for row in connection.execute(query).mappings()
    )


def _segment_of(text: str) -> dict[str, str]:
    """A stored segment. Raises ValueError for anything else."""
    found = json.loads(text)
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError("a segment that is no object of texts")
    return found


def with_segment(
    connection: sa.Connection, known: Documents, made: Calibration | SegmentStart
) -> dict[str, str | float | int | None]:
    """The fields as in a row, with the segment's row in place of the segment."""
    values = asdict(made)
    text = to_text(values.pop("segment"))
    values = {name: plain(value) if isinstance(value, str) else value for name, value in values.items()}
    return {
        **values,
        "created": utc(made.created, f"entry of {made.case_id}"),
        "segment_id": known.keep(connection, [text])[text],
    }
