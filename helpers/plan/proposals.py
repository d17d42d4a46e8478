"""Recorded baselines: what happens to the entry of each case that a session measured, and the locked write of all of
them.

``--accept-regression CASE_PATTERN=REASON`` names the cases whose figure may become a baseline although it is worse.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from helpers.common.files import own_mode
from helpers.common.records import WrongRecord
from helpers.common.words import counted
from helpers.plan.baseline_files import UNIT, cannot_write, refuse_link, write_document
from helpers.plan.recorded import LEAST_RUNS, RecordedDocument, RecordedEntry, RecordedSet, document_of, load_recorded
from helpers.trainers.contract.errors import BaselineError

OPTION = "--accept-regression"
_EXAMPLE = f'{OPTION} "paddle-vgg16-*-1x8-*=the loader checks every image since 3.4"'


class ProposalKind(enum.Enum):
    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    UNUSED = "unused"


class AgainstEntry(enum.Enum):
    """The verdict's answer on a case against its recorded entry (docs/verdicts.md, "One case, one night")."""

    NOTHING_RECORDED = "nothing recorded"
    NO_WORSE = "no worse"
    FASTER = "confirmed faster"
    SLOWER = "confirmed slower"
    SLOWER_UNCONFIRMED = "slower beyond the band, not confirmed"
    UNSETTLED = "not settled"
    INCOMPARABLE = "not comparable"


_NOT_AS_GOOD = (AgainstEntry.SLOWER, AgainstEntry.SLOWER_UNCONFIRMED, AgainstEntry.UNSETTLED)


@dataclass(frozen=True)
class Candidate:
    """A measured case that may become a baseline: with its entry, or with its id and a refusal."""

    # None if the case has no figure.
    entry: RecordedEntry | None
    # Why the case cannot be recorded, whatever the answer: it crashed, was contended or had changed settings.
    refusal: str | None = None
    case_id: str = ""
    # The verdict's answer to the recorded question, and its reason.
    answer: AgainstEntry = AgainstEntry.NOTHING_RECORDED
    why: str = ""
    # What speaks against the figure as a reference, until a user says why it is right: it is below the published
    # figure, or the runs scatter.
    doubts: tuple[str, ...] = ()
    # The smallest change that counts, if the old entry has none of its own.
    tolerance: float = 0.005
    # Where the figure lies against the reference build beside it; empty without pairs.
    beside: str = ""

    def __post_init__(self) -> None:
        if self.entry is not None:
            # The dataclass is frozen, so the field is set in this way.
            object.__setattr__(self, "case_id", self.entry.case_id)


@dataclass(frozen=True)
class Proposal:
    """What happens to one case's entry: ``old`` is the entry in the file, ``new`` the measured one."""

    case_id: str
    kind: ProposalKind
    old: RecordedEntry | None
    new: RecordedEntry | None
    reason: str

    @property
    def change(self) -> float | None:
        """(new - old) / old as a fraction; None if one of them is missing."""
        if self.old is None or self.new is None:
            return None
        return self.new.samples_per_s / self.old.samples_per_s - 1


def propose(
    old: RecordedSet,
    candidates: Iterable[Candidate],
    *,
    measured_case_ids: Collection[str],
    known_case_ids: Collection[str],
    accepted: Sequence[Accepted],
) -> tuple[Proposal, ...]:
    """One proposal for each measured case and for each entry without a case, sorted by id.

    ``known_case_ids`` are the ids of the whole matrix, ``accepted`` the reasons given on the command line.

    The verdict decides:

    - The entry of a case that is no worse stays as it is. If each session replaced the baseline by its own figure, a
      slow drift would be adopted step by step and never be seen.
    - A confirmed improvement replaces the entry, unless it is lower.
    - A figure from another segment or protocol, or by another rule, cannot be compared with the old one. It replaces
      the old one, and the proposal says how they differ.
    - These are refused unless a reason names the case; with a reason they are recorded as the accepted level: a figure
      that is lower than the old one by more than the tolerance, in any segment; a confirmed regression, also against
      the reference build alone; an open answer; a candidate with doubts.
    - These are always refused: fewer than LEAST_RUNS runs, a measured case without a candidate, a candidate that was
      not measured.
    """
    by_id = {candidate.case_id: candidate for candidate in candidates}
    proposals = [_decide(old, by_id[case_id], measured_case_ids, accepted) for case_id in by_id]
    for case_id in set(measured_case_ids) - set(by_id):
        entry = old.entries.get(case_id)
        proposals.append(Proposal(case_id, ProposalKind.REFUSED, entry, None, "measured, but it gave no figure"))
    for case_id in set(old.entries) - set(known_case_ids) - set(measured_case_ids) - set(by_id):
        reason = "no such case any more; delete the entry by hand if it is not coming back"
        proposals.append(Proposal(case_id, ProposalKind.UNUSED, old.entries[case_id], None, reason))
    return tuple(sorted(proposals, key=lambda proposal: proposal.case_id))


