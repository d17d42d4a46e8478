"""Lists the nights of all cases, sessions and builds, for pages, and finds those that are new or changed since an
earlier listing.

The tables have no time of change, so each answer has a ``Revision``: checksums of the nights and remarks that it saw.
"""

from __future__ import annotations

import datetime
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

import sqlalchemy as sa

from helpers.history.nights import NightRecord, listed_night_of, stored_name
from helpers.history.remarks import AT_ONCE, acknowledged, all_exclusions, exclusions_of
from helpers.history.stored import Acknowledgement, StoredNight
from helpers.history.tables import calibrations, documents, night_runs, nights, segment_starts, series
from helpers.history.writing import NIGHT, RESULT, learned_rates
from helpers.trainers.contract.errors import HistoryError

_COLUMNS = sa.select(
    *(nights.c[name] for name in ("id", "uuid", "session", "created", "learned", "unlearned", "body", "series_id"))
)
# A resumed session judges a case again, with a new time. So nights of this many last days are compared again.
_RECENT_DAYS = 2


@dataclass(frozen=True, order=True)
class CaseKey:
    """A case on a target and a machine (the host of its segments)."""

    case_id: str
    target: str
    host: str


@dataclass(frozen=True, order=True)
class SessionKey:
    """A session on a machine: two machines may give their sessions the same name."""

    session: str
    host: str


@dataclass(frozen=True, order=True)
class BuildKey:
    """A build as recorded in nights; a field is empty if it is not known."""

    framework: str
    version: str
    commit: str


@dataclass(frozen=True)
class SessionSpan:
    """When a session began, and what it measured."""

    # The creation time of its first night.
    created: str
    # Version and commit of each build, as the rows of its nights have them; empty if that was not asked.
    builds: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Revision:
    """The state of the history that an answer saw. All fields are plain JSON."""

    # The uuid of the first night, which is different in another history.
    first: str = ""
    newest_id: int = 0
    # When the newest night was judged.
    newest: str = ""
    # The number of nights that are older than the recent ones.
    settled: int = 0
    # A checksum of each recent night, by its row.
    recent: Mapping[str, int] = field(default_factory=dict)
    # A checksum of each present exclusion, by its subject and uuid.
    exclusions: Mapping[str, int] = field(default_factory=dict)
    # Every acknowledgement: pattern, first, last, commit, reason, who, created.
    acknowledgements: tuple[tuple[str, ...], ...] = ()
    # A checksum of the case of each night without a segment, by its row.
    strays: Mapping[str, int] = field(default_factory=dict)
    # Every start of a segment: case, target, created.
    starts: tuple[tuple[str, ...], ...] = ()
    # Every calibration: case, target, created.
    calibrations: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class NightPlace:
    """The case and the session of a night."""

    case: CaseKey
    session: SessionKey
    created: str


@dataclass(frozen=True)
class Changes:
    """The nights and cases that are new or changed since a revision."""

    revision: Revision
    nights: tuple[NightPlace, ...] = ()
    # Cases with a change besides their nights.
    cases: frozenset[CaseKey] = frozenset()
    # Why the earlier answer cannot be used at all; empty if only ``nights`` and ``cases`` changed.
    everything: str = ""


@dataclass(frozen=True)
class Listing:
    """The cases in the history, and the rows of their nights. Nights that are written later are not included."""

    newest_id: int
    # For each case: its rows in ``series``.
    cases: Mapping[CaseKey, tuple[int, ...]]
    # For each case: the rows of its nights without a segment (nothing ran).
    strays: Mapping[CaseKey, tuple[int, ...]]
    # The segment's digest by the row of ``series``.
    digests: Mapping[int, str]
    key_of_series: Mapping[int, CaseKey]
    key_of_stray: Mapping[int, CaseKey]


@dataclass(frozen=True)
class ListedNight:
    """A night, and the case and the session to which it belongs."""

    # The night's row.
    row: int
    case: CaseKey
    session: SessionKey
    night: StoredNight


