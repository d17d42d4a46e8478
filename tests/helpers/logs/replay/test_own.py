"""Step logs of this suite, judged again."""

from __future__ import annotations

import math
import os
from typing import Any

import pytest

from helpers.history.results import CONTENDED, FAILURE_FACT, REPLAYED, RunResult
from helpers.judging.judge import judge
from helpers.judging.rules import figures
from helpers.judging.verdict import Status, Verdict
from helpers.launch.steplog_reader import read_step_log
from helpers.plan.case_plan import CasePlan, published_references
from helpers.plan.proposals import ProposalKind
from helpers.report.row import row_of
from helpers.session.measure import evidence_of
from helpers.session.suite import Suite
from tests.helpers.logs.replay.bench import (
    CPU_CASE,
    GATE,
    HOST,
    MACHINE,
    PUBLISHED,
    Bench,
    Recorded,
    case_of,
)
from tests.helpers.replay_double import write_result, write_run


def test_their_figures_are_computed_anew(recorded: Recorded) -> None:
    recorded.session("s1", 0.5, 0.25, 0.5)
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert (row.status, row.rule, row.runs) == ("NO_BASELINE", "wall-clock", 3)
    assert row.run_samples_per_s == pytest.approx((8.0, 16.0, 8.0))
    assert row.origin == REPLAYED
    assert row.step_seconds[0] == pytest.approx((0.5,) * 5)
    assert row.reader_share == pytest.approx(0.02)
    assert "recorded: nothing recorded for this case on this machine" in row.reason
    assert "--update-baselines" not in row.reason
    assert {each.rule for each in row.figures} > {"wall-clock", "median-step", "dlperf-log"}


