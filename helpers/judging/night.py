"""The verdict on a night: what its cases say together that none of them says alone. Pure.

docs/verdicts.md, "Group alarm". A group that fell together is confirmed on its quietest member by interleaved runs of
both builds: a slow machine looks the same as a slow build. Most cases moving alike puts the machine or the environment
under suspicion.
"""

from __future__ import annotations

import enum
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from helpers.judging.night_groups import (
    RULES,
    Alarm,
    CommonMove,
    Key,
    NightCase,
    NightRules,
    common_move,
    find_alarms,
    group_e_value,
)
from helpers.judging.verdict import Reason, Status

_LOOK = "perfgate doctor says what is wrong with it now"


class Answer(enum.Enum):
    """What is behind a group that fell together.

    BUILD: a member's interleaved runs found the new build slower. MACHINE: they found both builds alike.
    CHANCE: they found both builds alike, and without that member the rest says too little. UNCONFIRMED: nobody
    knows, as there was no reference build, or its runs did not settle it. Both alike is the machine's fall only where
    the good build itself ran below its own earlier figures.
    """

    BUILD = "build"
    MACHINE = "machine"
    CHANCE = "chance"
    UNCONFIRMED = "unconfirmed"


@dataclass(frozen=True)
class NeedConfirmation:
    """Confirm this case by interleaved runs, whatever its own runs say; ``why`` becomes its suspicion."""

    case_id: str
    target: str
    why: str

    @property
    def key(self) -> Key:
        return self.target, self.case_id


@dataclass(frozen=True)
class GroupFinding:
    """A group that fell together, what is behind it, and in words why so; ``asked`` are the members confirmed."""

    alarm: Alarm
    answer: Answer
    told: str
    asked: tuple[str, ...] = ()


@dataclass(frozen=True)
class NightVerdict:
    """What a night says as a whole.

    ``status``: REGRESSION (a group, confirmed), INCONCLUSIVE (a drop of several cases that nothing confirmed) or
    PASS. ``suspect`` is ``build``, ``machine`` or empty. ``cases`` took part: those with nights to be held against.
    """

    status: Status
    reason: Reason
    cases: int
    suspect: str = ""
    groups: tuple[GroupFinding, ...] = ()
    common: CommonMove | None = None

    def to_record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        record = asdict(replace(self, groups=()))
        record["status"], record["reason"] = self.status.value, asdict(self.reason)
        record["groups"] = [{**asdict(each), "answer": each.answer.value} for each in self.groups]
        return record


def judge_night(
    screened: Sequence[NightCase],
    confirmed: Mapping[Key, NightCase],
    *,
    changed: Sequence[str] = (),
    rules: NightRules = RULES,
) -> NightVerdict | NeedConfirmation | None:
    """A verdict on the night, the next confirmation it needs, or None for fewer cases than a group has.

    ``screened`` are the night's cases as the session measured them, ``confirmed`` those that were measured again on
    this function's request. ``changed`` is what of the environment differs from the last night, in words.
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
        answer = _finding(alarm, now, confirmed, rules)
        if isinstance(answer, NeedConfirmation):
            return answer
        findings.append(answer)
    return _verdict(tuple(findings), common, list(now.values()), changed)


def _most_cases(common: CommonMove, cases: Sequence[NightCase], rules: NightRules) -> Alarm:
    """What most cases did together as a group of its own; its evidence is in the common move's counts."""
    moved = [case for case in cases if case.key in common.moved]
    return Alarm("most cases", common.moved, common.moved, common.shift, group_e_value(moved, rules), 0.0)


def _finding(
    alarm: Alarm, now: Mapping[Key, NightCase], confirmed: Collection[Key], rules: NightRules
) -> GroupFinding | NeedConfirmation:
    members = [now[key] for key in alarm.members]
    asked = [case for case in members if case.key in confirmed]
    ids = tuple(case.case_id for case in asked)
    head = _head(alarm, members)

    def found(answer: Answer, told: str) -> GroupFinding:
        return GroupFinding(alarm, answer, f"{head}; {told}", ids)

    slower = [case for case in members if case.status is Status.REGRESSION]
    slow_machine = [case for case in members if case.standing.machine_slow]
    # One slower case among many whose reference build is as slow tonight is told by its own row.
    if len(slower) > len(slow_machine):
        return found(Answer.BUILD, f"interleaved runs found the new build slower in {_first(slower)}")
    if slow_machine:
        told = f"the reference build is as slow tonight in {_first(slow_machine)}: the machine or the environment"
        return found(Answer.MACHINE, told)
    alike = [case for case in asked if case.is_same and case.status is Status.PASS and case.log_e <= 0]
    stands = group_e_value([now[key] for key in alarm.tested], rules) >= alarm.needed
    settled = len(alike) == len(asked)
    if alike and settled and not stands:
        told = f"interleaved runs found both builds alike in {_first(alike)}, and the others say too little"
        return found(Answer.CHANCE, told)
    if len(confirmed) < rules.confirmations and (quietest := _quietest(members, confirmed)) is not None:
        return NeedConfirmation(quietest.case_id, quietest.target, f"{head}; this is their quietest")
    if alike and settled:
        told = f"interleaved runs found both builds alike in {_first(alike)}"
        if any(case.good_fell(alarm.shift) for case in alike):
            return found(Answer.MACHINE, f"{told}: the machine or the environment")
        return found(Answer.UNCONFIRMED, f"{told}, and the good build no slower than on its own nights before")
    if asked:
        return found(Answer.UNCONFIRMED, f"interleaved runs of {_first(asked)} did not settle it")
    return found(Answer.UNCONFIRMED, _why_unconfirmed(members))


