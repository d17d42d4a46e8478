"""What a gate costs, from run lengths that are measured, given, or follow from a published figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.gate_minutes import costs, lines, main, measured_runs
from helpers.plan.case_plan import SuiteCase, matrix
from helpers.plan.perf_yaml import load_config
from helpers.plan.published import load_published
from helpers.trainers.contract import ROOT

CPU_CASE = "paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic"
VGG = "paddle-vgg16-amp_o1-bs128-1x8-native-static"


def case_of(case_id: str, target: str) -> SuiteCase:
    published = {"v100": load_published(ROOT / "baselines" / "published" / "v100.json").figures}
    (found,) = [each for each in matrix(load_config(ROOT / "perf.yaml"), published) if each.key == (target, case_id)]
    return found


def test_a_published_case_takes_its_protocol_s_steps_and_all_its_runs() -> None:
    (cost,) = costs([case_of(VGG, "v100")], 60.0, {})
    # 60 + 100 steps of 8 x 128 images at the published 3892.58 images/s, 7 runs.
    assert cost.run_seconds == pytest.approx(60 + 160 * 1024 / 3892.58)
    assert cost.planned_runs == 7
    assert cost.ordinary == pytest.approx(cost.run_seconds * 7.95 / 60)
    assert cost.slower == pytest.approx(cost.run_seconds * 19.95 / 60)


def test_measured_runs_count_before_anything_else(tmp_path: Path) -> None:
    for at, seconds in enumerate((30.0, 20.0, 90.0)):
        path = tmp_path / CPU_CASE / f"r{at}" / "result.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"case_id": CPU_CASE, "wall_seconds": seconds}))
    (cost,) = costs([case_of(CPU_CASE, "cpu")], 60.0, measured_runs(tmp_path))
    assert (cost.run_seconds, cost.planned_runs, cost.recording) == (30.0, 1, 1.5)
    told = "minutes to record them: 2; of an ordinary night: 1; with one slower case: up to 7"
    assert lines([cost])[-1] == told


def test_a_case_of_which_nothing_is_known_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["cpu", CPU_CASE])
    assert "--runs has no run of it" in capsys.readouterr().err
