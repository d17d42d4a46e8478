"""What a status does: docs/reference.md, "Statuses", line by line, and "Exit codes"."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.judging.case.verdict import Reason, Status, Verdict
from helpers.session.gate import (
    SLOWER,
    Gated,
    Needs,
    effect,
    exit_code,
    gate_reason,
    outside_gate,
)
from helpers.session.outcome import CaseEffect, CaseOutcome, Gating
from helpers.trainers.contract.case import Case
from tests.for_each import for_each

PASS, WARN, FAIL, ERROR, SKIP = CaseEffect.PASS, CaseEffect.WARN, CaseEffect.FAIL, CaseEffect.ERROR, CaseEffect.SKIP

# status, normal, --gate (recorded and published references both there)
TABLE = [
    (Status.INFRA_ERROR, ERROR, ERROR),
    (Status.INVALID, ERROR, ERROR),
    (Status.REGRESSION, FAIL, FAIL),
    (Status.SLOWER, FAIL, FAIL),
    (Status.BELOW_PUBLISHED, FAIL, FAIL),
    (Status.INCOMPARABLE, WARN, FAIL),
    (Status.INCONCLUSIVE, WARN, FAIL),
    (Status.NO_BASELINE, WARN, FAIL),
    (Status.IMPROVEMENT, PASS, PASS),
    (Status.PASS, PASS, PASS),
    (Status.NOT_RUN, SKIP, FAIL),
]


@pytest.mark.parametrize(("status", "normal", "gate"), TABLE)
def test_the_house_plans_table(status: Status, normal: CaseEffect, gate: CaseEffect) -> None:
    assert effect(status) is normal
    assert effect(status, Gated(Needs.RECORDED, has_published=True)) is gate
    assert effect(status, Gated(Needs.RECORDED, has_published=False)) is gate
    assert effect(status, Gated(Needs.BOTH, has_published=True)) is gate


@for_each("status", Status)
@for_each("needs", [Needs.PUBLISHED, Needs.BOTH])
def test_nothing_is_green_where_the_published_figure_that_a_gate_needs_is_missing(status: Status, needs: Needs) -> None:
    assert effect(status, Gated(needs, has_published=False)) in (FAIL, ERROR)


@for_each("status", Status)
@for_each("needs", Needs)
@for_each("has_published", [True, False])
def test_the_gate_is_never_milder_than_a_normal_run(status: Status, needs: Needs, has_published: bool) -> None:
    order = [PASS, SKIP, WARN, FAIL, ERROR]
    assert order.index(effect(status, Gated(needs, has_published))) >= order.index(effect(status))


@for_each("status", Status)
@for_each("needs", Needs)
@for_each("has_published", [True, False])
def test_a_reason_is_given_exactly_where_the_gate_alone_fails_a_case(
    status: Status, needs: Needs, has_published: bool
) -> None:
    gated = Gated(needs, has_published)
    by_the_gate_alone = effect(status, gated) is FAIL and effect(status) is not FAIL
    assert (gate_reason(status, gated) is not None) is by_the_gate_alone


@pytest.mark.parametrize(("normal", "outside"), [(PASS, PASS), (WARN, WARN), (SKIP, SKIP), (FAIL, WARN), (ERROR, WARN)])
def test_a_case_outside_the_gate_cannot_redden_it(normal: CaseEffect, outside: CaseEffect) -> None:
    assert outside_gate(normal) is outside


CASE = Case.parse("paddle-vgg16-fp32-bs8-1x2-dali-static")


def outcome(status: Status, gated: Gated | None = None) -> CaseOutcome:
    return CaseOutcome(CASE, "cpu", Verdict(status, Reason("c", "m")), Gating(effect(status, gated)))


PASSED = outcome(Status.PASS)
GATED = Gated(Needs.BOTH, has_published=True)


@pytest.mark.parametrize(
    ("statuses", "gated", "pytest_exit", "code"),
    [
        # A session that passes or warns.
        *(([each], None, 0, 0) for each in (Status.PASS, Status.IMPROVEMENT, Status.NO_BASELINE, Status.INCOMPARABLE)),
        # A slower case, which outranks all else.
        *(([each], gated, 1, 1) for each in SLOWER for gated in (None, GATED)),
        ([Status.INFRA_ERROR, Status.REGRESSION], None, 1, 1),
        ([Status.INCONCLUSIVE, Status.BELOW_PUBLISHED], GATED, 1, 1),
        # A case that could not be judged, and one that only the gate fails.
        *(([Status.PASS, each], None, 1, 6) for each in (Status.INFRA_ERROR, Status.INVALID)),
        *(([Status.PASS, each], GATED, 1, 6) for each in (Status.INCONCLUSIVE, Status.NO_BASELINE, Status.NOT_RUN)),
        # Nothing was measured.
        *(([Status.NOT_RUN] * count, None, 0, 6) for count in (0, 1, 2)),
        # A 1 that no case explains.
        ([Status.PASS], None, 1, 6),
    ],
)
def test_the_exit_code_of_a_session(statuses: list[Status], gated: Gated | None, pytest_exit: int, code: int) -> None:
    assert exit_code([outcome(status, gated) for status in statuses], pytest_exit) == code


def test_a_gate_that_measured_only_other_cases_is_6() -> None:
    assert exit_code([replace(PASSED, gating=Gating(PASS, judged=False))], 0) == 6


@pytest.mark.parametrize("pytest_exit", [2, 3, 4, 5])
@pytest.mark.parametrize("status", [Status.PASS, Status.REGRESSION, Status.INVALID])
def test_pytests_own_codes_stand(pytest_exit: int, status: Status) -> None:
    assert exit_code([outcome(status)], pytest_exit) == pytest_exit
    assert exit_code([], pytest_exit) == pytest_exit


@pytest.mark.parametrize(("status", "code"), [(Status.PASS, 6), (Status.NOT_RUN, 6), (Status.REGRESSION, 1)])
def test_1_only_ever_means_slower(status: Status, code: int) -> None:
    assert exit_code([outcome(status)], 1, other_failures=True) == code


@pytest.mark.parametrize(
    ("status", "normal", "gate"), [(Status.PASS, 0, 0), (Status.INCONCLUSIVE, 0, 6), (Status.REGRESSION, 1, 1)]
)
def test_the_night_s_verdict_counts_as_a_case_s(status: Status, normal: int, gate: int) -> None:
    assert exit_code([PASSED], 0, night=status) == normal
    assert exit_code([PASSED], 0, night=status, gate=True) == gate


@given(st.lists(st.builds(outcome, st.sampled_from(Status), st.sampled_from([None, GATED]))))
def test_0_means_that_something_was_measured_and_nothing_failed(outcomes: list[CaseOutcome]) -> None:
    failed = any(each.gating.effect in (FAIL, ERROR) for each in outcomes)
    code = exit_code(outcomes, 1 if failed else 0)
    assert code in (0, 1, 6)
    measured = any(each.status not in (Status.NOT_RUN, Status.INFRA_ERROR, Status.INVALID) for each in outcomes)
    assert (code == 0) == (measured and not failed)
