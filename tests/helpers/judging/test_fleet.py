"""Which nodes of a fleet are slow beyond chance: noise with fixed seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from helpers.judging.fleet import judge_fleet
from helpers.judging.fleet_rates import card_shifts_in, few_cards, node_rates, shifts_in
from helpers.judging.fleet_verdict import ALL_CASES, FleetVerdict, Place
from helpers.trainers.contract.errors import SuiteError

CASES = tuple(f"c{number}" for number in range(6))
Fleet = dict[str, dict[str, list[float]]]


def made(nodes: int, *, seed: int = 1, runs: int = 4, node: float = 0.003, bad: float = 0.02) -> Fleet:
    """Healthy nodes with spread between nodes, between a node's cases and between runs, and bad runs."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(0, node, nodes)
    own = rng.standard_t(5, (nodes, len(CASES))) * 0.0015
    noise = rng.normal(0, 0.001, (nodes, len(CASES), runs))
    noise -= np.where(rng.random(noise.shape) < bad, rng.exponential(0.01, noise.shape), 0.0)
    values = 6.0 + shared[:, None, None] + own[:, :, None] + noise
    return {
        f"n{row:03}": {case: [float(each) for each in values[row, column]] for column, case in enumerate(CASES)}
        for row in range(nodes)
    }


def slowed(fleet: Fleet, node: str, share: float, *cases: str) -> None:
    for case in cases or CASES:
        fleet[node][case] = [rate + math.log1p(share) for rate in fleet[node][case]]


def named(fleet: Fleet, spread: float | None = None) -> list[str]:
    verdict = judge_fleet(fleet, spread)
    assert verdict is not None
    return [each.node for each in verdict.slow]


def test_healthy_fleets_have_at_most_the_stated_rate_of_false_alarms() -> None:
    alarms = sum(bool(named(made(60, seed=seed))) for seed in range(16))
    # More than 3 of 16 happen in 1 of 140 tries at a rate of 5%.
    assert alarms <= 3


def test_a_slow_node_is_found_with_its_size() -> None:
    fleet = made(200)
    slowed(fleet, "n017", -0.03)
    verdict = judge_fleet(fleet)
    assert verdict is not None
    (found,) = verdict.slow
    assert (found.node, found.by, found.cases, found.runs) == ("n017", ALL_CASES, 6, 24)
    assert found.low < found.shift < found.high
    assert found.shift == pytest.approx(-0.03, abs=0.009)
    assert verdict.node_spread is not None and verdict.card_spread is None
    assert verdict.node_spread.value == pytest.approx(0.0032, rel=0.3)
    assert 0.01 < verdict.node_spread.smallest_drop < 0.025


def test_a_fast_node_is_not_slow_and_makes_no_other_node_slow() -> None:
    fleet = made(200)
    slowed(fleet, "n017", +0.10)
    assert named(fleet) == []


def test_many_slow_nodes_do_not_hide_each_other() -> None:
    fleet = made(200)
    slow = [f"n{number:03}" for number in range(0, 200, 5)]
    for node in slow:
        slowed(fleet, node, -0.04)
    assert sorted(named(fleet)) == slow


def test_two_nodes_of_five_may_be_slow() -> None:
    fleet = made(200)
    slow = [f"n{number:03}" for number in range(200) if number % 5 in (0, 2)]
    for node in slow:
        slowed(fleet, node, -0.04)
    verdict = judge_fleet(fleet)
    assert verdict is not None
    assert sorted(each.node for each in verdict.slow) == slow
    # The slow nodes are no part of what healthy nodes differ by.
    assert verdict.node_spread is not None and verdict.node_spread.value < 0.0035


def test_a_node_that_is_slow_in_one_case_alone_is_found_by_that_case() -> None:
    fleet = made(200)
    slowed(fleet, "n017", -0.06, "c3")
    verdict = judge_fleet(fleet)
    assert verdict is not None
    (found,) = verdict.slow
    assert (found.node, found.by) == ("n017", "c3")
    assert found.by_shift == pytest.approx(-0.06, abs=0.01)


