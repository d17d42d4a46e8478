"""What ``perfgate fleet`` found, as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from helpers.common.words import counted
from helpers.judging.fleet import ERROR_RATE, LEAST_NODES, TOLERANCE, FleetVerdict, NodeVerdict
from helpers.report.table import Align, Column, Table
from helpers.trainers.contract.errors import printable

# 1: first format.
FLEET_SCHEMA_VERSION = 1
_NOT_JUDGED = (
    f"Fewer than {LEAST_NODES} nodes do not show how far healthy nodes are apart: the table says how far each is "
    "from the others, and none is judged."
)


@dataclass(frozen=True)
class FleetAnswer:
    """The verdict on a fleet, and what keeps it from being complete."""

    fleet: str
    verdict: FleetVerdict
    # By node: why it, or a case of it, was not measured.
    missing: Mapping[str, str]

    @property
    def complete(self) -> bool:
        return not self.missing and self.verdict.spread is not None

    @property
    def line(self) -> str:
        """The answer in one line."""
        slow, nodes = self.verdict.slow, counted(len(self.verdict.nodes), "node")
        missing = f"; not measured or in part: {', '.join(self.missing)}" if self.missing else ""
        if self.verdict.spread is None:
            return f"{nodes} measured, none judged{missing}"
        named = f": {', '.join(f'{each.node} ({each.shift:+.1%})' for each in slow)}" if slow else ""
        return f"{len(slow) or 'none'} of {nodes} {'are' if len(slow) > 1 else 'is'} slow beyond chance{named}{missing}"


_COLUMNS: tuple[Column[NodeVerdict], ...] = (
    Column("node", lambda each: printable(each.node)),
    Column("verdict", lambda each: "SLOW" if each.slow else "-"),
    Column("against the others", lambda each: f"{each.shift:+.2%}", Align.RIGHT),
    Column("chance", lambda each: "<1e-9" if each.chance < 1e-9 else f"{each.chance:.2g}", Align.RIGHT),
    Column("cases", lambda each: str(each.cases), Align.RIGHT),
    Column("runs", lambda each: str(each.runs), Align.RIGHT),
)


def fleet_text(answer: FleetAnswer, width: int) -> str:
    """The line, the table of all nodes, how they were judged, and what is missing."""
    verdict = answer.verdict
    grid = Table.of(_COLUMNS, verdict.nodes).grid()
    about = _NOT_JUDGED
    if verdict.spread is not None:
        about = (
            f"Healthy nodes differ by {verdict.spread:.2%} (standard deviation). At most {ERROR_RATE:.0%} of "
            f"healthy fleets have a node that is called slow (Holm), and no drop under {TOLERANCE:.1%} counts."
        )
    parts = [printable(answer.line), "", grid.heading, *grid.lines, "", *textwrap.wrap(about, width)]
    parts += [printable(f"{node}: {why}") for node, why in answer.missing.items()]
    return "\n".join(parts)


def fleet_record(answer: FleetAnswer) -> dict[str, Any]:
    """Plain JSON values."""
    return {
        "schema_version": FLEET_SCHEMA_VERSION,
        "fleet": answer.fleet,
        "line": answer.line,
        "spread": answer.verdict.spread,
        "nodes": [asdict(each) for each in answer.verdict.nodes],
        "missing": dict(answer.missing),
    }