def _decide(
    old: RecordedSet, candidate: Candidate, measured: Collection[str], accepted: Sequence[Accepted]
) -> Proposal:
    case_id, new, before = candidate.case_id, candidate.entry, old.entries.get(candidate.case_id)

    def outcome(kind: ProposalKind, reason: str, entry: RecordedEntry | None = new) -> Proposal:
        return Proposal(case_id, kind, before, entry, reason)

    if candidate.refusal is not None or new is None:
        return outcome(ProposalKind.REFUSED, candidate.refusal or "no reason given")
    if case_id not in measured:
        return outcome(ProposalKind.REFUSED, "not measured in this session")
    # Where nothing is recorded, only pairs with a reference build give an answer.
    by_entry = candidate.answer is not AgainstEntry.NOTHING_RECORDED
    if (by_entry and before is None and not candidate.beside) or (before is not None and not by_entry):
        return outcome(ProposalKind.REFUSED, overtaken(before))
    apart = "" if before is None else _incomparable(before, new)
    if before is not None and not apart:
        if candidate.answer is AgainstEntry.NO_WORSE:
            return outcome(ProposalKind.UNCHANGED, f"{candidate.answer.value}; the file keeps the old figure")
        if candidate.answer is AgainstEntry.INCOMPARABLE:
            return outcome(ProposalKind.REFUSED, _answer_text(candidate))
    if len(new.replicates) < LEAST_RUNS:
        return outcome(ProposalKind.REFUSED, _too_few(new))
    if before is not None and new.tolerance is None:
        # A tolerance that a user set for this case stays when the figure is replaced.
        new = replace(new, tolerance=before.tolerance)
    kind = ProposalKind.CREATED if before is None else ProposalKind.UPDATED
    why = "none recorded before" if before is None else apart
    why = "; ".join(filter(None, (why, candidate.beside))) if why else _answer_text(candidate)
    worse = [*_worse(before, new, candidate, apart), *candidate.doubts]
    if not worse:
        return outcome(kind, why, new)
    differences = "; ".join([apart, *worse] if apart else worse)
    reason = reason_for(case_id, accepted)
    if reason is None:
        return outcome(ProposalKind.REFUSED, f"{differences}; {how_to_accept(case_id)}", new)
    kept_reason = f"accepted regression: {reason}"
    accepted_entry = replace(new, provenance=replace(new.provenance, reason=kept_reason))
    return outcome(kind, f"{kept_reason} ({differences})", accepted_entry)


def _worse(before: RecordedEntry | None, new: RecordedEntry, candidate: Candidate, apart: str) -> list[str]:
    """How the new figure is worse than the old one, or than the reference build beside it, or may be; empty if it is
    not."""
    if candidate.answer in _NOT_AS_GOOD:
        return [_answer_text(candidate)]
    if before is None:
        return []
    change = new.samples_per_s / before.samples_per_s - 1
    lower = f"{change:+.1%} against the recorded {figure_text(before)} {UNIT}"
    tolerance = candidate.tolerance if before.tolerance is None else before.tolerance
    if not apart and candidate.answer is AgainstEntry.FASTER and change < 0:
        return [f"faster than the reference build, but lower than what is recorded: {lower}"]
    return [f"lower: {lower}"] if change < -tolerance else []


def _too_few(entry: RecordedEntry) -> str:
    runs = counted(len(entry.replicates), "run")
    return (
        f"{runs}, an entry rests on {LEAST_RUNS} or more: one says nothing of how far "
        "the next may lie from it. A session with --update-baselines plans as many"
    )


def _answer_text(candidate: Candidate) -> str:
    return f"{candidate.answer.value}: {candidate.why}" if candidate.why else candidate.answer.value


def _incomparable(before: RecordedEntry, new: RecordedEntry) -> str:
    """Why the two cannot be compared; empty if they can."""
    if before.rule != new.rule:
        return f"new rule: {before.rule} → {new.rule}"
    if other := before.other_protocol(new.protocol):
        return f"new {', '.join(other)}"
    differing = [
        f"{name} {_fact(before.segment, name)} → {_fact(new.segment, name)}"
        for name in sorted(set(before.segment) | set(new.segment))
        if before.segment.get(name) != new.segment.get(name)
    ]
    return "new segment: " + ", ".join(differing) if differing else ""


