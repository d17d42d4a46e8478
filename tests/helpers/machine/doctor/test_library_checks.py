"""What the doctor says of CUDA's libraries: a root with files of one CUDA, of another, and of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.machine.doctor import diagnose
from helpers.machine.doctor.finding import Finding, Severity
from helpers.machine.facts import FrameworkFacts
from helpers.machine.libraries import find_library
from tests.helpers.machine.doctor.context import BUILD, LIBRARIES, context, facts
from tests.helpers.machines import gpu_machine, v100s

BLOCKER = Severity.BLOCKER


def _opened(tmp_path: Path, *files: str, interpreter: str = "/opt/bin/python", card: int = 1) -> list[Finding]:
    """What the doctor finds of the libraries of Paddle 2.6.2 where these files are all there is under the root."""
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        if ".so." in name:
            (path.parent / f"{path.name.partition('.so')[0]}.so").symlink_to(path.name)
    names = BUILD.framework.spec.opens
    opened = {name: find_library(name, interpreter, {}, tmp_path) for name in names}
    framework = FrameworkFacts(BUILD, LIBRARIES, opened)
    machine = gpu_machine(v100s()[:card])
    return list(diagnose(context(facts=facts(machine=machine, frameworks=(framework,)))).findings)


def test_libraries_of_the_build_s_majors_are_no_finding(tmp_path: Path) -> None:
    files = ("usr/lib64/libcudnn.so.8", "usr/local/cuda/lib64/libcublas.so.11.11.3", "usr/lib64/libnccl.so.2.15.5")
    (tmp_path / "etc/ld.so.conf.d").mkdir(parents=True)
    (tmp_path / "etc/ld.so.conf.d/cuda.conf").write_text("# CUDA\n/usr/local/cuda/lib64\n")
    assert _opened(tmp_path, *files, card=8) == []


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            ["usr/lib64/libcudnn.so.9.5.1", "usr/lib64/libcublas.so.11"],
            "libcudnn.so.9.5.1 as libcudnn.so, and was built for cuDNN 8.6.0",
        ),
        (
            ["usr/lib64/libcudnn.so.8", "usr/lib/libcublas.so.12.6.4.1"],
            "libcublas.so.12.6.4.1 as libcublas.so, and was built for cuBLAS 11.8",
        ),
        # Paddle looks there for cuDNN alone.
        (
            ["usr/local/cuda/lib64/libcudnn.so.8", "usr/local/cuda/lib64/libcublas.so.11"],
            "no libcublas.so, which paddlepaddle-gpu 2.6.2 opens",
        ),
    ],
)
def test_a_library_of_another_cuda_or_none_blocks(tmp_path: Path, files: list[str], told: str) -> None:
    (finding,) = _opened(tmp_path, *files)
    assert finding.severity is BLOCKER
    assert told in finding.found


def test_a_library_without_the_name_that_paddle_opens_is_told_with_the_file_that_is_there(tmp_path: Path) -> None:
    """Where only libcudnn.so.9.5.1 is there."""
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64/libcudnn.so.9.5.1").touch()
    (finding,) = _opened(tmp_path, "usr/lib64/libcublas.so.11")
    assert (finding.severity, finding.name) == (BLOCKER, "cuDNN")
    assert finding.found == (
        f"no libcudnn.so, which paddlepaddle-gpu 2.6.2 opens; there is {tmp_path}/usr/lib64/libcudnn.so.9.5.1"
    )
    assert "make env" in finding.remedy


def test_the_environment_s_own_libraries_come_before_the_system_s(tmp_path: Path) -> None:
    own = ("env/lib/perfgate-cuda/libcudnn.so.8", "env/lib/perfgate-cuda/libcublas.so.11")
    system = ("usr/lib64/libcudnn.so.9.5.1", "usr/lib64/libcublas.so.12.6")
    assert _opened(tmp_path, *own, *system, interpreter=f"{tmp_path}/env/bin/python") == []
