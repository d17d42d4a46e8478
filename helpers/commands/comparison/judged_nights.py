"""The nights of one side of a comparison as pytest judged them: the same runs get the same answer once more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from helpers.judging.compare import CaseComparison
from helpers.judging.compare_sides import KeptRun, Pairing
from helpers.judging.evidence import Past
from helpers.judging.noise import Noise
from helpers.plan.case_plan import SuiteCase
from helpers.plan.recorded import RecordedEntry
from helpers.session.judged_again import against_night, level_before
from helpers.session.suite import Suite
from helpers.trainers.contract.case import Case

if TYPE_CHECKING:
    from helpers.history.history import History
    from helpers.history.results import RunResult
    from helpers.judging.level import Level


@dataclass(frozen=True)
class JudgedNights:
    """The nights of a case on side B of a comparison."""

    suite: Suite
    history: History
    pairing: Pairing
    # B's runs of the case, those that are in no pair included.
    runs: Sequence[KeptRun]

    @cached_property
    def _judged_by_pairs(self) -> bool:
        """Whether pytest decided by pairs in each of the sessions. A search for a bad build, for one, makes pairs and
        compares them with no earlier night."""
        known = [
            each.record.standing
            for session in self.pairing.sessions
            for each in self.history.nights_of(f"session:{session}", self.pairing.case_id)
            if each.record.target == self.pairing.target
        ]
        return len(known) == len(self.pairing.sessions) and all(each is not None and each.pairs for each in known)

    def judged_again(self, *, against_baseline: bool) -> CaseComparison | None:
        """The comparison with the recorded baseline, or with the good build beside B, judged as pytest did in the one
        session; None if it was not judged so, or if there are several sessions."""
        pairing, entry = self.pairing, self._entry
        if len(pairing.sessions) != 1 or not (against_baseline or pairing.is_beside_good):
            return None
        (session,) = pairing.sessions
        kept = [each for each in self._results_of(session) if self._counts(each)]
        if (pairing.is_beside_good or entry is None) and not self._judged_by_pairs:
            return None
        tonight = len(self.history.nights_of(f"session:{session}"))
        case = _suite_case(self.suite, pairing)
        return against_night(pairing, case, kept, entry, self._past, self.suite.config, tonight)

    def _results_of(self, session: str) -> list[RunResult]:
        """The session's runs of the case that nobody excluded."""
        pairing = self.pairing
        found = self.history.results_of(session=session, case_id=pairing.case_id, target=pairing.target)
        return [each.result for each in found if each.exclusion is None]

    def _counts(self, run: RunResult) -> bool:
        """Whether a run is part of the night that is judged again: one that failed, or one that was chosen. The
        baseline does not choose among the runs in pairs."""
        if not run.measured or run.uuid in {each.uuid for each in (*self.runs, *self.pairing.a)}:
            return True
        return run.is_confirming and not self.pairing.is_beside_good

    def level(self, noise: Noise) -> Level | None:
        """The level of the nights before against A, if A is the good build of B's nights and these were compared with
        it; else None: then A itself counts."""
        pairing = self.pairing
        if not (pairing.is_beside_good and self._judged_by_pairs):
            return None
        runs, case = self._results_of(pairing.sessions[0]), _suite_case(self.suite, pairing)
        return level_before(case, runs, self._entry, self._past, self.suite.config, noise)

    @cached_property
    def _entry(self) -> RecordedEntry | None:
        return self.suite.recorded_entry(self.pairing.target, self.pairing.case_id)

    @cached_property
    def _past(self) -> Past:
        """What was known before the first of the sessions."""
        pairing = self.pairing
        cards = Case.parse(pairing.case_id).cards
        first = min(pairing.b, key=lambda run: run.created)
        return self.history.past(pairing.case_id, pairing.target, first.segment, cards, first.session)


def _suite_case(suite: Suite, pairing: Pairing) -> SuiteCase:
    """The suite's case; for a case that perf.yaml no longer lists, one made for the comparison, which needs only the
    runs."""
    known = next((each for each in suite.cases if each.key == pairing.key), None)
    protocol = next(iter(suite.config.protocols.values()))
    return known or SuiteCase(Case.parse(pairing.case_id), pairing.target, protocol)