def _fact(segment: Mapping[str, str], name: str) -> str:
    return repr(segment[name]) if name in segment else "unstated"


def overtaken(present: RecordedEntry | None) -> str:
    what = "deleted the entry" if present is None else f"recorded {figure_text(present)} {UNIT}"
    return f"another process {what} meanwhile; run --update-baselines again to compare with that"


def figure_text(entry: RecordedEntry | None) -> str:
    if entry is None:
        return "-"
    return f"{entry.samples_per_s:.2f}" if entry.samples_per_s >= 100 else f"{entry.samples_per_s:.3f}"


# ---- --accept-regression


@dataclass(frozen=True)
class Accepted:
    """A reason for the cases whose id matches ``pattern``."""

    pattern: str
    reason: str

    def means(self, case_id: str) -> bool:
        return fnmatchcase(case_id, self.pattern)


def parse_accepted(given: Sequence[str]) -> tuple[Accepted, ...]:
    """The option's values. Raises BaselineError for a reason without a case, and for a case without a reason."""
    return tuple(map(_parse, given))


def reason_for(case_id: str, accepted: Sequence[Accepted]) -> str | None:
    """The last reason that was given for a case; None without one."""
    return next((each.reason for each in reversed(accepted) if each.means(case_id)), None)


def refuse_unmatched_reasons(accepted: Sequence[Accepted], case_ids: Collection[str]) -> None:
    """Raises BaselineError for a reason that matches no case of this session: a typing error would show after hours of
    measuring."""
    for each in accepted:
        if not any(map(each.means, case_ids)):
            raise BaselineError(
                OPTION,
                got=each.pattern,
                expected=f"a pattern that one of the {len(case_ids)} selected cases matches",
                remedy="List the ids with --collect-only",
            )


def how_to_accept(case_id: str) -> str:
    return f'{OPTION} "{case_id}=REASON" records it anyway'


def _parse(text: str) -> Accepted:
    pattern, separator, reason = (part.strip() for part in text.partition("="))
    if not separator or not pattern or not reason:
        got = "an empty text" if not text.strip() else text
        raise BaselineError(
            OPTION, got=got, expected="CASE_PATTERN=REASON", remedy=f"Name the case and say why: {_EXAMPLE}"
        )
    if not pattern.strip("*?[]!-"):
        raise BaselineError(
            OPTION,
            got=text,
            expected="a pattern that names cases",
            remedy=f"A pattern for all cases also accepts figures that nobody looked at. Name the case: {_EXAMPLE}",
        )
    return Accepted(pattern, reason)


# ---- the write at a session's end


def write_recorded(
    path: Path,
    machine_key: str,
    proposals: Iterable[Proposal],
    *,
    places: Mapping[str, str] = MappingProxyType({}),
    lock_timeout_seconds: float = 60.0,
) -> tuple[Proposal, ...]:
    """Write what is CREATED or UPDATED into ``path``. Returns the proposals with what really happened; ``places`` is as
    in load_recorded.

    Under the lock ``<path>.lock`` the file is read again: entries that another process wrote meanwhile stay. If it
    wrote the same case, its entry stays and ours is REFUSED, because ours was compared with a figure that is gone. If
    there is nothing to write, no file is touched. Raises BaselineError for a folder of published figures, a link, a
    lock that stays held for ``lock_timeout_seconds``, a file that cannot be read or written; the old file is then
    unchanged.
    """
    # Imported here because collecting tests imports this module and writes nothing.
    from filelock import FileLock, Timeout

    proposals = tuple(proposals)
    if not any(_writes(proposal) for proposal in proposals):
        return proposals
    _refuse_place(path)
    lock_path = path.with_name(path.name + ".lock")
    refuse_link(lock_path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock_path, timeout=lock_timeout_seconds, mode=own_mode(path.parent)):
            return _merge(path, machine_key, proposals, places)
    except Timeout as error:
        raise BaselineError(
            str(lock_path),
            field="lock",
            got=f"held by another process for {lock_timeout_seconds:g} s",
            expected="a lock that is free",
            remedy="Wait until the other update is done and run --update-baselines again; nothing was written",
        ) from error
    except WrongRecord as wrong:
        remedy = "Nothing was written; measure again"
        raise BaselineError(
            str(path), field=wrong.field, got=wrong.got, expected=wrong.expected, remedy=remedy
        ) from wrong
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
        write_document(path, document_of(machine_key, entries), RecordedDocument)
    return tuple(outcome)


def _refuse_place(path: Path) -> None:
    """Refuse the folder of published figures, whatever path leads to it, because no run may change them."""
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
