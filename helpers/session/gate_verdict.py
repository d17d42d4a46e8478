"""A gate's verdict on a session: whether it passed, which of its cases failed it, and which were in quarantine."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from helpers.judging.case.evidence import CaseKey
from helpers.judging.case.verdict import Status
from helpers.plan.proposals import ProposalKind
from helpers.session.gate import EXIT_NOT_JUDGED, SLOWER, Gate, effect
from helpers.session.outcome import OUT_OF_TIME, CaseEffect, CaseOutcome, Tell, code_of

if TYPE_CHECKING:
    from helpers.plan.case_plan import SuiteCase
    from helpers.plan.proposals import Proposal

NOT_REACHED = "not reached"
# A case for which the night had no time left.
NOT_TONIGHT = "not tonight"
# Nothing that could have failed was measured, so nothing is known to be well.
ALL_IN_QUARANTINE = (
    "nothing was judged, because every selected case of the gate is in quarantine: take an entry out of perf.yaml, or "
    "list another case under machines.NAME.gate"
)
_WITHOUT_BASELINE = (Status.NO_BASELINE, Status.INCOMPARABLE)
# This stands in place of a passing status if the gate fails the case all the same. The reason says why.
NOT_ACCEPTED = "not accepted"


class GateState(enum.Enum):
    """How a gate ended."""

    PASSED = "PASSED"
    # Every case that the session selected passed, but the gate has more cases.
    PARTLY_PASSED = "PASSED IN PART"
    # No case failed; those that lacked a baseline have one from now on.
    RECORDED = "RECORDED"
    FAILED = "FAILED"


@dataclass(frozen=True)
class GateCase:
    """A case of the gate that did not pass, or that is in quarantine."""

    case_id: str
    target: str
    # A status, NOT_ACCEPTED, or NOT_REACHED for a case about which nothing is known.
    status: str
    reason: str
    owner: str

    @property
    def key(self) -> CaseKey:
        """SuiteCase.key of the case."""
        return self.target, self.case_id

    @property
    def text(self) -> str:
        """``REGRESSION CASE [cpu], owner vision: why``."""
        owner = f", owner {self.owner}" if self.owner else ""
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.status} {self.case_id} [{self.target}]{owner}{reason}"


@dataclass(frozen=True)
class GateVerdict:
    """The verdict of a session's gate, from its cases and from the session's end."""

    state: GateState
    # How many cases passed, without those in quarantine.
    passed: int
    # How many cases of the gate the command line left out.
    not_selected: int
    # The worst first.
    failed: tuple[GateCase, ...]
    # Cases in quarantine, however they ended.
    quarantined: tuple[GateCase, ...]
    # Why the session fails for a reason other than its cases.
    other: tuple[str, ...] = ()
    # Cases for which the night had no time left; they neither pass nor fail.
    not_tonight: tuple[GateCase, ...] = ()
    # Cases that lacked a baseline and have one from now on.
    recorded: tuple[GateCase, ...] = ()

    @property
    def cases(self) -> int:
        """How many cases can fail the gate."""
        return self.passed + self.not_selected + len(self.failed) + len(self.recorded)

    @property
    def line(self) -> str:
        """``GATE PASSED: 12 of 12``, ``GATE FAILED: 1 REGRESSION, 1 INVALID of 12``, ``GATE RECORDED: 3 of 3``."""
        counts = Counter(each.status for each in self.failed)
        if self.recorded and self.state is not GateState.RECORDED:
            counts["recorded"] = len(self.recorded)
        cases = ", ".join(f"{number} {status}" for status, number in counts.items())
        if not counts:
            number = len(self.recorded) or self.passed
            cases = f"{number} PASS" if self.state is GateState.FAILED else f"{number}"
        counted = [f"{cases} of {self.cases}"] if self.cases else []
        if self.not_selected:
            counted.append(f"{self.not_selected} not selected")
        if self.not_tonight:
            counted.append(f"{len(self.not_tonight)} {NOT_TONIGHT}")
        if self.quarantined:
            kept = Counter(each.status for each in self.quarantined)
            statuses = ", ".join(f"{number} {status}" for status, number in kept.items())
            counted.append(f"{len(self.quarantined)} in quarantine ({statuses})")
        text = "; ".join([*self.other, *([", ".join(counted)] if counted else [])])
        return f"GATE {self.state.value}: {text}"

    def to_record(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "state": self.state.name,
            "line": self.line,
            "cases": self.cases,
            "passed": self.passed,
            "not_selected": self.not_selected,
            "failed": [asdict(each) for each in self.failed],
            "quarantined": [asdict(each) for each in self.quarantined],
            "not_tonight": [asdict(each) for each in self.not_tonight],
            "recorded": [asdict(each) for each in self.recorded],
            "other": list(self.other),
        }


def verdict_of(
    gate: Gate,
    cases: Iterable[SuiteCase],
    chosen: Collection[CaseKey],
    outcomes: Iterable[CaseOutcome],
    exit_code: int,
    other: Sequence[str] = (),
    unfinished: Mapping[CaseKey, str] = MappingProxyType({}),
    tell: Tell = code_of,
    proposals: Iterable[Proposal] = (),
) -> GateVerdict:
    """The gate's verdict on a session. ``tell`` makes the sentences of a reason.

    ``cases`` is the whole matrix, ``chosen`` has the keys of the cases that the session selected, and ``other`` says
    what makes the session fail beside its cases. ``unfinished`` says what the session has of cases without an outcome,
    ``proposals`` what it recorded and what not. A session with another exit code than 0 fails its gate, whatever its
    cases' statuses are, unless it only lacked baselines and has recorded them. It passes in part if the command line or
    the night's time left out cases.
    """
    by_key = {each.key: each for each in outcomes}
    proposal_of = {each.case_id: each for each in proposals}
    passed, not_selected = 0, 0
    failed, quarantined, left, recorded = [], [], [], []
    for case in cases:
        if not gate.judges(case):
            continue
        outcome = by_key.get(case.key)
        if outcome is not None and outcome.verdict.reason.code == OUT_OF_TIME:
            left.append(GateCase(case.case.id, case.target, NOT_TONIGHT, outcome.told(tell), case.owner))
        elif gate.quarantine_of(case) is not None:
            quarantined.append(_gate_case(case, outcome, unfinished, tell))
        elif case.key not in chosen:
            not_selected += 1
        elif outcome is not None and outcome.gating.effect is CaseEffect.PASS:
            passed += 1
        elif _lacks_baseline(case, outcome) and (proposal := proposal_of.get(case.case.id)) is not None:
            gate_case = _gate_case(case, outcome, unfinished, tell)
            if proposal.kind in (ProposalKind.CREATED, ProposalKind.UPDATED):
                recorded.append(gate_case)
            else:
                failed.append(replace(gate_case, reason=f"{gate_case.reason}; not recorded: {proposal.reason}"))
        else:
            failed.append(_gate_case(case, outcome, unfinished, tell))
    if recorded and not (failed or other) and exit_code == EXIT_NOT_JUDGED:
        state = GateState.RECORDED
    elif failed or exit_code or not passed:
        state = GateState.FAILED
    else:
        state = GateState.PARTLY_PASSED if not_selected or left else GateState.PASSED
    if not (passed or failed or recorded or other) and any(each.key in chosen for each in quarantined):
        other = (ALL_IN_QUARANTINE,)
    if state is GateState.FAILED and exit_code and (passed or recorded) and not (failed or other):
        other = (f"exit code {exit_code}",)
    return GateVerdict(
        state,
        passed,
        not_selected,
        tuple(sorted(failed, key=_rank)),
        tuple(quarantined),
        tuple(other),
        tuple(left),
        tuple(recorded),
    )


def _lacks_baseline(case: SuiteCase, outcome: CaseOutcome | None) -> bool:
    """Whether a missing figure to compare it with is all that keeps the case from passing."""
    # A quarantine that is over fails a case too.
    return outcome is not None and outcome.status in _WITHOUT_BASELINE and case.quarantine is None


def _gate_case(case: SuiteCase, outcome: CaseOutcome | None, unfinished: Mapping[CaseKey, str], tell: Tell) -> GateCase:
    status, reason = NOT_REACHED, unfinished.get(case.key, "")
    if outcome is not None:
        status, reason = outcome.status.value, outcome.told(tell)
        if (
            outcome.gating.judged
            and effect(outcome.status) is CaseEffect.PASS
            and outcome.gating.effect is not CaseEffect.PASS
        ):
            status, reason = NOT_ACCEPTED, f"{status}, but {outcome.gating.rule}; {tell(outcome.verdict.reason)}"
    return GateCase(case.case.id, case.target, status, reason, case.owner)


def _rank(case: GateCase) -> int:
    """The order of failed cases: slow ones first, then those that could not be judged, the worst first."""
    order = [*(each.value for each in SLOWER), *(each.value for each in Status if each not in SLOWER)]
    return [*order, NOT_ACCEPTED, NOT_REACHED].index(case.status)
