"""A machine of two CPU cards with Paddle, whatever this one is."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import helpers.session.suite
from helpers.machine.devices import CpuCard, Machine
from helpers.machine.framework_builds import BuildIdentity, FrameworkBuild
from helpers.machine.host import Host
from helpers.trainers.contract import models
from helpers.trainers.contract.frameworks import Framework

HOST = Host("h", "0123456789abcdef", "Linux", "6.1", "AMD EPYC", 2, 8 * 1024**3)
MACHINE = Machine(HOST, (CpuCard(0, (0,)), CpuCard(1, (1,))), gpu_note="no libnvidia-ml.so.1")


class Builds:
    """Stands where BuildFinder stands."""

    def find_identity(self, build: FrameworkBuild) -> BuildIdentity:
        return BuildIdentity(prefix=build.interpreter, place=build.interpreter, digest=f"digest of {build.interpreter}")

    def find_build(self, framework: Framework, interpreter: str | None = None) -> FrameworkBuild | str:
        if framework is not Framework.PADDLE:
            return f"there is no trainer for {framework.value}"
        return FrameworkBuild(interpreter or "python", framework, "paddlepaddle", "3.0.0")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """MACHINE is what the suite finds."""
    monkeypatch.setattr(helpers.session.suite, "discover", lambda **values: MACHINE)
    monkeypatch.setattr(helpers.session.suite, "BuildFinder", Builds)
    return MACHINE


@pytest.fixture
def empty_baselines(tmp_path: Path) -> Path:
    """The published baselines, and a folder of recorded ones with nothing in it."""
    folder = tmp_path / "baselines"
    (folder / "recorded").mkdir(parents=True)
    published = Path(helpers.session.suite.__file__).parents[2] / "baselines/published"
    shutil.copytree(published, folder / "published")
    return folder


@pytest.fixture
def models_of_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models whose samples are sentences, registered in place of the image models."""
    registered = {each: replace(spec, sample="sentence") for each, spec in models.MODELS.items()}
    monkeypatch.setattr(models, "MODELS", registered)
