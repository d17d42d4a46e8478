"""Recorded entries and proposals, as tests make them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from helpers.plan.proposals import (
    Accepted,
    Candidate,
    Proposal,
    propose,
)
from helpers.plan.recorded import Provenance, RecordedEntry, RecordedSet

MACHINE = "host_cpux2"
KNOWN = (Accepted("paddle-vgg16-*", "known"),)
A, B = "paddle-vgg16-fp32-bs8-1x1-dali-static", "paddle-vgg16-fp32-bs16-1x1-dali-static"


def entry(samples_per_s: float = 100.0, case_id: str = A) -> RecordedEntry:
    return RecordedEntry(
        case_id=case_id,
        samples_per_s=samples_per_s,
        rule="median-step",
        replicates=(samples_per_s,) * 3,
        tolerance=None,
        environment={"host": "h"},
        segment={"driver": "525", "cuda": "11.2"},
        provenance=Provenance("abc", "2024-05-06", "h", "measured"),
    )


def recorded(*entries: RecordedEntry) -> RecordedSet:
    return RecordedSet(MACHINE, {each.case_id: each for each in entries})


def proposed(
    old: RecordedSet,
    *candidates: Candidate,
    measured: Iterable[str] | None = None,
    known: Iterable[str] = (A, B),
    accepted: Sequence[Accepted] = (),
) -> tuple[Proposal, ...]:
    return propose(
        old,
        candidates,
        measured_case_ids={each.case_id for each in candidates} if measured is None else set(measured),
        known_case_ids=set(known),
        accepted=accepted,
    )


def created(*entries: RecordedEntry) -> tuple[Proposal, ...]:
    return proposed(recorded(), *(Candidate(each) for each in entries))
