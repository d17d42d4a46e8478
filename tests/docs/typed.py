"""A fresh clone in which a reader types the blocks of a page. Only these stand for the real ones there:

- what trains (``trained`` below, where the clone would start a job), and what builds a static program;
- the package index: a folder of small wheels of Paddle's releases for Python 3.11, of the
  paddlepaddle-gpu that ``make env`` installs, and of what stands beside them; ``.venv`` has this Python's packages;
- the look whether others use the machine: it is quiet.
"""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
import uuid
import venv
from itertools import chain
from pathlib import Path

import yaml

from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.case.evidence import Build, Stage
from helpers.plan.case_plan import CasePlan
from tests.docs.blocks import ROOT
from tests.helpers.builds.conftest import make_wheel
from tests.helpers.trained import drawn, trained_run
from tests.requirements.scripts import load

# A build whose commit begins so trains slower.
SLOW = "510e"
SLOWER, SPREAD = 0.94, 0.003
IMAGES_PER_S = 5.4
STAND_INS = {
    "helpers/session/measuring/job_runner.py": """

def _trained(self, *run, **roles):
    from tests.docs.typed import trained

    return trained(self.store, *run, **roles)


JobRunner.run = _trained
""",
    "helpers/session/programs.py": """

def build_programs(cases, interpreter, on_report):
    from helpers.trainers.contract.program import PROGRAM_FACT

    return tuple(BuildReport(BuildState.BUILT, facts={PROGRAM_FACT: "old"}) for _ in cases)
""",
    "helpers/session/measuring/disturbance.py": """

def disturbance_of(*_machine, **_options):
    return ""
""",
}
# Older than every other release, and slower (docs/evidence/releases.md).
_SLOW_RELEASE = "2.6.2"
_RELEASES = (_SLOW_RELEASE, "3.0.0", "3.1.0", "3.1.1", "3.2.0", "3.2.1", "3.2.2", "3.3.0", "3.3.1")
_PINNED = re.compile(r"^(paddlepaddle-gpu)==([^\s\\]+)", re.MULTILINE)
_DALI = ("nvidia/dali/__init__.py", "nvidia/dali/plugin/__init__.py", "nvidia/dali/plugin/paddle.py")
_SECONDS = 300


def trained(
    store: ResultStore, plan: CasePlan, replicate: int, build: Build = Build.CANDIDATE, stage: Stage = Stage.SCREEN
) -> RunResult:
    """In the place of ``JobRunner.run`` in the clone: a run's step logs and result, as fast as the build's commit
    says."""
    name = uuid.uuid4().hex
    commit = (plan.build if build is Build.CANDIDATE else plan.reference)["commit"]
    usual = IMAGES_PER_S * (SLOWER if commit.startswith(SLOW) else 1.0)
    rate = usual * drawn(store, plan.case.id, build, SPREAD)
    return trained_run(store, plan, replicate, build, stage, uuid=name, images_per_s=rate)


def index(folder: Path) -> Path:
    """A folder of small wheels: Paddle's releases, and what stands beside them."""
    (folder / "none").mkdir(parents=True)
    for name, version in released():
        commit, cuda = commit_of(version, slow=version == _SLOW_RELEASE), "'11.8'" if "gpu" in name else "False"
        make_wheel(folder, version, name=name.replace("-", "_"), commit=commit, cuda=cuda)
    companions = yaml.safe_load((ROOT / "requirements/companions.yaml").read_text(encoding="utf-8"))
    for entry in companions["paddle"]:
        for requirement in chain(entry["requirements"], *(part["requirements"] for part in entry["parts"])):
            name, _, version = requirement.partition("==")
            module = name.replace("-", "_")
            more = dict.fromkeys(_DALI, "") if "dali" in name else {}
            make_wheel(folder, version, name=module, module=f"stands_for_{module}", more=more)
    return folder


def released() -> list[tuple[str, str]]:
    """What the index has of Paddle for this Python."""
    pinned = _PINNED.findall((ROOT / "requirements/gpu-cuda11.txt").read_text(encoding="utf-8"))
    return [*(("paddlepaddle", version) for version in _RELEASES), *pinned]


def commit_of(version: str, *, slow: bool = False) -> str:
    digits = "".join(filter(str.isdigit, version))
    return f"{SLOW if slow else '6e0d'}{digits}".ljust(40, "0")


class Clone:
    """A fresh clone of the checkout, with this Python's packages in its ``.venv``; commands are typed in it."""

    def __init__(self, folder: Path, links: Path) -> None:
        self.folder = folder
        folder.parent.mkdir(parents=True)
        _git("clone", "--quiet", str(ROOT), str(folder))
        # What is not committed yet is tried, too.
        changed = _git("-C", str(ROOT), "ls-files", "-z", "--modified", "--others", "--exclude-standard")
        for name in filter(None, changed.split("\0")):
            (folder / name).unlink(missing_ok=True)
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / name)
        for name, lines in STAND_INS.items():
            with (folder / name).open("a", encoding="utf-8") as file:
                file.write(lines)
        environment(folder / ".venv")
        (folder / ".venv/bin/perfgate").unlink(missing_ok=True)
        load("installer").Environment(folder / ".venv").write_command(folder)
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.variables = {
            **kept,
            "HOME": str(folder.parent),
            # Its environment is there: make installs nothing.
            "PYTHON": "true",
            "UV_DEFAULT_INDEX": (links / "none").as_uri(),
            "UV_FIND_LINKS": str(links),
            "UV_CACHE_DIR": str(links.parent / "uv"),
        }

    def write(self, sections: str) -> None:
        """Put sections into perf.yaml, in the place of its own of these names."""
        path = self.folder / "perf.yaml"
        before = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
        path.write_text(yaml.safe_dump({**before, **yaml.safe_load(sections)}), encoding="utf-8")

    def type(self, line: str) -> tuple[int, str]:
        """The exit code of a shell's line, and what it printed."""
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=self.folder,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_SECONDS,
        )
        return done.returncode, done.stdout


def environment(folder: Path, wheel: Path | None = None) -> Path:
    """A virtual environment with the packages of this one, and with a wheel before them."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    if wheel is not None:
        shutil.unpack_archive(wheel, packages, "zip")
    (packages / "of_the_tests.pth").write_text("\n".join(site.getsitepackages()) + "\n", encoding="utf-8")
    for program in (Path(sys.prefix) / "bin").iterdir():
        if not (folder / "bin" / program.name).exists():
            (folder / "bin" / program.name).symlink_to(program)
    return folder


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True, timeout=60).stdout
