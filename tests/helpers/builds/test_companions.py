"""What stands beside a framework, by its line of versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.builds.companions import COMPANIONS, companions_for, read_companions
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework

PADDLE = Framework.PADDLE
PART = "paddle: [{{versions: '>=3', why: w, requirements: [], parts: [{{name: n, requirements: ['a==1'], {}}}]}}]"


def pins(distribution: str, version: str, has_gpu: bool = True, driver: str = "") -> dict[str, str]:
    found = companions_for(PADDLE, distribution, version, has_gpu, driver)
    parts = [each for part in found.parts for each in part.requirements]
    return dict(each.split("==") for each in (*found.requirements, *parts))


@pytest.mark.parametrize(
    ("distribution", "version", "numpy", "driver", "dali"),
    [
        ("paddlepaddle", "2.6.2", "1.26.4", "", "nvidia-dali-cuda120"),
        ("paddlepaddle-gpu", "2.6.2", "1.26.4", "", "nvidia-dali-cuda120"),
        ("paddlepaddle-gpu", "2.6.2", "1.26.4", "525.60.13", "nvidia-dali-cuda120"),
        ("paddlepaddle-gpu", "2.6.2", "1.26.4", "470.256.02", "nvidia-dali-cuda110"),
        ("paddlepaddle", "3.0.0", "2.2.6", "", "nvidia-dali-cuda120"),
        ("paddlepaddle-gpu", "3.3.1", "2.2.6", "", "nvidia-dali-cuda120"),
        ("paddlepaddle-gpu", "3.4.0.dev20261122", "2.2.6", "550.54.15", "nvidia-dali-cuda120"),
        # A wheel of a single commit.
        ("paddlepaddle-gpu", "0.0.0", "2.2.6", "", "nvidia-dali-cuda120"),
    ],
)
def test_every_line_of_paddle_has_its_companions(
    distribution: str, version: str, numpy: str, driver: str, dali: str
) -> None:
    found = pins(distribution, version, driver=driver)
    assert found["numpy"] == numpy
    assert [each for each in found if "dali" in each] == [dali]
    assert {"protobuf", "setuptools", "opencv-python-headless", "pillow"} <= set(found)


def _pinned(*files: str) -> str:
    return "".join((COMPANIONS.parent / file).read_text() for file in files)


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


def test_the_companions_are_those_of_the_sets() -> None:
    """A build of the pinned version trains beside what the suite's own environment has."""
    own = _pinned("cpu.txt", "numpy2.txt", "suite.txt", "dali-cuda12.txt")
    for name, version in pins("paddlepaddle", "3.3.1").items():
        if name != "setuptools":
            assert f"{name}=={version} " in own
    older = _pinned("gpu-cuda11.txt", "numpy1.txt", "suite.txt", "cuda11.txt", "dali-cuda11.txt", "dali-cuda12.txt")
    for driver in ("470.256.02", "535.104.05"):
        found = pins("paddlepaddle-gpu", "2.6.2", driver=driver)
        assert found["nvidia-cudnn-cu11"] == "8.6.0.163"
        for name, version in found.items():
            assert f"{name}=={version} " in older


@pytest.mark.parametrize(
    ("distribution", "version", "has_gpu"),
    [
        ("paddlepaddle-gpu", "2.6.2", False),
        ("paddlepaddle", "2.6.2", True),
        ("paddlepaddle-gpu", "3.3.1", True),
        ("paddlepaddle-gpu", "2.6.2.post120", True),
    ],
)
def test_cuda_s_libraries_are_for_the_build_that_opens_and_lacks_them(
    distribution: str, version: str, has_gpu: bool
) -> None:
    found = companions_for(PADDLE, distribution, version, has_gpu)
    assert [each.name for each in found.parts] == ["DALI"]


def test_a_line_that_nobody_knows_is_an_error_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError) as caught:
        companions_for(PADDLE, "paddlepaddle", "4.0.0", has_gpu=False)
    assert ">=3,<3.3" in str(caught.value)
    with pytest.raises(ConfigError, match=r"mxnet 1\.9\.1.*a framework that the file has"):
        companions_for(Framework.MXNET, "mxnet", "1.9.1", has_gpu=False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("paddle: [{versions: '3', why: w, requirements: []}]", "versions|Invalid specifier"),
        ("paddle: [{versions: '>=3', why: w, requirements: [numpy]}]", "one exact version"),
        ("paddle: [{versions: '>=3', why: w, requirements: ['numpy==2.*']}]", "one exact version"),
        ("paddle: [{versions: '>=3', requirements: []}]", "why"),
        (PART.format("machine: cpu"), "machine"),
        (PART.format("driver: new"), "new"),
        ("oneflow: []", "oneflow"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match=told):
        read_companions(tmp_path / "c.yaml")
