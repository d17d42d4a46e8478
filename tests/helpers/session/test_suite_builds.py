"""The builds of a suite: the reference build, and environments that are built."""

from __future__ import annotations

from pathlib import Path

import pytest

import helpers.machine.framework_builds
import helpers.plan.installed
import helpers.session.suite
from helpers.plan.baseline_files import BASELINES
from helpers.plan.case_plan import CasePlan, SuiteCase
from helpers.report.row import row_of
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract.errors import ConfigError
from tests.helpers.conftest import ENVIRONMENT
from tests.helpers.memory_double import MemoryDouble
from tests.helpers.session.workshop import (
    CPU_MACHINE,
    GOOD_PYTHON,
    ONE_RUN,
    ROOT,
    SXM2,
    SYNTHETIC,
    Bench,
    Builds,
    case_of,
    machine_with,
    record,
)


def test_a_drop_is_confirmed_against_the_reference_build(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    bench.runner.usual = {"samples_per_s": 85.0}
    suite = bench.suite(builds=bench.good)
    row = row_of(suite.measurer.measure(case_of(suite, SYNTHETIC)))
    assert row.status == "REGRESSION"
    assert row.reference_build.startswith("paddle 3.0.0 @abcdef (good)")
    roles = {result.role: result.build["interpreter"] for result in bench.runner.store.results(SYNTHETIC)}
    assert roles == {"candidate": "/opt/python", "reference": GOOD_PYTHON}


def test_a_reference_build_that_cannot_run_is_refused_before_measuring(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers.plan.installed, "BuildFinder", lambda named_in: Builds(""))
    suite = bench.suite(builds=bench.good)
    with pytest.raises(ConfigError, match="paddle is not installed") as caught:
        suite.measurer.prepare([case_of(suite, SYNTHETIC)])
    assert "--reference-build" in str(caught.value)
    assert bench.runner.asked == []


def test_a_reference_build_without_gpu_kernels_is_refused_for_a_gpu_case(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers.plan.installed, "BuildFinder", lambda named_in: Builds("paddlepaddle"))
    suite = bench.suite(machine_with(SXM2), builds=bench.good)
    assert suite.measurer.prepare([case_of(suite, SYNTHETIC)]) is None
    with pytest.raises(ConfigError, match="no GPU kernels"):
        suite.measurer.prepare([case_of(suite, ONE_RUN, "v100")])


def test_a_case_of_several_nodes_has_no_reference_build_and_says_why(bench: Bench) -> None:
    suite = bench.suite(builds=bench.good)
    two_nodes = next(case for case in suite.cases if case.case.nodes == 2 and case.target == "cpu")
    found = suite.installed.reference(two_nodes)
    assert isinstance(found, str)
    assert "other hosts" in found
    suite.installed.check_reference([two_nodes])


@pytest.mark.parametrize("how", ["another name of it", "installed once more"])
def test_the_build_under_test_is_no_reference_of_itself(bench: Bench, builds: Builds, how: str) -> None:
    """A drop of 5% was PASS, "the machine is slow tonight", where the option named the build under test."""
    record(bench, SYNTHETIC)
    builds.digests["/opt/python"] = "d1"
    good = GOOD_PYTHON
    if how == "another name of it":
        builds.places[good] = builds.places["/opt/python"] = "/opt/lib/site-packages"
    if how == "installed once more":
        builds.digests[good] = "d1"
    bench.runner.usual = {"samples_per_s": 95.0}
    suite = bench.suite(builds=bench.good)
    with pytest.raises(ConfigError, match=r"the build under test itself: paddle 3\.0\.0 @abcdef") as caught:
        suite.measurer.prepare([case_of(suite, SYNTHETIC)])
    assert "Name the environment of the last release or accepted build" in str(caught.value)
    assert bench.runner.asked == []
    # Where it becomes so after the session began, the drop stays unconfirmed and says why.
    row = row_of(suite.measurer.measure(case_of(suite, SYNTHETIC)))
    assert row.status in ("INCONCLUSIVE", "SLOWER")
    assert "the build under test itself" in row.reason


@pytest.mark.parametrize("recorded_with", ["2.6.2", "3.0.0"])
def test_two_builds_alike_in_name_do_not_answer_for_an_entry_of_a_third(
    bench: Bench, builds: Builds, recorded_with: str
) -> None:
    """Without digests, pairs may hold a build against itself: then they call its drop the machine's."""
    there = {"framework": "paddle", "framework_version": recorded_with, "framework_commit": "abcdef"}
    bench.runner.usual = {"environment": {**ENVIRONMENT.to_mapping(), **there}}
    record(bench, SYNTHETIC)
    builds.digests["/opt/python"] = builds.digests[GOOD_PYTHON] = ""
    there["framework_version"] = "3.0.0"
    bench.runner.usual = {"samples_per_s": 85.0, "environment": {**ENVIRONMENT.to_mapping(), **there}}
    suite = bench.suite(builds=bench.good)
    found = suite.measurer.plan(case_of(suite, SYNTHETIC))
    assert isinstance(found, CasePlan)
    assert bool(found.reference) is (recorded_with == "3.0.0")
    if recorded_with == "2.6.2":
        told = "alike in version and commit, neither has a digest, and the recorded entry is of another, 2.6.2 @abcdef"
        assert told in found.why_no_reference
        suite.measurer.prepare([case_of(suite, SYNTHETIC)])


def test_what_is_to_be_recorded_is_measured_as_often_as_its_protocol_plans(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    plans = [(suite := bench.suite(to_record=each)).measurer.plan(case_of(suite, SYNTHETIC)) for each in (False, True)]
    assert [plan.planned_runs for plan in plans if isinstance(plan, CasePlan)] == [1, 3]


PYTORCH = "pytorch-resnet50v1.5-fp32-bs4-1x1-synthetic"


def _case(suite: Suite, case_id: str) -> SuiteCase:
    return next(each for each in suite.cases if each.case.id == case_id)


def test_a_case_whose_environment_is_missing_is_not_run_with_the_command_that_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "perf.yaml"
    config.write_text((ROOT / "helpers/plan/defaults.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(helpers.session.suite, "BuildFinder", Builds)
    options = SuiteOptions(config, BASELINES, tmp_path / "runs", "s")
    suite = Suite.load(options, machine=CPU_MACHINE, memory=MemoryDouble())  # type: ignore[arg-type]
    row = row_of(suite.measurer.measure(_case(suite, PYTORCH)))
    assert (row.status, row.effect) == ("not run", "skip")
    command = f"python requirements/bootstrap.py --requirements pytorch --venv {tmp_path / '.venv-pytorch'}"
    assert command in row.reason