def test_bad_runs_of_one_case_make_no_node_slow() -> None:
    fleet = made(200)
    fleet["n017"]["c3"][:3] = [5.8] * 3
    assert named(fleet) == []


def test_a_drop_within_the_tolerance_is_not_slow_however_alike_the_nodes_are() -> None:
    fleet = made(400, node=0.0, bad=0.0)
    for mine in fleet.values():
        for case in mine:
            mine[case] = [6.0 + (rate - 6.0) / 20 for rate in mine[case]]
    slowed(fleet, "n017", -0.0045)
    slowed(fleet, "n018", -0.0085)
    assert named(fleet) == ["n018"]


def test_a_node_that_lacks_cases_is_still_held_against_the_others() -> None:
    fleet = made(200)
    slowed(fleet, "n017", -0.04)
    fleet["n017"] = {case: fleet["n017"][case] for case in CASES[:2]}
    fleet["n018"] = {case: [] for case in CASES}
    verdict = judge_fleet(fleet)
    assert verdict is not None
    assert [(each.node, each.cases) for each in verdict.slow] == [("n017", 2)]
    assert len(verdict.nodes) == 199


def test_what_most_healthy_fleets_would_not_show_is_suspect() -> None:
    fleet = made(400)
    slow = [f"n{number:03}" for number in range(0, 400, 20)]
    for node in slow:
        slowed(fleet, node, -0.013)
    slowed(fleet, "n007", -0.05)
    verdict = judge_fleet(fleet)
    assert verdict is not None
    # What is called slow is not called suspect, too.
    assert [each.node for each in verdict.slow] == ["n007"]
    suspects = {each.node for each in verdict.suspect}
    assert suspects and "n007" not in suspects
    assert len(suspects - set(slow)) <= 2


def test_few_nodes_need_a_stated_spread() -> None:
    fleet = made(2)
    assert judge_fleet(fleet) is None
    slowed(fleet, "n001", -0.10)
    assert named(fleet, spread=0.01) == ["n001"]
    assert named(fleet, spread=0.10) == []
    assert judge_fleet({"n000": fleet["n000"]}, 0.01) is None


def test_eight_nodes_show_only_a_large_drop() -> None:
    fleet = made(8)
    slowed(fleet, "n001", -0.008)
    assert named(fleet) == []
    slowed(fleet, "n001", -0.10)
    assert named(fleet) == ["n001"]


def test_a_rate_that_is_not_finite_is_refused() -> None:
    fleet = made(8)
    fleet["n003"]["c1"] = [math.nan]
    with pytest.raises(SuiteError, match="c1 on n003"):
        judge_fleet(fleet)


def test_the_shift_in_an_earlier_fleet_is_that_of_all_cases_or_of_one() -> None:
    fleet = made(20)
    slowed(fleet, "n003", -0.03, "c2")
    found = shifts_in(fleet, {"n003": "c2", "n004": ALL_CASES, "elsewhere": ALL_CASES})
    assert found.keys() == {"n003", "n004"}
    assert found["n003"] == pytest.approx(-0.03, abs=0.01)
    assert found["n004"] == pytest.approx(0.0, abs=0.008)


# ---- cards

Cards = dict[str, Fleet]
MULTI = ("c4", "c5")


def with_cards(nodes: int, cards: int = 8, *, seed: int = 1) -> tuple[Fleet, Cards]:
    """A healthy fleet: the last two cases use all cards of a node, the others are measured on each card."""
    rng = np.random.default_rng(seed + 1000)
    fleet = made(nodes, seed=seed)
    by_card: Cards = {}
    for node, cases in fleet.items():
        for card in range(cards):
            off = rng.normal(0, 0.003)
            by_card.setdefault(node, {})[str(card)] = {
                case: [
                    rate + off + own + each for rate, each in zip(runs, rng.normal(0, 0.0005, len(runs)), strict=True)
                ]
                for case, runs in cases.items()
                if case not in MULTI
                for own in [rng.normal(0, 0.001)]
            }
    return {
        node: {case: runs for case, runs in cases.items() if case in MULTI} for node, cases in fleet.items()
    }, by_card


