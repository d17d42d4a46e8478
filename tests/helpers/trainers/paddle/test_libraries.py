"""Which CUDA libraries a rank loads where several stand, and what it refuses: stand-ins for the libraries and for
Paddle, a real loader."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.machine.libraries import with_libraries
from helpers.trainers.common.process import EXIT_REFUSED
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec

ROOT = Path(__file__).parents[4]
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

# Opens cuDNN as Paddle 2.6 does: by the name without a version, then in one more folder.
_PADDLE = """
import ctypes, types
version = types.SimpleNamespace(cuda=lambda: "11.8", cudnn=lambda: "8.6.0", full_version="2.6.2")
def get_cudnn_version():
    try:
        return ctypes.CDLL("libcudnn.so").cudnnGetVersion()
    except OSError:
        return None
"""
_REFUSED_RANK = """
import sys
from helpers.trainers.common.process import run
from helpers.trainers.paddle.trainer import RANK_VARIABLES
from helpers.trainers.paddle.libraries import refuse_wrong_libraries
sys.exit(run(sys.argv[1:], RANK_VARIABLES, lambda trainer: refuse_wrong_libraries()))
"""
_RANK = """
import json
from helpers.trainers.common.cuda import loaded_facts
from helpers.trainers.common.process import Refused
from helpers.trainers.paddle.libraries import refuse_wrong_libraries
try:
    refuse_wrong_libraries()
    print(json.dumps(loaded_facts()))
except Refused as refusal:
    print(json.dumps(str(refusal)))
"""


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Libraries of CUDA 11 and of CUDA 12, each with its version in its name."""
    folder = tmp_path_factory.mktemp("stubs")
    for name, code in {
        "libcudnn.so.8.6.0": "int cudnnGetVersion(void) { return 8600; }",
        # As the real one where a part of it is missing.
        "libcudnn.so.9.5.1": "#include <stdlib.h>\nint cudnnGetVersion(void) { abort(); }",
        "libcublas.so.11": "int cublasGetProperty(int p, int *v) { *v = 11; return 0; }",
        "libcublas.so.12": "int cublasGetProperty(int p, int *v) { *v = 12; return 0; }",
    }.items():
        (folder / "source.c").write_text(code)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / name, folder / "source.c"], check=True)
    return folder


def libraries(stubs: Path, folder: Path, *names: str) -> Path:
    """A folder with these libraries, by their names without a version."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / f"{name.partition('.so')[0]}.so").symlink_to(stubs / name)
    return folder


def rank(tmp_path: Path, search_path: str, environment: Path) -> object:
    """What a rank says with the caller's LD_LIBRARY_PATH, started by the interpreter of an environment."""
    (tmp_path / "paddle").mkdir()
    (tmp_path / "paddle" / "__init__.py").write_text(_PADDLE)
    variables = {**os.environ, "LD_LIBRARY_PATH": search_path, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    variables = with_libraries(variables, str(environment / "bin" / "python"))
    done = subprocess.run(
        [sys.executable, "-c", _RANK], env=variables, cwd=ROOT, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_the_environment_s_own_libraries_come_before_two_other_cudas_of_the_caller(stubs: Path, tmp_path: Path) -> None:
    libraries(stubs, tmp_path / "env/lib/perfgate-cuda", "libcudnn.so.8.6.0", "libcublas.so.11")
    newer = libraries(stubs, tmp_path / "cuda-12", "libcudnn.so.9.5.1", "libcublas.so.12")
    other = libraries(stubs, tmp_path / "cuda-11", "libcublas.so.11")
    found = rank(tmp_path, f"{newer}:{other}", tmp_path / "env")
    assert isinstance(found, dict)
    assert (found["cudnn"], found["cublas"]) == ("8.6.0", "11.11.11")
    assert found["cudnn_file"] == str(stubs / "libcudnn.so.8.6.0")


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["libcudnn.so.9.5.1", "libcublas.so.11"], "libcudnn.so.9.5.1 is cuDNN 9.5.1, this build was made for 8.6.0"),
        (["libcudnn.so.8.6.0", "libcublas.so.12"], "libcublas.so.12 is cuBLAS 12, this build was made for 11.8"),
        (["libcudnn.so.8.6.0"], "this build opens libcublas.so and finds none"),
        (["libcublas.so.11"], "this build was made for cuDNN 8.6.0 and finds none"),
    ],
)
def test_a_library_of_another_major_version_or_none_is_refused_with_what_to_do(
    stubs: Path, tmp_path: Path, names: list[str], told: str
) -> None:
    refusal = rank(tmp_path, str(libraries(stubs, tmp_path / "caller", *names)), tmp_path / "no-environment")
    assert isinstance(refusal, str)
    assert told in refusal
    assert "make env" in refusal and "docs/choosing.md" in refusal


def test_the_log_of_a_refused_rank_is_written_without_asking_the_library_that_was_refused(
    stubs: Path, tmp_path: Path
) -> None:
    """This cuDNN ends the process when it is asked for its version."""
    caller = libraries(stubs, tmp_path / "caller", "libcudnn.so.9.5.1", "libcublas.so.11")
    (tmp_path / "paddle").mkdir()
    (tmp_path / "paddle" / "__init__.py").write_text(_PADDLE)
    case = Case.parse("paddle-resnet50v1.5-fp32-bs256-1x1-native-static")
    spec = JobSpec("job", case, 0, str(tmp_path), "gpu", 1, 1)
    (tmp_path / "spec.json").write_text(spec.to_json())
    variables = {**os.environ, "LD_LIBRARY_PATH": str(caller), "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", _REFUSED_RANK, tmp_path / "spec.json"], env=variables, cwd=ROOT, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == EXIT_REFUSED, done.stderr
    header, footer = map(json.loads, Path(spec.step_log_path(0)).read_text().splitlines())
    assert footer["status"] == "refused" and "libcudnn.so.9.5.1 is cuDNN 9.5.1" in footer["reason"]
    assert header["facts"]["cudnn_file"].endswith("libcudnn.so.9.5.1")
