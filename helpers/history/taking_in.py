"""A decision becomes a row of the database, once, whether a command makes it or its file is read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import sqlalchemy as sa

from helpers.history.codec import to_text
from helpers.history.decisions import Decision, decision_text
from helpers.history.remarks import all_exclusions, all_in_segments, all_pins
from helpers.history.stored import Calibration, Exclusion, Pin, SegmentStart
from helpers.history.tables import calibrations, exclusions, nights, pins, segment_starts
from helpers.history.writing import RESULT, Documents, alone, relearn, relearn_nights_of


def lacking(connection: sa.Connection, decisions: Sequence[Decision]) -> list[Decision]:
    """Those of the decisions that are in no row."""
    excluded = all_exclusions(connection, holding_only=False)
    rows: list[Decision] = [*excluded, *all_pins(connection)]
    # A row that was taken back is two decisions.
    rows += [replace(each, restored="", restored_by="", restored_reason="") for each in excluded]
    rows += all_in_segments(connection, Calibration, calibrations)
    rows += all_in_segments(connection, SegmentStart, segment_starts)
    there = {decision_text(each) for each in rows}
    return [each for each in decisions if decision_text(each) not in there]


def take_in(connection: sa.Connection, known: Documents, decision: Decision) -> None:
    """Keep a decision (``as_kept``) once, and what takes it back in the same row, whichever comes first."""
    match decision:
        case Exclusion():
            if _take_in_remark(connection, exclusions, decision, ("restored", "restored_by", "restored_reason")):
                _relearn(connection, decision.subject, decision.uuid)
        case Pin():
            _take_in_remark(connection, pins, decision)
        case Calibration():
            _insert_once(connection, calibrations, _with_segment(connection, known, decision))
        case SegmentStart():
            key = ("case_id", "target", "segment_id", "created")
            _insert_once(connection, segment_starts, _with_segment(connection, known, decision), key)


def _take_in_remark(
    connection: sa.Connection, table: sa.Table, made: Exclusion | Pin, back: Sequence[str] = ()
) -> bool:
    """Whether a row changed. ``back`` are the columns that say how the remark was taken back, the moment first."""
    values = {name: value for name, value in asdict(made).items() if name not in back}
    new = _insert_once(connection, table, asdict(made), tuple(values))
    if new or not back or not getattr(made, back[0]):
        return new
    held = sa.and_(_same(table, values), table.c[back[0]] == "")
    taken_back = {name: getattr(made, name) for name in back}
    return connection.execute(sa.update(table).where(held).values(**taken_back)).rowcount > 0


def _insert_once(
    connection: sa.Connection, table: sa.Table, values: Mapping[str, object], key: Sequence[str] = ()
) -> bool:
    """Insert a row, unless there is one with the same values of ``key`` (default: of all): after a connection was lost
    nobody knows whether its transaction was made, so it is made again. Returns whether it is new."""
    alone(connection, table)
    same = _same(table, {name: values[name] for name in key or values})
    new = connection.execute(sa.select(table.c.id).where(same).limit(1)).first() is None
    if new:
        connection.execute(sa.insert(table), dict(values))
    return new


def _same(table: sa.Table, values: Mapping[str, object]) -> sa.ColumnElement[bool]:
    return sa.and_(*(table.c[name].is_not_distinct_from(value) for name, value in values.items()))


def _relearn(connection: sa.Connection, subject: str, uuid: str) -> None:
    if subject == RESULT:
        relearn_nights_of(connection, uuid)
        return
    # A decision may come before its night (reindex), which is written without what is excluded.
    for night_id in connection.execute(sa.select(nights.c.id).where(nights.c.uuid == uuid)).scalars().all():
        relearn(connection, night_id)


def _with_segment(
    connection: sa.Connection, known: Documents, made: Calibration | SegmentStart
) -> dict[str, str | float | int | None]:
    """The fields as in a row, with the segment's row in place of the segment."""
    values = asdict(made)
    text = to_text(values.pop("segment"))
    return {**values, "segment_id": known.keep(connection, [text])[text]}
