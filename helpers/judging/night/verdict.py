"""The verdict on a night: what all its cases together show and no single case does. Pure.

docs/verdicts.md, "All cases together". If a group of cases fell together, its quietest member is confirmed by
interleaved runs of both builds, because a slow machine looks like a slow build. If most cases moved alike, the machine
or the environment is suspected.
"""

from __future__ import annotations

import enum
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from helpers.judging.case.evidence import CaseKey
from helpers.judging.case.verdict import Reason, Status
from helpers.judging.finding import Code, Finding, found
from helpers.judging.night.groups import (
    RULES,
    Alarm,
    CommonMove,
    NightCase,
    NightRules,
    common_move,
    find_alarms,
    group_e_value,
)

# The label of a group that was found by the common move alone.
MOST_CASES = "most"


class Cause(enum.Enum):
    """Why a group fell together."""

    # A member's interleaved runs found the new build slower.
    BUILD = "build"
    # They found both builds alike, and the reference build was below its own earlier figures.
    MACHINE = "machine"
    # They found both builds alike, and the other members alone show too little.
    CHANCE = "chance"
    # There was no reference build, or its runs did not settle it.
    UNCONFIRMED = "unconfirmed"


@dataclass(frozen=True)
class NeedConfirmation:
    """A request to confirm this case by interleaved runs, whatever its own runs say."""

    case_id: str
    target: str
    # It becomes the case's suspicion.
    why: Finding

    @property
    def key(self) -> CaseKey:
        return self.target, self.case_id


@dataclass(frozen=True)
class GroupFinding:
    """A group that fell together, and why."""

    alarm: Alarm
    cause: Cause
    # That it fell, and what shows the cause.
    finding: Finding
    # The ids of the members that were confirmed on request.
    asked: tuple[str, ...] = ()


@dataclass(frozen=True)
class NightVerdict:
    """The verdict on a night as a whole."""

    # REGRESSION (a group, confirmed), INCONCLUSIVE (a drop of several cases that nothing confirmed) or PASS.
    status: Status
    reason: Reason
    # How many cases took part: those that have earlier nights.
    cases: int
    # ``build``, ``machine`` or empty.
    suspect: str = ""
    groups: tuple[GroupFinding, ...] = ()
    common: CommonMove | None = None

    def to_record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        record = asdict(self)
        record["status"] = self.status.value
        for group in record["groups"]:
            group["cause"] = group["cause"].value
        return record


def judge_night(
    screened: Sequence[NightCase],
    confirmed: Mapping[CaseKey, NightCase],
    *,
    changed: Sequence[str] = (),
    rules: NightRules = RULES,
) -> NightVerdict | NeedConfirmation | None:
    """The verdict on the night, or a request for the next confirmation; None for fewer cases than a group needs.

    ``screened`` are the night's cases as the session measured them, ``confirmed`` those that were measured again on
    this function's request. ``changed`` says in words what differs from the last night's environment.
    """
    if len(screened) < rules.least_members:
        return None
    now = {case.key: confirmed.get(case.key, case) for case in screened}
    common = common_move(screened, rules)
    alarms = find_alarms(screened, rules)
    if not alarms and common is not None and common.slower:
        alarms = (_most_cases(common, screened, rules),)
    findings = []
    for alarm in alarms:
        finding = _finding(alarm, now, confirmed, rules)
        if isinstance(finding, NeedConfirmation):
            return finding
        findings.append(finding)
    return _verdict(tuple(findings), common, list(now.values()), changed)


def _most_cases(common: CommonMove, cases: Sequence[NightCase], rules: NightRules) -> Alarm:
    """The group of cases that moved together; its evidence is the counts of the common move."""
    moved = [case for case in cases if case.key in common.moved]
    return Alarm(MOST_CASES, common.moved, common.moved, common.shift, group_e_value(moved, rules), 0.0)


