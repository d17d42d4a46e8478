"""Cases that a suite measures, resumes or cannot run, without a training."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import helpers.machine.frameworks
import helpers.session.measuring
import helpers.session.run_job
import helpers.session.suite
from helpers.machine.devices import CpuCard, Machine
from helpers.machine.frameworks import BuildFinder, FrameworkBuild
from helpers.report.row import row_of
from helpers.report.sentences import sentence_of
from helpers.report.text import render
from helpers.session.outcome import CaseOutcome
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.session.workshop import (
    CPU_MACHINE,
    DALI,
    H200,
    HOST,
    ONE_RUN,
    ROOT,
    SXM2,
    SYNTHETIC,
    Bench,
    Builds,
    FakeRunner,
    case_of,
    machine_with,
    record,
    rule,
)

NATIVE = SYNTHETIC.replace("synthetic", "native")


def test_a_case_is_measured_by_its_protocol_and_told(bench: Bench) -> None:
    suite = bench.suite()
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert bench.runner.asked == [(SYNTHETIC, 0), (SYNTHETIC, 1)]
    assert (row.status, row.effect, row.judged, row.samples_per_s) == ("NO_BASELINE", "warn", True, 100.0)
    assert [Path(folder).name for folder in row.run_folders] == ["r0", "r1"]
    assert row.framework["distribution"] == "paddlepaddle-gpu"


@pytest.mark.parametrize(
    ("machine", "case_id", "target", "told"),
    [
        (CPU_MACHINE, ONE_RUN, "v100", "found no NVIDIA GPU"),
        (machine_with(H200), ONE_RUN, "v100", H200),
        (machine_with(SXM2), ONE_RUN.replace("1x1", "1x8"), "v100", "needs 8 cards"),
        (replace(CPU_MACHINE, cpu_cards=(CpuCard(0, (0,)),)), DALI.replace("1x1", "1x2"), "cpu", "needs 2 cards"),
    ],
)
def test_a_case_that_this_machine_cannot_run_has_its_reason(
    bench: Bench, machine: Machine, case_id: str, target: str, told: str
) -> None:
    suite = bench.suite(machine)
    row = row_of(suite.measure(case_of(suite, case_id, target)))
    assert (row.status, row.effect, row.runs) == ("not run", "skip", 0)
    assert told in row.reason
    assert bench.runner.asked == []


@pytest.mark.parametrize(
    ("distribution", "told"), [("paddlepaddle", "has no GPU kernels"), ("", "paddle is not installed")]
)
def test_a_gpu_case_without_a_gpu_build_has_its_reason(
    bench: Bench, builds: Builds, distribution: str, told: str
) -> None:
    builds.distribution = distribution
    suite = bench.suite(machine_with(SXM2))
    row = row_of(suite.measure(case_of(suite, ONE_RUN, "v100")))
    assert row.status == "not run"
    assert told in row.reason


@pytest.mark.parametrize(
    ("libraries", "driver", "told"),
    [
        (
            {"cuda": "12.6"},
            "470.82",
            "the NVIDIA driver is 470.82; a build for CUDA 12.6 needs 525 or newer",
        ),
        (
            {"cuda": "11.8", "archs": "75 80"},
            "535.1",
            f"{SXM2} is sm_70, paddlepaddle-gpu 3.0.0 has kernels for sm",
        ),
        ({"cuda": "13.0"}, "580.1", f"{SXM2} is sm_70, paddlepaddle-gpu 3.0.0 is for sm_75 to sm_121: install a build"),
    ],
    ids=["driver too old", "no kernels", "card older than the toolkit"],
)
def test_a_build_that_driver_or_card_rules_out_is_said_before_anything_is_started(
    bench: Bench, builds: Builds, libraries: dict[str, str], driver: str, told: str
) -> None:
    builds.libraries = libraries
    suite = bench.suite(replace(machine_with(SXM2), driver=driver, cuda_driver="11.4"))
    row = row_of(suite.measure(case_of(suite, ONE_RUN, "v100")))
    assert row.status == "not run"
    assert told in row.reason


@pytest.mark.parametrize(("case_id", "target"), [(ONE_RUN, "v100"), (NATIVE.replace("native", "dali"), "cpu")])
def test_without_dali_only_the_cases_that_read_through_it_are_not_run(
    bench: Bench, builds: Builds, case_id: str, target: str
) -> None:
    builds.no_dali = "make env could not have it: no such host"
    suite = bench.suite(machine_with(SXM2))
    assert "reads through DALI" in str(suite.why_not(case_of(suite, case_id, target)))
    assert "no such host" in str(suite.why_not(case_of(suite, case_id, target)))
    assert suite.why_not(case_of(suite, NATIVE, "cpu")) is None


@pytest.mark.parametrize("libraries", [{"cuda": "11.8", "archs": "70 75"}, {"cuda": "11.2"}, {}])
def test_a_build_that_may_run_is_not_ruled_out(bench: Bench, builds: Builds, libraries: dict[str, str]) -> None:
    builds.libraries = libraries
    suite = bench.suite(replace(machine_with(SXM2), driver="470.82", cuda_driver="11.4"))
    assert suite.why_not(case_of(suite, ONE_RUN, "v100")) is None


@pytest.mark.parametrize(
    ("case_id", "target", "told"),
    [
        (NATIVE, "cpu", "there is no /dev/shm, and 1 reader worker share memory through it. Mount it: mount -t tmpfs"),
        (ONE_RUN.replace("1x1", "1x8"), "v100", "there is no /dev/shm, and NCCL on 8 cards share memory through it"),
        (SYNTHETIC, "cpu", ""),
        (ONE_RUN, "v100", ""),
    ],
)
def test_without_shared_memory_only_the_cases_that_use_it_are_not_run(
    bench: Bench, case_id: str, target: str, told: str
) -> None:
    machine = replace(machine_with(*[SXM2] * 8), shared_memory_problem="there is no /dev/shm")
    suite = bench.suite(machine)
    row = row_of(suite.measure(case_of(suite, case_id, target)))
    assert (row.status == "not run") is bool(told)
    assert told in row.reason


def test_pytorchs_build_for_cpus_runs_no_gpu_case(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else a GPU machine without a marker would choose cases that its trainer refuses one by one."""
    known = {"2.13.0+cpu": "the short CPU selection", "2.13.0+cu130": f"cases that {H200} runs"}
    for version, told in known.items():
        torch = FrameworkBuild("/python", Framework.PYTORCH, "torch", version)
        monkeypatch.setattr(
            BuildFinder,
            "find_build",
            lambda self, framework, path=None, torch=torch: torch if framework is Framework.PYTORCH else "not here",
        )
        options = SuiteOptions(ROOT / "perf.yaml", ROOT / "baselines", tmp_path, "s")
        assert told in Suite.load(options, machine=machine_with(H200)).selection_here()[1]


