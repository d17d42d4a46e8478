"""The trainer files are the same for every line of Paddle: what each must train and refuse.

Real, short training on this machine's CPU in the interpreters of ``--paddle-interpreter``, by default
the one that runs the tests. ``make test-paddle26`` names that of paddlepaddle-gpu 2.6.2.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.launch.outcome import OutcomeKind
from helpers.machine.framework_builds import BuildFinder, FrameworkBuild
from helpers.plan.grown_dataset import GrownDataset
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.trainers.jobs import SMALL_IMAGES, TWO_CORES, job, run
from tests.helpers.trainers.specs import spec_of

pytestmark = [pytest.mark.training, pytest.mark.untimed]

RESNET50, VGG16 = "paddle-resnet50v1.5", "paddle-vgg16"


@pytest.fixture(scope="module")
def build(paddle_interpreter: str) -> FrameworkBuild:
    found = BuildFinder().find_build(Framework.PADDLE, paddle_interpreter)
    if isinstance(found, str):
        pytest.fail(found)
    return found


@pytest.fixture(scope="module")
def other_build(build: FrameworkBuild) -> FrameworkBuild:
    """A build of another line than the tests' own, which other tests train."""
    if Path(build.interpreter).parent == Path(sys.executable).parent:
        pytest.skip("other tests train the tests' own build")
    return build


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return GrownDataset(tmp_path_factory.mktemp("data") / "small").first(32).root


@TWO_CORES
@pytest.mark.parametrize(
    "case_id",
    [
        f"{RESNET50}-fp32-bs1-1x2-dali-dynamic",
        f"{RESNET50}-fp32-bs1-1x2-native-to_static",
        f"{RESNET50}-fp32-bs2-1x1-synthetic-static",
        f"{VGG16}-fp32-bs1-1x1-dali-static",
    ],
)
def test_it_trains_in_this_build_and_no_other(
    other_build: FrameworkBuild, tmp_path: Path, images: Path, case_id: str
) -> None:
    outcome = run(job(tmp_path, case_id, images), other_build.interpreter)
    assert outcome.kind is OutcomeKind.COMPLETE, outcome.log_tail
    for log in outcome.logs:
        assert (log.header.framework_version, log.header.framework_commit) == (other_build.version, other_build.commit)
        assert all(step.loss is not None and 0 < step.loss < 20 for step in log.steps)


@pytest.mark.parametrize("execution", ["static", "to_static"])
def test_bfloat16_trains_where_the_build_casts_programs_and_is_refused_elsewhere(
    other_build: FrameworkBuild, tmp_path: Path, images: Path, execution: str
) -> None:
    spec = job(tmp_path, f"{RESNET50}-amp_o1-bs1-1x1-synthetic-{execution}", images)
    outcome = run(spec, other_build.interpreter)
    if other_build.version.startswith("2."):
        assert outcome.kind is OutcomeKind.REFUSED
        assert ("PIR programs alone" if execution == "static" else "did not cast") in outcome.reason
    else:
        assert outcome.kind is OutcomeKind.COMPLETE, outcome.log_tail
        assert outcome.logs[0].header.facts["bfloat16_convolutions"] == "53"


def test_the_published_gpu_program_of_one_card_trains_without_a_launcher(build: FrameworkBuild, tmp_path: Path) -> None:
    spec = spec_of(f"{RESNET50}-fp32-bs1-1x1-synthetic-static", "gpu", tmp_path, learning_rate=0.002)
    worker = Path(__file__).with_name("gpu_program_worker.py")
    done = subprocess.run(
        [build.interpreter, str(worker), str(spec.spec_path)], env={**os.environ, "PYTHONPATH": SMALL_IMAGES},
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    losses = json.loads(done.stdout.splitlines()[-1])
    assert losses[-1] < 0.3 * losses[0]
