"""Logs judged in the place of runs: by which rule, against what; and what never comes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.history.results import REPLAYED
from helpers.history.run_folders import ResultStore, read_result
from helpers.judging.evidence import Build, Stage
from helpers.logs.replay.judging import ReplayRunner, published_for
from helpers.logs.replay.logs import LoggedRun
from helpers.plan.case_plan import CasePlan
from helpers.trainers.contract.errors import BaselineError, ResultError
from tests.helpers.importing_double import MXNET, PADDLE, imported, write_log
from tests.helpers.logs.replay.bench import (
    GATE,
    PUBLISHED,
    SHOWN,
    Bench,
    case_of,
)

# --- judged by the published rule against the published figure


@pytest.mark.parametrize(
    ("share", "status", "effect"),
    [(1.02, "PASS", "pass"), (0.951, "PASS", "pass"), (0.949, "BELOW_PUBLISHED", "fail")],
)
def test_the_published_band_is_a_live_runs(bench: Bench, share: float, status: str, effect: str) -> None:
    bench.log("a.log", PADDLE, share * PUBLISHED)
    row = bench.row(GATE)
    assert (row.status, row.effect) == (status, effect)
    assert row.samples_per_s == pytest.approx(share * PUBLISHED)
    assert row.rule == "paddleclas-trimmed"
    (answer,) = row.published
    assert answer.reference_samples_per_s == PUBLISHED
    assert answer.ratio == pytest.approx(share)
    assert answer.tolerance == 0.05
    assert answer.rule == "paddleclas-trimmed"


def test_another_rules_figure_never_stands_for_the_published_rules(bench: Bench) -> None:
    figures = {"paddleclas-mean": 500.0, "paddleclas-trimmed": "9 records, expected 21", "honest": 500.0}
    write_log(bench.logs / "V100-LOG" / "a.log", PADDLE, figures)
    row = bench.row(GATE)
    assert row.status == "INCONCLUSIVE"
    assert (row.rule, row.samples_per_s) == ("paddleclas-mean", 500.0)
    assert (row.published[0].measured_samples_per_s, row.published[0].ratio) == (None, None)
    assert "9 records, expected 21" in row.reason


def test_a_rule_with_its_parameter_is_that_rule_and_two_parameters_are_none(bench: Bench) -> None:
    settings = {**MXNET, "framework": "tensorflow", "data": "native", "xla": "true"}
    case_id = "tensorflow-resnet50v1.5-amp-bs256-1x1-native-xla"
    write_log(bench.logs / "V100-LOG" / "a.log", settings, {"ngc-tf-mean:skip=5": 1200.0})
    assert bench.row(case_id).published[0].measured_samples_per_s == 1200.0
    write_log(bench.logs / "V100-LOG" / "a.log", settings, {"ngc-tf-mean:skip=5": 1200.0, "ngc-tf-mean:skip=9": 1100.0})
    assert bench.row(case_id, session="again").published[0].measured_samples_per_s is None


def test_a_rule_over_runs_is_not_kept_by_fewer_logs(bench: Bench) -> None:
    settings = {**PADDLE, "model": "vgg16", "batch_size_per_card": "32"}
    case_id = "paddle-vgg16-fp32-bs32-1x1-native-static"
    for number in range(6):
        write_log(bench.logs / f"V100-LOG/{number}.log", settings, {"fleetx-20-100-median7": 250.0 + number})
    row = bench.row(case_id)
    assert row.status == "INCONCLUSIVE"
    assert "is the median of 7 runs, 6 were made" in row.reason
    assert "6 of the 7 runs that the protocol plans" in row.reason
    write_log(bench.logs / "V100-LOG/6.log", settings, {"fleetx-20-100-median7": 256.0})
    row = bench.row(case_id, session="again")
    assert (row.status, row.runs, row.samples_per_s) == ("PASS", 7, 253.0)
    assert row.published[0].ratio == pytest.approx(253.0 / 252.68)


def test_a_figure_that_is_only_shown_sets_no_status(bench: Bench) -> None:
    write_log(bench.logs / "V100-LOG" / "a.log", {**MXNET, "data": "dali"}, {"ngc-mxnet-epochs": 700.0})
    row = bench.row(SHOWN)
    assert row.status == "NO_BASELINE"
    assert (row.published[0].status, row.published[0].sets_status) == ("BELOW_PUBLISHED", False)


def test_a_log_without_any_figure_is_no_pass(bench: Bench) -> None:
    write_log(bench.logs / "V100-LOG" / "a.log", PADDLE, {"paddleclas-trimmed": "no records"})
    row = bench.row(GATE)
    assert (row.status, row.effect, row.samples_per_s) == ("INFRA_ERROR", "error", None)
    assert "no records" in row.reason


@pytest.mark.parametrize(
    ("gpu", "applies", "told"),
    [
        ("V100", True, "(the log says V100)"),
        ("Tesla V100-SXM2-32GB", True, "V100-SXM2-32GB, paddle"),
        ("V100-SXM2-16GB", False, ""),
        ("V100-PCIE-32GB", False, ""),
        ("A100", False, ""),
        ("", False, ""),
        ("V100-SXM2-32GB MIG 1g.5gb", False, ""),
    ],
)
def test_a_figure_is_of_the_card_as_far_as_the_log_tells_it(bench: Bench, gpu: str, applies: bool, told: str) -> None:
    case = case_of(bench.suite(), GATE, "v100")
    found = published_for(case, [gpu], 0.05)
    assert bool(found) is applies
    assert all(told in each.label for each in found)
    assert published_for(case, [gpu, "A100"], 0.05) == ()


# --- marked everywhere, and no reference for anything


def test_it_is_marked_and_tells_where_it_comes_from(bench: Bench) -> None:
    bench.log("a.log", PADDLE, PUBLISHED)
    row = bench.row(GATE)
    assert row.origin == REPLAYED
    assert row.reason.startswith("replayed from V100-LOG/a.log")
    (source,) = row.sources
    assert source.startswith("V100-LOG/a.log, lines 1-90, nvidia-mxnet, sha256 ")
    assert {each.rule for each in row.figures} == {"paddleclas-trimmed", "honest"}
    assert "few records: 80" in row.warnings
    result = read_result(bench.folder / "runs" / "tonight" / GATE / "r0" / "result.json")
    assert (result.origin, result.target) == (REPLAYED, "v100")
    assert result.facts["setting gpu"] == "V100 (folder name V100-LOG)"
    assert result.verdict is not None
    assert result.verdict["status"] == row.status


def test_no_recorded_figure_is_asked_of_another_programs_log(bench: Bench) -> None:
    bench.log("a.log", PADDLE, PUBLISHED)
    row = bench.row(GATE)
    assert row.recorded is not None
    assert row.recorded.status == "NO_BASELINE"
    assert "not compared, since another program's log holds neither" in row.recorded.reason
    assert "--update-baselines" not in row.reason
    assert row.standing is None


def test_nothing_is_asked_of_the_history_and_nothing_goes_in(bench: Bench) -> None:
    bench.log("a.log", PADDLE, PUBLISHED)
    suite = bench.suite()
    outcome = suite.measure(case_of(suite, GATE, "v100"))
    assert (bench.memory.results, bench.memory.nights, bench.memory.asked) == ([], [], [])
    assert suite.history_notes() == ()
    assert not list((bench.folder / "runs").rglob("night.json"))
    with pytest.raises(BaselineError, match="replayed"):
        suite.propose([outcome])
    with pytest.raises(BaselineError, match="replayed"):
        suite.write_baselines([outcome], [])


def test_to_confirm_a_suspicion_judges_the_logs_again(bench: Bench) -> None:
    bench.log("a.log", PADDLE, PUBLISHED)
    suite = bench.suite()
    case = case_of(suite, GATE, "v100")
    assert suite.confirm(case, "all amp cases fell").reason == suite.measure(case).reason


def test_a_runner_of_logs_has_no_more_runs_than_logs(bench: Bench, tmp_path: Path) -> None:
    case = case_of(bench.suite(), GATE, "v100")
    run = LoggedRun("a.log", imported(PADDLE), imported(PADDLE).settings)
    runner = ReplayRunner(case, [run], ResultStore(tmp_path / "runs", "s"))
    assert runner.run(CasePlan(case), 0).origin == REPLAYED
    with pytest.raises(ResultError, match="run 2"):
        runner.run(CasePlan(case), 1, Build.CANDIDATE, Stage.SCREEN)