def listing(connection: sa.Connection) -> Listing:
    """The cases that have nights."""
    newest_id = connection.execute(sa.select(sa.func.max(nights.c.id))).scalar_one() or 0
    rows = connection.execute(
        sa.select(series.c.id, series.c.case_id, series.c.target, series.c.host, documents.c.digest)
        .join_from(series, documents, documents.c.id == series.c.segment_id)
        .where(sa.exists().where(nights.c.series_id == series.c.id))
        .order_by(series.c.id)
    ).all()
    cases: dict[CaseKey, list[int]] = {}
    without_host = []
    for row in rows:
        if row.host:
            cases.setdefault(CaseKey(row.case_id, row.target, row.host), []).append(row.id)
        else:
            without_host.append(row.id)
    strays = _strays(connection, without_host, cases)
    return Listing(
        newest_id,
        {key: tuple(cases.get(key, ())) for key in sorted({*cases, *strays.values()})},
        _grouped(strays),
        {row.id: row.digest[:12] for row in rows},
        {series_id: key for key, ids in cases.items() for series_id in ids},
        strays,
    )


def _grouped(strays: Mapping[int, CaseKey]) -> dict[CaseKey, tuple[int, ...]]:
    found: dict[CaseKey, list[int]] = {}
    for night_id, key in strays.items():
        found.setdefault(key, []).append(night_id)
    return {key: tuple(ids) for key, ids in found.items()}


def _strays(
    connection: sa.Connection, series_ids: Sequence[int], cases: Mapping[CaseKey, Sequence[int]]
) -> dict[int, CaseKey]:
    """The case of each night without a segment, and so without a host in its series. Its machine is the one that judged
    it.

    A segment may name that machine as perf.yaml does, or by its pool. So the machine is that of a newer night of the
    case by the same host, or the only machine of the case.
    """
    if not series_ids:
        return {}
    rows = connection.execute(
        sa.select(nights.c.id, nights.c.uuid, nights.c.body, series.c.case_id, series.c.target)
        .join_from(nights, series)
        .where(series.c.id.in_(series_ids))
    ).all()
    known: dict[tuple[str, str], list[CaseKey]] = {}
    for key in cases:
        known.setdefault((key.case_id, key.target), []).append(key)
    judged_by: dict[CaseKey, str] = {}
    found = {}
    for row in rows:
        try:
            host = listed_night_of(row.body, stored_name(row.uuid)).host
        except HistoryError:
            host = ""
        places = known.get((row.case_id, row.target), [])
        if len(places) > 1:
            judged_by.update({key: _judge_of(connection, cases[key]) for key in places if key not in judged_by})
            places = [key for key in places if host in (judged_by[key], key.host)]
        found[row.id] = places[0] if places else CaseKey(row.case_id, row.target, host)
    return found


def _judge_of(connection: sa.Connection, series_ids: Sequence[int]) -> str:
    """The host that judged the newest night of these series."""
    row = connection.execute(
        sa.select(nights.c.uuid, nights.c.body)
        .where(nights.c.series_id.in_(series_ids))
        .order_by(nights.c.created.desc())
        .limit(1)
    ).one()
    return listed_night_of(row.body, stored_name(row.uuid)).host


# ---- nights


def counts_of_nights(connection: sa.Connection, known: Listing) -> dict[CaseKey, int]:
    """The number of nights of each case."""
    query = sa.select(nights.c.series_id, sa.func.count().label("nights")).where(nights.c.id <= known.newest_id)
    found = {key: sum(row <= known.newest_id for row in known.strays.get(key, ())) for key in known.cases}
    for row in connection.execute(query.group_by(nights.c.series_id)):
        # Series of strays have no machine, and are in no case.
        if (key := known.key_of_series.get(row.series_id)) is not None:
            found[key] += row.nights
    return found


def count_before(connection: sa.Connection, known: Listing, case: CaseKey, before: str) -> int:
    """The number of a case's nights before a moment."""
    query = sa.select(sa.func.count()).select_from(nights).where(_of_case(known, case), nights.c.created < before)
    return int(connection.execute(query).scalar_one())


