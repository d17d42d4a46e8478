"""What the history says about a fleet: its nodes held against each other, what is missing, since when a node is slow,
and what differs there."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from helpers.history.stored import FleetRun
from helpers.judging.fleet_facts import Difference, SharedDifference, Since, differences, shared, since
from helpers.trainers.contract.errors import HistoryError

if TYPE_CHECKING:
    # Not imported at run time: they would import the database libraries and numpy for every command.
    from helpers.history.history import History
    from helpers.judging.fleet import FleetVerdict, NodeVerdict

# So many earlier fleets are looked at to say since when a node is slow.
EARLIER_FLEETS = 10
# Facts of a machine that name it and do not describe it.
_NAMES = ("host", "host_id", "card_ids", "machine", "nodes", "system: host", "legend")
# Numbers of a run; of several cards the one that counts against the node.
_LOWEST, _HIGHEST = ("_mhz", "_watts"), ("_c", "_ecc")
_MEASURED = re.compile(r"(?:gpu_|cpu_|sm_|memory_)\w+_(?:mhz|watts|c|ecc)")
_HELD_BY = "gpu_clocks_held_by"
# Nodes that may share a pool have these in common.
_EQUAL = (
    "device",
    "cards",
    "driver",
    "cuda",
    "cudnn",
    "nccl",
    "power_limit_watts",
    "cpu_model",
    "logical_cores",
    "flags",
)

NodeCases = Mapping[str, Mapping[str, Sequence[float]]]


@dataclass(frozen=True)
class EqualNodes:
    """Nodes that are not slow, have measured everything, and have the same hardware and driver."""

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
    # None if ``why_none`` says why nothing was judged.
    verdict: FleetVerdict | None
    why_none: str = ""
    # Nodes of which no run counts, and cases of which a node lacks runs, with the reasons.
    lost: Mapping[str, str] = field(default_factory=dict)
    gaps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Why some runs of a node that was measured do not count.
    uncounted: Mapping[str, str] = field(default_factory=dict)
    # Of each slow node.
    since: Mapping[str, Since] = field(default_factory=dict)
    differences: Mapping[str, tuple[Difference, ...]] = field(default_factory=dict)
    shared: tuple[SharedDifference, ...] = ()
    equal: EqualNodes | None = None

    @property
    def slow(self) -> tuple[NodeVerdict, ...]:
        return self.verdict.slow if self.verdict is not None else ()

    @property
    def complete(self) -> bool:
        return self.verdict is not None and self.nodes_known and not self.lost and not self.gaps


@dataclass(frozen=True)
class Asked:
    """What was asked of a fleet: nodes, each with what Slurm says of it if it did not end well, cases and runs."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    cases: tuple[str, ...] = ()
    # How many runs of each case on each node; 0 if that is not known.
    runs: int = 0


def findings_of(
    history: History,
    fleet: str,
    known: Mapping[str, Sequence[str]],
    asked: Asked,
    spread: float | None = None,
    *,
    contended: bool = False,
) -> FleetFindings:
    """The findings on a fleet. ``known`` are the fleets of the history with their nodes, oldest first. With
    ``contended`` runs count although others used the node."""
    from helpers.judging.fleet import RULES, judge_fleet

    runs = _named(history.fleet_runs(fleet, known.get(fleet, ()), contended=contended))
    if not runs and not asked.nodes:
        raise HistoryError("fleet", got=fleet, expected=f"one of {', '.join(known) or 'none'}")
    usable, other_builds = _of_one_build(runs)
    rates = rates_of(usable)
    nodes = tuple(sorted({*asked.nodes, *(run.node for run in runs)}))
    cases = tuple(sorted({*asked.cases, *(run.case_id for run in runs)}))
    lost, gaps = _missing(nodes, cases, runs, rates, {**other_builds}, asked)
    verdict = judge_fleet(rates, spread)
    found = FleetFindings(
        fleet,
        runs[0].created if runs else "",
        runs[-1].created if runs else "",
        tuple(sorted({_build(run) for run in usable})),
        cases,
        nodes,
        bool(asked.nodes),
        verdict,
        "" if verdict else _why_none(len(rates), RULES.least_nodes, spread),
        lost,
        gaps,
        _uncounted(runs, other_builds, lost),
    )
    if verdict is None:
        return found
    slow = [each.node for each in verdict.slow]
    apart = differences(*_facts(usable), slow) if slow else {}
    return FleetFindings(
        **{
            **vars(found),
            "since": _since(history, fleet, known, verdict.slow, runs[0].created, rates),
            "differences": apart,
            "shared": shared(apart),
            "equal": _equal(usable, {*slow, *(each.node for each in verdict.suspect), *lost, *gaps}),
        }
    )


