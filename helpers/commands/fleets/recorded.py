"""The recorded facts of a fleet's nodes and cards: what may differ on a slow one, and what of it was not recorded."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from helpers.history.stored import FleetPlace, FleetRun
from helpers.machine.environment import GPU, SM_MHZ
from helpers.machine.watch.gpu_health import HELD_BY_FACT, NOT_SAID, NVLINKS_FACT, PCIE_FACT

# Facts of a machine that name it and do not describe it.
_NAMES = ("host", "host_id", "card_ids", "machine", "nodes", "system: host", "legend")
# Rows of a card's tables that name the card by its number.
_NUMBERED = ("topology: ", "CPU: CPU cards")
# Of the numbers of several cards the worst counts: the highest of facts with these endings, of others the lowest.
_HIGHEST = ("_c", "_ecc")
_MEASURED = re.compile(r"(?:gpu|cpu|sm|memory)(?:_\w+)?_(?:mhz|watts|c|ecc)")
# A reason that lowered the clocks in a smaller share of the samples is left out (helpers.machine.watch.gpu_health).
_LEAST_HELD_PERCENT = 2.0
# Facts of a run with a word for each card, and their titles.
_LINKS = {PCIE_FACT: "PCI Express link", NVLINKS_FACT: "active NVLinks"}
_TEMPERATURE, _POWER_CAP = "gpu_temperature_c", "power_limit_watts"
# Nodes that may share a pool have these in common.
_EQUAL = (
    "device",
    "cards",
    "driver",
    "cuda",
    "cudnn",
    "nccl",
    "cublas",
    _POWER_CAP,
    "cpu_model",
    "logical_cores",
    "flags",
)


@dataclass
class NodeFacts:
    """The facts of nodes, or of cards, by name."""

    texts: dict[FleetPlace, dict[str, str]] = field(default_factory=dict)
    numbers: dict[FleetPlace, dict[str, float]] = field(default_factory=dict)


def facts_of(runs: Sequence[FleetRun]) -> tuple[NodeFacts, NodeFacts]:
    """The facts of all nodes, and of all cards. A node's are those of its own runs and of its cards'."""
    of_nodes, of_cards = _Gathered(), _Gathered()
    parsed: dict[int, _Parsed] = {}
    for run in runs:
        # Runs share what is equal in them.
        facts = parsed.setdefault(id(run.facts), _NOT_PARSED)
        if facts is _NOT_PARSED:
            facts = parsed[id(run.facts)] = _Parsed.of(run.facts)
        of_nodes.add((run.node, ""), run, facts)
        if run.card:
            of_cards.add((run.node, run.card), run, facts)
    return of_nodes.facts(), of_cards.facts(of_cards=True)


@dataclass(frozen=True)
class _Parsed:
    """The facts of one run."""

    words: Sequence[tuple[str, Sequence[str]]] = ()
    numbers: Sequence[tuple[str, float]] = ()

    @classmethod
    def of(cls, facts: Mapping[str, str]) -> _Parsed:
        words = [(title, facts[name].split()) for name, title in _LINKS.items() if name in facts]
        words += [(HELD_BY_FACT, held)] if (held := _held_by(facts.get(HELD_BY_FACT, ""))) else []
        measured = ((name, _number(name, text)) for name, text in facts.items() if _is_measured(name))
        return cls(words, [(name, number) for name, number in measured if number is not None])


_NOT_PARSED = _Parsed()


class _Gathered:
    """Gathers facts: texts from the newest run, links and numbers from all runs. A number is compared with those of
    others in the same case, because cases heat a card differently."""

    def __init__(self) -> None:
        self._newest: dict[FleetPlace, FleetRun] = {}
        self._words: dict[FleetPlace, dict[str, set[str]]] = {}
        # By fact, case and place: the numbers of each card, or those of the cases of several cards.
        self._values: dict[tuple[str, str], dict[FleetPlace, dict[str, list[float]]]] = {}

    def add(self, place: FleetPlace, run: FleetRun, facts: _Parsed) -> None:
        # The newest of the case with the most cards, so that all nodes show the same case.
        if place not in self._newest or len(_ids(run)) >= len(_ids(self._newest[place])):
            self._newest[place] = run
        for name, words in facts.words:
            self._words.setdefault(place, {}).setdefault(name, set()).update(words)
        for name, number in facts.numbers:
            by_card = self._values.setdefault((name, run.case_id), {}).setdefault(place, {})
            by_card.setdefault(run.card, []).append(number)

    def facts(self, *, of_cards: bool = False) -> NodeFacts:
        found = NodeFacts({place: _texts(run, of_card=of_cards) for place, run in self._newest.items()})
        for place, by_name in self._words.items():
            found.texts[place].update({name: ", ".join(sorted(mine)) for name, mine in by_name.items()})
        ratios: dict[FleetPlace, dict[str, list[float]]] = {}
        levels: dict[str, list[float]] = {}
        for (name, _), by_place in self._values.items():
            own = {place: _worst(name, map(statistics.median, mine.values())) for place, mine in by_place.items()}
            level = statistics.median(own.values())
            levels.setdefault(name, []).append(level)
            for place, number in own.items():
                ratios.setdefault(place, {}).setdefault(name, []).append(number / level if level else 1.0 + number)
        usual = {name: statistics.median(found) or 1.0 for name, found in levels.items()}
        for place, by_number in ratios.items():
            found.numbers[place] = {name: statistics.median(mine) * usual[name] for name, mine in by_number.items()}
        return found


def unrecorded(runs: Sequence[FleetRun]) -> dict[str, tuple[FleetPlace, ...]]:
    """The facts that may explain a slow GPU and that its newest run does not have, each with the nodes that lack it,
    and with the cards where not all of a node lack it. CPU cards have none of these facts and are left out."""
    newest = {(run.node, run.card): run for run in runs if run.environment.get("device") == GPU}
    found: dict[str, list[FleetPlace]] = {}
    for place, run in newest.items():
        environment, facts = run.environment, run.facts
        # 0 W stands for a limit that NVML does not say.
        power_cap = environment.get(_POWER_CAP, "")
        known = {
            "driver": environment.get("driver"),
            "power cap": power_cap and "0" not in power_cap.split(),
            "clocks": facts.get(SM_MHZ),
            "temperature": facts.get(_TEMPERATURE),
            **{title: (text := facts.get(name, "")) and NOT_SAID not in text for name, title in _LINKS.items()},
        }
        for name, value in known.items():
            if not value:
                found.setdefault(name, []).append(place)
    all_of: dict[str, set[FleetPlace]] = {}
    for place in newest:
        all_of.setdefault(place[0], set()).add(place)
    # A node all of whose cards lack the fact is named once, without them.
    return {name: tuple(sorted(_whole_nodes(set(places), all_of))) for name, places in found.items()}


def _whole_nodes(places: set[FleetPlace], all_of: Mapping[str, set[FleetPlace]]) -> set[FleetPlace]:
    whole = {node for node, _ in places if all_of[node] <= places}
    return {(node, "") for node in whole} | {place for place in places if place[0] not in whole}


def equality_of(runs: Sequence[FleetRun]) -> tuple[str, ...]:
    """What must be equal for nodes to share a pool, from all runs of a node, because cases use different cards."""
    environments = {id(run.environment): run.environment for run in runs}.values()
    texts = [" ".join(sorted({each.get(name, "") for each in environments})) for name in _EQUAL]
    facts = {id(run.facts): run.facts for run in runs}.values()
    links = [" ".join(sorted({word for each in facts for word in each.get(name, "").split()})) for name in _LINKS]
    return (*texts, *links, str(len({run.card for run in runs})))


def _held_by(text: str) -> list[str]:
    """The reasons of a text such as ``software power cap 98%, idle 0.20%``."""
    shares = (each.rpartition(" ") for each in text.split(", ") if each.endswith("%"))
    return [name for name, _, share in shares if float(share.rstrip("%")) >= _LEAST_HELD_PERCENT]


def _ids(run: FleetRun) -> list[str]:
    return run.environment.get("card_ids", "").split()


def _texts(run: FleetRun, *, of_card: bool) -> dict[str, str]:
    found = {name: text for name, text in run.environment.items() if name not in _NAMES}
    for section, table in run.system.items():
        if section not in _NAMES:
            found.update({f"{section}: {name}": text for name, text in table.items()})
    return {
        name: text
        for name, text in found.items()
        if name not in _NAMES and not (of_card and name.startswith(_NUMBERED))
    }


@cache
def _is_measured(name: str) -> bool:
    return _MEASURED.fullmatch(name) is not None


def _number(name: str, text: str) -> float | None:
    try:
        numbers = [float(word) for word in text.split()]
    except ValueError:
        return None
    return _worst(name, numbers) if numbers else None


def _worst(name: str, numbers: Iterable[float]) -> float:
    return max(numbers) if name.endswith(_HIGHEST) else min(numbers)
