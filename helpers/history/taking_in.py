"""Makes the decisions of people, and keeps each in one row of the database, whether a command makes it or its file is
read again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa

from helpers.history.codec import digest
from helpers.history.decisions import KIND_OF, Decision, as_kept, decision_text, subject_of
from helpers.history.remarks import exclusions_of
from helpers.history.stored import NIGHT, RESULT, Calibration, Exclusion, Pin, SegmentStart
from helpers.history.tables import decisions, nights, results
from helpers.history.writing import relearn, relearn_nights_of, segment_row_of
from helpers.trainers.contract.errors import HistoryError

_SHORTEST_PREFIX = 6


def exclusion(connection: sa.Connection, uuid: str, who: str, created: str, reason: str) -> Exclusion:
    """The exclusion of a run or a night, so that no later night learns from it. Raises HistoryError if it is excluded
    already."""
    _check_remark(uuid, who, reason)
    subject, whole = _meant(connection, uuid)
    made = as_kept(Exclusion(subject, whole, who, created, reason))
    earlier = _holding(connection, subject, whole)
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
    subject, whole = _meant(connection, uuid)

    def taken_back(each: Exclusion) -> Exclusion:
        return as_kept(replace(each, restored=created, restored_by=who, restored_reason=reason))

    if earlier := _holding(connection, subject, whole):
        return taken_back(earlier)
    for each in exclusions_of(connection, [whole], holding_only=False):
        # The connection was lost before the answer: it is taken back already.
        if each.subject == subject and each == taken_back(each):
            return each
    raise HistoryError(f"{subject} {whole}", field="excluded", got="no", expected="an exclusion to take back")


def pin(made: Pin) -> Pin:
    """Raises HistoryError for one that does not say who and why."""
    _check_remark(made.build, made.who, made.reason)
    return as_kept(made)


def lacking(connection: sa.Connection, found: Sequence[Decision]) -> list[Decision]:
    """Those of the decisions that are in no row."""
    there = set(connection.execute(sa.select(decisions.c.digest)).scalars())
    return [each for each in found if digest(decision_text(each)) not in there]


def take_in(connection: sa.Connection, decision: Decision) -> None:
    """Keep a decision (``as_kept``), once."""
    text = decision_text(decision)
    key = digest(text)
    if connection.execute(sa.select(decisions.c.id).where(decisions.c.digest == key)).first() is not None:
        return
    values: dict[str, str | int | None] = {
        "digest": key,
        "kind": KIND_OF[type(decision)],
        "subject": subject_of(decision),
        "target": "",
        "segment_id": None,
        "created": decision.created,
        "body": text,
    }
    if isinstance(decision, (Calibration, SegmentStart)):
        values |= {"target": decision.target, "segment_id": segment_row_of(connection, decision.segment)}
    connection.execute(sa.insert(decisions), values)
    if isinstance(decision, Exclusion):
        _relearn(connection, decision)


def _relearn(connection: sa.Connection, made: Exclusion) -> None:
    if made.subject == RESULT:
        relearn_nights_of(connection, made.uuid)
        return
    # A decision may come before its night (reindex), which is written without what is excluded.
    for night_id in connection.execute(sa.select(nights.c.id).where(nights.c.uuid == made.uuid)).scalars().all():
        relearn(connection, night_id)


def _holding(connection: sa.Connection, subject: str, uuid: str) -> Exclusion | None:
    return next((each for each in exclusions_of(connection, [uuid]) if each.subject == subject), None)


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
