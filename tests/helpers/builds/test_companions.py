"""What stands beside a framework, by its line of versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.builds.companions import COMPANIONS, companions_for, read_companions
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework

PADDLE = Framework.PADDLE


def pins(distribution: str, version: str, has_gpu: bool = True) -> dict[str, str]:
    found = companions_for(PADDLE, distribution, version, has_gpu).requirements
    return dict(each.split("==") for each in found)


@pytest.mark.parametrize(
    ("distribution", "version", "numpy", "dali"),
    [
        ("paddlepaddle", "2.6.2", "1.26.4", "nvidia-dali-cuda120"),
        ("paddlepaddle-gpu", "2.6.2", "1.26.4", "nvidia-dali-cuda110"),
        ("paddlepaddle", "3.0.0", "2.2.6", "nvidia-dali-cuda120"),
        ("paddlepaddle-gpu", "3.3.1", "2.2.6", "nvidia-dali-cuda120"),
        ("paddlepaddle-gpu", "3.4.0.dev20261122", "2.2.6", "nvidia-dali-cuda120"),
        # A wheel of a single commit.
        ("paddlepaddle-gpu", "0.0.0", "2.2.6", "nvidia-dali-cuda120"),
    ],
)
def test_every_line_of_paddle_has_its_companions(distribution: str, version: str, numpy: str, dali: str) -> None:
    found = pins(distribution, version)
    assert found["numpy"] == numpy
    assert dali in found
    assert {"protobuf", "setuptools", "opencv-python-headless", "pillow"} <= set(found)


@pytest.mark.parametrize(
    ("version", "protobuf"),
    [
        ("3.0.0", "6.33.0"),
        ("3.1.1", "6.33.0"),
        ("3.2.2", "6.33.0"),
        ("3.3.0.dev20251001", "7.36.2"),
        ("3.3.1", "7.36.2"),
    ],
)
def test_protobuf_is_one_with_which_fleet_s_programs_build(version: str, protobuf: str) -> None:
    assert pins("paddlepaddle", version)["protobuf"] == protobuf


def test_the_companions_are_those_of_the_sets(tmp_path: Path) -> None:
    """A build of the pinned version trains beside what the suite's own environment has."""
    own = (COMPANIONS.parent / "cpu.txt").read_text() + (COMPANIONS.parent / "suite.txt").read_text()
    for name, version in pins("paddlepaddle", "3.3.1").items():
        if name != "setuptools":
            assert f"{name}=={version} " in own
    older = (COMPANIONS.parent / "gpu-cuda11.txt").read_text() + (COMPANIONS.parent / "suite.txt").read_text()
    for name, version in pins("paddlepaddle-gpu", "2.6.2").items():
        assert f"{name}=={version} " in older


def test_a_gpu_wheel_on_a_machine_without_a_gpu_has_what_its_set_has() -> None:
    """DALI for CUDA 11 comes from another host than an index, so it is for the machines that need it."""
    own = (COMPANIONS.parent / "gpu-wheel-on-cpu.txt").read_text() + (COMPANIONS.parent / "suite.txt").read_text()
    found = pins("paddlepaddle-gpu", "2.6.2", has_gpu=False)
    assert {"nvidia-dali-cuda120", "numpy", "protobuf", "setuptools"} <= set(found)
    for name, version in found.items():
        assert f"{name}=={version} " in own


def test_a_line_that_nobody_knows_is_an_error_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError) as caught:
        companions_for(PADDLE, "paddlepaddle", "4.0.0", has_gpu=False)
    assert str(caught.value) == (
        f"build paddlepaddle 4.0.0: got 'no line of versions in {COMPANIONS} that it belongs to', expected a version "
        "of <3,!=0.0.0; >=3,<3.3; >=3.3.dev0,<4 || ==0.0.0. Check that there is such a version; for a new line of versions, add "
        "its packages to the file"
    )
    with pytest.raises(ConfigError, match=r"mxnet 1\.9\.1.*a framework that the file has"):
        companions_for(Framework.MXNET, "mxnet", "1.9.1", has_gpu=False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("paddle: [{versions: '3', why: w, requirements: []}]", "ranges"),
        ("paddle: [{versions: '>=3', why: w, requirements: [numpy]}]", "one exact version"),
        ("paddle: [{versions: '>=3', why: w, requirements: ['numpy==2.*']}]", "one exact version"),
        ("paddle: [{versions: '>=3', why: w, requirements: ['n p']}]", "a requirement"),
        ("paddle: [{versions: '>=3', requirements: []}]", "why"),
        ("paddle: [{versions: '>=3', why: w, requirements: [], machine: tpu}]", "gpu, cpu"),
        ("oneflow: []", "oneflow"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match=told):
        read_companions(tmp_path / "c.yaml")
