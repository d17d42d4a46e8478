"""The trainer files are the same for every line of Paddle: what each must train and refuse.

Real, short training on this machine's CPU in the interpreters of ``--paddle-interpreter``, by default
the one that runs the tests. ``make test-paddle26`` names that of paddlepaddle-gpu 2.6.2.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.launch.launchers import launcher_for
from helpers.launch.launchers.launcher import job_environment
from helpers.launch.steplog_reader import read_step_log
from helpers.machine.frameworks import BuildFinder, FrameworkBuild
from helpers.plan.grown_dataset import GrownDataset
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.common.process import EXIT_COMPLETE, EXIT_REFUSED
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.steplog import COMPLETE, REFUSED, StepLog

pytestmark = pytest.mark.training
untimed = pytest.mark.untimed

RESNET50, VGG16 = "paddle-resnet50v1.5", "paddle-vgg16"
CORES = sorted(os.sched_getaffinity(0))
TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class Ran:
    exit_status: int
    logs: tuple[StepLog, ...]
    errors: str


@pytest.fixture(scope="module")
def build(paddle_interpreter: str) -> FrameworkBuild:
    found = BuildFinder().find_build(Framework.PADDLE, paddle_interpreter)
    if isinstance(found, str):
        pytest.fail(found)
    return found


def _is_own(build: FrameworkBuild) -> bool:
    return Path(build.interpreter).parent == Path(sys.executable).parent


@pytest.fixture(scope="module")
def other_build(build: FrameworkBuild) -> FrameworkBuild:
    """A build of another line than the tests' own, which test_trainer.py and test_learning.py train."""
    if _is_own(build):
        pytest.skip("test_trainer.py and test_learning.py train the tests' own build")
    return build


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return GrownDataset(tmp_path_factory.mktemp("data") / "small").first(32).root


def _job(folder: Path, case_id: str, device: str, data: Path | None = None, **values: Any) -> JobSpec:
    case = Case.parse(case_id)
    overrides = values.pop("overrides", {})
    each = max(1, len(CORES) // case.cards)
    cores = tuple(tuple(CORES[card * each : (card + 1) * each] or CORES[:1]) for card in range(case.cards))
    spec = JobSpec(
        job_id=uuid.uuid4().hex,
        case=case,
        replicate=0,
        run_folder=str(folder),
        device=device,
        data_root=str(data) if data else None,
        settings={**settings_for(case, device), **overrides},
        overrides=overrides,
        cores=cores if device == "cpu" else (),
        **{"warmup_steps": 1, "window_steps": 2, **values},
    )
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    return spec


def _train(build: FrameworkBuild, spec: JobSpec) -> Ran:
    command = launcher_for(spec).command(spec, build.interpreter)
    environment = job_environment(os.environ, spec, command, {})
    done = subprocess.run(
        command.argv, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    logs = tuple(read_step_log(spec.step_log_path(rank), spec.job_id, rank) for rank in range(spec.case.cards))
    return Ran(done.returncode, logs, done.stderr)


def _complete(ran: Ran, build: FrameworkBuild) -> None:
    """Every rank trained to the end, in this build and no other, with losses that are losses."""
    assert ran.exit_status == EXIT_COMPLETE, ran.errors[-2000:]
    for log in ran.logs:
        assert (log.footer.status, len(log.steps), len(log.window)) == (COMPLETE, 3, 2)
        assert (log.header.framework_version, log.header.framework_commit) == (build.version, build.commit)
        assert (log.header.device, log.header.world_size) == ("cpu", len(ran.logs))
        assert all(step.loss is not None and 0 < step.loss < 20 for step in log.steps)


@untimed
@pytest.mark.parametrize(
    "case_id",
    [
        f"{RESNET50}-fp32-bs2-1x1-dali-dynamic",
        f"{RESNET50}-fp32-bs2-1x1-native-to_static",
        f"{RESNET50}-fp32-bs2-1x1-synthetic-static",
        f"{VGG16}-fp32-bs1-1x1-native-dynamic",
        f"{VGG16}-fp32-bs1-1x1-synthetic-to_static",
        f"{VGG16}-fp32-bs1-1x1-dali-static",
    ],
)
def test_one_card_trains(other_build: FrameworkBuild, tmp_path: Path, images: Path, case_id: str) -> None:
    ran = _train(other_build, _job(tmp_path, case_id, "cpu", images))
    _complete(ran, other_build)
    header = ran.logs[0].header
    assert (header.facts["precision"], header.facts["data"]) == ("float32", Case.parse(case_id).data.value)


@untimed
@pytest.mark.parametrize("case", ["dali-dynamic", "native-to_static"])
@pytest.mark.skipif(len(CORES) < 2, reason="two cards need two cores")
def test_two_cards_train_together(other_build: FrameworkBuild, tmp_path: Path, images: Path, case: str) -> None:
    ran = _train(other_build, _job(tmp_path, f"{RESNET50}-fp32-bs1-1x2-{case}", "cpu", images))
    _complete(ran, other_build)
    assert len({tuple(step.loss for step in log.steps) for log in ran.logs}) == 2


@untimed
@pytest.mark.parametrize("execution", ["dynamic", "to_static", "static"])
def test_the_loss_falls_on_a_batch_that_can_be_learnt(
    other_build: FrameworkBuild, tmp_path: Path, execution: str
) -> None:
    # Synthetic data is one batch, given again at every step.
    case_id = f"{RESNET50}-fp32-bs2-1x1-synthetic-{execution}"
    steps = {"warmup_steps": 0, "window_steps": 8, "overrides": {"learning_rate": 0.002}}
    ran = _train(other_build, _job(tmp_path, case_id, "cpu", **steps))
    losses = [step.loss for step in ran.logs[0].steps if step.loss is not None]
    assert (ran.exit_status, len(losses)) == (EXIT_COMPLETE, 8), ran.errors[-2000:]
    assert max(losses[-3:]) < 0.2 * losses[0]


@untimed
@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("tf32-bs1-1x1-synthetic-dynamic", "TF32"),
        ("amp_o1-bs1-1x1-synthetic-dynamic", "auto_cast has no effect on a CPU"),
        ("amp_o2-bs1-1x1-synthetic-dynamic", "bfloat16"),
        ("bf16-bs1-1x1-synthetic-dynamic", "bfloat16"),
    ],
)
def test_a_precision_that_cannot_run_is_refused(
    other_build: FrameworkBuild, tmp_path: Path, case: str, reason: str
) -> None:
    _refused(_train(other_build, _job(tmp_path, f"{RESNET50}-{case}", "cpu")), reason)


