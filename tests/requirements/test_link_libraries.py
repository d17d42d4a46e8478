"""The links to CUDA's libraries of an environment: which names, to which wheels' files, and none of another CUDA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.machine.libraries import LINKS
from tests.requirements.scripts import load

links: Any = load("link_libraries")


def environment(prefix: Path, cuda: str, wheels: dict[str, list[str]]) -> Path:
    """An environment with a Paddle for this CUDA, and with wheels, each with its files; the folder of its packages."""
    site = prefix / "lib" / "python3.11" / "site-packages"
    version = site / "paddle" / "version" / "__init__.py"
    version.parent.mkdir(parents=True)
    version.write_text(f"full_version     = '2.6.2'\ncuda_version     = '{cuda}'\n")
    for name, files in wheels.items():
        about = site / f"{name.replace('-', '_')}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (about / "RECORD").write_text("".join(f"{file},,\n" for file in files))
        for file in files:
            (site / file).parent.mkdir(parents=True, exist_ok=True)
            (site / file).write_text(name)
    return site


WHEELS = {
    "nvidia-cudnn-cu11": ["nvidia/cudnn/lib/libcudnn.so.8", "nvidia/cudnn/lib/libcudnn_ops_infer.so.8"],
    "nvidia-cuda-nvrtc-cu11": ["nvidia/cuda_nvrtc/lib/libnvrtc.so.11.2", "nvidia/cuda_nvrtc/include/nvrtc.h"],
    "nvidia-nvjpeg-cu12": ["nvidia/nvjpeg/lib/libnvjpeg.so.12"],
    "nvidia-cublas": ["nvidia/cu13/lib/libcublas.so.13"],
    "nvidia-dali-cuda120": ["nvidia/dali/libdali.so"],
}


def found(prefix: Path) -> dict[str, str]:
    """The links of an environment, each with the wheel of the file behind it."""
    return {path.name: path.read_text() for path in (prefix / LINKS).iterdir()} if (prefix / LINKS).exists() else {}


@pytest.mark.parametrize(
    ("cuda", "names"),
    [
        (
            "11.8",
            {
                *("libcudnn.so", "libcudnn.so.8", "libcudnn_ops_infer.so", "libcudnn_ops_infer.so.8"),
                *("libnvrtc.so", "libnvrtc.so.11.2"),
            },
        ),
        ("12.6", {"libnvjpeg.so", "libnvjpeg.so.12"}),
        ("13.0", {"libcublas.so", "libcublas.so.13"}),
        ("False", set()),
    ],
)
def test_the_libraries_of_the_build_s_cuda_have_links_with_and_without_their_version(
    tmp_path: Path, cuda: str, names: set[str]
) -> None:
    assert str(LINKS) == links.FOLDER
    links.link(tmp_path, environment(tmp_path, cuda, WHEELS))
    assert set(found(tmp_path)) == names
    assert set(found(tmp_path).values()) <= set(WHEELS)


def test_an_environment_that_is_moved_keeps_its_links_and_one_without_libraries_loses_them(tmp_path: Path) -> None:
    links.link(tmp_path / "made", environment(tmp_path / "made", "11.8", WHEELS))
    (tmp_path / "made").rename(tmp_path / "kept")
    assert found(tmp_path / "kept")["libcudnn.so"] == "nvidia-cudnn-cu11"
    site = tmp_path / "kept/lib/python3.11/site-packages"
    (site / "nvidia_cudnn_cu11-1.0.dist-info" / "METADATA").unlink()
    (site / "paddle/version/__init__.py").write_text("cuda_version = 'False'\n")
    assert links.link(tmp_path / "kept", site) == {}
    assert not (tmp_path / "kept" / LINKS).exists()


def test_of_two_versions_the_newer_has_the_name_without_one(tmp_path: Path) -> None:
    wheels = {"nvidia-x-cu11": ["nvidia/a/lib/libx.so.9"], "nvidia-y-cu11": ["nvidia/b/lib/libx.so.10"]}
    links.link(tmp_path, environment(tmp_path, "11.8", wheels))
    assert found(tmp_path) == {"libx.so": "nvidia-y-cu11", "libx.so.9": "nvidia-x-cu11", "libx.so.10": "nvidia-y-cu11"}


def test_libgomp_is_that_of_the_wheel_which_is_installed_where_the_machine_has_none(tmp_path: Path) -> None:
    own, other = "pykdtree.libs/libgomp-870cb1d0.so.1.0.0", "scipy.libs/libgomp-1.so.1"
    links.link(tmp_path, environment(tmp_path, "False", {"pykdtree": [own], "scipy": [other]}))
    assert found(tmp_path) == {"libgomp.so.1": "pykdtree"}
