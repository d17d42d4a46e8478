"""The builds of a suite: the reference build, and environments that are built."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import helpers.machine.frameworks
import helpers.plan.installed
import helpers.session.suite
from helpers.judging.evidence import Budget
from helpers.machine.frameworks import FrameworkBuild
from helpers.plan.baseline_files import BASELINES
from helpers.plan.case_plan import CasePlan, SuiteCase
from helpers.plan.matrix import ByCase
from helpers.report.row import row_of
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.conftest import ENVIRONMENT
from tests.helpers.memory_double import MemoryDouble
from tests.helpers.session.workshop import (
    CPU_MACHINE,
    DALI,
    ONE_RUN,
    ROOT,
    SXM2,
    SYNTHETIC,
    Bench,
    Builds,
    case_of,
    machine_with,
    record,
    rule,
)


def test_a_drop_is_confirmed_against_the_reference_build(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    bench.runner.usual = {"samples_per_s": 85.0}
    suite = bench.suite(reference_env=bench.good_python)
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert row.status == "REGRESSION"
    assert row.reference_build.startswith("paddle 3.0.0 @abcdef in envs/good")
    roles = {result.role: result.build["interpreter"] for result in bench.runner.store.results(SYNTHETIC)}
    assert roles == {"candidate": "/opt/python", "reference": bench.good_python}


def test_without_a_reference_build_a_drop_beyond_the_band_and_beyond_doubt_fails(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    bench.runner.usual = {"samples_per_s": 85.0}
    suite = bench.suite(gate=[rule(SYNTHETIC)])
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.effect) == ("SLOWER", "fail")


@pytest.mark.parametrize("folder", [False, True])
def test_a_reference_build_may_be_named_by_its_folder(bench: Bench, folder: bool) -> None:
    path = Path(bench.good_python)
    suite = bench.suite(reference_env=str(path.parents[1] if folder else path))
    plan = suite._planner.plan(case_of(suite, SYNTHETIC))
    assert isinstance(plan, CasePlan)
    assert plan.reference["interpreter"] == str(path)


@pytest.mark.parametrize(
    ("env", "distribution", "told"),
    [
        ("nowhere", "paddlepaddle", "nowhere is no program"),
        (".", "paddlepaddle", "bin/python is no program"),
        ("envs/good", "", "paddle is not installed"),
    ],
)
def test_a_reference_build_that_cannot_run_is_refused_before_measuring(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, env: str, distribution: str, told: str
) -> None:
    assert bench.good_python
    good = replace(Builds(), distribution=distribution)
    monkeypatch.setattr(helpers.plan.installed, "BuildFinder", lambda named_in: good)
    suite = bench.suite(reference_env=str(bench.folder / env))
    with pytest.raises(ConfigError, match=told) as caught:
        suite.prepare([case_of(suite, SYNTHETIC)])
    assert "--reference-env" in str(caught.value)
    assert bench.runner.asked == []


def test_a_reference_build_without_gpu_kernels_is_refused_for_a_gpu_case(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers.plan.installed, "BuildFinder", lambda named_in: Builds("paddlepaddle"))
    suite = bench.suite(machine_with(SXM2), reference_env=bench.good_python)
    assert suite.prepare([case_of(suite, SYNTHETIC)]) is None
    with pytest.raises(ConfigError, match="no GPU kernels"):
        suite.prepare([case_of(suite, ONE_RUN, "v100")])


def test_a_case_of_several_nodes_has_no_reference_build_and_says_why(bench: Bench) -> None:
    suite = bench.suite(reference_env=bench.good_python)
    two_nodes = next(case for case in suite.cases if case.case.nodes == 2 and case.target == "cpu")
    found = suite._installed.reference(two_nodes)
    assert isinstance(found, str)
    assert "other hosts" in found
    suite._installed.check_reference([two_nodes])


@pytest.mark.parametrize("how", ["another name of it", "installed once more"])
def test_the_build_under_test_is_no_reference_of_itself(bench: Bench, builds: Builds, how: str) -> None:
    """A drop of 5% was PASS, "the machine is slow tonight", where the option named the build under test."""
    record(bench, SYNTHETIC)
    builds.digests["/opt/python"] = "d1"
    good = bench.good_python
    if how == "another name of it":
        builds.places[good] = builds.places["/opt/python"] = "/opt/lib/site-packages"
    if how == "installed once more":
        builds.digests[good] = "d1"
    bench.runner.usual = {"samples_per_s": 95.0}
    suite = bench.suite(reference_env=good)
    with pytest.raises(ConfigError, match=r"the build under test itself: paddle 3\.0\.0 @abcdef") as caught:
        suite.prepare([case_of(suite, SYNTHETIC)])
    assert "Name the environment of the last release or accepted build" in str(caught.value)
    assert bench.runner.asked == []
    # Where it becomes so after the session began, the drop stays unconfirmed and says why.
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert row.status in ("INCONCLUSIVE", "SLOWER")
    assert "the build under test itself" in row.reason


def test_code_that_makes_a_a_runs_may_take_the_build_under_test_as_its_reference(bench: Bench, builds: Builds) -> None:
    builds.digests["/opt/python"] = builds.digests[bench.good_python] = "d1"
    suite = bench.suite(reference_env=bench.good_python, same_build=True)
    suite.prepare([case_of(suite, SYNTHETIC)])
    plan = suite._planner.plan(case_of(suite, SYNTHETIC))
    assert isinstance(plan, CasePlan)
    assert (plan.build["digest"], plan.reference["digest"]) == ("d1", "d1")


def test_what_was_installed_is_in_every_result(bench: Bench, builds: Builds) -> None:
    builds.digests["/opt/python"] = "d1"
    suite = bench.suite()
    suite.measure(case_of(suite, SYNTHETIC))
    assert {run.build["digest"] for run in bench.runner.store.results(SYNTHETIC)} == {"d1"}


@pytest.mark.parametrize("recorded_with", ["2.6.2", "3.0.0"])
def test_two_builds_alike_in_name_do_not_answer_for_an_entry_of_a_third(
    bench: Bench, builds: Builds, recorded_with: str
) -> None:
    """Without digests, pairs may hold a build against itself: then they call its drop the machine's."""
    there = {"framework": "paddle", "framework_version": recorded_with, "framework_commit": "abcdef"}
    bench.runner.usual = {"environment": {**ENVIRONMENT.to_mapping(), **there}}
    record(bench, SYNTHETIC)
    builds.digests["/opt/python"] = builds.digests[bench.good_python] = ""
    there["framework_version"] = "3.0.0"
    bench.runner.usual = {"samples_per_s": 85.0, "environment": {**ENVIRONMENT.to_mapping(), **there}}
    suite = bench.suite(reference_env=bench.good_python)
    found = suite._planner.plan(case_of(suite, SYNTHETIC))
    assert isinstance(found, CasePlan)
    assert bool(found.reference) is (recorded_with == "3.0.0")
    if recorded_with == "2.6.2":
        told = "alike in version and commit, neither has a digest, and the recorded entry is of another, 2.6.2 @abcdef"
        assert told in found.why_no_reference
        suite.prepare([case_of(suite, SYNTHETIC)])


