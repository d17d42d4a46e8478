"""What a build may be called."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.builds.naming import anchored, parse_build
from helpers.common.masking import without_password
from helpers.plan.perf_yaml import BuildsConfig
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.builds.conftest import Shop, make_wheel

DIGEST = "0123456789abcdef" * 4


def test_a_folder_with_a_python_is_an_environment(shop: Shop) -> None:
    (shop.folder / "env/bin").mkdir(parents=True)
    (shop.folder / "env/bin/python").symlink_to(sys.executable)
    found = parse_build("env", shop.folder, shop.config)
    assert (found.is_made, found.path, found.framework) == (False, shop.folder / "env/bin/python", None)
    assert not parse_build("env/bin/python", shop.folder, shop.config).is_made


def test_a_wheel_is_named_by_its_path_and_perhaps_its_digest(shop: Shop) -> None:
    wheel = make_wheel(shop.folder / "night")
    found = parse_build(f"night/{wheel.name}#sha256={DIGEST}", shop.folder, shop.config)
    assert (found.is_made, found.path, found.sha256) == (True, wheel, DIGEST)
    assert (found.framework, found.distribution) == (Framework.PADDLE, "paddlepaddle")


def test_an_address_keeps_its_password_to_itself(shop: Shop) -> None:
    name = "paddlepaddle_gpu-3.4.0.dev1-cp311-cp311-linux_x86_64.whl"
    found = parse_build(f"https://me:secret@wheels.example/a/{name}?sign=key#sha256={DIGEST}", shop.folder, shop.config)
    assert (found.is_made, found.distribution, found.sha256) == (True, "paddlepaddle-gpu", DIGEST)
    assert "secret" in found.url
    assert "secret" not in found.text
    assert "key" not in found.text
    assert without_password(f"https://wheels.example/{name}") == f"https://wheels.example/{name}"


@pytest.mark.parametrize(
    ("text", "requirement"),
    [
        ("paddlepaddle==3.2.2", "paddlepaddle==3.2.2"),
        ("PaddlePaddle_GPU >= 3, <4", "paddlepaddle-gpu<4,>=3"),
        ("torch", "torch"),
    ],
)
def test_a_requirement_is_of_a_frameworks_distribution(shop: Shop, text: str, requirement: str) -> None:
    found = parse_build(text, shop.folder, shop.config)
    assert (found.is_made, found.requirement) == (True, requirement)


def test_a_commit_is_found_by_the_template_of_perf_yaml(shop: Shop) -> None:
    template = "https://wheels.example/{commit}/paddlepaddle-0.0.0-py3-none-any.whl"
    config = replace(shop.config, builds=BuildsConfig(commit_url=template))
    found = parse_build("commit:1A2b3c", shop.folder, config)
    assert (found.is_made, found.text, found.commit) == (True, "commit:1A2b3c", "1a2b3c")
    assert found.url == "https://wheels.example/1A2b3c/paddlepaddle-0.0.0-py3-none-any.whl"


def test_a_commit_is_no_environment(shop: Shop) -> None:
    (shop.folder / "env/bin").mkdir(parents=True)
    (shop.folder / "env/bin/python").symlink_to(sys.executable)
    config = replace(shop.config, builds=BuildsConfig(commit_url=f"{shop.folder}/env"))
    with pytest.raises(ConfigError, match="a wheel's path or address"):
        parse_build("commit:1a2b3c", shop.folder, config)


def test_a_commit_without_a_template_says_what_to_set(shop: Shop) -> None:
    with pytest.raises(ConfigError, match=r"builds\.commit_url"):
        parse_build("commit:1a2b3c", shop.folder, shop.config)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "nothing"),
        ("no-such-folder", "nothing there, and the requirement no-such-folder"),
        ("numpy==2.2.6", "the distributions are paddlepaddle-gpu, paddlepaddle, torch"),
        ("paddlepaddle @ https://wheels.example/p.whl", "http or https"),
        ("gone-1.0-py3-none-any.whl", "no file"),
        ("ftp://wheels.example/paddlepaddle-3.0-py3-none-any.whl", "http or https"),
        ("https://wheels.example/paddlepaddle-3.0.tar.gz", "a wheel's file name"),
        ("https://wheels.example/numpy-3.0-py3-none-any.whl", "a wheel of numpy"),
        ("https://wheels.example/paddlepaddle-3.0-py3-none-any.whl#md5=1", "#sha256="),
        ("https://wheels.example:port/paddlepaddle-3.0-py3-none-any.whl", "Port could not be cast"),
        ("https://%00/paddlepaddle-3.0-py3-none-any.whl", "no host is named %00"),
        ("https://ü..x/paddlepaddle-3.0-py3-none-any.whl", "label empty or too long"),
        ("~no_such_user", "home directory"),
        ("x" * 5000, "File name too long"),
        ("/dev/null", "no program that can be run, /dev/null"),
        ("commit:main", "4 to 40 hexadecimal digits"),
        ("paddlepaddle==3.2.2\x1b[31m", r"\\x1b"),
    ],
)
def test_what_names_no_build_is_refused_with_what_does(shop: Shop, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match="build") as caught:
        parse_build(text, shop.folder, shop.config)
    assert told.replace("\\\\", "\\") in str(caught.value)


def test_a_path_means_the_same_in_every_folder(tmp_path: Path) -> None:
    make_wheel(tmp_path)
    name = "paddlepaddle-3.2.2-py3-none-any.whl"
    assert anchored(f"{name}#sha256={DIGEST}", tmp_path) == f"{tmp_path}/{name}#sha256={DIGEST}"
    for text in ("paddlepaddle==3.2.2", "commit:1a2b", "https://wheels.example/x.whl", "none", None):
        assert anchored(text, tmp_path) == text
