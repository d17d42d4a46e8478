"""The report on a fleet: one sentence first, the table of nodes, what differs, what is missing, and what to do."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from helpers.commands.fleets.findings import EqualNodes, FleetFindings
from helpers.commands.fleets.hostlist import hostlist
from helpers.commands.loading import JSON, MARKDOWN, Formats, json_text
from helpers.history.stored import place_name
from helpers.judging.fleet_facts import Difference, Since
from helpers.judging.fleet_verdict import FleetVerdict, NodeVerdict
from helpers.judging.wording import counted
from helpers.report.table import Align, Column, Table, markdown_text
from helpers.report.text import hanging
from helpers.trainers.contract.errors import printable

# 1: first format.
FLEET_SCHEMA_VERSION = 1

_INDENT = "  "
# Besides the slow nodes the table has those with the most evidence.
_OTHERS_SHOWN = 5
_DIFFERENCES_SHOWN = 8
_NAMED = 8


def sentence(found: FleetFindings) -> str:
    """The answer in one sentence."""
    verdict = found.verdict
    if verdict is None:
        return f"{found.fleet}: nothing is judged: {found.why_none}"
    if verdict.slow:
        names = ", ".join(f"{place_name(each.place)} ({each.by_shift:+.1%})" for each in verdict.slow[:_NAMED])
        more = f" and {len(verdict.slow) - _NAMED} more" if len(verdict.slow) > _NAMED else ""
        verb = "is" if len(verdict.slow) == 1 else "are"
        text = f"{_of_all(verdict, slow=True)} {verb} slow beyond chance: {names}{more}"
    else:
        text = f"none of {_of_all(verdict)} is slow beyond chance"
    if verdict.suspect:
        text += f"; {len(verdict.suspect)} more suspect"
    missing = [f"{counted(len(found.lost), 'node')} not measured"] if found.lost else []
    missing += [f"{counted(len(found.gaps), 'node')} measured in part"] if found.gaps else []
    missing += ["the nodes are not held against each other"] if found.nodes_unjudged else []
    missing += [] if found.nodes_known else ["which nodes were asked is not known here"]
    return "; ".join([text, *missing])


def _of_all(verdict: FleetVerdict, *, slow: bool = False) -> str:
    """Such as ``60 nodes and 480 cards``, with ``slow`` such as ``1 of 60 nodes and 2 of 480 cards``."""
    parts = []
    for each, what in ((verdict.nodes, "nodes"), (verdict.cards, "cards")):
        found = sum(one.slow for one in each)
        if each and not slow:
            parts.append(f"{len(each)} {what}")
        elif found:
            parts.append(f"{found} of {len(each)} {what}")
    return " and ".join(parts)


def fleet_text(found: FleetFindings, width: int) -> str:
    lines = hanging(sentence(found), width, "", _INDENT)
    lines += hanging(_about(found), width, "", _INDENT)
    if found.verdict is not None:
        grid = Table.of(_columns(found), _shown(found)).grid()
        lines += ["", grid.heading, "-" * grid.text_width, *grid.lines]
        lines += hanging(_noise(found), width, "", _INDENT)
    for title, items in _parts(found):
        lines += ["", title]
        for item in items:
            # A command or a line of perf.yaml is copied as it is.
            lines += [printable(item)] if title in _VERBATIM else hanging(item, width, _INDENT, _INDENT * 2)
    return "\n".join(lines)


def fleet_markdown(found: FleetFindings, _width: int) -> str:
    lines = [f"**{markdown_text(sentence(found))}**", "", markdown_text(_about(found))]
    if found.verdict is not None:
        lines += [
            "",
            *Table.of(_columns(found), _shown(found)).markdown(markdown_text),
            "",
            markdown_text(_noise(found)),
        ]
    for title, items in _parts(found):
        lines += ["", f"## {title}", ""]
        lines += (
            ["```", *map(printable, items), "```"]
            if title in _VERBATIM
            else [f"- {markdown_text(item)}" for item in items]
        )
    return "\n".join(lines)


def fleet_record(found: FleetFindings) -> dict[str, Any]:
    """Plain values for JSON; shifts are fractions, ``schema_version`` is FLEET_SCHEMA_VERSION."""
    verdict = found.verdict
    return {
        "schema_version": FLEET_SCHEMA_VERSION,
        "fleet": found.fleet,
        "first": found.first,
        "last": found.last,
        "builds": found.builds,
        "cases": found.cases,
        "nodes_asked": found.nodes,
        "nodes_asked_known": found.nodes_known,
        "sentence": sentence(found),
        "why_none": found.why_none,
        "cards_of_a_node": found.cards,
        "node_spread": asdict(verdict.node_spread) if verdict and verdict.node_spread else None,
        "card_spread": asdict(verdict.card_spread) if verdict and verdict.card_spread else None,
        "spread_stated": verdict and verdict.stated,
        "error_rate": verdict and verdict.rules.error_rate,
        "nodes": [_verdict_record(found, each) for each in verdict.nodes] if verdict else [],
        "cards": [_verdict_record(found, each) for each in verdict.cards] if verdict else [],
        "not_measured": dict(found.lost),
        "measured_in_part": {node: dict(gaps) for node, gaps in found.gaps.items()},
        "too_few_cards": {
            node: {case: {"measured": measured, "usual": usual} for case, (measured, usual) in cases.items()}
            for node, cases in found.few_cards.items()
        },
        "runs_not_counted": dict(found.uncounted),
        "shared_differences": [asdict(each) for each in found.shared],
        "not_recorded": {name: list(map(place_name, places)) for name, places in found.unrecorded.items()},
        "equal_nodes": asdict(found.equal) if found.equal else None,
        "drain": drain_lines(found),
    }


def _verdict_record(found: FleetFindings, each: NodeVerdict) -> dict[str, Any]:
    # asdict copies deeply, which takes long for thousands of cards.
    record: dict[str, Any] = dict(vars(each))
    if each.card:
        record["card_id"] = found.card_ids.get(each.place, "")
    else:
        del record["card"]
    if each.slow:
        since = found.since.get(each.place)
        record["since"] = asdict(since) if since else None
        record["differences"] = [asdict(one) for one in found.differences.get(each.place, ())]
    return record


def fleet_json(found: FleetFindings, _width: int) -> str:
    return json_text(fleet_record(found), sort_keys=False)


FILES: Formats[FleetFindings] = {JSON: fleet_json, MARKDOWN: fleet_markdown}


# ---- parts

_DRAIN = "To drain them (printed, never run)"
_POOL = "perf.yaml for a pool of the equal nodes"
_VERBATIM = (_DRAIN, _POOL)


def _parts(found: FleetFindings) -> list[tuple[str, list[str]]]:
    """The parts below the table that have something to say."""
    unknown = (
        "The list of nodes that were asked is in runs/slurm where perfgate fleet --nodes ran. Report there, or name "
        "that folder of runs with --runs-dir: a node that left no run is missed only with the list"
    )
    parts = [
        ("What differs there", _differences(found)),
        ("Not recorded", _unrecorded(found)),
        ("Not measured", [f"{node}: {why}" for node, why in found.lost.items()]),
        ("Not known", [] if found.nodes_known else [unknown]),
        ("Measured in part", [f"{node}: {_gaps(gaps)}" for node, gaps in found.gaps.items()]),
        ("Too few cards", [f"{node}: {_few(cases)}" for node, cases in found.few_cards.items()]),
        ("Runs that do not count", [f"{node}: {why}" for node, why in found.uncounted.items()]),
        ("Equal nodes", _equal(found)),
        (_POOL, pool_lines(found.equal) if found.equal else []),
        (_DRAIN, drain_lines(found)),
    ]
    return [(title, items) for title, items in parts if items]


def _about(found: FleetFindings) -> str:
    days = " to ".join(dict.fromkeys(each[:16].replace("T", " ") for each in (found.first, found.last) if each))
    builds = ", ".join(found.builds) or "no build"
    cards = f" of {counted(found.cards, 'card')}" if found.cards else ""
    return (
        f"{found.fleet}: {counted(len(found.cases), 'case')} on {counted(len(found.nodes), 'node')}{cards}, {builds}, "
        f"{days} UTC"
    )


def _noise(found: FleetFindings) -> str:
    verdict = found.verdict
    assert verdict is not None
    how = "stated" if verdict.stated else "learned from the fast half"
    rules = verdict.rules
    parts = []
    if verdict.node_spread is not None:
        parts.append(
            f"Healthy nodes differ by {verdict.node_spread.value:.2%} (standard deviation, {how}). A node that is "
            f"{verdict.node_spread.smallest_drop:.1%} slower in all cases is found slow with 80% power."
        )
    if verdict.card_spread is not None:
        parts.append(
            f"Healthy cards of one node differ by {verdict.card_spread.value:.2%} ({how}), and a card is held against "
            f"the other cards of its node. One that is {verdict.card_spread.smallest_drop:.1%} slower in all cases is "
            "found slow with 80% power."
        )
    what = "a node or a card" if verdict.nodes and verdict.cards else "a node" if verdict.nodes else "a card"
    parts.append(
        f"At most {rules.error_rate:.0%} of healthy fleets have {what} that is called slow (Holm over "
        f"{_of_all(verdict)}); of those that are called slow or suspect at most {rules.suspect_rate:.0%} are healthy "
        "on average (Benjamini and Hochberg)."
    )
    if found.nodes_unjudged:
        stated = "" if verdict.stated else " without --spread"
        parts.append(
            f"The nodes are too few to be held against each other{stated}. So nobody knows whether a node is slow as a "
            "whole, or in a case of several cards."
        )
    return " ".join(parts)


def _shown(found: FleetFindings) -> Sequence[NodeVerdict]:
    verdict = found.verdict
    assert verdict is not None
    return verdict.judged[: len(verdict.slow) + len(verdict.suspect) + _OTHERS_SHOWN]


def _columns(found: FleetFindings) -> tuple[Column[NodeVerdict], ...]:
    return (
        Column("node", lambda each: printable(place_name(each.place))),
        Column("verdict", lambda each: "SLOW" if each.slow else "suspect" if each.suspect else "-"),
        Column("all cases", lambda each: f"{each.shift:+.2%}", Align.RIGHT),
        Column("95%", lambda each: f"{each.low:+.2%} to {each.high:+.2%}", Align.RIGHT),
        Column("chance", lambda each: _chance(each.chance), Align.RIGHT),
        Column("most by", lambda each: f"{printable(each.by)} {each.by_shift:+.1%}"),
        Column("since", lambda each: _since(found.since.get(each.place))),
        Column("cases", lambda each: str(each.cases), Align.RIGHT),
        Column("runs", lambda each: str(each.runs), Align.RIGHT),
    )


def _chance(value: float) -> str:
    """The probability that any healthy one of so many is as slow."""
    return "1" if value >= 1 else f"{value:.2g}" if value >= 1e-9 else "<1e-9"


def _since(since: Since | None) -> str:
    if since is None:
        return ""
    if since.before_shift is None:
        return f"{since.first}, the first time" if since.fleets == 1 else f"{since.first}, all {since.fleets} fleets"
    return f"{since.first} ({since.before}: {since.before_shift:+.1%})"


def _differences(found: FleetFindings) -> list[str]:
    if not found.slow:
        return []
    together = {each.difference for each in found.shared}
    lines = [
        f"{len(each.nodes)} of {len(found.slow)} that are slow ({hostlist(each.nodes)}): {_difference(each.difference)}"
        for each in found.shared
    ]
    for slow in found.slow:
        name, mine = place_name(slow.place), found.differences.get(slow.place, ())
        own = [each for each in mine if each not in together]
        lines += [f"{name}: {_difference(each)}" for each in own[:_DIFFERENCES_SHOWN]]
        if len(own) > _DIFFERENCES_SHOWN:
            lines.append(f"{name}: {len(own) - _DIFFERENCES_SHOWN} more (--json)")
        if not mine:
            lines.append(
                f"{name}: nothing that was recorded differs from the other {'cards' if slow.card else 'nodes'}"
            )
    return lines


def _unrecorded(found: FleetFindings) -> list[str]:
    """Facts that nobody can compare: no difference there means nothing."""
    lines = []
    for name, places in found.unrecorded.items():
        nodes = {node for node, card in places if not card}
        cards = [place_name(place) for place in places if place[1]]
        who = [f"on {len(nodes)} of {counted(len(found.nodes), 'node')} ({hostlist(nodes)})"] if nodes else []
        more = f" and {len(cards) - _NAMED} more cards" if len(cards) > _NAMED else ""
        who += [f"on {', '.join(cards[:_NAMED])}{more}"] if cards else []
        lines.append(f"{name}: {' and '.join(who)}; what differs in it there is not known")
    return lines


def _difference(each: Difference) -> str:
    return f"{each.fact} is {each.here}; {each.usual_nodes} of {each.healthy_nodes} others have {each.usual}"


def _gaps(gaps: Mapping[str, str]) -> str:
    why = dict.fromkeys(gaps.values())
    return f"{_some(list(gaps))}: {'; '.join(why)}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def _few(cases: Mapping[str, tuple[int, int]]) -> str:
    measured = min(measured for measured, _ in cases.values())
    usual = max(usual for _, usual in cases.values())
    return (
        f"{counted(measured, 'card')} measured {_some(list(cases))}, and {usual} do on most nodes. By such a case the "
        "node is not held against the others, so that it is not known to be healthy"
    )


def _equal(found: FleetFindings) -> list[str]:
    if found.equal is None or found.verdict is None:
        return []
    about = f" ({found.equal.cards})" if found.equal.cards else ""
    known = found.verdict.node_spread
    spread = f"; their standard deviation is {known.value:.2%}" if known else ""
    return [
        f"{len(found.equal.nodes)} nodes{about} measured every case, none of them is slow or suspect or has such a "
        "card, and cards, driver, libraries, power cap, links and processor are the same"
        f"{spread}. They may share a baseline: {hostlist(found.equal.nodes)}"
    ]


def pool_lines(equal: EqualNodes) -> list[str]:
    """An entry of ``machines`` that makes these nodes a pool; empty if no pattern over host names means them alone."""
    pattern = _pattern(equal.hosts)
    if not pattern:
        return []
    inside = [host for host in equal.other_hosts if _pattern([*equal.hosts, host]) == pattern]
    note = f"  # also means {hostlist(inside)}, which should not take part" if inside else ""
    return ["machines:", "  equal-nodes:", f'    host: "{pattern}"{note}', "    identity: pool"]


def _pattern(hosts: Sequence[str]) -> str:
    if len(hosts) < 2:
        return hosts[0] if hosts else ""
    prefix = hosts[0]
    while not all(host.startswith(prefix) for host in hosts):
        prefix = prefix[:-1]
    prefix = prefix.rstrip("0123456789")
    numbered = all(host[len(prefix) :].isdecimal() for host in hosts)
    return f"{prefix}[0-9]*" if numbered and prefix else f"{prefix}*" if prefix else ""


def drain_lines(found: FleetFindings) -> list[str]:
    """A command for each node that is slow or has a slow card, which keeps Slurm from giving it further jobs."""
    reasons: dict[str, list[str]] = {}
    for each in found.slow:
        known = found.card_ids.get(each.place, "")
        card = f"card {each.card}{f' ({known})' if known else ''} " if each.card else ""
        node = (
            "the node " if not each.card and any(other.node == each.node and other.card for other in found.slow) else ""
        )
        reasons.setdefault(each.node, []).append(f"{card}{node}{each.by_shift:+.1%} in {each.by}")
    return [
        shlex.join(
            [
                *("scontrol", "update", f"NodeName={node}", "State=DRAIN"),
                f"Reason=perfgate {found.fleet}: {'; '.join(mine)}",
            ]
        )
        for node, mine in reasons.items()
    ]
