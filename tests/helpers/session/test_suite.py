"""A suite: what it loads, what it selects and refuses before measuring, and what it asks of the history."""

from __future__ import annotations

import shutil
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

import helpers.session.measuring.measurer
import helpers.session.recording
import helpers.session.suite
from helpers.judging.case.evidence import Past
from helpers.judging.case.verdict import Status
from helpers.machine.devices import Machine
from helpers.plan.baseline_files import BASELINES
from helpers.plan.case_plan import CasePlan, SuiteCase
from helpers.plan.perf_yaml import HistoryConfig
from helpers.plan.proposals import ProposalKind
from helpers.report.row import row_of
from helpers.session.measuring.case_loop import MeasureRequest, not_run
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import BaselineError, ConfigError, DatasetError, HistoryError
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.memory_double import MemoryDouble
from tests.helpers.session.workshop import (
    A100,
    CPU_MACHINE,
    DALI,
    H200,
    HOST,
    ONE_RUN,
    SXM2,
    SYNTHETIC,
    Bench,
    Builds,
    case_of,
    machine_with,
    record,
    rule,
)


@pytest.mark.parametrize("target", ["v100", "a100"])
def test_a_published_file_that_is_missing_is_an_error(bench: Bench, target: str) -> None:
    shutil.copytree(BASELINES / "published", bench.baselines / "published")
    (bench.baselines / "published" / f"{target}.json").unlink()
    with pytest.raises(BaselineError, match=rf"{target}\.json"):
        Suite.load(bench.options(), bench.runner, CPU_MACHINE, bench.memory)


def short_selection(suite: Suite) -> frozenset[tuple[str, str]]:
    return frozenset(case.key for case in suite.cases if case.short)


def test_without_a_gpu_the_short_cpu_list_runs(bench: Bench) -> None:
    suite = bench.suite()
    here, told = suite.selection_here()
    assert here == short_selection(suite)
    assert {target for target, _ in here} == {"cpu"}
    assert "the short CPU selection, 4 cases" in told
    assert f"{len(suite.cases) - 4} left out" in told
    assert "no libnvidia-ml.so.1" in told


@pytest.mark.parametrize(("gpus", "most_cards"), [(1, 1), (8, 8)])
def test_a_v100_machine_runs_the_v100_cases_that_fit_it(bench: Bench, gpus: int, most_cards: int) -> None:
    suite = bench.suite(machine_with(*[SXM2] * gpus))
    here, told = suite.selection_here()
    expected = {
        case.key
        for case in suite.cases
        if case.target == "v100"
        and case.case.framework is Framework.PADDLE
        and case.case.nodes == 1
        and case.case.cards <= most_cards
    }
    assert here == expected
    assert expected
    assert f"the {len(expected)} cases that {SXM2} runs" in told


def test_a_case_for_any_card_is_not_run_beside_the_same_case_of_the_cards_model(bench: Bench, builds: Builds) -> None:
    """A recorded figure is kept by case id: two of one id in a session would be one figure of two."""
    builds.frameworks = (Framework.PADDLE, Framework.PYTORCH)
    both = "pytorch-resnet50v1.5-amp-bs256-1x1-synthetic"
    suite = bench.suite(machine_with(SXM2))
    assert suite.why_not(case_of(suite, both, "gpu")) == "this machine's V100 has this case of its own (-m v100)"
    assert suite.why_not(case_of(suite, both, "v100")) is None
    assert suite.why_not(case_of(suite, both.replace("amp", "fp32"), "gpu")) is None
    suite.measurer.prepare(suite.cases)
    assert bench.suite(machine_with(H200)).why_not(case_of(suite, both, "gpu")) is None


def test_what_is_recorded_on_any_card_is_compared_on_it_and_not_on_another(bench: Bench) -> None:
    case_id = "paddle-resnet50v1.5-bf16-bs256-1x1-synthetic-static"
    suite = bench.suite(machine_with(H200), to_record=True)
    outcome = suite.measurer.measure(case_of(suite, case_id, "gpu"))
    row = row_of(outcome)
    assert (row.status, row.target) == ("NO_BASELINE", "gpu")
    (written,) = suite.recorder.write([outcome], suite.recorder.propose([outcome]))
    assert written.kind is ProposalKind.CREATED
    again = row_of(bench.suite(machine_with(H200)).measurer.measure(case_of(suite, case_id, "gpu")))
    assert again.recorded is not None
    assert again.status == "PASS", again.reason
    other = bench.suite(machine_with("NVIDIA H100 PCIe")).measurer.measure(case_of(suite, case_id, "gpu"))
    assert other.status is Status.NO_BASELINE


