"""The verdict on a night from the session's rows: its cases, what of the environment differs, and the lines told."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from helpers.history.results import RunResult
from helpers.history.run_folders import read_result, sessions
from helpers.judging.night import NightVerdict
from helpers.judging.night_groups import NightCase, labels_of
from helpers.judging.verdict import Status
from helpers.report.text import printable
from helpers.session.rows import CaseRow
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ResultError

_INDENT = "    "
_NARROWEST = 40
_WITHOUT_FIGURES = (Status.INFRA_ERROR, Status.INVALID, Status.NOT_RUN)
_DEFAULT_TOLERANCE = 0.005
# The suite's own commit changes with every commit of it and is told elsewhere.
_NOT_THE_MACHINE = (("system", "suite"),)
# A machine that was set up anew differs in everything; the first few say so.
_MOST_CHANGES = 5


def night_case(row: CaseRow) -> NightCase | None:
    """The row as the night's verdict takes it; None for one that is held against no earlier night, and for a case
    that the gate does not judge."""
    if row.standing is None or not row.judged or Status(row.status) in _WITHOUT_FIGURES:
        return None
    tolerance = row.recorded.tolerance if row.recorded is not None else None
    return NightCase(
        case_id=row.case_id,
        target=row.target,
        labels=labels_of(Case.parse(row.case_id), row.target),
        # Another question's answer may be the worse one.
        status=Status(row.recorded.status if row.recorded is not None else row.status),
        standing=row.standing,
        tolerance=_DEFAULT_TOLERANCE if tolerance is None else tolerance,
        can_confirm=bool(row.reference_build),
        why_not=row.why_no_reference,
    )


def night_cases(rows: Iterable[CaseRow]) -> tuple[NightCase, ...]:
    return tuple(case for row in rows if (case := night_case(row)) is not None)


def night_lines(night: NightVerdict, width: int) -> list[str]:
    """``the night: PASS, 12 cases`` and the reason below it."""
    told = night.status.value if not night.suspect else f"{night.status.value}, suspect: the {night.suspect}"
    reason = printable(night.reason.message)
    room = max(width - len(_INDENT), _NARROWEST)
    wrapped = textwrap.wrap(reason, room, break_on_hyphens=False, break_long_words=False)
    return [f"the night: {told} ({night.cases} cases)", *(_INDENT + line for line in wrapped)]


def night_clues(rows: Sequence[CaseRow], session_folder: Path) -> tuple[str, ...]:
    """What may have moved many cases at once: what disturbed them, and what of the machine differs from the last
    session beside ``session_folder`` that measured one of them."""
    told = []
    if shares := [row.foreign_share for row in rows if row.marks and row.foreign_share]:
        told.append(f"others used up to {max(shares):.0%} of the cores while {len(shares)} of the cases ran")
    earlier = [session_folder.parent / name for name in sessions(session_folder.parent) if name != session_folder.name]
    for row in rows:
        tonight = _first_run(session_folder, row)
        before = next(filter(None, (_first_run(folder, row) for folder in reversed(earlier))), None)
        if tonight is not None and before is not None:
            return (*told, *_machine_changes(before, tonight))
    return tuple(told)


def _machine_changes(before: RunResult, tonight: RunResult) -> tuple[str, ...]:
    """``GPU: power limit: 250 W → 200 W`` and since when; empty where nothing differs."""
    changes = list(_differences(before.system, tonight.system))
    if not changes:
        return ()
    more = [f"and {len(changes) - _MOST_CHANGES} more"] if len(changes) > _MOST_CHANGES else []
    return (*changes[:_MOST_CHANGES], *more, f"all since session {before.session}")


def _first_run(session_folder: Path, row: CaseRow) -> RunResult | None:
    """A clue is no evidence: what cannot be read gives none."""
    try:
        return read_result(session_folder / row.case_id / "r0" / "result.json")
    except ResultError:
        return None


def _differences(before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for section in sorted(before.keys() & after.keys()):
        for name in sorted(before[section].keys() | after[section].keys()):
            old, new = before[section].get(name, "nothing"), after[section].get(name, "nothing")
            if old != new and (section, name) not in _NOT_THE_MACHINE:
                yield f"{section}: {name}: {old} → {new}"
