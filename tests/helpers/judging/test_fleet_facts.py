"""What differs on the slow nodes of a fleet, and since when they are slow."""

from __future__ import annotations

from helpers.judging.fleet_facts import Difference, Since, differences, shared, since

NODES = [f"n{number:02}" for number in range(40)]
SLOW = ("n03", "n07")


def facts(name: str, usual: str, **other: str) -> dict[str, dict[str, str]]:
    return {node: {name: other.get(node, usual)} for node in NODES}


def test_a_fact_that_only_the_slow_node_has_separates_it() -> None:
    found = differences(facts("driver", "550", n03="535"), {}, SLOW)
    assert found == {"n03": (Difference("driver", "535", "550", 38, 38),), "n07": ()}


def test_a_fact_that_healthy_nodes_share_separates_nothing() -> None:
    two = facts("kernel", "6.8", n03="6.1", n10="6.1", n11="6.1", n12="6.1")
    assert differences(two, {}, ["n03"]) == {"n03": ()}


def test_a_fact_that_is_different_everywhere_separates_nothing() -> None:
    assert differences({node: {"serial": node} for node in NODES}, {}, ["n03"]) == {"n03": ()}


def test_a_fact_that_is_missing_is_said() -> None:
    texts = {**facts("topology: GPU0", "NV12"), "n03": {}}
    assert differences(texts, {}, ["n03"])["n03"] == (Difference("topology: GPU0", "not recorded", "NV12", 39, 39),)


def test_a_number_far_from_all_others_separates_the_node() -> None:
    numbers = {node: {"sm_clock_mhz": 1410.0 + at % 5} for at, node in enumerate(NODES)}
    numbers["n03"]["sm_clock_mhz"] = 1275.0
    numbers["n07"]["sm_clock_mhz"] = 1400.0
    found = differences({node: {} for node in NODES}, numbers, SLOW)
    assert found == {"n03": (Difference("sm_clock_mhz", "1275", "1412", 38, 38),), "n07": ()}


def test_what_several_slow_nodes_have_is_told_once() -> None:
    found = differences(facts("power cap", "400 W", n03="300 W", n07="300 W"), {}, SLOW)
    (together,) = shared(found)
    assert (together.nodes, together.difference.here) == (SLOW, "300 W")


def test_a_node_is_slow_since_the_first_of_an_unbroken_row_of_fleets() -> None:
    series = [("05-01", -0.03), ("05-08", 0.001), ("05-15", -0.02), ("05-22", -0.03)]
    assert since(series) == Since("05-15", 2, "05-08", 0.001)
    assert since(series[2:]) == Since("05-15", 2)
    assert since(series[3:]) == Since("05-22", 1)
