"""What people say of nights and runs: excluded, restored, acknowledged; what calibrating and recording leave."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from fnmatch import fnmatchcase
from typing import Any

import sqlalchemy as sa

from helpers.history.codec import plain, to_text, utc
from helpers.history.past import segment_row
from helpers.history.schema import (
    acknowledgements,
    calibrations,
    documents,
    exclusions,
    nights,
    results,
    segment_starts,
)
from helpers.history.stored import Acknowledgement, Calibration, Exclusion, SegmentStart
from helpers.history.writing import NIGHT, RESULT, Documents, relearn, relearn_nights_of
from helpers.trainers.contract.errors import HistoryError

_SHORTEST_PREFIX = 6
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_AT_ONCE = 500


def exclude(connection: sa.Connection, uuid: str, who: str, created: str, reason: str) -> Exclusion:
    """From now on no night learns from the run or the night. HistoryError where it is excluded already."""
    _check_said(uuid, who, reason)
    subject, whole = _meant(connection, uuid)
    if earlier := exclusions_of(connection, subject, [whole]).get(whole):
        raise HistoryError(
            f"{subject} {whole}",
            field="excluded",
            got=f"by {earlier.who}, {earlier.created}: {earlier.reason}",
            expected="one that counts",
        )
    made = Exclusion(subject, whole, plain(who), utc(created, f"exclusion of {whole}"), plain(reason))
    connection.execute(sa.insert(exclusions), asdict(made))
    _relearn(connection, subject, whole)
    return made


def restore(connection: sa.Connection, uuid: str, who: str, created: str, reason: str) -> Exclusion:
    """Take an exclusion back; both stay stored. HistoryError where none holds."""
    _check_said(uuid, who, reason)
    subject, whole = _meant(connection, uuid)
    earlier = exclusions_of(connection, subject, [whole]).get(whole)
    if earlier is None:
        raise HistoryError(f"{subject} {whole}", field="excluded", got="no", expected="an exclusion to take back")
    taken_back = {
        "restored": utc(created, f"restoring of {whole}"),
        "restored_by": plain(who),
        "restored_reason": plain(reason),
    }
    this = sa.and_(exclusions.c.uuid == whole, exclusions.c.subject == subject, exclusions.c.restored == "")
    connection.execute(sa.update(exclusions).where(this).values(**taken_back))
    _relearn(connection, subject, whole)
    return replace(earlier, **taken_back)


def all_exclusions(connection: sa.Connection, holding_only: bool) -> tuple[Exclusion, ...]:
    """By the time they were made."""
    query = sa.select(*_columns(exclusions, Exclusion)).order_by(exclusions.c.created, exclusions.c.id)
    if holding_only:
        query = query.where(exclusions.c.restored == "")
    return tuple(map(_excluded, connection.execute(query)))


def exclusions_of(connection: sa.Connection, subject: str, uuids: Sequence[str]) -> dict[str, Exclusion]:
    """The exclusions that hold, by uuid."""
    found = {}
    for at in range(0, len(uuids), _AT_ONCE):
        query = sa.select(*_columns(exclusions, Exclusion)).where(
            exclusions.c.subject == subject,
            exclusions.c.restored == "",
            exclusions.c.uuid.in_(uuids[at : at + _AT_ONCE]),
        )
        found.update({row.uuid: _excluded(row) for row in connection.execute(query)})
    return found


def acknowledge(connection: sa.Connection, said: Acknowledgement) -> None:
    _check_said(said.pattern, said.who, said.reason)
    values = {name: plain(value) for name, value in asdict(said).items()}
    connection.execute(
        sa.insert(acknowledgements), {**values, "created": utc(said.created, f"acknowledgement of {said.pattern}")}
    )


def acknowledged(connection: sa.Connection, case_id: str | None) -> tuple[Acknowledgement, ...]:
    """By the time they were made; of one case, those whose pattern matches it."""
    query = sa.select(acknowledgements.c.id, *_columns(acknowledgements, Acknowledgement))
    rows = connection.execute(query.order_by(acknowledgements.c.created, acknowledgements.c.id))
    found = [_said(number, Acknowledgement(*values)) for number, *values in rows]
    return tuple(each for each in found if case_id is None or fnmatchcase(case_id, each.pattern))


def _excluded(values: sa.Row[Any]) -> Exclusion:
    """A stored one; HistoryError where no suite wrote it."""
    found = Exclusion(*tuple(values))
    _check_texts(f"history: exclusion of {found.subject} {found.uuid}", asdict(found))
    return found


def _check_texts(about: str, record: Mapping[str, object]) -> None:
    for name, value in record.items():
        if not isinstance(value, str):
            raise HistoryError(about, field=name, got=type(value).__name__, expected="text")


def _said(number: int, said: Acknowledgement) -> Acknowledgement:
    """A stored one; HistoryError, with its number, where no suite wrote it: SQLite keeps anything in any column."""
    about = f"history: acknowledgement {number}"
    _check_texts(about, asdict(said))
    for name in ("first", "last"):
        value = getattr(said, name)
        if value and not _DAY.fullmatch(value):
            utc(value, about, name)
    return said


def add_calibration(connection: sa.Connection, known: Documents, made: Calibration) -> None:
    connection.execute(sa.insert(calibrations), _with_segment(connection, known, made))


def calibration(connection: sa.Connection, case_id: str, target: str, segment: dict[str, str]) -> Calibration | None:
    """The newest of the case in that segment."""
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
    return None if row is None else Calibration(segment=segment, **row._mapping)


def start_segment(connection: sa.Connection, known: Documents, start: SegmentStart) -> None:
    """The same start again is the one that is there: it may come from a spool that was cut off while it was emptied."""
    values = _with_segment(connection, known, start)
    same = [segment_starts.c[name] == values[name] for name in ("case_id", "target", "segment_id", "created")]
    if connection.execute(sa.select(segment_starts.c.id).where(*same).limit(1)).first() is None:
        connection.execute(sa.insert(segment_starts), values)


def starts_of(connection: sa.Connection, case_id: str, target: str | None) -> tuple[tuple[str, dict[str, Any]], ...]:
    """The segments' JSON and the other fields, by time."""
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


def _with_segment(
    connection: sa.Connection, known: Documents, made: Calibration | SegmentStart
) -> dict[str, str | float | int | None]:
    values = asdict(made)
    text = to_text(values.pop("segment"))
    values = {name: plain(value) if isinstance(value, str) else value for name, value in values.items()}
    return {
        **values,
        "created": utc(made.created, f"entry of {made.case_id}"),
        "segment_id": known.keep(connection, [text])[text],
    }


def _columns(table: sa.Table, kind: type[Exclusion] | type[Acknowledgement]) -> list[sa.Column[Any]]:
    return [table.c[item.name] for item in fields(kind)]


def _check_said(what: str, who: str, reason: str) -> None:
    for name, value in (("what", what), ("who", who), ("reason", reason)):
        if not value.strip():
            raise HistoryError("a remark in history", field=name, got=value, expected="a text: later readers need it")


def _meant(connection: sa.Connection, uuid: str) -> tuple[str, str]:
    """Subject and whole uuid of a run or a night, by the uuid or the first characters of it."""
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