def test_they_are_held_against_what_this_machine_recorded(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.record()
    recorded.session("s1", 0.5, 0.5)
    recorded.bench.memory.asked.clear()
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert row.recorded is not None
    assert (row.recorded.status, row.recorded.reference_samples_per_s) == ("PASS", 8.0)
    assert row.status == "PASS"
    # As it was before their own session, which must not be held against itself.
    _, _, segment, _, session = recorded.bench.memory.asked[-1]
    assert session == "s1"
    assert segment["host"] == HOST.host_id
    assert (recorded.bench.memory.results, recorded.bench.memory.nights) == ([], [])
    assert row.standing is None


def test_to_ask_a_history_that_is_not_there_makes_none(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.record()
    recorded.session("s1", 0.5, 0.5)
    suite = recorded.bench.suite()
    del suite.memory
    assert suite.measure(case_of(suite, CPU_CASE, "cpu")).status is Status.PASS
    assert not (recorded.bench.folder / "runs" / "history.sqlite").exists()


def test_a_drop_is_told_and_nothing_more_is_run(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.record()
    recorded.session("s1", 0.7)
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert row.status == "INCONCLUSIVE"
    assert "nothing is run for comparison" in row.reason
    assert row.runs == 1


def test_those_of_another_machine_are_incomparable(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.record()
    there = {**recorded.result().environment, "host_id": "f" * 16}
    recorded.session("s1", 0.5, environment=there)
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert row.status == "INCOMPARABLE"
    assert "host" in row.reason


def test_without_a_result_nothing_is_held_against_what_was_recorded(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded.record()
    write_run(recorded.bench.logs / "s1" / CPU_CASE / "r0", CPU_CASE)
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert row.status == "NO_BASELINE"
    assert "no result.json" in row.reason


def test_nights_are_no_replicates(recorded: Recorded) -> None:
    for number, name in enumerate(("old", "new")):
        recorded.session(name, 0.5 / (number + 1))
        for path in (recorded.bench.logs / name).rglob("rank0.jsonl"):
            os.utime(path, (1000.0 + number, 1000.0 + number))
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert row.run_samples_per_s == pytest.approx((16.0,))
    assert "of 2 sessions with this case the newest is judged, new, not old" in row.reason


@pytest.mark.parametrize(
    ("field", "status", "effect"), [("failure", "INFRA_ERROR", "error"), ("invalid", "INVALID", "error")]
)
def test_what_broke_stays_broken(recorded: Recorded, field: str, status: str, effect: str) -> None:
    recorded.session("s1", 0.5, **{field: "killed"})
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert (row.status, row.effect) == (status, effect)
    assert "killed" in row.reason


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([{}, {"invalid": "throttled"}, {"invalid": "throttled"}], "NO_BASELINE"),
        ([{}, *[{"invalid": "throttled"}] * 3], "INVALID"),
        ([{}, {"failure": "killed", "facts": {FAILURE_FACT: "killed by a signal"}}], "NO_BASELINE"),
        ([{}, *[{"failure": "killed", "facts": {FAILURE_FACT: "killed by a signal"}}] * 2], "INFRA_ERROR"),
        ([{}, {"failure": "crashed"}], "INFRA_ERROR"),
        ([{"failure": "killed", "facts": {FAILURE_FACT: "killed by a signal"}}], "INFRA_ERROR"),
        ([{"invalid": "throttled"}] * 2, "INVALID"),
        (
            [{"invalid": "throttled"}, {"failure": "killed", "facts": {FAILURE_FACT: "killed by a signal"}}],
            "INFRA_ERROR",
        ),
    ],
)
def test_nothing_that_ended_a_live_case_is_hidden(
    recorded: Recorded, fields: list[dict[str, Any]], status: str
) -> None:
    """perf.yaml: an invalid run is made again twice, one that an infrastructure failure ended once."""
    recorded.session("s1", *[0.5] * len(fields))
    for number, changes in enumerate(fields):
        folder = recorded.bench.logs / "s1" / CPU_CASE / f"r{number}"
        write_result(folder, recorded.result(session="s1", replicate=number), uuid=f"s1{number}", **changes)
    assert recorded.bench.row(CPU_CASE, "cpu").status == status


def test_what_never_started_stays_so(recorded: Recorded) -> None:
    folder = recorded.bench.logs / "s1" / CPU_CASE / "r0"
    folder.mkdir(parents=True)
    for name in ("spec.json", "output.log"):
        (folder / name).write_text("{}")
    write_result(folder, recorded.result(session="s1"), failure="never started")
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert (row.status, row.effect) == ("INFRA_ERROR", "error")
    assert row.reason == f"replayed from s1/{CPU_CASE}/r0 (1 of the 2 runs that the protocol plans): never started"


def test_a_damaged_run_is_told_beside_the_others(recorded: Recorded) -> None:
    recorded.session("s1", 0.5, 0.5)
    (recorded.bench.logs / "s1" / CPU_CASE / "r0" / "rank0.jsonl").write_text("{")
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert row.runs == 1
    assert f"s1/{CPU_CASE}/r0 beside them could not be read" in row.reason


def test_a_run_of_another_case_of_the_model_is_the_closest(recorded: Recorded) -> None:
    recorded.session("s1", 0.5)
    row = recorded.bench.row(CPU_CASE.replace("bs4", "bs8"), "cpu")
    assert row.reason == f"no log of this case; closest: s1/{CPU_CASE}/r0 (its case is {CPU_CASE})"


@pytest.mark.parametrize("share", [1.02, 0.951, 0.949, 0.5])
def test_a_replayed_step_log_is_judged_as_the_run_that_wrote_it(bench: Bench, share: float) -> None:
    """The published question: status, figure, reference, tolerance, ratio and what decides, and the case's status."""
    card = "Tesla V100-SXM2-32GB"
    seconds = [256 / (share * PUBLISHED)] * 340
    folder = write_run(
        bench.logs / "s1" / GATE / "r0", GATE, seconds, device="gpu", batch=256, facts={"device_name": card}
    )
    logs = [read_step_log(folder / "rank0.jsonl")]
    suite = bench.suite()
    case = case_of(suite, GATE, "v100")
    tolerance = suite.config.tolerances.of(GATE).published
    live = RunResult("job", "s1", GATE, "v100", 0, "2024-05-06T07:08:09+00:00", figures=figures(logs))
    plan = CasePlan(case, published=published_references(case.figures, card, tolerance))
    verdict = judge(evidence_of(plan, (live,)))
    assert isinstance(verdict, Verdict)
    row = row_of(suite.measure(case))
    (answer,) = row.published
    (expected,) = verdict.published
    assert (answer.status, answer.measured_samples_per_s, answer.reference_samples_per_s, answer.tolerance) == (
        expected.status.value,
        expected.measured,
        expected.reference,
        expected.tolerance,
    )
    assert (answer.rule, answer.label, answer.sets_status) == (expected.rule, expected.label, expected.sets_status)
    assert answer.reason == expected.reason.message
    assert row.status == verdict.status.value == ("PASS" if share > 0.95 else "BELOW_PUBLISHED")


def test_what_was_invalid_and_made_again_is_judged_by_the_rest(recorded: Recorded) -> None:
    recorded.session("s1", 0.5, 0.5)
    folder = recorded.bench.logs / "s1" / CPU_CASE / "r0"
    write_result(folder, recorded.result(session="s1"), uuid="s10", invalid="throttled")
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert (row.status, row.runs) == ("NO_BASELINE", 1)
    assert row.set_aside[0].startswith("r0: throttled; invalid: ")


def test_a_disturbed_run_keeps_its_mark_and_stays_out_of_a_gate(recorded: Recorded) -> None:
    recorded.session("s1", 0.5, marks=(CONTENDED,), contention="40% by cc1")
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert row.marks == ("contended in 1 of 1 runs: 40% by cc1",)
    assert row.status == "NO_BASELINE"
    gated = recorded.bench.row(CPU_CASE, "cpu", gate=f"{{cases: '{CPU_CASE}', needs: recorded}}", session="again")
    assert (gated.status, gated.effect) == ("INVALID", "error")


@pytest.mark.slow
def test_a_confirmation_is_judged_again_with_its_pairs(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.record()
    good = {"interpreter": "/envs/good/bin/python", "framework": "paddle", "version": "3.0.0", "commit": "abcdef"}
    new = {**good, "interpreter": "/envs/new/bin/python", "commit": "123456"}
    plan = [("candidate", "screen", 0.6)]
    for number in range(8):
        plan += [("reference", "confirm", 0.5 + 1e-4 * number), ("candidate", "confirm", 0.6 + 1e-4 * number)]
    for number, (role, stage, seconds) in enumerate(plan):
        folder = write_run(recorded.bench.logs / "s1" / CPU_CASE / f"r{number}", CPU_CASE, seconds, job_id=f"j{number}")
        build = good if role == "reference" else new
        result = recorded.result(session="s1", replicate=number, role=role, stage=stage, build=build)
        write_result(folder, result, uuid=f"j{number}")
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert row.status == "REGRESSION", row.reason
    assert len(row.pairs) == 8
    assert row.effect == "fail"
    assert math.isclose(row.pairs[0].reference_samples_per_s, 8.0)


def test_the_recording_code_refuses_what_was_replayed(recorded: Recorded) -> None:
    recorded.session("s1", 0.5, 0.5)
    suite = recorded.bench.suite()
    outcome = suite.measure(case_of(suite, CPU_CASE, "cpu"))
    options, config = suite.options, suite.config
    plain = Suite(options, config, recorded.bench.published, machine=MACHINE, memory=recorded.bench.memory)
    (proposal,) = plain.propose([outcome])
    assert proposal.kind is ProposalKind.REFUSED
    assert proposal.reason == "replayed from logs: a baseline holds what this machine measured"
