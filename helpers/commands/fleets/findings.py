"""What the history says about a fleet: its nodes and cards held against each other, what is missing, since when one is
slow, and what differs there."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from helpers.commands.fleets.recorded import NodeFacts, equality_of, facts_of, unrecorded
from helpers.history.stored import FleetPlace, FleetRun, place_name
from helpers.judging.fleet_facts import Difference, SharedDifference, Since, differences, shared, since
from helpers.judging.fleet_rates import CardRates, card_shifts_in, few_cards, node_rates, shifts_in
from helpers.judging.fleet_rates import Rates as NodeRates
from helpers.judging.fleet_verdict import RULES, FleetVerdict, NodeVerdict
from helpers.trainers.contract.errors import HistoryError

if TYPE_CHECKING:
    # Not imported at run time: it would import the database libraries for every command.
    from helpers.history.history import History

# How many earlier fleets are read, at most, to say since when a node is slow.
EARLIER_FLEETS = 10
# How many healthy nodes are enough to show what is usual.
MOST_COMPARED = 200
Rates = Mapping[FleetPlace, Mapping[str, Sequence[float]]]
# Why runs do not count, by their place and case.
Whys = Mapping[tuple[FleetPlace, str], str]
_UNSEEN = "nobody has seen the end of its task"


@dataclass(frozen=True)
class EqualNodes:
    """Nodes that are not slow, have no slow card and measured everything, and have the same hardware and driver."""

    nodes: tuple[str, ...]
    # Their host names, and those of all other nodes of the fleet.
    hosts: tuple[str, ...]
    other_hosts: tuple[str, ...]
    cards: str


@dataclass(frozen=True)
class FleetFindings:
    """Everything that the report says."""

    fleet: str
    # When its first and its last run were made.
    first: str
    last: str
    builds: tuple[str, ...]
    cases: tuple[str, ...]
    # All nodes that were asked.
    nodes: tuple[str, ...]
    # Whether those are known. If not, a node that left no run is not missed.
    nodes_known: bool
    # How many cards of a node measured, most often; 0 if there was no case of one card.
    cards: int
    # None if ``why_none`` says why nothing was judged.
    verdict: FleetVerdict | None
    why_none: str = ""
    # Nodes of which no run counts, and cases of which a node lacks runs, with the reasons.
    lost: Mapping[str, str] = field(default_factory=dict)
    gaps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Why some runs of a node that was measured do not count.
    uncounted: Mapping[str, str] = field(default_factory=dict)
    # The ids of the cards, where they are known: UUIDs.
    card_ids: Mapping[FleetPlace, str] = field(default_factory=dict)
    # Of each slow node and card.
    since: Mapping[FleetPlace, Since] = field(default_factory=dict)
    differences: Mapping[FleetPlace, tuple[Difference, ...]] = field(default_factory=dict)
    shared: tuple[SharedDifference, ...] = ()
    # Which of driver, power cap, clocks, temperature and links are not recorded of whom.
    unrecorded: Mapping[str, tuple[FleetPlace, ...]] = field(default_factory=dict)
    equal: EqualNodes | None = None
    # Whether a case of several cards was measured. Only other nodes can judge its rates.
    several_cards: bool = False

    @property
    def slow(self) -> tuple[NodeVerdict, ...]:
        return self.verdict.slow if self.verdict is not None else ()

    @property
    def nodes_unjudged(self) -> bool:
        """Whether cards were judged, and something was measured that only other nodes could judge."""
        if self.verdict is None or self.verdict.nodes:
            return False
        return len(self.nodes) > 1 or self.several_cards

    @property
    def few_cards(self) -> Mapping[str, Mapping[str, tuple[int, int]]]:
        """The nodes that are not held against the others by a case, because too few of their cards measured it."""
        return self.verdict.few_cards if self.verdict is not None else {}

    @property
    def complete(self) -> bool:
        judged = self.verdict is not None and not self.nodes_unjudged
        return judged and self.nodes_known and not self.lost and not self.gaps and not self.few_cards


@dataclass(frozen=True)
class Asked:
    """What was asked of a fleet."""

    # Each with what Slurm says of it if it did not end well, empty if it did, and None if nobody has seen its end.
    nodes: Mapping[str, str | None] = field(default_factory=dict)
    cases: tuple[str, ...] = ()
    # How many runs of each case on each node; 0 if that is not known.
    runs: int = 0
    # On how many cards of each node the cases of one card are measured; 0 if that is not known.
    cards: int = 0
    # Whether runs were made, and count, although others used a node.
    contended: bool = False


def findings_of(
    history: History,
    fleet: str,
    known: Mapping[str, Sequence[FleetPlace]],
    asked: Asked,
    spread: float | None = None,
    *,
    contended: bool = False,
) -> FleetFindings:
    """The findings on a fleet. ``known`` are the fleets of the history with their nodes and cards, oldest first. With
    ``contended`` runs count although others used the node."""
    # Not above: it would import numpy and scipy for every command.
    from helpers.judging.fleet import judge_fleet

    runs = _named(history.fleet_runs(fleet, known.get(fleet, ()), contended=contended or asked.contended))
    if not runs and not asked.nodes:
        raise HistoryError("fleet", got=fleet, expected=f"one of {', '.join(known) or 'none'}")
    usable, others = _of_one_kind(runs)
    rates = rates_of(usable)
    nodes = tuple(sorted({*asked.nodes, *(run.node for run in runs)}))
    cases = tuple(sorted({*asked.cases, *(run.case_id for run in runs)}))
    cards = _cards_of(runs, asked)
    lost, gaps = _missing(nodes, cases, cards, runs, rates, others, asked)
    of_nodes, of_cards = _split(rates)
    verdict = judge_fleet(of_nodes, spread, RULES, of_cards)
    found = FleetFindings(
        fleet=fleet,
        first=runs[0].created if runs else "",
        last=runs[-1].created if runs else "",
        builds=tuple(sorted({_build(run) for run in {id(run.build): run for run in usable}.values()})),
        cases=cases,
        nodes=nodes,
        nodes_known=bool(asked.nodes),
        cards=cards,
        verdict=verdict,
        why_none="" if verdict else _why_none(len({run.node for run in usable}), cards, RULES.least_nodes, spread),
        lost=lost,
        gaps=gaps,
        uncounted=_uncounted(runs, others, lost),
        several_cards=any(not run.card for run in runs),
    )
    if verdict is None:
        return found
    slow = [each.place for each in verdict.slow]
    missing = unrecorded(usable)
    apart = _differences(facts_of(_compared(usable, verdict)), slow) if slow else {}
    bad = {*(node for node, _ in slow), *(each.node for each in verdict.suspect), *lost, *gaps, *verdict.few_cards}
    unknown = {node for places in missing.values() for node, _ in places}
    return replace(
        found,
        card_ids={(run.node, run.card): run.environment.get("card_ids", "") for run in usable if run.card},
        since=_since(history, fleet, known, verdict.slow, runs[0].created, rates, usable),
        differences=apart,
        shared=shared({place_name(place): mine for place, mine in apart.items()}),
        unrecorded=missing,
        equal=_equal(usable, bad | unknown, bad) if verdict.nodes else None,
    )


def _compared(runs: Sequence[FleetRun], verdict: FleetVerdict) -> list[FleetRun]:
    """The runs of slow nodes and of at most MOST_COMPARED others, evenly chosen: these show what is usual."""
    slow = {each.node for each in verdict.slow}
    others = sorted({run.node for run in runs} - slow)
    chosen = slow | {others[at * len(others) // MOST_COMPARED] for at in range(MOST_COMPARED)} if others else slow
    return [run for run in runs if run.node in chosen]


def _differences(
    facts: tuple[NodeFacts, NodeFacts], slow: Sequence[FleetPlace]
) -> dict[FleetPlace, tuple[Difference, ...]]:
    """Nodes are compared with nodes, and cards with the cards of all nodes."""
    found: dict[FleetPlace, tuple[Difference, ...]] = {}
    for each, of_card in zip(facts, (False, True), strict=True):
        mine = [place for place in slow if bool(place[1]) is of_card]
        if mine:
            found.update(differences(each.texts, each.numbers, mine))
    return found


def _named(runs: Sequence[FleetRun]) -> list[FleetRun]:
    """The runs, each with its case's name in place of the id."""
    names = case_names((run.case_id, run.target) for run in runs)
    if all(name == case_id for (case_id, _), name in names.items()):
        return list(runs)
    return [run._replace(case_id=names[run.case_id, run.target]) for run in runs]


