"""What processes that train, probe and guard have of the caller's environment."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.builds.making import import_build
from helpers.builds.naming import BuildUnavailable
from helpers.builds.uv import Uv
from helpers.common.inherited import LIBRARY_FLAGS, may_pass, passed_on, passed_to_installer, withheld
from helpers.launch.programs import check_builds, check_settings
from helpers.machine.environment import flag_variables
from helpers.machine.framework_builds import BuildFinder
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.frameworks import FRAMEWORKS, Framework
from helpers.trainers.contract.job import JobSpec

SECRETS = {
    "PGPASSWORD": "s3cret", "PGSSLPASSWORD": "s3cret", "PGUSER": "s3cret", "PGPASSFILE": "s3cret", "HF_TOKEN": "s3cret",
    "AWS_SECRET_ACCESS_KEY": "s3cret", "GITHUB_TOKEN": "s3cret", "SLURM_JWT": "s3cret", "TF_TOKEN_host": "s3cret",
    "https_proxy": "s3cret", "HTTPS_PROXY": "s3cret", "PIP_INDEX_URL": "s3cret", "CUDA_API_KEY": "s3cret",
}  # fmt: skip
PYTHON = {"PYTHONWARNINGS": "error", "PYTHONINSPECT": "1", "PYTHONPATH": "/mine", "PYTHONHOME": "/mine"}
OTHER_LAUNCHERS = {
    "PADDLE_TRAINER_ID": "3",
    "RANK": "1",
    "MASTER_ADDR": "h",
    "OMPI_COMM_WORLD_RANK": "1",
    "TF_CONFIG": "{}",
}
CASE = Case.parse("paddle-resnet50v1.5-fp32-bs1-1x1-synthetic-dynamic")


def test_no_password_no_variable_of_python_and_no_other_launcher_s_passes() -> None:
    given = {**SECRETS, **PYTHON, **OTHER_LAUNCHERS}
    assert passed_on(given) == {"PYTHONPATH": str(ROOT)}
    assert withheld({"PATH": "/bin", **given}) == tuple(sorted(given))


def test_what_a_training_needs_passes_unchanged() -> None:
    given = {
        "PATH": "/bin", "HOME": "/home/me", "LANG": "C.UTF-8", "LC_ALL": "C", "TZ": "UTC", "TMPDIR": "/scratch",
        "LD_LIBRARY_PATH": "/opt/lib", "LD_PRELOAD": "/opt/jemalloc.so", "CUDA_VISIBLE_DEVICES": "1",
        "NCCL_DEBUG": "INFO",
        "FLAGS_cudnn_deterministic": "1", "OMP_NUM_THREADS": "4", "MKL_DEBUG_CPU_TYPE": "5", "XLA_FLAGS": "--x",
        "PERFGATE_TEST_SLOWDOWN": "0.05", "SLURM_JOB_ID": "7",
    }  # fmt: skip
    assert passed_on(given) == {**given, "PYTHONPATH": str(ROOT)}


@pytest.mark.parametrize("framework", Framework)
def test_every_flag_that_is_recorded_passes_and_one_that_does_not_pass_is_not_recorded(framework: Framework) -> None:
    flags = (*LIBRARY_FLAGS, *FRAMEWORKS[framework].flags)
    assert flags and all(may_pass(f"{flag}X") for flag in flags)
    given = {"NCCL_ALGO": "Ring", "NCCL_TOKEN": "s3cret"}
    assert flag_variables(given, framework.value) == {"NCCL_ALGO": "Ring"}


def _specs(folder: Path) -> list[JobSpec]:
    return [JobSpec("j", CASE, 0, str(folder), "cpu", 0, 1)]


def _uv(interpreter: str) -> None:
    dataclasses.replace(Uv.of(), program=interpreter).resolve("b", ["torch"], interpreter)


STARTS: dict[str, Callable[[str, Path], object]] = {
    "framework probe": lambda python, folder: BuildFinder().find_build(Framework.PADDLE, python),
    "a build's import": lambda python, folder: import_build("b", Framework.PADDLE, Path(python)),
    "build making": lambda python, folder: _uv(python),
    "settings check": lambda python, folder: check_settings(_specs(folder), python),
    "build check": lambda python, folder: check_builds(_specs(folder), python),
}


@pytest.mark.parametrize("start", STARTS)
def test_what_the_suite_starts_gets_neither_a_password_nor_what_changes_python(
    start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\nenv > {seen}\nexit 1\n")
    python.chmod(0o755)
    for name, value in {**SECRETS, **PYTHON, "NCCL_ALGO": "Ring"}.items():
        monkeypatch.setenv(name, value)
    with contextlib.suppress(LaunchError, BuildUnavailable):
        STARTS[start](str(python), tmp_path)
    given = dict(line.split("=", 1) for line in seen.read_text().splitlines() if "=" in line)
    assert given["NCCL_ALGO"] == "Ring"
    # An installer has the way to its indexes.
    allowed = {"https_proxy", "HTTPS_PROXY"} if start == "build making" else set()
    assert {name for name in given if name in SECRETS} == allowed
    assert not {name for name in given if name.startswith("PYTHON")} - {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    assert "/mine" not in given.values()


def test_an_installer_has_its_indexes_and_no_other_program_s_secrets() -> None:
    passed = passed_to_installer({**SECRETS, **PYTHON, "UV_INDEX_URL": "u", "NETRC": "n", "SSL_CERT_FILE": "c"})
    assert set(passed) == {"https_proxy", "HTTPS_PROXY", "PIP_INDEX_URL", "UV_INDEX_URL", "NETRC", "SSL_CERT_FILE"}
