"""Recorded baselines: what a session proposes, the table of it, and the one locked write at its end."""

from __future__ import annotations

import enum
import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from helpers.baseline import RECORDED, RECORDED_VERSION, UNIT, RecordedEntry, RecordedSet, load_recorded
from helpers.baseline_files import cannot_write, refuse_link, write_document
from helpers.errors import BaselineError, printable


class ProposalKind(enum.Enum):
    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    UNUSED = "unused"


class Answer(enum.Enum):
    """What the verdict said of a case against its recorded entry (VERDICT.md, "Judge")."""

    NOTHING_RECORDED = "nothing recorded"
    NO_WORSE = "no worse"
    FASTER = "confirmed faster"
    SLOWER = "confirmed slower"
    UNSETTLED = "not settled"
    INCOMPARABLE = "not comparable"


@dataclass(frozen=True)
class Candidate:
    """A measured case that may become a baseline.

    ``answer`` is the verdict's on the recorded question and ``why`` its reason. ``refusal`` says why the case
    cannot be recorded whatever the answer (crashed, contended, changed settings); a case without any figure has
    ``entry`` None, a refusal and its ``case_id``. Raises BaselineError on one that has neither.
    """

    entry: RecordedEntry | None
    refusal: str | None = None
    case_id: str = ""
    answer: Answer = Answer.NOTHING_RECORDED
    why: str = ""

    def __post_init__(self) -> None:
        if self.entry is not None and self.case_id in ("", self.entry.case_id):
            # The id of a candidate with an entry is the entry's; frozen, so set around the guard.
            object.__setattr__(self, "case_id", self.entry.case_id)
        elif self.entry is not None or not self.case_id or not self.refusal:
            raise BaselineError(
                f"baseline candidate {self.case_id!r}",
                field="entry",
                got="none" if self.entry is None else f"an entry of {self.entry.case_id}",
                expected="an entry of this case, or a case id and the reason why there is none",
            )


@dataclass(frozen=True)
class Proposal:
    """What is to happen with one case: ``old`` is what the file holds, ``new`` what was measured."""

    case_id: str
    kind: ProposalKind
    old: RecordedEntry | None
    new: RecordedEntry | None
    reason: str

    @property
    def change(self) -> float | None:
        """(new - old) / old as a fraction; None when one of them is missing."""
        if self.old is None or self.new is None:
            return None
        return self.new.images_per_s / self.old.images_per_s - 1


def propose(
    old: RecordedSet,
    candidates: Iterable[Candidate],
    *,
    measured_case_ids: Collection[str],
    known_case_ids: Collection[str],
    accept_regression: str | None,
) -> tuple[Proposal, ...]:
    """One proposal for each measured case and for each entry that no case uses any more, in id order.

    ``known_case_ids`` are the cases of the whole matrix, ``accept_regression`` the reason given on the
    command line.

    The verdict decides. A case that is no worse leaves the file as it is: if each run moved the baseline
    to its own figure, a slow drift of small steps would be adopted step by step and never be seen. A
    confirmed improvement replaces the entry. A confirmed regression and an open answer (a drop that no
    reference build confirmed) are refused without a reason, and with one recorded as the level that is
    accepted. A figure from another segment or by another rule is not comparable with the old, so it
    replaces it and says what differs. A measured case without a candidate and a candidate that was not
    measured are refused. Raises BaselineError on a case proposed twice and on an empty reason.
    """
    if accept_regression is not None and not accept_regression.strip():
        raise BaselineError(
            "--accept-regression", got="an empty text", expected="a reason", remedy="Say why slower is acceptable"
        )
    by_id: dict[str, Candidate] = {}
    for candidate in candidates:
        if candidate.case_id in by_id:
            raise BaselineError(
                f"case {candidate.case_id!r}", field="candidates", got="two candidates", expected="one of each case"
            )
        by_id[candidate.case_id] = candidate
    proposals = [_decide(old, by_id[case_id], measured_case_ids, accept_regression) for case_id in by_id]
    for case_id in set(measured_case_ids) - set(by_id):
        entry = old.entries.get(case_id)
        proposals.append(Proposal(case_id, ProposalKind.REFUSED, entry, None, "measured, but it gave no figure"))
    for case_id in set(old.entries) - set(known_case_ids) - set(measured_case_ids) - set(by_id):
        reason = "no such case any more; delete the entry by hand if it is not coming back"
        proposals.append(Proposal(case_id, ProposalKind.UNUSED, old.entries[case_id], None, reason))
    return tuple(sorted(proposals, key=lambda proposal: proposal.case_id))


def format_proposals(proposals: Iterable[Proposal]) -> str:
    """The table case, old → new, change in %, what, reason, with a line that counts; images/s."""
    rows = [("case", "old", f"new {UNIT}", "change %", "what", "reason")]
    kinds: Counter[str] = Counter()
    for proposal in proposals:
        kinds[proposal.kind.value] += 1
        change = "" if proposal.change is None else f"{proposal.change * 100:+.2f}"
        old, new = _figure(proposal.old), _figure(proposal.new)
        rows.append((proposal.case_id, old, new, change, proposal.kind.value, printable(proposal.reason)))
    if not kinds:
        return "Baselines: nothing proposed, no case was measured"
    a, b, c, d, e = (max(len(row[column]) for row in rows) for column in range(5))
    lines = [
        f"{case_id:<{a}}  {old:>{b}} → {new:<{c}}  {change:>{d}}  {what:<{e}}  {reason}"
        for case_id, old, new, change, what, reason in rows
    ]
    counts = ", ".join(f"{kinds[kind.value]} {kind.value}" for kind in ProposalKind if kinds[kind.value])
    return "\n".join([*lines, f"Baselines: {counts}"])


