"""The verdict on a night: what all its cases together show and no single case does. Pure.

docs/verdicts.md, "Group alarm". If a group of cases fell together, its quietest member is confirmed by interleaved runs
of both builds, because a slow machine looks like a slow build. If most cases moved alike, the machine or the
environment is suspected.
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


class Cause(enum.Enum):
    """Why a group fell together."""

    # A member's interleaved runs found the new build slower.
    BUILD = "build"
    # They found both builds alike, and the good build was below its own earlier figures.
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
    # The reason; it becomes the case's suspicion.
    why: str

    @property
    def key(self) -> Key:
        return self.target, self.case_id


@dataclass(frozen=True)
class GroupFinding:
    """A group that fell together, and why."""

    alarm: Alarm
    cause: Cause
    # The reason in words.
    text: str
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
        record = asdict(replace(self, groups=()))
        record["status"], record["reason"] = self.status.value, asdict(self.reason)
        record["groups"] = [
            {"alarm": asdict(each.alarm), "answer": each.cause.value, "told": each.text, "asked": each.asked}
            for each in self.groups
        ]
        return record


def judge_night(
    screened: Sequence[NightCase],
    confirmed: Mapping[Key, NightCase],
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
    return Alarm("most cases", common.moved, common.moved, common.shift, group_e_value(moved, rules), 0.0)


def _finding(
    alarm: Alarm, now: Mapping[Key, NightCase], confirmed: Collection[Key], rules: NightRules
) -> GroupFinding | NeedConfirmation:
    members = [now[key] for key in alarm.members]
    asked = [case for case in members if case.key in confirmed]
    ids = tuple(case.case_id for case in asked)
    head = _head(alarm, members)

    def found(cause: Cause, why: str) -> GroupFinding:
        return GroupFinding(alarm, cause, f"{head}; {why}", ids)

    slower = [case for case in members if case.status is Status.REGRESSION]
    slow_machine = [case for case in members if case.standing.machine_slow]
    # If one case is slower and many cases' reference builds are slow tonight, the one case is reported by its own row.
    if len(slower) > len(slow_machine):
        return found(Cause.BUILD, f"interleaved runs found the new build slower in {_first(slower)}")
    if slow_machine:
        why = f"the reference build is as slow tonight in {_first(slow_machine)}: the machine or the environment"
        return found(Cause.MACHINE, why)
    alike = [case for case in asked if case.is_same and case.status is Status.PASS and case.log_e <= 0]
    stands = group_e_value([now[key] for key in alarm.tested], rules) >= alarm.needed
    settled = len(alike) == len(asked)
    if alike and settled and not stands:
        why = f"interleaved runs found both builds alike in {_first(alike)}, and the others say too little"
        return found(Cause.CHANCE, why)
    if len(confirmed) < rules.confirmations and (quietest := _quietest(members, confirmed)) is not None:
        return NeedConfirmation(quietest.case_id, quietest.target, f"{head}; this is their quietest")
    if alike and settled:
        why = f"interleaved runs found both builds alike in {_first(alike)}"
        if any(case.good_fell(alarm.shift) for case in alike):
            return found(Cause.MACHINE, f"{why}: the machine or the environment")
        return found(Cause.UNCONFIRMED, f"{why}, and the good build no slower than on its own nights before")
    if asked:
        return found(Cause.UNCONFIRMED, f"interleaved runs of {_first(asked)} did not settle it")
    return found(Cause.UNCONFIRMED, _why_unconfirmed(members))


def _quietest(members: Sequence[NightCase], confirmed: Collection[Key]) -> NightCase | None:
    """The member with the least noise between runs, of those that can be confirmed and were not confirmed tonight."""
    able = [case for case in members if case.can_confirm and not case.standing.pairs and case.key not in confirmed]
    return min(able, key=lambda case: (case.standing.sigma, case.key), default=None)


def _why_unconfirmed(members: Sequence[NightCase]) -> str:
    if any(case.can_confirm for case in members):
        return "the night's confirmations are used up"
    why = next((case.why_not for case in members if case.why_not), "")
    return f"no reference build could confirm it ({why or 'give --reference-env PATH'})"


def _head(alarm: Alarm, members: Sequence[NightCase]) -> str:
    """``all amp cases fell together: median -0.7% over 30 cases, evidence 3e+07 for a drop, 2.5e+03 needed``."""
    text = f"{alarm.label} fell together: median {alarm.shift:+.1%} over {len(members)} cases"
    if alarm.needed:
        text += f", e-value {alarm.e_value:.2g} without the strongest, {alarm.needed:.2g} needed"
    return text


def _first(cases: Sequence[NightCase], shown: int = 2) -> str:
    ids = ", ".join(case.case_id for case in cases[:shown])
    return ids + (f" and {len(cases) - shown} more" if len(cases) > shown else "")


def _verdict(
    findings: tuple[GroupFinding, ...], common: CommonMove | None, cases: Sequence[NightCase], changed: Sequence[str]
) -> NightVerdict:
    causes = {finding.cause for finding in findings}
    build = Cause.BUILD in causes
    faster = common is not None and _builds_are_faster(common, cases)
    machine = Cause.MACHINE in causes or (common is not None and not build and not faster)
    parts = [finding.text for finding in findings]
    if common is not None:
        parts.insert(0, _common_text(common, not machine))
    if machine:
        looked = "; ".join(changed) or "nothing recorded about the environment differs from the last night"
        parts.append(f"look at: {looked}; {_LOOK}")
    status = Status.PASS
    if build:
        status, code = Status.REGRESSION, "group-regression"
    elif Cause.UNCONFIRMED in causes:
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


def _common_text(common: CommonMove, build: bool) -> str:
    how = "slower" if common.slower else "faster"
    text = (
        f"{len(common.moved)} of {common.cases} cases are {how} than on the nights before, median {common.shift:+.1%}"
    )
    if build:
        return f"{text}: interleaved runs say that it is the build"
    return f"{text}: suspect the machine or the environment"


def _builds_are_faster(common: CommonMove, cases: Sequence[NightCase]) -> bool:
    """Whether most of the comparisons show that the new build itself is faster."""
    compared = [case for case in cases if case.standing.pairs]
    faster = [case for case in compared if case.status is Status.IMPROVEMENT]
    return not common.slower and len(faster) * 2 > len(compared)


def _quiet(cases: Sequence[NightCase]) -> str:
    shifts = [case.shift for case in cases if case.shift is not None]
    median = f", their median is {statistics.median(shifts):+.1%} against the nights before" if shifts else ""
    return f"no group of the {len(cases)} cases fell together{median}"
