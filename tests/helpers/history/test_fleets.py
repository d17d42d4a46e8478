"""The fleets of a history and their runs."""

from __future__ import annotations

from typing import Any

from helpers.history.history import History
from helpers.history.results import CONTENDED, MACHINE_SHARED
from helpers.history.stored import place_of_session, session_of_place
from tests.helpers.history.made import ENVIRONMENT, run

FLEET = "fleet-20261122-020000Z-abcd"


def on(node: str, uuid: str, **values: Any) -> Any:
    return run(uuid, session=session_of_place(FLEET, (node, "")), **values)


def test_fleets_are_listed_by_time_with_their_nodes(history: History) -> None:
    later = "fleet-20261129-020000Z-0000"
    history.add_results(
        [
            run("1", session=session_of_place(later, ("n1", "3"))),
            on("n2", "2"),
            on("a.b", "3"),
            run("4", session="20261123-020000-abcd"),
            run("5", session="fleet-measured-by-hand"),
        ]
    )
    assert list(history.fleets().items()) == [(FLEET, (("a.b", ""), ("n2", ""))), (later, (("n1", "3"),))]


def test_a_run_has_its_node_its_rate_and_its_facts(history: History) -> None:
    history.add_results([on("n1", "1", log_rate=4.25, facts={"sm_clock_mhz": "1410"}), run("2")])
    (found,) = history.fleet_runs(FLEET, [("n1", ""), ("n2", "")])
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
    found = history.fleet_runs(FLEET, [("n1", "")])
    assert [each.why for each in found] == ["killed: out of memory", CONTENDED, "excluded by ada: fan failure"]
    assert [each.log_rate for each in found] == [None, None, None]
    with_contended = history.fleet_runs(FLEET, [("n1", "")], contended=True)
    assert [each.log_rate is not None for each in with_contended] == [False, True, False]


def test_the_session_of_a_card_names_node_and_card() -> None:
    for place in (("n1", "3"), ("a.b", "12"), ("n1", ""), ("n.card", "")):
        assert place_of_session(session_of_place(FLEET, place)) == place


def test_a_run_of_a_card_has_it_and_counts_beside_the_other_cards(history: History) -> None:
    session = session_of_place(FLEET, ("n1", "3"))
    shared = [
        run("1", session=session, marks=(MACHINE_SHARED,), facts={"card_index": "3"}),
        run("2", session=session, replicate=1, marks=(CONTENDED, MACHINE_SHARED), facts={"card_index": "3"}),
        run("3", session=session, replicate=2, facts={"card_index": "4"}),
        run("4", session=session, replicate=3, facts={}),
        run("5", session=session, replicate=4, facts={"card_index": "3"}, failure="killed"),
    ]
    history.add_results(shared)
    found = history.fleet_runs(FLEET, [("n1", "3")])
    assert {(each.node, each.card) for each in found} == {("n1", "3")}
    assert [each.why for each in found] == [
        "",
        CONTENDED,
        "it is a run of card 4 in the session of card 3",
        "it is a run of card unknown in the session of card 3",
        "killed",
    ]
    assert [each.log_rate is not None for each in found] == [True, False, False, False, False]
    assert [each.measured for each in found] == [True, True, True, True, False]