@pytest.mark.parametrize("machine", [CPU_MACHINE, machine_with(SXM2)])
def test_under_the_gate_its_cases_are_selected_on_whatever_target(bench: Bench, machine: Machine) -> None:
    suite = bench.suite(machine, gate=[rule("paddle-resnet50v1.5-amp*"), rule("paddle-vgg16-*-1x2-*")])
    here, told = suite.selection_here()
    patterns = ("paddle-resnet50v1.5-amp*", "paddle-vgg16-*-1x2-*")
    expected = {case.key for case in suite.cases if any(fnmatchcase(case.case.id, each) for each in patterns)}
    assert here == expected
    assert {target for target, _ in here} == {"cpu", "v100", "a100", "gpu"}
    assert f"the gate's {len(expected)} cases" in told


def test_another_machines_recorded_file_is_refused_before_measuring(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    suite = bench.suite(replace(CPU_MACHINE, facts=replace(HOST, cpu_model="Xeon")))
    bench.suite().baselines.path("cpu").rename(suite.baselines.path("cpu"))
    with pytest.raises(BaselineError, match="machine_key"):
        suite.measurer.prepare([case_of(suite, SYNTHETIC)])


def test_missing_data_are_refused_before_measuring_where_a_case_reads_any(bench: Bench) -> None:
    suite = bench.suite(data_root=str(bench.folder / "nowhere"))
    with pytest.raises(DatasetError, match="nowhere"):
        suite.measurer.prepare([case_of(suite, SYNTHETIC), case_of(suite, DALI)])
    assert suite.measurer.prepare([case_of(suite, SYNTHETIC)]) is None


@pytest.mark.parametrize(
    ("overrides", "wrong"), [({"no_such": 1}, "no_such"), ({"learning_rate": "x"}, "learning_rate")]
)
def test_a_setting_that_does_not_exist_is_refused_before_measuring(
    bench: Bench, overrides: dict[str, Any], wrong: str
) -> None:
    suite = bench.suite(overrides=overrides)
    with pytest.raises(ConfigError, match=wrong):
        suite.measurer.prepare([case_of(suite, SYNTHETIC)])


def test_an_override_equal_to_the_case_s_own_value_is_none(bench: Bench) -> None:
    suite = bench.suite(overrides={"momentum": 0.9, "weight_decay": 0.001})
    suite.measurer.measure(case_of(suite, SYNTHETIC))
    results = bench.runner.store.results(SYNTHETIC)
    assert results
    assert {tuple(result.overrides.items()) for result in results} == {(("weight_decay", 0.001),)}
    assert {result.settings["weight_decay"] for result in results} == {0.001}


@pytest.mark.parametrize(
    ("overrides", "status"),
    [({"learning_rate": 0.05}, "PASS"), ({"momentum": 0}, "INCOMPARABLE"), ({"dali.threads": 3}, "INCOMPARABLE")],
)
def test_a_published_figure_is_for_settings_that_matter_as_published(
    bench: Bench, overrides: dict[str, Any], status: str
) -> None:
    suite = bench.suite(machine_with(SXM2), overrides=overrides)
    bench.runner.answers = [{"figures": {"wall-clock": 1438.0, "paddleclas-trimmed": 1438.0}}]
    row = row_of(suite.measurer.measure(case_of(suite, ONE_RUN, "v100")))
    assert [answer.status for answer in row.published] == [status]
    assert next(iter(overrides)) in row.published[0].reason


def test_one_case_on_two_kinds_of_card_is_refused(bench: Bench) -> None:
    suite = bench.suite(machine_with(SXM2, A100))
    targets: dict[str, list[SuiteCase]] = {}
    for case in suite.cases:
        if case.case.framework is Framework.PADDLE and case.case.cards == 1 and case.device == "gpu":
            targets.setdefault(case.case.id, []).append(case)
    both = next(cases for cases in targets.values() if len(cases) == 2)
    with pytest.raises(ConfigError, match="two targets"):
        suite.measurer.prepare(both)
    assert suite.measurer.prepare(both[:1]) is None


@pytest.mark.parametrize("pattern", [SYNTHETIC.replace("bs4", "bs5"), "paddle-resnet51*"])
def test_a_gate_pattern_that_means_no_case_is_refused_with_the_nearest_ids(bench: Bench, pattern: str) -> None:
    with pytest.raises(ConfigError) as caught:
        bench.suite(gate=[rule(SYNTHETIC), rule(pattern)])
    assert caught.value.got == pattern


def test_the_header_names_the_history_and_the_reference_build(bench: Bench) -> None:
    (history,) = [line for line in bench.suite().header_lines() if line.startswith("history: ")]
    assert "runs/history.sqlite" in history
    assert "no reference build" in history
    suite = bench.suite(builds=bench.good, history_url="postgresql://me:p@ss@db/perf?sslpassword=x")
    (history,) = [line for line in suite.header_lines() if line.startswith("history: ")]
    assert history == (
        "history: postgresql://me:***@db/perf?sslpassword=***; reference build: paddlepaddle 3.0.0 @abcdef (good)"
    )


def test_the_command_line_s_history_comes_before_perf_yaml_s(bench: Bench) -> None:
    suite = bench.suite()
    suite.config = replace(suite.config, history=HistoryConfig("sqlite:///a.sqlite"))
    assert f"sqlite:///{suite.config.path.parent / 'a.sqlite'}" in suite.header_lines()[-1]
    suite.options = replace(suite.options, history_url="sqlite:///b.sqlite")
    assert f"sqlite:///{Path.cwd() / 'b.sqlite'}" in suite.header_lines()[-1]


def test_a_history_that_cannot_be_opened_is_refused_before_measuring(bench: Bench) -> None:
    (bench.folder / "runs").write_text("a file where a folder is wanted")
    suite = bench.suite(history_url=f"sqlite:///{bench.folder}/runs/history.sqlite")
    del suite.memory
    with pytest.raises(HistoryError):
        suite.measurer.prepare([case_of(suite, SYNTHETIC)])
    assert bench.runner.asked == []


@pytest.mark.slow
def test_a_history_that_is_away_is_no_error_and_its_entries_wait(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    suite = bench.suite(history_url="postgresql://me:secret@127.0.0.1:1/perf")
    del suite.memory
    assert suite.history_notes() == ()
    suite.measurer.prepare([case_of(suite, SYNTHETIC)])
    row = row_of(suite.measurer.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.code, row.effect) == ("INCONCLUSIVE", "history-unreachable", "warn")
    assert "unreachable" in row.reason and "95%" in row.reason
    (note,) = suite.history_notes()
    assert "1 case" in note and "secret" not in note + row.reason
    assert suite.history_lacks() == 1
    assert "(it lacks 1 case)" in suite.header_lines()[-1]


def test_a_case_whose_history_did_not_answer_is_judged_from_its_runs_when_the_session_is_resumed(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    suite = bench.suite(gate=[rule("*")])
    away = MemoryDouble(Past(unreachable="history away since 01:02:03"))
    suite.memory = away
    before = suite.measurer.measure(case_of(suite, SYNTHETIC))
    assert (before.verdict.reason.code, before.gating.effect.value) == ("history-unreachable", "fail")
    made = len(bench.runner.asked)
    resumed = bench.suite(gate=[rule("*")], resume=True)
    after = resumed.measurer.measure(case_of(resumed, SYNTHETIC))
    assert after.status is Status.PASS and after.gating.effect.value == "pass"
    assert [run.uuid for run in after.runs[: len(before.runs)]] == [run.uuid for run in before.runs]
    # What is there is not run again.
    assert (SYNTHETIC, 0) not in bench.runner.asked[made:]


def test_a_full_disk_is_told_by_its_class_first(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise HistoryError("history x", got=str(OSError(28, "No space left on device")))

    monkeypatch.setattr(bench.memory, "add_case", full)
    suite = bench.suite()
    row = row_of(suite.measurer.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.runs) == ("INFRA_ERROR", 2)
    assert row.reason.startswith("disk full: history x")


def test_the_error_rates_hold_over_the_cases_that_run_here(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    def measured(plan: CasePlan, runner: object, store: object, memory: object, request: MeasureRequest) -> Any:
        told.append(request.cases_tonight)
        return not_run(plan, "x")

    monkeypatch.setattr(helpers.session.measuring.measurer, "measure_case", measured)
    suite = bench.suite()
    case = case_of(suite, SYNTHETIC)
    suite.measurer.prepare([case, case_of(suite, DALI), case_of(suite, ONE_RUN, "v100")])
    suite.measurer.measure(case)
    assert told == [2]


def test_a_history_that_refuses_costs_a_page_its_nights_alone(bench: Bench) -> None:
    suite = bench.suite()
    outcome = suite.measurer.measure(case_of(suite, SYNTHETIC))
    bench.memory.fails = ("nights_so_far",)
    assert "the history did not answer: " in suite.details_of(outcome, "").nights.unknown