def newest_nights(
    connection: sa.Connection, known: Listing, case: CaseKey, count: int
) -> tuple[tuple[int, ...], tuple[ListedNight, ...]]:
    """The rows of a case's ``count`` newest nights, and these nights, both oldest first.

    Raises HistoryError, with the uuid, on a night that cannot be read; if it is excluded, it is left out of the nights
    instead.
    """
    # The rows alone are ordered first, by an index: with its nights' bodies, SQLite would sort the whole case.
    of_case = sa.select(nights.c.id).where(_of_case(known, case))
    newest = of_case.order_by(nights.c.created.desc(), nights.c.id.desc()).limit(count).subquery()
    rows = connection.execute(_COLUMNS.join(newest, newest.c.id == nights.c.id)).all()
    rows = sorted(rows, key=lambda row: (row.created, row.id))
    return tuple(row.id for row in rows), _nights_of(connection, known, rows)


def _of_case(known: Listing, case: CaseKey) -> sa.ColumnElement[bool]:
    of_series = nights.c.series_id.in_(known.cases[case])
    chosen = sa.or_(of_series, nights.c.id.in_(known.strays[case])) if case in known.strays else of_series
    return sa.and_(chosen, nights.c.id <= known.newest_id)


def sessions(connection: sa.Connection, known: Listing) -> dict[SessionKey, SessionSpan]:
    """Every session with the creation time of its first night and the builds that it measured."""
    build = (nights.c.build_version, nights.c.build_commit)
    rows = connection.execute(
        sa.select(nights.c.session, series.c.host, *build, sa.func.min(nights.c.created).label("created"))
        .join_from(nights, series)
        .where(nights.c.id <= known.newest_id, series.c.host != "")
        .group_by(nights.c.session, series.c.host, *build)
    )
    found: dict[SessionKey, SessionSpan] = {}

    def add(key: SessionKey, created: str, version: str, commit: str) -> None:
        own = SessionSpan(created, frozenset({(version, commit)}))
        there = found.get(key, own)
        found[key] = SessionSpan(min(own.created, there.created), own.builds | there.builds)

    for row in rows:
        add(SessionKey(row.session, row.host), row.created, row.build_version, row.build_commit)
    columns = (nights.c.id, nights.c.session, nights.c.created, *build)
    for chosen in _in_groups(list(known.key_of_stray), lambda group: [nights.c.id.in_(group)]):
        for row in connection.execute(sa.select(*columns).where(*chosen)):
            key = SessionKey(row.session, known.key_of_stray[row.id].host)
            add(key, row.created, row.build_version, row.build_commit)
    return found


def session_nights(connection: sa.Connection, known: Listing, session: SessionKey) -> tuple[ListedNight, ...]:
    """The nights of a session on its machine, oldest first. Raises HistoryError as ``newest_nights`` does."""
    query = _COLUMNS.where(nights.c.session == session.session, nights.c.id <= known.newest_id)
    rows = sorted(connection.execute(query), key=lambda row: (row.created, row.id))
    return tuple(each for each in _nights_of(connection, known, rows) if each.session == session)


def _in_groups(
    values: Sequence[Any], chosen: Callable[[Sequence[Any]], list[sa.ColumnElement[bool]]]
) -> list[list[sa.ColumnElement[bool]]]:
    return [chosen(values[at : at + AT_ONCE]) for at in range(0, len(values), AT_ONCE)]


def _nights_of(connection: sa.Connection, known: Listing, rows: Sequence[sa.Row[Any]]) -> tuple[ListedNight, ...]:
    excluded = exclusions_of(connection, NIGHT, [row.uuid for row in rows if row.unlearned])
    found = []
    for row in rows:
        try:
            record = listed_night_of(row.body, stored_name(row.uuid))
        except HistoryError:
            if row.uuid in excluded:
                continue
            raise
        if record.created[:19] != row.created[:19]:
            # The record's time is in another zone; the row has it in UTC.
            record = replace(record, created=row.created)
        night = StoredNight(
            uuid=row.uuid,
            record=record,
            rates=learned_rates(row.learned),
            segment_digest=known.digests.get(row.series_id, ""),
            unlearned=row.unlearned,
            exclusion=excluded.get(row.uuid),
        )
        key = _key(known, row.id, row.series_id)
        found.append(ListedNight(row.id, key, SessionKey(row.session, key.host), night))
    return tuple(found)


def _key(known: Listing, row: int, series_id: int) -> CaseKey:
    """The case of a night, which may be newer than the listing."""
    key = known.key_of_stray.get(row) or known.key_of_series.get(series_id)
    return CaseKey("", "", "") if key is None else key


