"""The fleets in the history: sessions that ``perfgate fleet`` made, one for each node, and their runs.

The session of a node is named ``FLEET.NODE``; a fleet's own name begins with ``fleet-``, then comes its time, so that
the order of names is the order in time.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from helpers.history.remarks import AT_ONCE, all_exclusions
from helpers.history.results import CONTENDED
from helpers.history.stored import FLEET_KIND, FleetRun, session_of_node
from helpers.history.tables import documents, results
from helpers.history.writing import RESULT
from helpers.judging.evidence import Build, Stage
from helpers.trainers.contract.errors import HistoryError

_NO_FACTS: Mapping[str, Any] = {}


def fleets(connection: sa.Connection) -> dict[str, tuple[str, ...]]:
    """The fleets, oldest first, each with its nodes that have results."""
    named = sa.select(results.c.session).where(results.c.session.like(f"{FLEET_KIND}-%.%")).distinct()
    found: dict[str, list[str]] = {}
    for session in sorted(connection.execute(named).scalars()):
        fleet, _, node = session.partition(".")
        found.setdefault(fleet, []).append(node)
    return {fleet: tuple(nodes) for fleet, nodes in found.items()}


def fleet_runs(
    connection: sa.Connection, fleet: str, nodes: Sequence[str], *, only_rates: bool = False, contended: bool = False
) -> tuple[FleetRun, ...]:
    """The screening runs of the build under test on the nodes of a fleet, by time; with ``only_rates`` without
    environments and facts. With ``contended`` a run counts although others used the node."""
    columns = ("uuid", "session", "case_id", "target", "created", "log_rate", "unlearned", "replicate")
    places = () if only_rates else ("build_id", "environment_id", "system_id", "setup_id")
    query = sa.select(*(results.c[name] for name in (*columns, *places))).where(
        results.c.role == Build.CANDIDATE.value, results.c.stage == Stage.SCREEN.value
    )
    rows: list[sa.Row[Any]] = []
    for at in range(0, len(nodes), AT_ONCE):
        sessions = [session_of_node(fleet, node) for node in nodes[at : at + AT_ONCE]]
        rows += connection.execute(query.where(results.c.session.in_(sessions))).all()
    rows.sort(key=lambda row: (row.created, row.replicate, row.uuid))
    excluded = {each.uuid: f"excluded by {each.who}: {each.reason}" for each in all_exclusions(connection)
                if each.subject == RESULT}  # fmt: skip
    reasons = _reasons(connection, [row.uuid for row in rows if row.log_rate is None])
    texts = _documents(connection, {getattr(row, place) for row in rows for place in places})
    found = []
    for row in rows:
        unlearned = "" if contended and row.unlearned == CONTENDED else row.unlearned
        why = excluded.get(row.uuid) or unlearned or reasons.get(row.uuid, "")
        documented = {} if only_rates else {
            "build": texts.get(row.build_id, _NO_FACTS),
            "environment": texts.get(row.environment_id, _NO_FACTS),
            "system": texts.get(row.system_id, _NO_FACTS),
            "facts": texts.get(row.setup_id, _NO_FACTS).get("facts", _NO_FACTS),
        }  # fmt: skip
        node = row.session.partition(".")[2]
        rate = None if why else row.log_rate
        found.append(FleetRun(node, row.case_id, row.target, row.created, rate, why, **documented))
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
