"""Row 15: a merge spoils a file of recorded baselines."""

from __future__ import annotations

from dataclasses import replace

from helpers.machine.devices import discover
from helpers.plan.proposals import Proposal, ProposalKind, write_recorded
from helpers.plan.recorded import Provenance, RecordedEntry
from tests.faults.data import refused
from tests.faults.fault import Fault, Seen, expect
from tests.faults.workshop import Workshop

# An entry that no case of a workshop touches.
_STANDING = "paddle-vgg16-fp32-bs1-1x1-synthetic-dynamic"


def _conflict(workshop: Workshop) -> Seen:
    key = discover().machine_key("cpu")
    path = workshop.folder / "baselines" / "recorded" / f"{key}.json"
    provenance = Provenance("0", "2026-11-21", "a machine", "recorded for the fault table")
    entry = RecordedEntry(_STANDING, 2.0, "median-step", (2.0,), None, {"host": "a"}, {"host": "a"}, provenance)
    write_recorded(path, key, [Proposal(_STANDING, ProposalKind.CREATED, None, entry, "none recorded before")])
    ours = path.read_text(encoding="utf-8")
    theirs = ours.replace("2.0", "3.0")
    path.write_text(f"<<<<<<< HEAD\n{ours}=======\n{theirs}>>>>>>> their branch\n", encoding="utf-8")
    before = path.read_bytes()
    seen = refused(workshop, workshop.run("--update-baselines"), path.name, "no conflict")
    return replace(seen, wrong=(*seen.wrong, *expect((path.read_bytes() == before, "the file was rewritten"))))


FAULTS = [Fault(15, "merge conflict in baselines", "both sides of a merge stand in the file", _conflict)]
