"""The container: what its recipe promises, and its steps in a fresh root file system, without a daemon."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from tests.requirements.scripts import load

bootstrap: Any = load("bootstrap")
ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "requirements" / "container" / "Dockerfile"
IGNORED = RECIPE.with_name("Dockerfile.dockerignore")
# With this variable the image is built: minutes, some gigabytes, and everything from the package index.
NAMED = "PERFGATE_TEST_CONTAINER"
# What the user may write below the suite's folder.
WRITABLE = ("runs", "gate", ".cache")
PROGRAMS = ("buildah", "debootstrap", "unshare")


def instructions() -> list[list[str]]:
    """The recipe's lines as words, without comments, each continued line as one."""
    text = re.sub(r"^\s*#.*\n", "", RECIPE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [line.split() for line in text.splitlines() if line.strip()]


def stages() -> dict[str, list[list[str]]]:
    """The instructions of each stage, by its name."""
    found: dict[str, list[list[str]]] = {}
    for words in instructions():
        if words[0] == "FROM":
            found[words[-1]] = []
        if found:
            found[list(found)[-1]].append(words)
    return found


def test_every_image_is_named_by_its_digest() -> None:
    arguments = dict(words[1].split("=", 1) for words in instructions() if words[0] == "ARG" and "=" in words[1])
    own = set(stages())
    used = {words[1] for words in instructions() if words[0] == "FROM"} - own
    assert used == {"${PYTHON}"}
    for each in used:
        assert re.fullmatch(r"docker\.io/[a-z/]+:[\w.-]+@sha256:[0-9a-f]{64}", arguments[each[2:-1]])


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_a_target_runs_perfgate_as_a_user_without_rights(target: str) -> None:
    words = stages()[target]
    users = [each[1] for each in words if each[0] == "USER"]
    assert users == ["10001:10001"]
    # Nothing is installed in the last stage, and after the user was set nothing is run.
    assert not any("pip" in " ".join(each) or "apt-get" in each for each in words if each[0] == "RUN")
    assert [each[0] for each in words][-3:] == ["USER", "ENTRYPOINT", "CMD"]
    assert words[-2][1:] == ['["/opt/perfgate/.venv/bin/perfgate"]']


def test_only_results_reports_and_caches_belong_to_the_user() -> None:
    given = [words for words in instructions() if "--owner=perfgate" in words]
    (line,) = given
    assert line[-3:] == list(WRITABLE)
    text = RECIPE.read_text()
    assert "chown" not in text and "chmod" not in text


def test_nothing_is_fetched_but_by_apt_and_by_the_pinned_requirements() -> None:
    for words in instructions():
        line = " ".join(words)
        assert not re.search(r"\b(curl|wget|git clone|pip install|npm|https?://)", line), line


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_a_target_names_what_it_was_made_of(target: str) -> None:
    words = [" ".join(each) for each in stages()[target]]
    (labels,) = [each for each in words if each.startswith("LABEL ")]
    names = set(re.findall(r"org\.opencontainers\.image\.([\w.]+)=", labels))
    assert names == {"title", "licenses", "base.name", "revision"}
    # Without this line the argument of the beginning is empty inside a stage.
    assert "ARG PYTHON" in words


@pytest.mark.parametrize(("target", "chosen"), [("cpu", "cpu"), ("gpu", "gpu-cuda11")])
def test_an_environment_is_made_of_the_pinned_files_alone(target: str, chosen: str) -> None:
    (made,) = [" ".join(each) for each in stages()[f"{target}-environment"] if each[0] == "RUN"]
    assert f"python3 requirements/bootstrap.py --requirements {chosen} && " in made
    assert "pip install" not in RECIPE.read_text()
    assert chosen in bootstrap.SETS


@pytest.mark.parametrize("missing", [{}, {"dali-cuda12": "no host"}])
def test_an_image_is_made_whole_or_not_at_all(tmp_path: Path, missing: dict[str, str]) -> None:
    """The recipe's own check, on a stamp that bootstrap.py writes."""
    (tmp_path / ".venv").mkdir()
    bootstrap.write_stamp(str(tmp_path / ".venv"), "CPython 3.11.7", "/usr/bin/python3", {}, missing)
    for target in ("cpu", "gpu"):
        (made,) = [" ".join(each) for each in stages()[f"{target}-environment"] if each[0] == "RUN"]
        check = made.partition(" && ")[2]
        assert "perfgate-stamp" in check
        assert (subprocess.run(["sh", "-c", check], cwd=tmp_path, check=False).returncode == 0) == (not missing)


def test_an_image_with_a_gpu_s_paddle_has_cuda_from_wheels_alone() -> None:
    text = RECIPE.read_text()
    assert "nvidia/cuda" not in text and "ld.so.conf" not in text and "LD_LIBRARY_PATH" not in text
    wanted = bootstrap.wanted_parts(str(ROOT / "requirements"), "gpu-cuda11", ["libgomp"])
    assert {"cuda11", "dali-cuda12"} <= set(wanted)


def test_a_secret_is_mounted_and_never_copied_or_set() -> None:
    for words in instructions():
        line = " ".join(words)
        assert not re.search(r"(?i)(passw|token|secret)", line.replace("--mount=type=secret,id=pip", "")), line
        assert words[0] != "ADD"
    assert RECIPE.read_text().count("--mount=type=secret,id=pip,target=/etc/pip.conf") == 2


def test_the_image_has_what_git_has_of_the_named_folders_and_no_results() -> None:
    first, *rest = [line for line in IGNORED.read_text().splitlines() if not line.startswith("#")]
    kept = [line[1:] for line in rest if line.startswith("!")]
    assert first == "*"
    assert all((ROOT / each).exists() for each in kept)
    assert not {"runs", ".git", ".cache", "tests", "benchmarks", "docs"} & set(kept)
    # Names that git leaves out have no place in the image, either.
    dropped = [line for line in rest if not line.startswith("!")]
    for name in (".venv", ".env", ".pgpass", "x.pyc", "__pycache__"):
        assert any(fnmatchcase(name, each.removeprefix("**/")) for each in dropped), name


# ---- built, without a daemon


@dataclass(frozen=True)
class Workshop:
    """Where buildah keeps its images: a folder of its own."""

    folder: Path

    def run(self, *words: str, seconds: float = 1800.0) -> str:
        """What a command of buildah prints. Raises AssertionError with all its output if it fails."""
        own = ["--root", str(self.folder / "store"), "--runroot", str(self.folder / "run")]
        variables = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
        done = subprocess.run(
            ["buildah", *own, *words], env=variables, capture_output=True, text=True, timeout=seconds, cwd=ROOT
        )
        assert done.returncode == 0, f"buildah {' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def base(self) -> str:
        """An image that stands for Python's: the same distribution and Python's version, from its packages. Images of a
        registry cannot be had everywhere."""
        root = self.folder / "root"
        packages = "python3,python3-venv,ca-certificates"
        # Its mounts of /proc and /sys are its own, and gone when it ends, however it does.
        make = [
            "unshare",
            "--mount",
            "debootstrap",
            "--variant=minbase",
            f"--include={packages}",
            "bookworm",
            str(root),
        ]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL, timeout=1800)
        container = self.run("from", "scratch").strip()
        inside = self.run("mount", container).strip()
        subprocess.run(["cp", "-a", f"{root}/.", inside], check=True)
        self.run("umount", container)
        shutil.rmtree(root)
        self.run("config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", container)
        self.run("commit", "--rm", container, "localhost/python:test")
        return "localhost/python:test"

    def index(self) -> list[str]:
        """pip's configuration on this machine as the recipe's secret, and the folders that it names."""
        listed = subprocess.run(
            [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
        ).stdout
        given = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
        values = {name.rpartition(".")[2]: value.strip("'") for name, value in given.items()}
        secret = self.folder / "pip.conf"
        secret.touch(mode=0o600)
        secret.write_text("[global]\n" + "".join(f"{name} = {value}\n" for name, value in values.items()))
        named = (path for value in values.values() for path in re.findall(r"(?:file://)?(/\S+)", value))
        # An index of files names them beside its folder.
        folders = {
            str(Path(path).parent) if path.endswith("/simple") else path for path in named if Path(path).is_dir()
        }
        # Certificates of this machine's own, where it has some.
        folders.add("/etc/ssl/certs")
        mounts = [part for each in sorted(folders) for part in ("--volume", f"{each}:{each}:ro")]
        return ["--secret", f"id=pip,src={secret}", *mounts]


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workshop, str]]:
    """A container of the built image, with the workshop in which it is."""
    if not os.environ.get(NAMED):
        pytest.skip(f"builds an image for minutes: set {NAMED}=1 (docs/container.md)")
    missing = [each for each in PROGRAMS if shutil.which(each, path=f"{os.environ['PATH']}:/usr/sbin") is None]
    assert not missing, f"apt-get install {' '.join(missing)}"
    assert os.geteuid() == 0, "a root file system can be made by root only"
    workshop = Workshop(tmp_path_factory.mktemp("container"))
    try:
        base = workshop.base()
        arguments = ["--build-arg", f"PYTHON={base}", "--target", "cpu", "--ignorefile", str(IGNORED)]
        build = ["bud", "--layers=false", "--file", str(RECIPE), *arguments, *workshop.index()]
        workshop.run(*build, "--tag", "localhost/perfgate:test", str(ROOT))
        yield workshop, workshop.run("from", "localhost/perfgate:test").strip()
    finally:
        workshop.run("rm", "--all")
        workshop.run("rmi", "--all", "--force")


