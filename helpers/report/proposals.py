"""The table of what a session proposes for the recorded baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from helpers.plan.baseline_files import UNIT
from helpers.plan.proposals import Proposal, ProposalKind, figure_text
from helpers.report.table import Align, Column, Table
from helpers.trainers.contract.errors import printable


def format_proposals(proposals: Iterable[Proposal]) -> str:
    """The table case, old → new, change in %, what, reason, with a line that counts; samples/s."""
    proposals = tuple(proposals)
    if not proposals:
        return "Baselines: nothing proposed, no case was measured"
    grid = Table.of(_COLUMNS, proposals).grid()
    kinds = Counter(proposal.kind for proposal in proposals)
    counts = ", ".join(f"{kinds[kind]} {kind.value}" for kind in ProposalKind if kinds[kind])
    return "\n".join([grid.heading, *grid.lines, f"Baselines: {counts}"])


_COLUMNS: tuple[Column[Proposal], ...] = (
    Column("case", lambda proposal: proposal.case_id),
    Column("old", lambda proposal: figure_text(proposal.old), Align.RIGHT),
    Column(f"new {UNIT}", lambda proposal: figure_text(proposal.new), gap=" → "),
    Column("change %", lambda each: "" if each.change is None else f"{each.change * 100:+.2f}", Align.RIGHT),
    Column("what", lambda proposal: proposal.kind.value),
    Column("reason", lambda proposal: printable(proposal.reason)),
)
