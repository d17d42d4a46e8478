"""Recorded baselines: the one locked write at a session's end."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from helpers.plan.baseline_files import RECORDED, UNIT, cannot_write, refuse_link, write_document
from helpers.plan.proposals import Proposal, ProposalKind, overtaken
from helpers.plan.recorded import RECORDED_VERSION, load_recorded
from helpers.trainers.contract.errors import BaselineError


def write_recorded(
    path: Path,
    machine_key: str,
    proposals: Iterable[Proposal],
    *,
    places: Mapping[str, str] = MappingProxyType({}),
    lock_timeout_seconds: float = 60.0,
) -> tuple[Proposal, ...]:
    """Writes what is CREATED or UPDATED into ``path`` and returns the proposals as they came out; ``places`` as in
    load_recorded.

    Under the lock ``<path>.lock`` the file is read again: entries that another process wrote
    meanwhile stay. Where it wrote the same case, its entry stays and ours comes back REFUSED, for
    ours was judged against a figure that is gone. With nothing to write no file is touched.
    Raises BaselineError for a folder of published figures, a link, a lock that stays held for
    ``lock_timeout_seconds``, a file that cannot be read or written; the old file is then unchanged.
    """
    # Collecting tests imports this module and writes nothing.
    from filelock import FileLock, Timeout

    proposals = tuple(proposals)
    if not any(_writes(proposal) for proposal in proposals):
        return proposals
    _refuse_place(path)
    lock_path = path.with_name(path.name + ".lock")
    refuse_link(lock_path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock_path, timeout=lock_timeout_seconds):
            return _merge(path, machine_key, proposals, places)
    except Timeout as error:
        raise BaselineError(
            str(lock_path),
            field="lock",
            got=f"held by another process for {lock_timeout_seconds:g} s",
            expected="a lock that is free",
            remedy="Wait until the other update is done and run --update-baselines again; nothing was written",
        ) from error
    except OSError as error:
        raise cannot_write(path, error) from error


def _merge(
    path: Path, machine_key: str, proposals: tuple[Proposal, ...], places: Mapping[str, str]
) -> tuple[Proposal, ...]:
    entries = dict(load_recorded(path, machine_key, places).entries)
    outcome = []
    for proposal in proposals:
        if _writes(proposal) and proposal.new is not None:
            present = entries.get(proposal.case_id)
            if present in (proposal.old, proposal.new):
                entries[proposal.case_id] = proposal.new
            else:
                proposal = replace(proposal, kind=ProposalKind.REFUSED, old=present, reason=overtaken(present))
        outcome.append(proposal)
    if any(_writes(proposal) for proposal in outcome):
        data = {
            "schema_version": RECORDED_VERSION,
            "machine_key": machine_key,
            "unit": UNIT,
            "entries": {case_id: entry.to_json() for case_id, entry in entries.items()},
        }
        write_document(path, data, schema=RECORDED / "schema.json")
    return tuple(outcome)


def _refuse_place(path: Path) -> None:
    """Published figures are never rewritten by a run, under whatever name their folder is reached."""
    for folder in (path.parent, path.parent.resolve()):
        parts = folder.parts
        if folder.name == "published" or ("baselines", "published") in itertools.pairwise(parts):
            raise BaselineError(
                str(path),
                field="folder",
                got="a folder of published figures",
                expected="a folder for recorded baselines",
                remedy="Published figures are never rewritten by a run; record into baselines/recorded",
            )
    refuse_link(path.parent)
    refuse_link(path)


def _writes(proposal: Proposal) -> bool:
    return proposal.kind in (ProposalKind.CREATED, ProposalKind.UPDATED)