def write_recorded(
    path: Path, machine_key: str, proposals: Iterable[Proposal], *, lock_timeout_seconds: float = 60.0
) -> tuple[Proposal, ...]:
    """Writes what is CREATED or UPDATED into ``path`` and returns the proposals as they came out.

    Under the lock ``<path>.lock`` the file is read again: entries that another process wrote
    meanwhile stay. Where it wrote the same case, its entry stays and ours comes back REFUSED, for
    ours was judged against a figure that is gone. With nothing to write no file is touched.
    Raises BaselineError for a folder of published figures, a link, a lock that stays held for
    ``lock_timeout_seconds``, a file that cannot be read or written; the old file is then unchanged.
    """
    proposals = tuple(proposals)
    if not any(_writes(proposal) for proposal in proposals):
        return proposals
    _refuse_place(path)
    lock_path = path.with_name(path.name + ".lock")
    refuse_link(lock_path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock_path, timeout=lock_timeout_seconds):
            return _merge(path, machine_key, proposals)
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


def _merge(path: Path, machine_key: str, proposals: tuple[Proposal, ...]) -> tuple[Proposal, ...]:
    entries = dict(load_recorded(path, machine_key).entries)
    outcome = []
    for proposal in proposals:
        if _writes(proposal) and proposal.new is not None:
            present = entries.get(proposal.case_id)
            if present in (proposal.old, proposal.new):
                entries[proposal.case_id] = proposal.new
            else:
                proposal = replace(proposal, kind=ProposalKind.REFUSED, old=present, reason=_overtaken(present))
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


def _decide(
    old: RecordedSet, candidate: Candidate, measured: Collection[str], accept_regression: str | None
) -> Proposal:
    case_id, new, before = candidate.case_id, candidate.entry, old.entries.get(candidate.case_id)

    def outcome(kind: ProposalKind, reason: str, entry: RecordedEntry | None = new) -> Proposal:
        return Proposal(case_id, kind, before, entry, reason)

    if candidate.refusal is not None or new is None:
        return outcome(ProposalKind.REFUSED, candidate.refusal or "no reason given")
    if case_id not in measured:
        return outcome(ProposalKind.REFUSED, "not measured in this session")
    if (before is None) != (candidate.answer is Answer.NOTHING_RECORDED):
        return outcome(ProposalKind.REFUSED, _overtaken(before))
    if before is None:
        return outcome(ProposalKind.CREATED, "none recorded before")
    if new.tolerance is None:
        # A tolerance that someone set for this case outlives the figure.
        new = replace(new, tolerance=before.tolerance)
    if incomparable := _incomparable(before, new):
        return outcome(ProposalKind.UPDATED, incomparable, new)
    if candidate.answer is Answer.NO_WORSE:
        return outcome(ProposalKind.UNCHANGED, f"{candidate.answer.value}; the file keeps the old figure", new)
    if candidate.answer is Answer.FASTER:
        return outcome(ProposalKind.UPDATED, _told(candidate), new)
    if candidate.answer is Answer.INCOMPARABLE:
        return outcome(ProposalKind.REFUSED, _told(candidate), new)
    if accept_regression is None:
        return outcome(ProposalKind.REFUSED, f"{_told(candidate)}; --accept-regression REASON records this level", new)
    reason = f"accepted regression: {accept_regression.strip()}"
    return outcome(ProposalKind.UPDATED, reason, replace(new, provenance=replace(new.provenance, reason=reason)))


def _told(candidate: Candidate) -> str:
    return f"{candidate.answer.value}: {candidate.why}" if candidate.why else candidate.answer.value


def _incomparable(before: RecordedEntry, new: RecordedEntry) -> str:
    """In what the two differ so that neither says anything about the other; empty when comparable."""
    if before.rule != new.rule:
        return f"new rule: {before.rule} → {new.rule}"
    differing = [
        f"{name} {_fact(before.segment, name)} → {_fact(new.segment, name)}"
        for name in sorted(set(before.segment) | set(new.segment))
        if before.segment.get(name) != new.segment.get(name)
    ]
    return "new segment: " + ", ".join(differing) if differing else ""


def _fact(segment: Mapping[str, str], name: str) -> str:
    return repr(segment[name]) if name in segment else "unstated"


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


def _overtaken(present: RecordedEntry | None) -> str:
    what = "deleted the entry" if present is None else f"recorded {_figure(present)} {UNIT}"
    return f"another process {what} meanwhile; run --update-baselines again to compare with that"


def _figure(entry: RecordedEntry | None) -> str:
    if entry is None:
        return "-"
    return f"{entry.images_per_s:.2f}" if entry.images_per_s >= 100 else f"{entry.images_per_s:.3f}"