# What the user must not be able to do.
CHANGES = (
    "echo >> helpers/__init__.py",
    "touch helpers/new.py",
    "mv helpers kept && mkdir helpers",
    "rm perf.yaml",
    "touch baselines/published/new",
    "touch .venv/bin/new",
    "touch new",
)


@pytest.mark.slow
@pytest.mark.training
@pytest.mark.untimed
def test_the_steps_make_an_image_that_trains_as_another_user(container: tuple[Workshop, str]) -> None:
    workshop, name = container

    def within(*words: str, user: str = "10001:10001") -> str:
        return workshop.run("run", "--user", user, name, "--", *words)

    assert "Does this machine still train" in within("/opt/perfgate/.venv/bin/perfgate", "--help")
    assert within("sh", "-c", "id -u; echo $PERFGATE_IMAGE").split() == ["10001", "perfgate:cpu"]
    # The recipe's secret and git's folder are not in it, and the user cannot change the suite.
    for path in ("/etc/pip.conf", "/opt/perfgate/.git", "/opt/perfgate/tests"):
        assert within("sh", "-c", f"test -e {path} || echo missing") == "missing\n"
    owned = within("sh", "-c", "find /opt/perfgate ! -type l -writable -prune -print; true").split()
    assert sorted(owned) == sorted(f"/opt/perfgate/{each}" for each in WRITABLE)
    for change in CHANGES:
        assert within("sh", "-c", f"cd /opt/perfgate; ({change}) 2>&1 || echo refused").splitlines()[-1] == "refused"
    case = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"
    session = [".venv/bin/python", "-m", "pytest", "perf_tests", "-m", "cpu", "--allow-contention"]
    assert "1 passed" in within(*session, "-k", case, "--html", "gate/night.html")
    assert {"gate/night.html", ".cache/checked-baselines"} <= set(within("sh", "-c", "ls -d gate/* .cache/*").split())
    # Whoever the container runs as, results go where they may.
    other = [*session, "--collect-only", "-q", "--runs-dir", "/tmp/runs"]
    assert case in within("env", "HOME=/tmp", *other, user="1001:1001")