def slow_card(fleet: Fleet, cards: Cards, node: str, card: str, share: float, *, also_node: bool = True) -> None:
    for case, runs in cards[node][card].items():
        cards[node][card][case] = [rate + math.log1p(share) for rate in runs]
    if also_node:
        slowed(fleet, node, share, *MULTI)


def judged(fleet: Fleet, cards: Cards, spread: float | None = None) -> FleetVerdict:
    verdict = judge_fleet(fleet, spread, cards=cards)
    assert verdict is not None
    return verdict


def slow_of(fleet: Fleet, cards: Cards) -> set[Place]:
    return {each.place for each in judged(fleet, cards).slow}


def test_a_slow_card_is_found_with_its_node_and_its_size() -> None:
    fleet, cards = with_cards(100)
    slow_card(fleet, cards, "n017", "5", -0.03)
    verdict = judged(fleet, cards)
    (found,) = [each for each in verdict.cards if each.slow]
    assert (found.place, found.by, found.cases, found.runs) == (("n017", "5"), ALL_CASES, 4, 16)
    assert found.shift == pytest.approx(-0.03, abs=0.009)
    assert verdict.card_spread is not None and verdict.card_spread.value == pytest.approx(0.0035, rel=0.3)
    # Its node may be slow in the cases of all cards, and no other place is.
    assert {each.node for each in verdict.slow} == {"n017"}
    assert len(verdict.nodes) == 100 and len(verdict.cards) == 800


def test_a_slow_card_does_not_make_its_node_slow_in_cases_of_one_card() -> None:
    for count in (2, 8):
        fleet, cards = with_cards(100, count)
        slow_card(fleet, cards, "n017", "1", -0.05, also_node=False)
        assert slow_of(fleet, cards) == {("n017", "1")}


def test_a_slow_node_does_not_make_its_cards_slow() -> None:
    fleet, cards = with_cards(100)
    for card in cards["n017"]:
        slow_card(fleet, cards, "n017", card, -0.04, also_node=card == "0")
    assert slow_of(fleet, cards) == {("n017", "")}


def test_half_of_a_nodes_cards_may_be_slow() -> None:
    fleet, cards = with_cards(100)
    for card in "0246":
        slow_card(fleet, cards, "n017", card, -0.05, also_node=False)
    assert slow_of(fleet, cards) == {("n017", card) for card in "0246"}


@pytest.mark.slow
def test_the_error_rate_holds_over_nodes_and_cards_together() -> None:
    alarms = sum(bool(slow_of(*with_cards(40, seed=seed))) for seed in range(16))
    # More than 3 of 16 happen in 1 of 140 tries at a rate of 5%.
    assert alarms <= 3


def test_the_chance_counts_nodes_and_cards_by_halves() -> None:
    fleet, cards = with_cards(100)
    verdict = judged(fleet, cards)
    assert verdict.nodes[0].chance == pytest.approx(verdict.nodes[0].p_value * 2 * 100)
    assert verdict.cards[0].chance == pytest.approx(verdict.cards[0].p_value * 2 * 800)
    alone = judge_fleet(made(100))
    assert alone is not None and alone.nodes[0].chance == pytest.approx(alone.nodes[0].p_value * 100)


def test_the_cards_of_one_node_are_judged_without_other_nodes() -> None:
    fleet, cards = with_cards(1)
    slow_card(fleet, cards, "n000", "3", -0.10)
    verdict = judged(fleet, cards)
    assert verdict.nodes == () and verdict.node_spread is None
    assert [each.place for each in verdict.slow] == [("n000", "3")]
    assert judge_fleet({}, cards={"n000": {card: cards["n000"][card] for card in "01"}}) is None


