"""Cases that a suite measures, resumes or cannot run, without a training."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import helpers.machine.framework_builds
import helpers.session.measuring.job_runner
import helpers.session.measuring.measurer
import helpers.session.suite
from helpers.machine.devices import CpuCard, Machine
from helpers.report.row import row_of
from helpers.trainers.contract.errors import LaunchError
from tests.helpers.session.workshop import (
    CPU_MACHINE,
    DALI,
    H200,
    ONE_RUN,
    SXM2,
    SYNTHETIC,
    Bench,
    Builds,
    FakeRunner,
    case_of,
    machine_with,
    rule,
)

NATIVE = SYNTHETIC.replace("synthetic", "native")


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
    row = row_of(suite.measurer.measure(case_of(suite, case_id, target)))
    assert (row.status, row.effect, row.runs) == ("not run", "skip", 0)
    assert told in row.reason
    assert bench.runner.asked == []


def test_a_build_that_the_driver_rules_out_is_said_before_anything_is_started(bench: Bench, builds: Builds) -> None:
    builds.libraries = {"cuda": "12.6"}
    suite = bench.suite(replace(machine_with(SXM2), driver="470.82", cuda_driver="11.4"))
    row = row_of(suite.measurer.measure(case_of(suite, ONE_RUN, "v100")))
    assert row.status == "not run"
    assert "the NVIDIA driver is 470.82; a build for CUDA 12.6 needs 525 or newer" in row.reason


@pytest.mark.parametrize(("case_id", "target"), [(ONE_RUN, "v100"), (NATIVE.replace("native", "dali"), "cpu")])
def test_without_dali_only_the_cases_that_read_through_it_are_not_run(
    bench: Bench, builds: Builds, case_id: str, target: str
) -> None:
    builds.no_dali = "make env could not have it: no such host"
    suite = bench.suite(machine_with(SXM2))
    assert "reads through DALI" in str(suite.why_not(case_of(suite, case_id, target)))
    assert "no such host" in str(suite.why_not(case_of(suite, case_id, target)))
    assert suite.why_not(case_of(suite, NATIVE, "cpu")) is None


@pytest.mark.parametrize(
    ("case_id", "target", "told"),
    [
        (NATIVE, "cpu", "there is no /dev/shm, and 1 reader worker share memory through it. Mount it: mount -t tmpfs"),
        (ONE_RUN.replace("1x1", "1x8"), "v100", "there is no /dev/shm, and NCCL on 8 cards share memory through it"),
        (SYNTHETIC, "cpu", ""),
    ],
)
def test_without_shared_memory_only_the_cases_that_use_it_are_not_run(
    bench: Bench, case_id: str, target: str, told: str
) -> None:
    machine = replace(machine_with(*[SXM2] * 8), shared_memory_problem="there is no /dev/shm")
    suite = bench.suite(machine)
    row = row_of(suite.measurer.measure(case_of(suite, case_id, target)))
    assert (row.status == "not run") is bool(told)
    assert told in row.reason


@pytest.mark.parametrize(
    ("fault", "case_id", "told"),
    [
        ("home_problem", SYNTHETIC, "Set HOME to"),
        ("loopback_problem", DALI.replace("1x1", "1x2"), "ip link set lo up"),
        ("loopback_problem", SYNTHETIC, ""),
    ],
)
def test_a_fault_of_the_machine_that_would_break_a_job_off_is_told_before_it(
    bench: Bench, fault: str, case_id: str, told: str
) -> None:
    faulty: dict[str, Any] = {fault: "it cannot be used (why)"}
    suite = bench.suite(replace(CPU_MACHINE, **faulty))
    row = row_of(suite.measurer.measure(case_of(suite, case_id)))
    assert (row.status == "INFRA_ERROR") is bool(told)
    assert told in row.reason
    assert bool(bench.runner.asked) is not bool(told)


def test_an_error_while_measuring_is_a_row_with_the_runs_that_were_finished(bench: Bench) -> None:
    bench.runner.answers = [{"wall_seconds": 12.0}, LaunchError("job", got="no port", expected="a free port")]
    suite = bench.suite()
    row = row_of(suite.measurer.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.effect, row.code) == ("INFRA_ERROR", "error", "LaunchError")
    assert "a free port" in row.reason
    assert (row.samples_per_s, row.runs, row.wall_seconds) == (100.0, 1, 12.0)
    assert [Path(folder).name for folder in row.run_folders] == ["r0"]


def test_a_damaged_result_of_a_resumed_session_is_an_infra_error_that_names_it(bench: Bench) -> None:
    bench.suite().measurer.measure(case_of(bench.suite(), SYNTHETIC))
    (damaged, _) = sorted(bench.suite().store.folder.glob("*/r*/result.json"))
    damaged.write_text("{", encoding="utf-8")
    suite = bench.suite(resume=True)
    row = row_of(suite.measurer.measure(case_of(suite, SYNTHETIC)))
    assert row.status == "INFRA_ERROR"
    assert str(damaged) in row.reason


@pytest.mark.parametrize("share_machine", [False, True])
@pytest.mark.parametrize(("rules", "allows"), [((), True), ((rule("*"),), False), ((rule(DALI),), True)])
def test_the_real_runner_gets_the_leased_cards_and_is_told_what_is_allowed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, rules: tuple[dict[str, str], ...], allows: bool, share_machine: bool
) -> None:
    leased: list[Any] = []
    given: list[dict[str, Any]] = []

    def lease(cards: Any, count: int, what: str, *, exclusive_machine: bool, **others: Any) -> Any:
        leased.append((cards, count, what, exclusive_machine))
        return nullcontext(cards[:count])

    def runner(**values: Any) -> FakeRunner:
        given.append(values)
        return bench.runner

    monkeypatch.setattr(helpers.session.measuring.job_runner, "Leases", lambda folder: SimpleNamespace(lease=lease))
    monkeypatch.setattr(helpers.session.measuring.job_runner, "default_folder", lambda host_id: bench.folder / host_id)
    monkeypatch.setattr(helpers.session.measuring.job_runner, "JobRunner", runner)
    suite = bench.suite(gate=rules, real_runner=True, allow_contention=True, share_machine=share_machine)
    suite.measurer.measure(case_of(suite, SYNTHETIC))
    assert leased == [(CPU_MACHINE.cpu_cards, 1, SYNTHETIC, not share_machine)]
    (values,) = given
    terms = values["terms"]
    assert (terms.allow_contention, terms.share_machine) == (allows, share_machine)
    assert (values["cards"], values["machine"], terms.data) == (CPU_MACHINE.cpu_cards[:1], CPU_MACHINE, None)
    assert terms.system["CPU"]["CPU"] == f"{CPU_MACHINE.facts.cpu_model} * {CPU_MACHINE.facts.logical_cores}"


def test_resuming_on_other_hosts_measures_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = SimpleNamespace(nodes="a + b")
    bench.runner.connected = hosts  # type: ignore[assignment]
    monkeypatch.setattr(helpers.session.measuring.measurer, "leased_runner", lambda *_: nullcontext(bench.runner))
    resumed = []
    for nodes in ("a + b", "a + b", "a + c"):
        hosts.nodes = nodes
        suite = bench.suite(real_runner=True, resume=True)
        resumed.append(suite.measurer.measure(case_of(suite, SYNTHETIC)).resumed)
    assert resumed == [0, 2, 0]