def test_the_cpu_build_runs_the_cpu_cases(bench: Bench, builds: Builds) -> None:
    builds.distribution = "paddlepaddle"
    suite = bench.suite(machine_with(SXM2))
    assert row_of(suite.measure(case_of(suite, SYNTHETIC))).status == "NO_BASELINE"


def test_an_error_while_measuring_is_a_row_with_the_runs_that_were_finished(bench: Bench) -> None:
    bench.runner.answers = [{"wall_seconds": 12.0}, LaunchError("job", got="no port", expected="a free port")]
    suite = bench.suite()
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.effect, row.code) == ("INFRA_ERROR", "error", "LaunchError")
    assert "a free port" in row.reason
    assert (row.samples_per_s, row.runs, row.wall_seconds) == (100.0, 1, 12.0)
    assert [Path(folder).name for folder in row.run_folders] == ["r0"]


def test_data_that_vanish_before_a_case_are_an_infra_error_of_it(bench: Bench) -> None:
    suite = bench.suite(data_root=str(bench.folder / "nowhere"))
    row = row_of(suite.measure(case_of(suite, DALI)))
    assert (row.status, row.code) == ("INFRA_ERROR", "DatasetError")
    assert bench.runner.asked == []


def test_a_recorded_file_that_is_damaged_meanwhile_is_an_infra_error(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    suite = bench.suite()
    suite.baselines.path("cpu").write_text("{", encoding="utf-8")
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.code) == ("INFRA_ERROR", "BaselineError")
    assert bench.runner.asked == []


def test_resuming_takes_up_what_is_on_disk(bench: Bench) -> None:
    bench.suite().measure(case_of(bench.suite(), SYNTHETIC))
    bench.runner.asked.clear()
    suite = bench.suite(resume=True)
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert (bench.runner.asked, row.resumed, row.runs) == ([], 2, 2)


def test_a_damaged_result_of_a_resumed_session_is_an_infra_error_that_names_it(bench: Bench) -> None:
    bench.suite().measure(case_of(bench.suite(), SYNTHETIC))
    (damaged, _) = sorted(bench.suite().store.folder.glob("*/r*/result.json"))
    damaged.write_text("{", encoding="utf-8")
    suite = bench.suite(resume=True)
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert row.status == "INFRA_ERROR"
    assert str(damaged) in row.reason


