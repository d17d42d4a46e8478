import pytest

from helpers.machine.doctor import diagnose
from helpers.machine.doctor.finding import Check, Context, Finding, Severity
from tests.helpers.machine.doctor.context import context


def finding(severity: Severity, name: str) -> Finding:
    return Finding(severity, name, "found", "why", "do")


def check(*findings: Finding) -> Check:
    def checked(context: Context) -> tuple[Finding, ...]:
        return findings

    return checked


NOTE, WARNING, BLOCKER = (finding(each, each.value) for each in reversed(Severity))


def test_the_worst_comes_first_and_equals_keep_their_order() -> None:
    other = finding(Severity.WARNING, "other")
    found = diagnose(context(), (check(NOTE, WARNING), check(other), check(BLOCKER))).findings
    assert found == (BLOCKER, WARNING, other, NOTE)


@pytest.mark.parametrize(
    ("found", "fit", "verdict"),
    [
        ((BLOCKER, NOTE, NOTE), False, "NOT FIT to measure: 1 blocker, 2 notes;"),
        ((WARNING,), True, "FIT to measure, with reservations: 1 warning"),
        ((NOTE,), True, "FIT to measure: 1 note"),
        ((), True, "FIT to measure: nothing found"),
    ],
)
def test_a_blocker_alone_makes_the_machine_unfit(found: tuple[Finding, ...], fit: bool, verdict: str) -> None:
    diagnosis = diagnose(context(), (check(*found),))
    assert diagnosis.fit is fit and diagnosis.verdict.startswith(verdict)