def rates_of(runs: Iterable[FleetRun]) -> dict[FleetPlace, dict[str, list[float]]]:
    """Node and card → case → log rates of the runs that count."""
    found: dict[FleetPlace, dict[str, list[float]]] = {}
    for run in runs:
        if run.log_rate is not None:
            found.setdefault((run.node, run.card), {}).setdefault(run.case_id, []).append(run.log_rate)
    return found


def _split(rates: Rates) -> tuple[NodeRates, CardRates]:
    """The rates of nodes, and those of cards by node."""
    of_nodes: dict[str, Mapping[str, Sequence[float]]] = {}
    of_cards: dict[str, dict[str, Mapping[str, Sequence[float]]]] = {}
    for (node, card), cases in rates.items():
        if card:
            of_cards.setdefault(node, {})[card] = cases
        else:
            of_nodes[node] = cases
    return of_nodes, of_cards


def _cards_of(runs: Sequence[FleetRun], asked: Asked) -> int:
    """How many cards of a node measured, or were to measure."""
    seen: dict[str, set[str]] = {}
    for run in runs:
        if run.card:
            seen.setdefault(run.node, set()).add(run.card)
    return max(asked.cards, statistics.median_high(map(len, seen.values()))) if seen else asked.cards


def _why_none(nodes: int, cards: int, least: int, spread: float | None) -> str:
    measured = f"{nodes} nodes{f' of {cards} cards' if cards else ''} were measured"
    if spread is not None:
        return f"{measured}: at least 2 are needed to hold them against each other"
    return (
        f"{measured}: fewer than {least} do not show how far healthy nodes are apart; state it with --spread, or "
        "measure more nodes"
    )


