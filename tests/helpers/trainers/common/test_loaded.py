"""The libraries that a process has loaded: on a stand-in for /proc/self/maps, and on compiled ones really loaded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.trainers.common.loaded import cudnn_text, loaded_facts, nccl_text


def number(value: int) -> Any:
    class Function:
        restype: object = None

        def __call__(self) -> int:
            return value

    return Function()


def pointer(value: int, code: int = 0) -> Callable[..., int]:
    def function(found: Any) -> int:
        found._obj.value = value
        return code

    return function


LIBRARIES = {
    "/usr/lib/libcudnn.so.8.9.7": SimpleNamespace(cudnnGetVersion=number(8907)),
    "/env/nvidia/cudnn/lib/libcudnn.so.9": SimpleNamespace(cudnnGetVersion=number(91002)),
    "/env/nvidia/nccl/lib/libnccl.so.2": SimpleNamespace(ncclGetVersion=pointer(22705)),
    "/env/torch/lib/libcudart-d0da41ae.so.11.0": SimpleNamespace(cudaRuntimeGetVersion=pointer(11080)),
    "/old/libnccl.so.2": SimpleNamespace(ncclGetVersion=pointer(2804)),
    "/broken/libnccl.so.2.9": SimpleNamespace(ncclGetVersion=pointer(0, code=3)),
    "/stripped/libcudnn.so.9": SimpleNamespace(),
}


def facts_with(tmp_path: Path, *paths: str) -> dict[str, str]:
    maps = tmp_path / "maps"
    lines = [
        f"7f{number:010x}-7f{number + 1:010x} {mode} 00000000 fe:00 1234     {path}"
        for number, (path, mode) in enumerate((path, mode) for path in paths for mode in ("r-xp", "rw-p"))
    ]
    maps.write_text("\n".join([*lines, "7ffd00000000-7ffd00001000 rw-p 00000000 00:00 0                  [stack]", ""]))
    return loaded_facts(maps, LIBRARIES.__getitem__)


def test_the_loaded_libraries_are_asked_for_their_versions(tmp_path: Path) -> None:
    assert facts_with(
        tmp_path,
        "/env/nvidia/cudnn/lib/libcudnn.so.9",
        "/env/nvidia/cudnn/lib/libcudnn_ops.so.9",
        "/env/nvidia/nccl/lib/libnccl.so.2",
        "/env/torch/lib/libcudart-d0da41ae.so.11.0",
        "/lib/libc.so.6",
    ) == {"cudnn": "9.10.2", "nccl": "2.27.5", "cuda_runtime": "11.8"}


def test_two_copies_are_both_told_and_one_that_is_mapped_twice_once(tmp_path: Path) -> None:
    found = facts_with(tmp_path, "/usr/lib/libcudnn.so.8.9.7", "/env/nvidia/cudnn/lib/libcudnn.so.9")
    assert found == {"cudnn": "9.10.2 + 8.9.7"}


@pytest.mark.parametrize(
    ("path", "told"),
    [("/broken/libnccl.so.2.9", {"nccl": "unknown (libnccl.so.2.9)"}),
     ("/stripped/libcudnn.so.9", {"cudnn": "unknown (libcudnn.so.9)"})],
)  # fmt: skip
def test_a_library_that_does_not_tell_its_version_is_told_by_its_file(
    tmp_path: Path, path: str, told: dict[str, str]
) -> None:
    assert facts_with(tmp_path, path) == told


def test_a_process_that_has_loaded_none_tells_none(tmp_path: Path) -> None:
    assert facts_with(tmp_path, "/lib/libc.so.6") == {}
    # This one has no framework.
    assert loaded_facts() == {}


@pytest.mark.parametrize(("version", "text"), [(7605, "7.6.5"), (8907, "8.9.7"), (90100, "9.1.0"), (91002, "9.10.2")])
def test_cudnn_s_numbers_are_read_by_their_age(version: int, text: str) -> None:
    assert cudnn_text(version) == text


@pytest.mark.parametrize(("version", "text"), [(2804, "2.8.4"), (20903, "2.9.3"), (21805, "2.18.5"), (22705, "2.27.5")])
def test_nccl_s_numbers_are_read_by_their_age(version: int, text: str) -> None:
    assert nccl_text(version) == text


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_real_library_that_a_process_has_loaded_is_found_and_asked(tmp_path: Path) -> None:
    source = tmp_path / "double.c"
    source.write_text(
        "#include <stddef.h>\nsize_t cudnnGetVersion(void) { return 8907; }\n"
        "int ncclGetVersion(int *v) { *v = 21805; return 0; }\n"
        "int cudaRuntimeGetVersion(int *v) { *v = 11080; return 0; }\n"
    )
    names = ("libcudnn.so.8", "libnccl.so.2", "libcudart.so.11.0", "libcudnn_ops_infer.so.8")
    for name in names:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(tmp_path / name), str(source)], check=True)
    code = (
        "import ctypes, json, sys\nfrom helpers.trainers.common.loaded import loaded_facts\nbefore = loaded_facts()\n"
        "kept = [ctypes.CDLL(path) for path in sys.argv[1:]]\nprint(json.dumps([before, loaded_facts()]))"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, *(str(tmp_path / name) for name in names)],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert json.loads(told) == [{}, {"cuda_runtime": "11.8", "cudnn": "8.9.7", "nccl": "2.18.5"}]