def build_of(record: NightRecord) -> BuildKey:
    """The build that a night measured."""
    build = record.build
    return BuildKey(build.get("framework", ""), build.get("version", ""), build.get("commit", "").lower())


# ---- what changed


def changes_since(connection: sa.Connection, known: Listing, earlier: Revision | None) -> Changes:
    """What changed since ``earlier``."""
    now = _revision(connection, known)
    if earlier is None:
        return Changes(now, everything="it is the first time")
    if earlier.first != now.first:
        return Changes(now, everything="it is another history")
    if earlier.newest_id > now.newest_id or _settled(connection, earlier) != earlier.settled:
        return Changes(now, everything="nights that were there are gone")
    if _moved(connection, known, earlier):
        return Changes(now, everything="nights without a run now belong to another machine")
    chosen, cases = _changed(connection, earlier, now, known)
    rows: dict[int, sa.Row[Any]] = {}
    query = sa.select(nights.c.id, nights.c.session, nights.c.series_id, nights.c.created)
    for condition in chosen:
        rows.update({row.id: row for row in connection.execute(query.where(condition))})
    places = (NightPlace(key := _key(known, row.id, row.series_id), SessionKey(row.session, key.host), row.created)
              for row in rows.values())  # fmt: skip
    return Changes(now, tuple(each for each in places if each.case in known.cases), frozenset(cases))


def _moved(connection: sa.Connection, known: Listing, earlier: Revision) -> bool:
    """Whether a night that had no segment in ``earlier`` now belongs to another case, so that its old page is wrong.

    It moves with the nights of its case that do have a segment, and when it is judged again.
    """
    keys = dict(known.key_of_stray)
    columns = (nights.c.id, nights.c.series_id)
    others = [int(row) for row in earlier.strays if int(row) not in keys]
    for chosen in _in_groups(others, lambda group: [nights.c.id.in_(group)]):
        keys.update(
            {
                row.id: _key(known, row.id, row.series_id)
                for row in connection.execute(sa.select(*columns).where(*chosen))
            }
        )
    checksums = {str(row): _checksum(astuple(key)) for row, key in keys.items()}
    return any(checksums.get(row) != checksum for row, checksum in earlier.strays.items())


def _revision(connection: sa.Connection, known: Listing) -> Revision:
    newest_id = known.newest_id
    seen = _seen(newest_id)
    # By the index of ``created``, from its end: max() with a condition would read every night.
    by_time = sa.select(nights.c.created).where(seen).order_by(nights.c.created.desc()).limit(1)
    newest = connection.execute(by_time).scalar_one_or_none()
    if newest is None:
        return Revision()
    first = connection.execute(sa.select(nights.c.uuid).order_by(nights.c.id).limit(1)).scalar_one()
    found = Revision(first, newest_id, newest)
    starts = sa.select(segment_starts.c.case_id, segment_starts.c.target, segment_starts.c.created)
    measured = sa.select(calibrations.c.case_id, calibrations.c.target, calibrations.c.created)
    return Revision(
        first,
        newest_id,
        newest,
        _settled(connection, found),
        _checksums(connection, [seen, nights.c.created >= _recent_from(newest)]),
        {
            f"{each.subject} {each.uuid}": _checksum((each.who, each.created, each.reason))
            for each in all_exclusions(connection)
        },
        tuple(_acknowledgement_row(each) for each in acknowledged(connection)),
        {str(row): _checksum(astuple(key)) for row, key in known.key_of_stray.items() if row <= newest_id},
        tuple(sorted(tuple(row) for row in connection.execute(starts))),
        tuple(sorted(tuple(row) for row in connection.execute(measured))),
    )


def _seen(newest_id: int) -> sa.ColumnElement[bool]:
    """The nights up to a row. The sum keeps SQLite from reading every night by its row, where the index of ``created``
    has the few that are meant."""
    return nights.c.id + 0 <= newest_id


def _acknowledgement_row(each: Acknowledgement) -> tuple[str, ...]:
    return (each.pattern, each.first, each.last, each.commit, each.reason, each.who, each.created)


def _checksums(connection: sa.Connection, chosen: Sequence[sa.ColumnElement[bool]]) -> dict[str, int]:
    """A checksum of each of these nights, by its row."""
    columns = (nights.c.id, nights.c.created, nights.c.status, nights.c.unlearned, nights.c.body)
    return {str(row.id): _checksum(row) for row in connection.execute(sa.select(*columns).where(*chosen))}