def case_names(cases: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """A name for each case id and target: the id alone if there is one target."""
    known = dict.fromkeys(cases)
    several = len({target for _, target in known}) > 1
    return {(case, target): f"{case} [{target}]" if several else case for case, target in known}


def _build(run: FleetRun) -> str:
    names = ("framework", "version")
    commit = run.build.get("commit", "")[:12]
    return " ".join(filter(None, (*(run.build.get(name, "") for name in names), commit and f"@{commit}")))


def _of_one_kind(runs: Sequence[FleetRun]) -> tuple[list[FleetRun], dict[tuple[FleetPlace, str], str]]:
    """The runs that count, and why the others do not: a run counts only with the build that most runs of its case have,
    and on the card on which most runs of its place were made."""
    counted = [run for run in runs if run.log_rate is not None]
    builds: dict[str, Counter[str]] = {}
    cards: dict[FleetPlace, Counter[str]] = {}
    # Runs share what is equal in them.
    names = {id(run.build): _build(run) for run in {id(run.build): run for run in counted}.values()}
    for (case, build), count in Counter((run.case_id, id(run.build)) for run in counted).items():
        builds.setdefault(case, Counter())[names[build]] += count
    ids = {id(run.environment): run.environment.get("card_ids", "") for run in counted}
    for (node, card, of), count in Counter((run.node, run.card, id(run.environment)) for run in counted).items():
        if card:
            cards.setdefault((node, card), Counter())[ids[of]] += count
    if all(len(found) == 1 for by in (builds, cards) for found in by.values()):
        return counted, {}
    usual = {case: found.most_common(1)[0][0] for case, found in builds.items()}
    usual_card = {place: found.most_common(1)[0][0] for place, found in cards.items()}
    used, other = [], {}
    for run in counted:
        place, card_id = (run.node, run.card), ids[id(run.environment)]
        if names[id(run.build)] != usual[run.case_id]:
            other[place, run.case_id] = f"another build, {_build(run)}, where most have {usual[run.case_id]}"
        elif run.card and card_id != usual_card[place]:
            other[place, run.case_id] = f"another card, {card_id}, where most have {usual_card[place]}"
        else:
            used.append(run)
    return used, other


def _missing(
    nodes: Sequence[str],
    cases: Sequence[str],
    cards: int,
    runs: Sequence[FleetRun],
    rates: Rates,
    others: Whys,
    asked: Asked,
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """The nodes of which no run counts, and the cases of which other nodes lack runs, with the reasons.

    A node lacks runs of a case if it, or one of its cards, has fewer than were asked, or than most: it ended before
    they were made, or is still at work. Runs that others disturbed are there, and do not count; they are lacking only
    if the node's task did not end well, or if nobody has seen its end. A run that crashed is not there.
    """
    cards_of = _expected_cards(nodes, cards, runs)
    made = Counter(((run.node, run.card), run.case_id) for run in runs if run.measured)
    why: dict[tuple[FleetPlace, str], str] = {((run.node, run.card), run.case_id): run.why for run in runs if run.why}
    why.update(others)
    of_one = {run.case_id for run in runs if run.card}

    def expected(node: str, case: str) -> Sequence[str]:
        return cards_of[node] if case in of_one else [""]

    measured = {node for node, _ in rates}
    usual = {
        case: max(
            asked.runs,
            statistics.median_high(
                made[(node, card), case] for node in measured or nodes for card in expected(node, case)
            ),
        )
        for case in cases
    }
    lost: dict[str, str] = {}
    gaps: dict[str, dict[str, str]] = {}
    for node in nodes:
        said = asked.nodes.get(node, "")
        about = _UNSEEN if said is None else said
        absent = {}
        for case, card in ((each, card) for each in cases for card in expected(node, each)):
            key = (node, card), case
            counted = len(rates.get((node, card), {}).get(case, ()))
            name = f"{case} on card {card}" if card else case
            if not counted:
                absent[name] = why.get(key) or about or "no run of it"
            elif (counted if about else made[key]) < usual[case]:
                reason = about or why.get(key)
                absent[name] = f"{counted} of {usual[case]} runs" + (f" ({reason})" if reason else "")
        if node not in measured:
            lost[node] = said or next(iter(dict.fromkeys(absent.values())), "no run of it")
        elif absent:
            gaps[node] = absent
    return lost, gaps


def _expected_cards(nodes: Iterable[str], cards: int, runs: Iterable[FleetRun]) -> dict[str, list[str]]:
    """The cards of each node that were to be measured: those with runs, and as many more as ``cards`` asks for.

    Where Slurm gives whole nodes these are the first ones. A job beside others may get any (2 and 5), and nobody knows
    which one is missing then.
    """
    seen: dict[str, set[str]] = {node: set() for node in nodes}
    for run in runs:
        if run.card:
            seen[run.node].add(run.card)
    first = [str(card) for card in range(cards)]
    if set().union(*seen.values()) <= set(first):
        return dict.fromkeys(seen, first)
    return {
        node: [*sorted(own, key=int), *(f"unknown {number}" for number in range(1, 1 + cards - len(own)))]
        for node, own in seen.items()
    }


def _uncounted(runs: Sequence[FleetRun], others: Whys, lost: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, Counter[str]] = {}
    for run in runs:
        why = run.why or others.get(((run.node, run.card), run.case_id), "")
        if why and run.node not in lost:
            found.setdefault(run.node, Counter())[why] += 1
    return {node: "; ".join(f"{count} x {why}" for why, count in whys.items()) for node, whys in found.items()}


def _since(
    history: History,
    fleet: str,
    known: Mapping[str, Sequence[FleetPlace]],
    slow: Sequence[NodeVerdict],
    created: str,
    rates: Rates,
    runs: Sequence[FleetRun],
) -> dict[FleetPlace, Since]:
    """Since when each slow node and card is slow, by the newest earlier fleets that measured it. A card that is now in
    the place of another one was not measured there before."""
    if not slow:
        return {}
    by = {each.place: each.by for each in slow}
    series: dict[FleetPlace, list[tuple[str, float]]] = {place: [] for place in by}
    ids = _ids(run for run in runs if (run.node, run.card) in by)
    for name in [each for each in known if each < fleet][-EARLIER_FLEETS:]:
        earlier = _named(history.fleet_runs(name, known[name], only_rates=True))
        if not earlier:
            continue
        cards = [place for place in by if place[1] and place in known[name]]
        then = _ids(history.fleet_runs(name, cards)) if cards else {}
        same = {place: test for place, test in by.items() if not place[1] or then.get(place) == ids.get(place)}
        for place, shift in _shifts(rates_of(earlier), same).items():
            series[place].append((earlier[0].created[:10], shift))
    for place, shift in _shifts(rates, by).items():
        series[place].append((created[:10], shift))
    return {place: since(shifts) for place, shifts in series.items() if shifts}


def _ids(runs: Iterable[FleetRun]) -> dict[FleetPlace, str]:
    return {(run.node, run.card): run.environment.get("card_ids", "") for run in runs if run.card}


def _shifts(rates: Rates, by: Mapping[FleetPlace, str]) -> dict[FleetPlace, float]:
    """How far each node and card is from the others by its test in ``by``: a case, or all cases."""
    of_nodes, of_cards = _split(rates)
    slow_cards = {place for place in by if place[1]}
    of_all = node_rates(of_nodes, of_cards, slow_cards, few_cards(of_cards))
    found = shifts_in(of_all, {node: test for (node, card), test in by.items() if not card})
    return {
        **{(node, ""): shift for node, shift in found.items()},
        **card_shifts_in(of_cards, {place: by[place] for place in slow_cards}),
    }


# ---- equal nodes


def _equal(runs: Sequence[FleetRun], others: set[str], bad: set[str]) -> EqualNodes | None:
    """The largest group of equal nodes without the ``others``; None if no two are equal. The nodes ``bad`` should not
    take part in a pool."""
    by_node: dict[str, list[FleetRun]] = {}
    for run in runs:
        by_node.setdefault(run.node, []).append(run)
    groups: dict[tuple[str, ...], list[str]] = {}
    for node, mine in by_node.items():
        if node not in others:
            groups.setdefault(equality_of(mine), []).append(node)
    nodes = max(groups.values(), key=len, default=[])
    if len(nodes) < 2:
        return None
    chosen = set(nodes)

    def hosts(of: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted({by_node[node][-1].environment.get("host", "") for node in of} - {""}))

    cards = {run.environment.get("cards", "") for run in by_node[nodes[0]]}
    return EqualNodes(
        tuple(sorted(nodes)),
        hosts(chosen),
        # Of a node that left no run only the name is known, which is usually its host's.
        tuple(sorted({*hosts(by_node.keys() - chosen), *(bad - by_node.keys())})),
        max(sorted(cards), key=lambda text: sum(map(int, re.findall(r"(?<!\d)(\d+) x ", text)))),
    )
