"""The fleets of a history and their runs."""

from __future__ import annotations

from typing import Any

from helpers.history.history import History
from helpers.history.results import CONTENDED
from helpers.history.stored import session_of_node
from tests.helpers.history.made import ENVIRONMENT, run

FLEET = "fleet-20261122-020000-abcd"


def on(node: str, uuid: str, **values: Any) -> Any:
    return run(uuid, session=session_of_node(FLEET, node), **values)


def test_fleets_are_listed_by_time_with_their_nodes(history: History) -> None:
    later = "fleet-20261129-020000-0000"
    history.add_results(
        [
            run("1", session=session_of_node(later, "n1")),
            on("n2", "2"),
            on("a.b", "3"),
            run("4", session="20261123-020000-abcd"),
            run("5", session="fleet-measured-by-hand"),
        ]
    )
    assert list(history.fleets().items()) == [(FLEET, ("a.b", "n2")), (later, ("n1",))]


def test_a_run_has_its_node_its_rate_and_its_facts(history: History) -> None:
    history.add_results([on("n1", "1", log_rate=4.25, facts={"sm_clock_mhz": "1410"}), run("2")])
    (found,) = history.fleet_runs(FLEET, ["n1", "n2"])
    assert (found.node, found.log_rate, found.why) == ("n1", 4.25, "")
    assert (found.environment["host_id"], found.facts) == (ENVIRONMENT["host_id"], {"sm_clock_mhz": "1410"})
    assert found.system == {"CPU": {"cores": "2"}}


def test_a_run_that_does_not_count_says_why(history: History) -> None:
    history.add_results(
        [
            on("n1", "aaaaaa1", failure="killed: out of memory"),
            on("n1", "aaaaaa2", replicate=1, marks=(CONTENDED,)),
            on("n1", "aaaaaa3", replicate=2),
            on("n1", "aaaaaa4", replicate=3, role="reference"),
        ]
    )
    history.exclude("aaaaaa3", "ada", "2026-11-23T00:00:00+00:00", "fan failure")
    found = history.fleet_runs(FLEET, ["n1"])
    assert [each.why for each in found] == ["killed: out of memory", CONTENDED, "excluded by ada: fan failure"]
    assert [each.log_rate for each in found] == [None, None, None]
    with_contended = history.fleet_runs(FLEET, ["n1"], contended=True)
    assert [each.log_rate is not None for each in with_contended] == [False, True, False]