def _quietest(members: Sequence[NightCase], confirmed: Collection[Key]) -> NightCase | None:
    """The member with the least noise between runs that can be confirmed and was not tonight."""
    able = [case for case in members if case.can_confirm and not case.standing.pairs and case.key not in confirmed]
    return min(able, key=lambda case: (case.standing.sigma, case.key), default=None)


def _why_unconfirmed(members: Sequence[NightCase]) -> str:
    if any(case.can_confirm for case in members):
        return "the night's confirmations are used up"
    why = next((case.why_not for case in members if case.why_not), "")
    return f"no reference build could confirm it ({why or 'give --reference-env PATH'})"


def _head(alarm: Alarm, members: Sequence[NightCase]) -> str:
    """``all amp cases fell together: median -0.7% over 30 cases, evidence 3e+07 for a drop, 2.5e+03 needed``."""
    told = f"{alarm.label} fell together: median {alarm.shift:+.1%} over {len(members)} cases"
    if alarm.needed:
        told += f", e-value {alarm.e_value:.2g} without the strongest, {alarm.needed:.2g} needed"
    return told


def _first(cases: Sequence[NightCase], shown: int = 2) -> str:
    told = ", ".join(case.case_id for case in cases[:shown])
    return told + (f" and {len(cases) - shown} more" if len(cases) > shown else "")


def _verdict(
    findings: tuple[GroupFinding, ...], common: CommonMove | None, cases: Sequence[NightCase], changed: Sequence[str]
) -> NightVerdict:
    answers = {finding.answer for finding in findings}
    build = Answer.BUILD in answers
    faster = common is not None and _builds_are_faster(common, cases)
    machine = Answer.MACHINE in answers or (common is not None and not build and not faster)
    parts = [finding.told for finding in findings]
    if common is not None:
        parts.insert(0, _common_told(common, not machine))
    if machine:
        looked = "; ".join(changed) or "nothing recorded about the environment differs from the last night"
        parts.append(f"look at: {looked}; {_LOOK}")
    status = Status.PASS
    if build:
        status, code = Status.REGRESSION, "group-regression"
    elif Answer.UNCONFIRMED in answers:
        status, code = Status.INCONCLUSIVE, "unconfirmed-group-drop"
    elif machine:
        code = "machine-suspect"
    elif faster:
        code = "builds-faster"
    elif findings:
        code = "group-not-confirmed"
    else:
        code = "quiet"
        parts = [_quiet(cases)]
    suspect = "build" if build or faster else "machine" if machine else ""
    return NightVerdict(status, Reason(code, "; ".join(parts)), len(cases), suspect, findings, common)


def _common_told(common: CommonMove, build: bool) -> str:
    how = "slower" if common.slower else "faster"
    told = (
        f"{len(common.moved)} of {common.cases} cases are {how} than on the nights before, median {common.shift:+.1%}"
    )
    if build:
        return f"{told}: interleaved runs say that it is the build"
    return f"{told}: suspect the machine or the environment"


def _builds_are_faster(common: CommonMove, cases: Sequence[NightCase]) -> bool:
    """Whether most of the comparisons that were made say that the new build itself is faster."""
    compared = [case for case in cases if case.standing.pairs]
    faster = [case for case in compared if case.status is Status.IMPROVEMENT]
    return not common.slower and len(faster) * 2 > len(compared)


def _quiet(cases: Sequence[NightCase]) -> str:
    shifts = [case.shift for case in cases if case.shift is not None]
    median = f", their median is {statistics.median(shifts):+.1%} against the nights before" if shifts else ""
    return f"no group of the {len(cases)} cases fell together{median}"
