"""Sessions of the real suite in which a stand-in trains: ``python -m tests.docs.stand_in`` in a folder like a checkout.

Standard input has the sessions, a list of pytest's arguments for each; standard output gets for each its exit code and
what it printed, as a line of JSON. Each run's images/s follow from its case, its build and a seed, so sessions are the
same wherever they run.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import helpers.builds.making
import helpers.plan.installed
import helpers.session.builds
import helpers.session.suite
from helpers.common.wall_clock import utc_now
from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.case.evidence import Build, Stage
from helpers.machine.framework_builds import BuildIdentity, FrameworkBuild
from helpers.plan.case_plan import CasePlan
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case, DataSource, Precision
from helpers.trainers.contract.models import Model
from tests.helpers.trained import PaddleBuilds, drawn, trained_run

# Of a card in float32.
IMAGES_PER_S = {Model.RESNET50: 5.4, Model.VGG16: 0.74}
AMP_SPEED_UP = 1.4
SPREAD = 0.004
SLOWER = 0.95
# A build is called by its folder. One is slower where ResNet50 reads images.
SLOW, GOOD = "tonight", ".venv"
GOOD_COMMIT = "7688495538f4"
# A session whose name begins with a time is held at that time.
_TIME = re.compile(r"(\d{8}-\d{6})-")


def environment(folder: Path) -> Path:
    """A virtual environment, which has Paddle as far as ``PaddleBuilds`` says."""
    venv.create(folder, symlinks=True)
    return folder


def _commit(python: str) -> str:
    folder = Path(python).parent.parent.name
    return GOOD_COMMIT if folder in ("", GOOD) else hashlib.sha256(folder.encode()).hexdigest()[:12]


def _images_per_s(case: Case, commit: str) -> float:
    """Of one card, without its spread."""
    rate = IMAGES_PER_S[case.model] * (1.0 if case.precision is Precision.FP32 else AMP_SPEED_UP)
    reads = case.model is Model.RESNET50 and case.data is not DataSource.SYNTHETIC
    return rate * (SLOWER if reads and commit == _commit(f"{SLOW}/bin/python") else 1.0)


class Builds(PaddleBuilds):
    """Each environment has the Paddle of a commit of its own."""

    def commit_of(self, python: str) -> str:
        return _commit(python)

    def find_identity(self, build: FrameworkBuild) -> BuildIdentity:
        return BuildIdentity(build.interpreter, build.interpreter, f"digest of {build.commit}")


@dataclass
class Trainer:
    """Trains as fast as ``_images_per_s`` says."""

    store: ResultStore

    def run(self, plan: CasePlan, replicate: int, build: Build, stage: Stage) -> RunResult:
        uuid = f"{self.store.session}-{plan.case.id}-{replicate}"
        record = plan.build if build is Build.CANDIDATE else plan.reference
        rate = _images_per_s(plan.case, record["commit"]) * drawn(self.store, plan.case.id, build, SPREAD)
        return trained_run(self.store, plan, replicate, build, stage, uuid=uuid, images_per_s=rate)


@pytest.hookimpl(tryfirst=True)
def pytest_perf_suite(config: pytest.Config, options: SuiteOptions) -> Suite | None:
    return Suite.load(options, runner=Trainer(ResultStore(options.runs_folder, options.session)))


def checkout(folder: Path) -> Path:
    """A folder like a checkout, with baselines of its own."""
    checkout = folder / "checkout"
    checkout.mkdir()
    # The small data set in it is made once.
    (ROOT / ".cache").mkdir(exist_ok=True)
    for name in ("perf_tests", "conftest.py", "pytest.ini", "tests", ".cache"):
        (checkout / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "helpers/plan/defaults.yaml", checkout / "perf.yaml")
    shutil.copytree(ROOT / "baselines/published", checkout / "baselines/published")
    (checkout / "baselines/recorded").mkdir()
    return checkout


def played(checkout: Path, sessions: Sequence[Sequence[str]]) -> list[tuple[int, str]]:
    """Exit code and output of each session, in a process of their own."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs.stand_in"],
        cwd=checkout,
        env={**variables, "PYTHONPATH": str(ROOT), "COLUMNS": "80"},
        input=json.dumps(sessions),
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return [(code, printed) for code, printed in map(json.loads, done.stdout.splitlines())]


def main() -> None:
    for module in (helpers.session.suite, helpers.session.builds, helpers.plan.installed, helpers.builds.making):
        module.BuildFinder = Builds  # type: ignore[attr-defined]
    for arguments in json.load(sys.stdin):
        if found := _TIME.search(" ".join(arguments)):
            held = datetime.datetime.strptime(found[1], "%Y%m%d-%H%M%S").replace(tzinfo=datetime.UTC)
            utc_now._offset_seconds += (held - utc_now()).total_seconds()
        with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(output):
            code = pytest.main([*arguments, "-p", "no:cacheprovider", "-p", "tests.docs.stand_in"])
        print(json.dumps([int(code), output.getvalue()]), flush=True)


if __name__ == "__main__":
    main()
