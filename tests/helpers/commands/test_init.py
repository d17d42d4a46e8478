"""The perf.yaml that ``perfgate init`` writes."""

from __future__ import annotations

import argparse
import io
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from helpers.commands.init import run
from helpers.machine.devices import Machine, why_not_run
from helpers.plan.baseline_files import BASELINES
from helpers.plan.perf_yaml import load_config
from helpers.session import SuiteOptions
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import ConfigError
from tests.helpers.session.workshop import A100, SXM2, machine_with

CPU = machine_with()


def written(folder: Path, machine: Machine) -> Path:
    path = folder / "perf.yaml"
    run(
        argparse.Namespace(config=path, baselines=BASELINES),
        io.StringIO(),
        machine,
        lambda: datetime(2026, 12, 1, tzinfo=UTC),
    )
    return path


@pytest.mark.parametrize(
    ("machine", "target", "needs"),
    [(machine_with(SXM2), "v100", "published"), (machine_with(A100), "a100", "published"), (CPU, "cpu", "recorded")],
)
def test_it_is_short_and_its_gate_has_only_cases_that_run_on_this_machine(
    tmp_path: Path, machine: Machine, target: str, needs: str
) -> None:
    path = written(tmp_path, machine)
    assert len(path.read_text().splitlines()) < 40
    here = load_config(path).machine_for(machine.host)
    assert here is not None and here.gate
    assert {(rule.target, rule.needs) for rule in here.gate} == {(target, needs)}
    suite = Suite.load(SuiteOptions(path, BASELINES, tmp_path / "runs", "s"), machine=machine)
    runs = [each for each in suite.cases if each.target == target and why_not_run(each.case, target, machine) is None]
    for rule in here.gate:
        meant = [each for each in runs if fnmatchcase(each.case.id, rule.cases)]
        assert meant and (needs == "recorded" or all(each.figures for each in meant))


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    path = written(tmp_path, CPU)
    before = path.read_text()
    with pytest.raises(ConfigError, match="which is there"):
        written(tmp_path, CPU)
    assert path.read_text() == before