def test_nodes_with_different_numbers_of_cards_are_judged_together() -> None:
    fleet, cards = with_cards(60)
    for node in list(cards)[::3]:
        cards[node] = {card: cards[node][card] for card in "01"}
    cards["n006"] = {"0": cards["n006"]["0"]}
    slow_card(fleet, cards, "n003", "1", -0.06, also_node=False)
    slow_card(fleet, cards, "n004", "7", -0.06, also_node=False)
    verdict = judged(fleet, cards)
    assert {each.place for each in verdict.slow} == {("n003", "1"), ("n004", "7")}
    # A card without another one on its node is held against none.
    assert ("n006", "0") not in {each.place for each in verdict.cards}


def test_a_run_of_a_node_is_the_median_of_its_cards_without_the_slow_ones() -> None:
    cards = {"a": {"0": {"c": [1.0, 2.0]}, "1": {"c": [3.0, 4.0]}, "2": {"c": [9.0]}, "3": {"c": []}}}
    assert node_rates({"a": {"m": [5.0]}}, cards) == {"a": {"m": [5.0], "c": [3.0, 3.0]}}
    assert node_rates({}, cards, {("a", "2")}) == {"a": {"c": [2.0, 3.0]}}
    assert node_rates({}, {"a": {"0": {"c": [1.0]}}}, {("a", "0")}) == {"a": {"c": [1.0]}}


def test_a_node_on_which_fewer_than_half_of_the_cards_were_measured_is_not_judged_by_them() -> None:
    fleet, cards = with_cards(60)
    # Its only card is slow, which says nothing of the node.
    cards["n006"] = {"0": cards["n006"]["0"]}
    cards["n007"] = {card: cards["n007"][card] for card in "0123"}
    del cards["n008"]["5"]["c1"]
    for case in ("c2", "c3"):
        for card in "01234":
            cards["n008"][card][case] = []
    slow_card(fleet, cards, "n006", "0", -0.10, also_node=False)
    assert few_cards(cards) == {
        "n006": {case: (1, 8) for case in CASES if case not in MULTI},
        "n008": {"c2": (3, 8), "c3": (3, 8)},
    }
    verdict = judged(fleet, cards)
    assert verdict.slow == () and verdict.few_cards == few_cards(cards)
    assert {each.node: each.cases for each in verdict.nodes if each.cases != 6} == {"n006": 2, "n008": 4}


def test_the_rate_of_a_node_of_fewer_cards_is_less_certain() -> None:
    def p_values(cards_of_it: str) -> tuple[float, float]:
        fleet, cards = with_cards(60, seed=5)
        # All its cards are alike, so that it is as slow with four of them as with eight.
        cards["n007"] = {card: dict(cards["n007"]["0"]) for card in cards_of_it}
        for card in cards_of_it:
            slow_card(fleet, cards, "n007", card, -0.02, also_node=card == "0")
        verdict = judged(fleet, cards)
        (found,) = [each for each in verdict.nodes if each.node == "n007"]
        return found.p_value, found.shift

    of_eight, of_four = p_values("01234567"), p_values("0123")
    assert of_four[1] == pytest.approx(of_eight[1], abs=1e-4)
    assert of_four[0] > 1.1 * of_eight[0]


def test_the_shift_of_a_card_in_an_earlier_fleet_is_against_its_nodes_other_cards() -> None:
    fleet, cards = with_cards(20)
    slow_card(fleet, cards, "n003", "2", -0.04)
    found = card_shifts_in(cards, {("n003", "2"): ALL_CASES, ("n004", "0"): "c1", ("n005", "11"): ALL_CASES})
    assert found.keys() == {("n003", "2"), ("n004", "0")}
    assert found["n003", "2"] == pytest.approx(-0.04, abs=0.012)


def test_the_shift_of_one_card_of_two_is_against_the_other_alone() -> None:
    cards = {"n0": {"0": {"c0": [6.0]}, "1": {"c0": [6.0 + math.log1p(-0.04)]}}}
    assert card_shifts_in(cards, {("n0", "1"): ALL_CASES}) == {("n0", "1"): pytest.approx(-0.04)}
