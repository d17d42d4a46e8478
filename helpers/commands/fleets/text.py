"""The report on a fleet: one sentence first, the table of nodes, what differs, what is missing, and what to do."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from helpers.commands.fleets.findings import EqualNodes, FleetFindings
from helpers.commands.loading import JSON, MARKDOWN, Formats, json_text
from helpers.judging.fleet_facts import Difference, Since
from helpers.report.table import Align, Column, Table, markdown_text
from helpers.report.text import hanging
from helpers.trainers.contract.errors import printable

if TYPE_CHECKING:
    from helpers.judging.fleet import NodeVerdict

# 1: first format.
FLEET_SCHEMA_VERSION = 1

_INDENT = "  "
# Besides the slow nodes the table has those with the most evidence.
_OTHERS_SHOWN = 5
_DIFFERENCES_SHOWN = 8
_NAMED = 8
_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)")


def sentence(found: FleetFindings) -> str:
    """The answer in one sentence."""
    if found.verdict is None:
        return f"{found.fleet}: nothing is judged: {found.why_none}"
    held = len(found.verdict.nodes)
    if found.slow:
        names = ", ".join(f"{each.node} ({each.by_shift:+.1%})" for each in found.slow[:_NAMED])
        more = f" and {len(found.slow) - _NAMED} more" if len(found.slow) > _NAMED else ""
        verb = "nodes is" if len(found.slow) == 1 else "nodes are"
        text = f"{len(found.slow)} of {held} {verb} slow beyond chance: {names}{more}"
    else:
        text = f"none of {held} nodes is slow beyond chance"
    if found.verdict.suspect:
        text += f"; {len(found.verdict.suspect)} more suspect"
    missing = [f"{_count(len(found.lost), 'node')} not measured"] if found.lost else []
    missing += [f"{_count(len(found.gaps), 'node')} measured in part"] if found.gaps else []
    missing += [] if found.nodes_known else ["which nodes were asked is not known here"]
    return "; ".join([text, *missing])


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
        "spread": verdict and verdict.spread,
        "spread_stated": verdict and verdict.stated,
        "smallest_drop": verdict and verdict.smallest_drop,
        "error_rate": verdict and verdict.rules.error_rate,
        "run_sigma": dict(verdict.run_sigma) if verdict else {},
        "nodes": [asdict(each) for each in verdict.nodes] if verdict else [],
        "not_measured": dict(found.lost),
        "measured_in_part": {node: dict(gaps) for node, gaps in found.gaps.items()},
        "runs_not_counted": dict(found.uncounted),
        "since": {node: asdict(each) for node, each in found.since.items()},
        "differences": {node: [asdict(each) for each in mine] for node, mine in found.differences.items()},
        "shared_differences": [asdict(each) for each in found.shared],
        "equal_nodes": asdict(found.equal) if found.equal else None,
        "drain": drain_lines(found),
    }


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
        ("What differs on the slow nodes", _differences(found)),
        ("Not measured", [f"{node}: {why}" for node, why in found.lost.items()]),
        ("Not known", [] if found.nodes_known else [unknown]),
        ("Measured in part", [f"{node}: {_gaps(gaps)}" for node, gaps in found.gaps.items()]),
        ("Runs that do not count", [f"{node}: {why}" for node, why in found.uncounted.items()]),
        ("Equal nodes", _equal(found)),
        (_POOL, pool_lines(found.equal) if found.equal else []),
        (_DRAIN, drain_lines(found)),
    ]
    return [(title, items) for title, items in parts if items]


def _about(found: FleetFindings) -> str:
    days = " to ".join(dict.fromkeys(each[:16].replace("T", " ") for each in (found.first, found.last) if each))
    builds = ", ".join(found.builds) or "no build"
    return f"{found.fleet}: {_count(len(found.cases), 'case')} on {_count(len(found.nodes), 'node')}, {builds}, {days}"


def _noise(found: FleetFindings) -> str:
    verdict = found.verdict
    assert verdict is not None
    how = "stated" if verdict.stated else "learned from the fast half"
    rules = verdict.rules
    return (
        f"Healthy nodes differ by {verdict.spread:.2%} (standard deviation, {how}). A node that is "
        f"{verdict.smallest_drop:.1%} slower in all cases is found slow with 80% power. At most {rules.error_rate:.0%} "
        f"of healthy fleets have a node that is called slow (Holm over {len(verdict.nodes)} nodes); of slow and "
        f"suspect nodes at most {rules.suspect_rate:.0%} are healthy on average (Benjamini and Hochberg)."
    )


def _shown(found: FleetFindings) -> Sequence[NodeVerdict]:
    assert found.verdict is not None
    return found.verdict.nodes[: len(found.slow) + len(found.verdict.suspect) + _OTHERS_SHOWN]


def _columns(found: FleetFindings) -> tuple[Column[NodeVerdict], ...]:
    assert found.verdict is not None
    count = len(found.verdict.nodes)
    return (
        Column("node", lambda each: printable(each.node)),
        Column("verdict", lambda each: "SLOW" if each.slow else "suspect" if each.suspect else "-"),
        Column("all cases", lambda each: f"{each.shift:+.2%}", Align.RIGHT),
        Column("95%", lambda each: f"{each.low:+.2%} to {each.high:+.2%}", Align.RIGHT),
        Column("chance", lambda each: _chance(each.p_value * count), Align.RIGHT),
        Column("most by", lambda each: f"{printable(each.by)} {each.by_shift:+.1%}"),
        Column("since", lambda each: _since(found.since.get(each.node))),
        Column("cases", lambda each: str(each.cases), Align.RIGHT),
        Column("runs", lambda each: str(each.runs), Align.RIGHT),
    )


def _chance(value: float) -> str:
    """The probability that any healthy node of so many is as slow."""
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
        f"{len(each.nodes)} of {len(found.slow)} slow nodes ({hostlist(each.nodes)}): {_difference(each.difference)}"
        for each in found.shared
    ]
    for node in found.slow:
        own = [each for each in found.differences.get(node.node, ()) if each not in together]
        lines += [f"{node.node}: {_difference(each)}" for each in own[:_DIFFERENCES_SHOWN]]
        if len(own) > _DIFFERENCES_SHOWN:
            lines.append(f"{node.node}: {len(own) - _DIFFERENCES_SHOWN} more (--json)")
        if not found.differences.get(node.node):
            lines.append(f"{node.node}: nothing that was recorded differs from the other nodes")
    return lines


def _difference(each: Difference) -> str:
    return f"{each.fact} is {each.here}; {each.usual_nodes} of {each.healthy_nodes} others have {each.usual}"


def _gaps(gaps: Mapping[str, str]) -> str:
    why = dict.fromkeys(gaps.values())
    cases = ", ".join(list(gaps)[:2]) + (f" and {len(gaps) - 2} more" if len(gaps) > 2 else "")
    return f"{cases}: {'; '.join(why)}"


def _equal(found: FleetFindings) -> list[str]:
    if found.equal is None or found.verdict is None:
        return []
    about = f" ({found.equal.cards})" if found.equal.cards else ""
    return [
        f"{len(found.equal.nodes)} nodes{about} measured every case, none of them is slow or suspect, and cards, "
        f"driver, libraries, power cap and processor are the same; their standard deviation is "
        f"{found.verdict.spread:.2%}. They may share a baseline: {hostlist(found.equal.nodes)}"
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
    """A command for each slow node that keeps Slurm from giving it further jobs."""
    return [
        shlex.join(
            [
                *("scontrol", "update", f"NodeName={each.node}", "State=DRAIN"),
                f"Reason=perfgate {found.fleet}: {each.by_shift:+.1%} in {each.by}",
            ]
        )
        for each in found.slow
    ]


def hostlist(names: Iterable[str]) -> str:
    """Names as Slurm writes them: ``n[01-03,07],login``."""
    groups: dict[tuple[str, int, str], list[int]] = {}
    plain = []
    for name in sorted(set(names)):
        if found := _NUMBERED.fullmatch(name):
            groups.setdefault((found[1], len(found[2]), found[3]), []).append(int(found[2]))
        else:
            plain.append(name)
    parts = []
    for (before, digits, after), numbers in groups.items():
        spans = [
            f"{low:0{digits}}" if low == high else f"{low:0{digits}}-{high:0{digits}}" for low, high in _spans(numbers)
        ]
        inside = spans[0] if len(numbers) == 1 else f"[{','.join(spans)}]"
        parts.append(f"{before}{inside}{after}")
    return ",".join([*parts, *plain])


def _spans(numbers: Sequence[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
