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


def test_a_blocker_makes_the_machine_unfit() -> None:
    diagnosis = diagnose(context(), (check(BLOCKER, NOTE, NOTE),))
    assert not diagnosis.fit
    assert diagnosis.verdict.startswith("NOT FIT to measure: 1 blocker, 2 notes;")


def test_warnings_leave_it_fit_with_reservations_and_notes_leave_it_fit() -> None:
    warned = diagnose(context(), (check(WARNING),))
    noted = diagnose(context(), (check(NOTE),))
    assert (warned.fit, warned.verdict) == (True, "FIT to measure, with reservations: 1 warning")
    assert (noted.fit, noted.verdict) == (True, "FIT to measure: 1 note")
    assert diagnose(context(), ()).verdict == "FIT to measure: nothing found"