@untimed
@pytest.mark.parametrize("execution", ["static", "to_static"])
def test_bfloat16_trains_where_the_build_casts_programs_and_is_refused_elsewhere(
    other_build: FrameworkBuild, tmp_path: Path, execution: str
) -> None:
    ran = _train(other_build, _job(tmp_path, f"{RESNET50}-amp_o1-bs1-1x1-synthetic-{execution}", "cpu"))
    if other_build.version.startswith("2."):
        _refused(ran, "PIR programs alone" if execution == "static" else "did not cast")
    else:
        _complete(ran, other_build)
        assert ran.logs[0].header.facts["bfloat16_convolutions"] == "53"


def _refused(ran: Ran, reason: str) -> None:
    assert ran.exit_status == EXIT_REFUSED, ran.errors[-2000:]
    assert [log.footer.status for log in ran.logs] == [REFUSED] * len(ran.logs)
    assert all(reason in log.footer.reason and not log.steps for log in ran.logs)


@untimed
def test_the_published_gpu_program_of_one_card_trains_without_a_launcher(build: FrameworkBuild, tmp_path: Path) -> None:
    case_id = f"{RESNET50}-fp32-bs1-1x1-synthetic-static"
    spec = _job(tmp_path, case_id, "gpu", overrides={"learning_rate": 0.002})
    worker = Path(__file__).with_name("gpu_program_worker.py")
    done = subprocess.run(
        [build.interpreter, str(worker), str(spec.spec_path)], env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    losses = json.loads(done.stdout.splitlines()[-1])
    assert losses[-1] < 0.3 * losses[0]


@untimed
def test_the_suite_measures_with_the_interpreter_that_perf_yaml_names(
    other_build: FrameworkBuild, tmp_path: Path, images: Path
) -> None:
    build = other_build
    config = yaml.safe_load((ROOT / "helpers/plan/defaults.yaml").read_text(encoding="utf-8"))
    config["frameworks"]["paddle"]["interpreter"] = build.interpreter
    config["protocols"]["cpu"] = {"warmup_steps": 1, "window_steps": 3, "runs": 1}
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    case_id = f"{RESNET50}-fp32-bs4-1x1-dali-dynamic"
    options = {"perf-config": tmp_path / "other.yaml", "data": images, "runs-dir": tmp_path / "runs"}
    argv = [sys.executable, "-m", "pytest", "perf_tests", "-k", case_id, "--allow-contention"]
    argv += [f"--{name}={path}" for name, path in options.items()]
    # With locks of its own it takes no turn among sessions that measure: its figure is not looked at.
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    results = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob(f"*/{case_id}/r0/result.json")]
    assert [result["build"]["version"] for result in results] == [build.version]
    assert [result["build"]["interpreter"] for result in results] == [build.interpreter]
