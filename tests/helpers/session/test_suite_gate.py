"""What the gate of a machine does to the cases of a suite."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from typing import Any

import pytest

from helpers.history.results import CONTENDED
from helpers.history.session_file import SessionRecord
from helpers.plan.case_plan import SuiteCase
from helpers.plan.perf_yaml import load_config
from helpers.report.reasons import reason_text
from helpers.report.row import CaseRow, row_of
from helpers.session.outcome import CaseEffect, CaseOutcome
from helpers.session.suite import Suite
from tests.helpers.session.workshop import (
    A100,
    CPU_MACHINE,
    DALI,
    DISPUTED,
    ONE_RUN,
    PCIE,
    PHOTOGRAPHS,
    SXM2,
    SYNTHETIC,
    Bench,
    case_of,
    machine_with,
    record,
    rule,
)


@pytest.mark.parametrize("rules", [[rule(DALI)], [rule("paddle-resnet50*", target="v100")]])
def test_a_case_outside_the_gate_is_told_and_cannot_fail_it(bench: Bench, rules: list[dict[str, str]]) -> None:
    record(bench, SYNTHETIC)
    bench.runner.usual = {"samples_per_s": 85.0}
    suite = bench.suite(gate=rules, builds=bench.good)
    row = row_of(suite.measurer.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.effect, row.judged) == ("REGRESSION", "warn", False)


def fast(bench: Bench, suite: Suite, case: SuiteCase, **values: Any) -> CaseRow:
    """The row of a case that is faster than any published figure."""
    figures = {**dict.fromkeys((each.rule for each in case.figures), 1e6), "wall-clock": 1e6}
    bench.runner.answers = [{"figures": figures, **values}]
    return row_of(suite.measurer.measure(case))


@pytest.mark.parametrize(("card", "effect"), [(SXM2, "pass"), (PCIE, "fail")])
def test_a_published_figure_counts_only_on_its_own_card(bench: Bench, card: str, effect: str) -> None:
    suite = bench.suite(machine_with(card), gate=[rule(ONE_RUN, "published", target="v100")])
    case = case_of(suite, ONE_RUN, "v100")
    row = fast(bench, suite, case)
    assert (row.status, row.effect) == ("PASS" if effect == "pass" else "NO_BASELINE", effect)
    assert ("recorded: none; record it: " in row.reason) is (effect == "pass")
    assert ("needs a published figure" in row.reason) is (effect == "fail")


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize(
    ("needs", "status"), [("published", "PASS"), ("recorded", "NO_BASELINE"), ("both", "NO_BASELINE")]
)
def test_what_perf_yaml_requires_of_a_case_is_required_with_and_without_gate(
    bench: Bench, needs: str, status: str, gate: bool
) -> None:
    suite = bench.suite(machine_with(SXM2), gate=[rule(ONE_RUN, needs, target="v100")])
    suite.gate = replace(suite.gate, enabled=gate)
    case = case_of(suite, ONE_RUN, "v100")
    row = fast(bench, suite, case)
    assert (row.status, row.effect) == (status, "pass" if status == "PASS" else "fail" if gate else "warn")


@pytest.mark.parametrize(("kind", "effect"), [("old", "pass"), ("PIR", "fail")])
def test_a_program_that_is_not_the_published_one_does_not_give_a_gate_its_published_figure(
    bench: Bench, kind: str, effect: str
) -> None:
    suite = bench.suite(machine_with(SXM2), gate=[rule(ONE_RUN, "published", target="v100")])
    case = case_of(suite, ONE_RUN, "v100")
    row = fast(bench, suite, case, facts={"program": kind})
    assert row.effect == effect
    assert [each.sets_status for each in row.published] == [kind == "old"]
    assert f"program: {kind}" in row.reason


def test_a_disputed_figure_is_not_the_one_that_a_gate_needs(bench: Bench) -> None:
    suite = bench.suite(machine_with(*[A100] * 8), gate=[rule(DISPUTED, "published")])
    case = case_of(suite, DISPUTED, "a100")
    row = fast(bench, suite, case)
    assert (row.effect, [each.sets_status for each in row.published]) == ("fail", [False])
    assert "needs a published figure" in row.reason


@pytest.mark.parametrize(("card", "needs"), [(SXM2, "published"), (PCIE, "recorded")])
def test_a_named_case_needs_the_published_figure_where_one_decides_here(bench: Bench, card: str, needs: str) -> None:
    suite = bench.ungated_host(ONE_RUN, machine=machine_with(card))
    case = case_of(suite, ONE_RUN, "v100")
    row = fast(bench, suite, case)
    assert (row.status, row.effect) == (("PASS", "pass") if needs == "published" else ("NO_BASELINE", "fail"))


@pytest.mark.parametrize(
    ("rules", "allowed", "taken_up"),
    [((), True, 2), ((), False, 0), ((rule("*"),), True, 0), ((rule(DALI),), True, 2), ((rule(DALI),), False, 0)],
)
def test_a_contended_run_never_enters_a_gate(
    bench: Bench, rules: tuple[dict[str, str], ...], allowed: bool, taken_up: int
) -> None:
    bench.runner.answers = [{"marks": (CONTENDED,)}, {"marks": (CONTENDED,)}]
    bench.suite(allow_contention=True).measurer.measure(case_of(bench.suite(), SYNTHETIC))
    suite = bench.suite(gate=rules, resume=True, allow_contention=allowed)
    row = row_of(suite.measurer.measure(case_of(suite, SYNTHETIC)))
    assert row.resumed == taken_up
    assert bool(row.marks) is bool(taken_up)


def test_an_owner_and_a_quarantine_reach_the_outcome(bench: Bench) -> None:
    bench.runner.usual = {"samples_per_s": 85.0}
    suite = with_entries(bench, f"owners: [{{pattern: {SYNTHETIC}, owner: vision}}]")
    suite.gate = replace(suite.gate, today=TODAY)
    outcome = suite.measurer.measure(case_of(suite, SYNTHETIC))
    assert (outcome.owner, outcome.gating.quarantine, outcome.gating.judged) == (
        "vision",
        f"until {TODAY}: flaky",
        False,
    )
    assert outcome.told(reason_text).endswith(f"; in quarantine until {TODAY}, so it cannot fail the gate (flaky)")
    # Another process gets the same.
    assert CaseOutcome.from_record(json.loads(json.dumps(outcome.to_record(), default=dict))) == outcome
    suite.gate = replace(suite.gate, today=TODAY + datetime.timedelta(days=1))
    late = suite.measurer.measure(case_of(suite, SYNTHETIC))
    assert (late.gating.effect, late.gating.quarantine, late.gating.judged) == (CaseEffect.FAIL, "", True)


@pytest.mark.parametrize(
    ("began", "passes"),
    # Of the first UTC says the 25th, of the second the 24th.
    [("2026-12-24T23:50:00-08:00", True), ("2026-12-25T00:10:00+08:00", False)],
)
def test_a_quarantine_holds_for_the_night_that_began_on_its_last_date(bench: Bench, began: str, passes: bool) -> None:
    suite = with_entries(bench, "owners: []", record=SessionRecord(began=began))
    assert suite.gate.today == SessionRecord(began=began).date
    outcome = suite.measurer.measure(case_of(suite, SYNTHETIC))
    assert (outcome.gating.quarantine != "") is passes


TODAY = datetime.date(2026, 12, 24)


def with_entries(bench: Bench, owners: str, pattern: str = SYNTHETIC, **changes: Any) -> Suite:
    """A suite of a gate of all CPU cases, with owners and a quarantine in perf.yaml."""
    options = bench.options([rule("*", target="cpu")], **changes)
    text = options.config_path.read_text(encoding="utf-8")
    entry = f"quarantine: [{{pattern: '{pattern}', reason: flaky, until: {TODAY}}}]"
    text = text.replace("\nowners: []", f"\n{owners}").replace("\nquarantine: []", f"\n{entry}")
    options.config_path.write_text(text, encoding="utf-8")
    config = load_config(options.config_path)
    suite = Suite(options, config, bench.published, runner=bench.runner, machine=CPU_MACHINE, memory=bench.memory)
    suite.data = PHOTOGRAPHS
    return suite