def test_a_reference_that_is_not_what_was_recorded_says_so(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    suite = bench.suite(reference_env=bench.good_python)
    plan = suite._planner.plan(case_of(suite, SYNTHETIC))
    assert isinstance(plan, CasePlan)
    assert plan.recorded is not None
    there = {**plan.recorded.environment, "framework": "paddle", "framework_version": "2.6.2", "framework_commit": ""}
    other = replace(plan, recorded=replace(plan.recorded, environment=there))
    assert other.reference_label == "paddle 3.0.0 @abcdef in envs/good, not the recorded entry's paddle 2.6.2"
    same = {**there, "framework_version": "3.0.0", "framework_commit": "abcdef"}
    assert "recorded" not in str(replace(plan, recorded=replace(plan.recorded, environment=same)).reference_label)


def test_what_is_to_be_recorded_is_measured_as_often_as_its_protocol_plans(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    plans = [(suite := bench.suite(to_record=each))._planner.plan(case_of(suite, SYNTHETIC)) for each in (False, True)]
    assert [plan.planned_runs for plan in plans if isinstance(plan, CasePlan)] == [1, 3]


def test_a_case_may_take_the_runs_that_perf_yaml_gives_it(bench: Bench) -> None:
    suite = bench.suite()
    suite.config = replace(suite.config, budgets=ByCase(Budget(), (("*-synthetic-*", {"pairs": 4}),)))
    budgets = [suite._planner.plan(case_of(suite, case_id)) for case_id in (SYNTHETIC, DALI)]
    assert [plan.budget.pairs for plan in budgets if isinstance(plan, CasePlan)] == [4, Budget().pairs]


def _pytorch_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Suite, list[str]]:
    """The suite on a machine without PyTorch's environment, and what it asks to be built there."""
    config = tmp_path / "perf.yaml"
    config.write_text((ROOT / "perf.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    asked: list[str] = []

    def run(argv: Sequence[str]) -> tuple[int, str]:
        asked.append(" ".join(argv[2:]))
        python = Path(argv[-1]) / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
        (Path(argv[-1]) / ".perfgate-stamp.json").touch()
        return 0, ""

    @dataclass
    class BuildsOnDisk(Builds):
        def find_build(self, framework: Framework, interpreter: str | None = None) -> FrameworkBuild | str:
            if framework is Framework.PYTORCH and Path(str(interpreter)).parents[1].exists():
                return FrameworkBuild(str(interpreter), framework, "torch", "2.13.0")
            return super().find_build(framework, interpreter)

    monkeypatch.setattr(helpers.machine.frameworks, "_run", run)
    monkeypatch.setattr(helpers.session.suite, "BuildFinder", BuildsOnDisk)
    values = SuiteOptions(config, BASELINES, tmp_path / "runs", "s", **options)
    return Suite.load(values, machine=CPU_MACHINE, memory=MemoryDouble()), asked  # type: ignore[arg-type]


PYTORCH = "pytorch-resnet50v1.5-fp32-bs4-1x1-synthetic"


def _case(suite: Suite, case_id: str) -> SuiteCase:
    return next(each for each in suite.cases if each.case.id == case_id)


def test_a_case_whose_environment_is_missing_is_not_run_with_the_command_that_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, asked = _pytorch_suite(tmp_path, monkeypatch)
    row = row_of(suite.measure(_case(suite, PYTORCH)))
    assert (row.status, row.effect) == ("not run", "skip")
    command = f"python requirements/bootstrap.py --requirements pytorch --venv {tmp_path / '.venv-pytorch'}"
    assert command in row.reason
    assert "--build-envs" in row.reason
    assert asked == []


def test_what_the_selected_cases_lack_is_built_and_they_run_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, asked = _pytorch_suite(tmp_path, monkeypatch, build_envs=True)
    chosen, said = [_case(suite, PYTORCH), _case(suite, SYNTHETIC)], list[str]()
    assert suite.why_not(chosen[0]) is None
    suite.build_environments(chosen, said.append)
    assert asked == [f"--requirements pytorch --venv {tmp_path / '.venv-pytorch'}"]
    assert len(said) == 2
    assert suite.expect(chosen) == chosen
    suite.build_environments(chosen, said.append)
    assert len(asked) == 1


def test_nothing_is_built_that_the_selected_cases_do_not_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite, asked = _pytorch_suite(tmp_path, monkeypatch, build_envs=True)
    on_a_card = next(each for each in suite.cases if each.case.framework is Framework.PYTORCH and each.target == "a100")
    suite.build_environments([_case(suite, SYNTHETIC), on_a_card], lambda line: None)
    assert asked == []
    assert suite.why_not(_case(suite, PYTORCH)) is not None


def test_a_worker_counts_the_cases_that_the_controller_is_building_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, asked = _pytorch_suite(tmp_path, monkeypatch, build_envs=True)
    chosen = [_case(suite, PYTORCH)]
    assert suite.expect(chosen) == chosen
    assert asked == []
    # What the controller has built meanwhile, or not, is looked for when the case's turn comes.
    assert suite.why_not(chosen[0]) is not None
    (tmp_path / ".venv-pytorch").mkdir()
    assert suite.why_not(chosen[0]) is None