def _finding(
    alarm: Alarm, now: Mapping[CaseKey, NightCase], confirmed: Collection[CaseKey], rules: NightRules
) -> GroupFinding | NeedConfirmation:
    members = [now[key] for key in alarm.members]
    asked = [case for case in members if case.key in confirmed]
    ids = tuple(case.case_id for case in asked)
    head = _head(alarm, members)

    def finding(cause: Cause, why: Finding) -> GroupFinding:
        return GroupFinding(alarm, cause, head.by(why), ids)

    slower = [case for case in members if case.status is Status.REGRESSION]
    slow_machine = [case for case in members if case.standing.pairs and case.standing.pairs.machine_slow]
    # If one case is slower and many cases' reference builds are slow tonight, the one case is reported by its own row.
    if len(slower) > len(slow_machine):
        return finding(Cause.BUILD, _of_cases(Code.BUILD_SLOWER_IN, slower))
    if slow_machine:
        return finding(Cause.MACHINE, _of_cases(Code.REFERENCE_SLOW_IN, slow_machine))
    alike = [case for case in asked if case.is_same and case.status is Status.PASS and case.log_e <= 0]
    stands = group_e_value([now[key] for key in alarm.tested], rules) >= alarm.needed
    settled = len(alike) == len(asked)
    if alike and settled and not stands:
        return finding(Cause.CHANCE, _of_cases(Code.ALIKE_IN, alike, then="chance"))
    if len(confirmed) < rules.confirmations and (quietest := _quietest(members, confirmed)) is not None:
        return NeedConfirmation(quietest.case_id, quietest.target, head.by(found(Code.QUIETEST)))
    if alike and settled:
        fell = any(case.good_fell(alarm.shift) for case in alike)
        cause = Cause.MACHINE if fell else Cause.UNCONFIRMED
        return finding(cause, _of_cases(Code.ALIKE_IN, alike, then=cause.value))
    if asked:
        return finding(Cause.UNCONFIRMED, _of_cases(Code.NOT_SETTLED_IN, asked))
    if any(case.can_confirm for case in members):
        return finding(Cause.UNCONFIRMED, found(Code.CONFIRMATIONS_USED_UP))
    why = next((case.why_not for case in members if case.why_not), "")
    return finding(Cause.UNCONFIRMED, found(Code.NO_REFERENCE, why=why))


def _quietest(members: Sequence[NightCase], confirmed: Collection[CaseKey]) -> NightCase | None:
    """The member with the least noise between runs, of those that can be confirmed and were not confirmed tonight."""
    able = [case for case in members if case.can_confirm and case.standing.pairs is None and case.key not in confirmed]
    return min(able, key=lambda case: (case.standing.sigma, case.key), default=None)


def _head(alarm: Alarm, members: Sequence[NightCase]) -> Finding:
    return found(
        Code.GROUP_FELL,
        group=alarm.label,
        shift=alarm.shift,
        cases=len(members),
        evidence=alarm.e_value,
        needed=alarm.needed,
    )


def _of_cases(code: Code, cases: Sequence[NightCase], **more: str) -> Finding:
    return found(code, cases=tuple(case.case_id for case in cases), **more)


def _verdict(
    findings: tuple[GroupFinding, ...], common: CommonMove | None, cases: Sequence[NightCase], changed: Sequence[str]
) -> NightVerdict:
    causes = {finding.cause for finding in findings}
    build = Cause.BUILD in causes
    faster = common is not None and _builds_are_faster(common, cases)
    machine = Cause.MACHINE in causes or (common is not None and not build and not faster)
    parts = [finding.finding for finding in findings]
    if common is not None:
        moved = found(
            Code.COMMON_MOVE, moved=len(common.moved), cases=common.cases, shift=common.shift, machine=machine
        )
        parts.insert(0, moved)
    if machine:
        parts.append(found(Code.LOOK_AT, changed=tuple(changed)))
    status = Status.PASS
    if build:
        status, code = Status.REGRESSION, Code.GROUP_REGRESSION
    elif Cause.UNCONFIRMED in causes:
        status, code = Status.INCONCLUSIVE, Code.UNCONFIRMED_GROUP_DROP
    elif machine:
        code = Code.MACHINE_SUSPECT
    elif faster:
        code = Code.BUILDS_FASTER
    elif findings:
        code = Code.GROUP_NOT_CONFIRMED
    else:
        code = Code.QUIET
        parts = [_quiet(cases)]
    suspect = "build" if build or faster else "machine" if machine else ""
    return NightVerdict(status, Reason(code.value, findings=tuple(parts)), len(cases), suspect, findings, common)


def _builds_are_faster(common: CommonMove, cases: Sequence[NightCase]) -> bool:
    """Whether most of the comparisons show that the new build itself is faster."""
    compared = [case for case in cases if case.standing.pairs is not None]
    faster = [case for case in compared if case.status is Status.IMPROVEMENT]
    return not common.slower and len(faster) * 2 > len(compared)


def _quiet(cases: Sequence[NightCase]) -> Finding:
    shifts = [case.shift for case in cases if case.shift is not None]
    return found(Code.QUIET, cases=len(cases), shift=statistics.median(shifts) if shifts else None)
