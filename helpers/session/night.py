"""The night from the session's outcomes: the cases that take part, and what differs in the environment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.history.results import RunResult
from helpers.history.run_folders import RESULT_FILE, read_result, sessions
from helpers.judging.case.verdict import Status
from helpers.judging.night.groups import NightCase, labels_of
from helpers.session.outcome import CaseOutcome
from helpers.trainers.contract.errors import ResultError

_WITHOUT_FIGURES = (Status.INFRA_ERROR, Status.INVALID, Status.NOT_RUN)
_DEFAULT_TOLERANCE = 0.005
# The suite's own commit changes with every commit of it, and the report shows it elsewhere.
_NOT_THE_MACHINE = (("system", "suite"),)
# A machine that was set up anew differs in everything. A few differences are enough to show that.
_MOST_CHANGES = 5

# Facts of an environment by section and name.
Tables = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class EnvironmentChange:
    """One fact that differs between two nights."""

    section: str
    name: str
    before: str
    now: str

    @property
    def text(self) -> str:
        """``GPU: power limit: 250 W → 200 W``."""
        return f"{self.section}: {self.name}: {self.before} → {self.now}"


def night_case(outcome: CaseOutcome) -> NightCase | None:
    """The case for the verdict on the night. None for a case that is compared with no earlier night, and for one that
    the gate does not judge."""
    standing, recorded = outcome.verdict.standing, outcome.verdict.recorded
    if standing is None or not outcome.gating.judged or outcome.status in _WITHOUT_FIGURES:
        return None
    tolerance = recorded.tolerance if recorded is not None else None
    return NightCase(
        case_id=outcome.case.id,
        target=outcome.target,
        labels=labels_of(outcome.case, outcome.target),
        # The answer to the other question may be the worse one.
        status=recorded.status if recorded is not None else outcome.status,
        standing=standing,
        tolerance=_DEFAULT_TOLERANCE if tolerance is None else tolerance,
        can_confirm=bool(outcome.good.name),
        why_not=outcome.good.why_none,
    )


def night_cases(outcomes: Iterable[CaseOutcome]) -> tuple[NightCase, ...]:
    return tuple(case for outcome in outcomes if (case := night_case(outcome)) is not None)


def night_clues(outcomes: Sequence[CaseOutcome], session_folder: Path) -> tuple[str, ...]:
    """What may have moved many cases at once: what disturbed them, and how the machine differs from the last session,
    in a folder beside ``session_folder``, that measured one of them."""
    clues = []
    if shares := [share for each in outcomes if each.marks and (share := each.foreign_share)]:
        clues.append(f"others used up to {max(shares):.0%} of the cores while {len(shares)} of the cases ran")
    earlier = [session_folder.parent / name for name in sessions(session_folder.parent) if name != session_folder.name]
    for each in outcomes:
        tonight = next((run for run in each.runs if run.replicate == 0), None)
        if tonight is None:
            continue
        before = next(filter(None, (_first_run(folder, each.case.id) for folder in reversed(earlier))), None)
        if before is not None:
            return (*clues, *_machine_changes(before, tonight))
    return tuple(clues)


def _first_run(session_folder: Path, case_id: str) -> RunResult | None:
    """None if it cannot be read, because a clue is no evidence."""
    try:
        return read_result(session_folder / case_id / "r0" / RESULT_FILE)
    except ResultError:
        return None


def _machine_changes(before: RunResult, tonight: RunResult) -> tuple[str, ...]:
    """``GPU: power limit: 250 W → 200 W`` and since when; empty if nothing differs."""
    changes = [each.text for each in changes_between(before.system, tonight.system)]
    if not changes:
        return ()
    more = [f"and {len(changes) - _MOST_CHANGES} more"] if len(changes) > _MOST_CHANGES else []
    return (*changes[:_MOST_CHANGES], *more, f"all since session {before.session}")


def changes_between(before: Tables, now: Tables) -> Iterator[EnvironmentChange]:
    """The facts that differ in the sections that both have, without the suite's own commit."""
    for section in sorted(before.keys() & now.keys()):
        for name in sorted(before[section].keys() | now[section].keys()):
            old, new = before[section].get(name, "nothing"), now[section].get(name, "nothing")
            if old != new and (section, name) not in _NOT_THE_MACHINE:
                yield EnvironmentChange(section, name, old, new)