def _named(runs: Sequence[FleetRun]) -> list[FleetRun]:
    """The runs, each with its case's name in place of the id."""
    names = case_names((run.case_id, run.target) for run in runs)
    if all(name == case_id for (case_id, _), name in names.items()):
        return list(runs)
    return [replace(run, case_id=names[run.case_id, run.target]) for run in runs]


def rates_of(runs: Iterable[FleetRun]) -> dict[str, dict[str, list[float]]]:
    """Node → case → log rates of the runs that count."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in runs:
        if run.log_rate is not None:
            found.setdefault(run.node, {}).setdefault(run.case_id, []).append(run.log_rate)
    return found


def _why_none(nodes: int, least: int, spread: float | None) -> str:
    if spread is not None:
        return f"{nodes} nodes were measured: at least 2 are needed to hold them against each other"
    return (
        f"{nodes} nodes were measured: fewer than {least} do not show how far healthy nodes are apart; state it with "
        "--spread, or measure more nodes"
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


def _of_one_build(runs: Sequence[FleetRun]) -> tuple[list[FleetRun], dict[tuple[str, str], str]]:
    """The runs that count and have the build that most runs of their case have; and why the others of a node's case do
    not count."""
    counted = [run for run in runs if run.log_rate is not None]
    builds: dict[str, Counter[str]] = {}
    for run in counted:
        builds.setdefault(run.case_id, Counter())[_build(run)] += 1
    usual = {case: found.most_common(1)[0][0] for case, found in builds.items()}
    other = {
        (run.node, run.case_id): f"another build, {_build(run)}, where most have {usual[run.case_id]}"
        for run in counted
        if _build(run) != usual[run.case_id]
    }
    return [run for run in counted if _build(run) == usual[run.case_id]], other


def _missing(
    nodes: Sequence[str],
    cases: Sequence[str],
    runs: Sequence[FleetRun],
    rates: NodeCases,
    other_builds: Mapping[tuple[str, str], str],
    asked: Asked,
) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """The nodes of which no run counts, and the cases of which other nodes lack runs, with the reasons.

    A node lacks runs of a case if it has fewer than were asked, or than most nodes: it ended before they were made, or
    is still at work. Runs that others disturbed are there, and do not count; they are lacking only if the node's task
    did not end well.
    """
    said = asked.nodes
    made = Counter((run.node, run.case_id) for run in runs)
    usual = {
        case: max(asked.runs, statistics.median_high(made[node, case] for node in rates or nodes)) for case in cases
    }
    why = {(run.node, run.case_id): run.why for run in runs if run.why}
    why.update(other_builds)
    lost: dict[str, str] = {}
    gaps: dict[str, dict[str, str]] = {}
    for node in nodes:
        absent = {}
        for case in cases:
            counted = len(rates.get(node, {}).get(case, ()))
            there = counted if said.get(node) else made[node, case]
            if not counted:
                absent[case] = why.get((node, case)) or said.get(node) or "no run of it"
            elif there < usual[case]:
                reason = said.get(node) or why.get((node, case))
                absent[case] = f"{counted} of {usual[case]} runs" + (f" ({reason})" if reason else "")
        if node not in rates:
            lost[node] = said.get(node) or next(iter(dict.fromkeys(absent.values())), "no run of it")
        elif absent:
            gaps[node] = absent
    return lost, gaps


def _uncounted(
    runs: Sequence[FleetRun], other_builds: Mapping[tuple[str, str], str], lost: Mapping[str, str]
) -> dict[str, str]:
    found: dict[str, Counter[str]] = {}
    for run in runs:
        why = run.why or other_builds.get((run.node, run.case_id), "")
        if why and run.node not in lost:
            found.setdefault(run.node, Counter())[why] += 1
    return {node: "; ".join(f"{count} x {why}" for why, count in whys.items()) for node, whys in found.items()}


def _since(
    history: History,
    fleet: str,
    known: Mapping[str, Sequence[str]],
    slow: Sequence[NodeVerdict],
    created: str,
    rates: NodeCases,
) -> dict[str, Since]:
    """Since when each slow node is slow, by the newest earlier fleets that measured it."""
    from helpers.judging.fleet import shifts_in

    if not slow:
        return {}
    earlier = [name for name in known if name < fleet][-EARLIER_FLEETS:]
    by = {each.node: each.by for each in slow}
    series: dict[str, list[tuple[str, float]]] = {node: [] for node in by}
    for name in earlier:
        runs = _named(history.fleet_runs(name, known[name], only_rates=True))
        if not runs:
            continue
        for node, shift in shifts_in(rates_of(runs), by).items():
            series[node].append((runs[0].created[:10], shift))
    for node, shift in shifts_in(rates, by).items():
        series[node].append((created[:10], shift))
    return {node: since(shifts) for node, shifts in series.items()}


# ---- recorded facts


def _facts(runs: Sequence[FleetRun]) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, float]]]:
    """Each node's facts: texts of its newest run, and numbers of all its runs. A number is held against that of other
    nodes in the same case, because cases heat a card differently."""
    newest = {run.node: run for run in runs}
    held: dict[str, set[str]] = {}
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for run in runs:
        held.setdefault(run.node, set()).update(filter(None, [run.facts.get(_HELD_BY, "")]))
        for name, text in run.facts.items():
            if _MEASURED.fullmatch(name) and (number := _number(name, text)) is not None:
                values.setdefault((name, run.case_id), {}).setdefault(run.node, []).append(number)
    texts = {node: _texts(run) for node, run in newest.items()}
    for node, found in held.items():
        if found:
            texts[node][_HELD_BY] = "; ".join(sorted(found))
    ratios: dict[str, dict[str, list[float]]] = {}
    levels: dict[str, list[float]] = {}
    for (name, _), by_node in values.items():
        own = {node: statistics.median(numbers) for node, numbers in by_node.items()}
        level = statistics.median(own.values())
        levels.setdefault(name, []).append(level)
        for node, number in own.items():
            ratios.setdefault(node, {}).setdefault(name, []).append(number / level if level else 1.0 + number)
    return texts, {
        node: {
            name: statistics.median(found) * (statistics.median(levels[name]) or 1.0) for name, found in mine.items()
        }
        for node, mine in ratios.items()
    }


def _texts(run: FleetRun) -> dict[str, str]:
    found = {name: text for name, text in run.environment.items() if name not in _NAMES}
    for section, table in run.system.items():
        if section not in _NAMES:
            found.update({f"{section}: {name}": text for name, text in table.items()})
    return {name: text for name, text in found.items() if name not in _NAMES}


def _number(name: str, text: str) -> float | None:
    try:
        numbers = [float(word) for word in text.split()]
    except ValueError:
        return None
    if not numbers:
        return None
    return max(numbers) if name.endswith(_HIGHEST) else min(numbers)


def _equal(runs: Sequence[FleetRun], others: set[str]) -> EqualNodes | None:
    """The largest group of equal nodes; None if no two are equal."""
    newest = {run.node: run for run in runs}
    groups: dict[tuple[str, ...], list[str]] = {}
    for node, run in newest.items():
        if node not in others:
            groups.setdefault(tuple(run.environment.get(name, "") for name in _EQUAL), []).append(node)
    nodes = max(groups.values(), key=len, default=[])
    if len(nodes) < 2:
        return None
    mine = set(nodes)

    def hosts(chosen: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted({newest[node].environment.get("host", "") for node in chosen} - {""}))

    return EqualNodes(
        tuple(sorted(nodes)),
        hosts(mine),
        # Of a node that left no run only the name is known, which is usually its host's.
        tuple(sorted({*hosts(newest.keys() - mine), *(others - newest.keys())})),
        newest[nodes[0]].environment.get("cards", ""),
    )
