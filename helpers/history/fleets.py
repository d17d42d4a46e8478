"""The fleets in the history: sessions that ``perfgate fleet`` made, one for each card and one for each node, and their
runs.

The session of a node is named ``FLEET.NODE``, and that of its card 3 ``FLEET.NODE.card3``; a fleet's own name begins
with ``fleet-``, then comes its time in UTC, so that the order of names is the order in time.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from helpers.history.remarks import AT_ONCE, all_exclusions
from helpers.history.results import CARD_INDEX_FACT, CONTENDED, MACHINE_SHARED
from helpers.history.stored import FLEET_KIND, FleetPlace, FleetRun, place_of_session, session_of_place
from helpers.history.tables import documents, results
from helpers.history.writing import RESULT
from helpers.judging.evidence import Build, Stage
from helpers.trainers.contract.errors import HistoryError

_NO_FACTS: Mapping[str, Any] = {}


def fleets(connection: sa.Connection) -> dict[str, tuple[FleetPlace, ...]]:
    """The fleets, oldest first, each with its nodes and cards that have results."""
    named = sa.select(results.c.session).where(results.c.session.like(f"{FLEET_KIND}-%.%")).distinct()
    found: dict[str, list[FleetPlace]] = {}
    for session in sorted(connection.execute(named).scalars()):
        found.setdefault(session.partition(".")[0], []).append(place_of_session(session))
    return {fleet: tuple(places) for fleet, places in found.items()}


def fleet_runs(
    connection: sa.Connection,
    fleet: str,
    places: Sequence[FleetPlace],
    *,
    only_rates: bool = False,
    contended: bool = False,
) -> tuple[FleetRun, ...]:
    """The screening runs of the build under test on the nodes and cards of a fleet, by time; with ``only_rates``
    without environments and facts. With ``contended`` a run counts although others used the node. A run counts although
    the node's other cards were measured at the same time, because this is so on all nodes of a fleet."""
    columns = ("created", "replicate", "uuid", "session", "case_id", "target", "log_rate", "unlearned")
    ids = () if only_rates else ("build_id", "environment_id", "system_id", "setup_id")
    query = sa.select(*(results.c[name] for name in (*columns, *ids))).where(
        results.c.role == Build.CANDIDATE.value, results.c.stage == Stage.SCREEN.value
    )
    rows: list[tuple[Any, ...]] = []
    for at in range(0, len(places), AT_ONCE):
        sessions = [session_of_place(fleet, place) for place in places[at : at + AT_ONCE]]
        rows += map(tuple, connection.execute(query.where(results.c.session.in_(sessions))).all())
    # By time, replicate and uuid, of which no two are the same.
    rows.sort()
    excluded = {each.uuid: f"excluded by {each.who}: {each.reason}" for each in all_exclusions(connection)
                if each.subject == RESULT}  # fmt: skip
    reasons = _reasons(connection, [row[2] for row in rows if row[6] is None])
    texts = _documents(connection, {each for row in rows for each in row[len(columns) :]})
    accepted = {MACHINE_SHARED, *([CONTENDED] if contended else [])}
    place_of = {session: place_of_session(session) for session in {row[3] for row in rows}}
    found = []
    for created, _, uuid, session, case_id, target, log_rate, marks, *documented in rows:
        unlearned = marks and "; ".join(each for each in marks.split("; ") if each not in accepted)
        why = excluded.get(uuid) or unlearned or reasons.get(uuid, "")
        node, card = place_of[session]
        rate, measured = None if why else log_rate, log_rate is not None
        if only_rates:
            found.append(FleetRun(node, card, case_id, target, created, rate, why, measured))
            continue
        build_id, environment_id, system_id, setup_id = documented
        setup = texts.get(setup_id, _NO_FACTS)
        facts = setup.get("facts", _NO_FACTS)
        if card and not why and facts.get(CARD_INDEX_FACT) != card:
            rate, why = (
                None,
                f"it is a run of card {facts.get(CARD_INDEX_FACT, 'unknown')} in the session of card {card}",
            )
        found.append(
            FleetRun(
                node, card, case_id, target, created, rate, why, measured, texts.get(build_id, _NO_FACTS),
                texts.get(environment_id, _NO_FACTS), texts.get(system_id, _NO_FACTS), facts,
            )
        )  # fmt: skip
    return tuple(found)


def _reasons(connection: sa.Connection, uuids: Sequence[str]) -> dict[str, str]:
    """Why these runs have no throughput."""
    found = {}
    for at in range(0, len(uuids), AT_ONCE):
        query = sa.select(results.c.uuid, results.c.body).where(results.c.uuid.in_(uuids[at : at + AT_ONCE]))
        for row in connection.execute(query):
            body = json.loads(row.body)
            named = (body.get(name) for name in ("failure", "invalid", "refusal"))
            found[row.uuid] = next((str(each) for each in named if each), "no throughput")
    return found


def _documents(connection: sa.Connection, ids: Collection[int]) -> dict[int, Mapping[str, Any]]:
    """Each document once. Raises HistoryError for one that is no object."""
    found: dict[int, Mapping[str, Any]] = {}
    wanted = sorted(ids)
    for at in range(0, len(wanted), AT_ONCE):
        query = sa.select(documents.c.id, documents.c.body).where(documents.c.id.in_(wanted[at : at + AT_ONCE]))
        for row in connection.execute(query):
            value = json.loads(row.body)
            if not isinstance(value, dict):
                raise HistoryError(f"history: document {row.id}", got=type(value).__name__, expected="a JSON object")
            found[row.id] = value
    return found