def _checksum(values: Iterable[object]) -> int:
    return zlib.crc32("\x00".join(map(str, values)).encode("utf-8", "backslashreplace"))


def _recent_from(newest: str) -> str:
    moment = datetime.datetime.fromisoformat(newest) - datetime.timedelta(days=_RECENT_DAYS)
    return moment.isoformat(timespec="microseconds")


def _settled(connection: sa.Connection, revision: Revision) -> int:
    """How many of the nights that ``revision`` saw are older than its recent nights."""
    if not revision.newest:
        return 0
    older = sa.and_(nights.c.created < _recent_from(revision.newest), _seen(revision.newest_id))
    return int(connection.execute(sa.select(sa.func.count()).select_from(nights).where(older)).scalar_one())


def _changed(
    connection: sa.Connection, earlier: Revision, now: Revision, known: Listing
) -> tuple[list[sa.ColumnElement[bool]], set[CaseKey]]:
    """Conditions that select the changed nights, and the cases with other changes."""
    checksums = dict(now.recent)
    # A night that was recent then may have been judged again before it grew old.
    grown_old = sorted(int(row) for row in earlier.recent.keys() - now.recent.keys())
    for group in _in_groups(grown_old, lambda ids: [nights.c.id.in_(ids)]):
        checksums.update(_checksums(connection, group))
    recent = {int(row) for row, checksum in checksums.items() if earlier.recent.get(row) != checksum}
    new = sa.and_(nights.c.id > earlier.newest_id, nights.c.id <= now.newest_id)
    chosen: list[sa.ColumnElement[bool]] = [new]
    chosen += [group for (group,) in _in_groups(sorted(recent), lambda ids: [nights.c.id.in_(ids)])]
    uuids: dict[str, list[str]] = {NIGHT: [], RESULT: []}
    for name, _ in sorted(earlier.exclusions.items() ^ now.exclusions.items()):
        subject, _, uuid = name.partition(" ")
        uuids.setdefault(subject, []).append(uuid)
    chosen += [group for (group,) in _in_groups(uuids[NIGHT], lambda each: [nights.c.uuid.in_(each)])]
    runs = sa.select(night_runs.c.night_id)
    chosen += [
        nights.c.id.in_(runs.where(night_runs.c.run_uuid.in_(group)))
        for (group,) in [(uuids[RESULT][at : at + AT_ONCE],) for at in range(0, len(uuids[RESULT]), AT_ONCE)]
    ]
    for row in sorted(set(earlier.acknowledgements) ^ set(now.acknowledgements)):
        made = Acknowledgement(*row)
        for column, rows_of in ((nights.c.series_id, known.cases), (nights.c.id, known.strays)):
            ids = [each for key, own in rows_of.items() if fnmatchcase(key.case_id, made.pattern) for each in own]
            chosen += _within(made, column, ids)
    for case_id, target, created in sorted(set(earlier.starts) ^ set(now.starts)):
        ids = [
            each for key, own in known.cases.items() if (key.case_id, key.target) == (case_id, target) for each in own
        ]
        chosen.append(sa.and_(nights.c.series_id.in_(ids), nights.c.created >= created))
    calibrated = {row[:2] for row in set(earlier.calibrations) ^ set(now.calibrations)}
    return chosen, {key for key in known.cases if (key.case_id, key.target) in calibrated}


def _within(made: Acknowledgement, column: sa.Column[Any], ids: Sequence[int]) -> list[sa.ColumnElement[bool]]:
    """Conditions for the nights with these ids in ``column`` that an acknowledgement may cover: whole days, and one
    more day at both ends."""
    bounds = []
    if made.first:
        bounds.append(nights.c.created >= _days_from(made.first, -1))
    if made.last:
        bounds.append(nights.c.created < _days_from(made.last, 2))
    return [sa.and_(group, *bounds) for (group,) in _in_groups(ids, lambda some: [column.in_(some)])]


def _days_from(bound: str, days: int) -> str:
    day = datetime.date.fromisoformat(bound[:10])
    try:
        return (day + datetime.timedelta(days=days)).isoformat()
    except OverflowError:
        return bound[:10]
