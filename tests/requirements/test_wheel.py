"""The wheel of perfgate: what it installs, and that it serves a folder which is no checkout."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.docs.typed import STAND_INS, environment
from tests.requirements.scripts import REQUIREMENTS

ROOT = REQUIREMENTS.parent
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    words = ("-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT))
    subprocess.run([sys.executable, *words], check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


class Project:
    """A user's project that has packages with the names of perfgate's own, and perfgate installed beside it."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder / "project"
        self.venv = environment(folder / "venv", wheel)
        (packages,) = self.venv.glob("lib/python*/site-packages")
        self.suite = packages / "perfgate/suite"
        for name in ("helpers", "fixtures", "perf_tests"):
            (self.folder / name).mkdir(parents=True)
            (self.folder / name / "__init__.py").write_text(f"OWN = {name!r}\n", encoding="utf-8")

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        # The stand-ins of training are in tests/ of the checkout.
        return subprocess.run(
            [str(self.venv / "bin/python"), "-P", *words],
            cwd=self.folder,
            env={
                "PATH": f"{self.venv / 'bin'}:/usr/bin:/bin",
                "HOME": str(self.folder),
                "PYTHONPATH": f"{self.folder}:{ROOT}",
            },
            capture_output=True,
            text=True,
            timeout=240,
        )

    def perfgate(self, *words: str, code: int = 0) -> str:
        done = self.python("-m", "perfgate", *words)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def project(wheel: Path, tmp_path: Path) -> Project:
    return Project(tmp_path, wheel)


def test_it_installs_one_name(wheel: Path) -> None:
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name for name in names if not name.endswith(".dist-info")} == {"perfgate"}


def test_it_brings_the_photographs_that_images_are_made_of(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        needed = archive.read(metadata).decode()
    assert re.search(r"^Requires-Dist: scikit-image==", needed, re.MULTILINE), needed


def test_a_program_that_imports_perfgate_has_its_own_packages(project: Project) -> None:
    done = project.python("-c", "import perfgate, helpers, fixtures; print(helpers.OWN, fixtures.OWN)")
    assert done.stdout.split() == ["helpers", "fixtures"], done.stderr


def test_commands_work_in_a_folder_with_nothing(project: Project) -> None:
    assert project.perfgate("--version").startswith("perfgate 1.")
    assert "paddle-resnet50v1.5" in project.perfgate("cases")
    # Whether a machine is fit depends on what else runs on it.
    asked = project.python("-m", "perfgate", "doctor", "--json")
    assert asked.returncode in (0, 1) and "verdict" in json.loads(asked.stdout)


def test_a_gate_keeps_baselines_and_runs_in_the_folder(project: Project) -> None:
    for name, lines in STAND_INS.items():
        with (project.suite / name).open("a", encoding="utf-8") as file:
            file.write(lines)
    before = {path for path in project.suite.rglob("*") if "__pycache__" not in path.parts}
    project.perfgate("init")
    gate = ("gate", "--", "-k", "paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic")
    project.perfgate(*gate, "--update-baselines", code=6)
    assert list((project.folder / "baselines/recorded").rglob("*.json"))
    assert "GATE PASSED" in project.perfgate(*gate)
    assert list((project.folder / "runs").rglob("result.json"))
    assert (project.folder / "runs/history.sqlite").is_file()
    assert {path for path in project.suite.rglob("*") if "__pycache__" not in path.parts} == before