@pytest.mark.parametrize(
    "other",
    [
        replace(CPU_MACHINE, facts=replace(HOST, host_id="f" * 16)),
        replace(CPU_MACHINE, facts=replace(HOST, cpu_model="Xeon")),
        replace(CPU_MACHINE, facts=replace(HOST, logical_cores=64)),
        replace(CPU_MACHINE, cpu_cards=(CpuCard(0, (0, 1)),)),
    ],
)
def test_resuming_on_another_machine_measures_again(bench: Bench, other: Machine) -> None:
    bench.suite().measure(case_of(bench.suite(), SYNTHETIC))
    bench.runner.asked.clear()
    suite = bench.suite(other, resume=True)
    assert suite.measure(case_of(suite, SYNTHETIC)).resumed == 0
    assert len(bench.runner.asked) == 2


def test_resuming_with_other_variables_of_the_shell_measures_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.suite().measure(case_of(bench.suite(), SYNTHETIC))
    bench.runner.asked.clear()
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    suite = bench.suite(resume=True)
    assert suite.measure(case_of(suite, SYNTHETIC)).resumed == 0
    assert len(bench.runner.asked) == 2


def test_resuming_on_other_hosts_measures_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = SimpleNamespace(nodes="a + b")
    bench.runner.connected = hosts  # type: ignore[assignment]
    monkeypatch.setattr(helpers.session.measuring, "leased_runner", lambda *_: nullcontext(bench.runner))
    resumed = []
    for nodes in ("a + b", "a + b", "a + c"):
        hosts.nodes = nodes
        suite = bench.suite(real_runner=True, resume=True)
        resumed.append(suite.measure(case_of(suite, SYNTHETIC)).resumed)
    assert resumed == [0, 2, 0]


@pytest.mark.parametrize("share_machine", [False, True])
@pytest.mark.parametrize(("rules", "allows"), [((), True), ((rule("*"),), False), ((rule(DALI),), True)])
def test_the_real_runner_gets_the_leased_cards_and_is_told_what_is_allowed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, rules: tuple[dict[str, str], ...], allows: bool, share_machine: bool
) -> None:
    leased: list[Any] = []
    given: list[dict[str, Any]] = []

    def lease(cards: Any, count: int, what: str, *, exclusive_machine: bool, **others: Any) -> Any:
        leased.append((cards, count, what, exclusive_machine))
        return nullcontext(SimpleNamespace(cards=cards[:count]))

    def runner(**values: Any) -> FakeRunner:
        given.append(values)
        return bench.runner

    monkeypatch.setattr(helpers.session.run_job, "Leases", lambda folder: SimpleNamespace(lease=lease))
    monkeypatch.setattr(helpers.session.run_job, "default_folder", lambda host_id: bench.folder / host_id)
    monkeypatch.setattr(helpers.session.run_job, "JobRunner", runner)
    suite = bench.suite(gate=rules, real_runner=True, allow_contention=True, share_machine=share_machine)
    suite.measure(case_of(suite, SYNTHETIC))
    assert leased == [(CPU_MACHINE.cpu_cards, 1, SYNTHETIC, not share_machine)]
    (values,) = given
    terms = values["terms"]
    assert (terms.allow_contention, terms.share_machine) == (allows, share_machine)
    assert (values["cards"], values["machine"], terms.data) == (CPU_MACHINE.cpu_cards[:1], CPU_MACHINE, None)
    assert terms.system["CPU"]["CPU"] == f"{CPU_MACHINE.facts.cpu_model} * {CPU_MACHINE.facts.logical_cores}"


def test_the_environment_tables_are_made_once_a_session(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def tables(*_: Any, **values: Any) -> dict[str, dict[str, str]]:
        calls.append(values)
        return {"CPU": {"CPU": "x"}}

    monkeypatch.setattr(helpers.machine.tables, "session_tables", tables)
    suite = bench.suite()
    assert suite.system is suite.system
    (values,) = calls
    assert values["folders"]["runs"] == suite.options.runs_folder


def test_the_valid_run_of_an_invalid_case_stands_in_its_table_beside_what_was_recorded(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    disturbed = {"samples_per_s": 60.0, "invalid": "contended: cc1 (pid 4711)"}
    bench.runner.answers = [{"samples_per_s": 87.0}]
    bench.runner.usual = disturbed
    suite = bench.suite(reference_env=bench.good_python)
    outcome = suite.measure(case_of(suite, SYNTHETIC))
    row = row_of(CaseOutcome.from_record(json.loads(json.dumps(outcome.to_record(), default=dict))))
    assert (row.status, row.effect, row.samples_per_s) == ("INVALID", "error", 87.0)
    assert row.recorded is not None and row.recorded.ratio == pytest.approx(0.87)
    assert "; not judged, only shown: 87 images/s is -13.0% against the recorded 100 (recorded " in row.reason
    shown = render([row], 200)
    assert "87 (n=1)" in shown and "100*  0.870  INVALID" in shown
    sentence = sentence_of(row)
    assert (
        sentence.startswith("contended: cc1 (pid 4711) (") and ". Not judged, only shown: 13.0% slower than" in sentence
    )
