"""A framework's environment: when it is missing, what builds it, and what a failed build says."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers.machine import frameworks
from helpers.machine.frameworks import (
    BuildFinder,
    FrameworkBuild,
    FrameworkConfig,
    FrameworkEnvironment,
    build,
    build_missing,
    environment_for,
    find_framework,
    missing_environments,
)
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.frameworks import Framework
from tests.requirements.scripts import REQUIREMENTS


@dataclass
class StandInBootstrap:
    """Makes the environment, or answers ``code`` and ``output``."""

    code: int = 0
    output: str = ""
    asked: list[Sequence[str]] = field(default_factory=list)

    def __call__(self, argv: Sequence[str]) -> tuple[int, str]:
        self.asked.append(argv)
        if self.code == 0:
            make_whole(Path(argv[-1]))
        return self.code, self.output


class NoBuild(BuildFinder):
    def find_build(self, framework: Framework, interpreter: str | None = None) -> FrameworkBuild | str:
        return f"{framework.value} is not there"


def make_whole(folder: Path) -> None:
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / ".perfgate-stamp.json").touch()


def configured(folder: Path) -> FrameworkConfig:
    return FrameworkConfig(str(folder / "bin" / "python"), "pytorch")


def in_folder(folder: Path) -> FrameworkEnvironment:
    return FrameworkEnvironment(Framework.PYTORCH, folder, "pytorch")


def test_the_stamp_is_the_bootstrap_s_own() -> None:
    text = (REQUIREMENTS / "bootstrap.py").read_text(encoding="utf-8")
    assert f'STAMP, OWNED = "{frameworks._STAMP}"' in text


@pytest.mark.parametrize("given", [FrameworkConfig(), FrameworkConfig("/opt/pytorch/bin/python")])
def test_an_environment_of_the_user_s_own_is_never_built(given: FrameworkConfig) -> None:
    assert environment_for(Framework.PYTORCH, given) is None
    assert missing_environments([Framework.PYTORCH], {Framework.PYTORCH: given}) == ()


def test_the_command_is_make_s_in_the_checkout_and_the_bootstrap_s_elsewhere(tmp_path: Path) -> None:
    assert in_folder(ROOT / ".venv-pytorch").command == "make env-pytorch"
    command = f"python requirements/bootstrap.py --requirements pytorch --venv {tmp_path}"
    assert in_folder(tmp_path).command == command


def test_a_missing_environment_is_told_with_its_command_and_a_whole_one_with_the_finder_s_reason(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "env"
    reason = find_framework(Framework.PYTORCH, configured(folder), NoBuild())
    assert re.search(r"environment of pytorch is missing .*--requirements pytorch --venv .* --build-envs", str(reason))
    folder.mkdir()
    assert "not complete" in str(find_framework(Framework.PYTORCH, configured(folder), NoBuild()))
    make_whole(folder)
    assert find_framework(Framework.PYTORCH, configured(folder), NoBuild()) == "pytorch is not there"


def test_an_environment_whose_python_is_gone_is_built_anew(tmp_path: Path) -> None:
    folder, bootstrap = tmp_path / "env", StandInBootstrap(1)
    make_whole(folder)
    (folder / "bin" / "python").unlink()
    (folder / "bin" / "python").symlink_to(tmp_path / "python-that-was-upgraded")
    assert "not complete" in str(find_framework(Framework.PYTORCH, configured(folder), NoBuild()))
    with pytest.raises(LaunchError):
        build_missing([Framework.PYTORCH], {Framework.PYTORCH: configured(folder)}, lambda line: None, bootstrap)
    assert len(bootstrap.asked) == 1


def test_what_is_missing_is_built_once_and_what_stands_is_left_alone(tmp_path: Path) -> None:
    folder, bootstrap, said = tmp_path / "env", StandInBootstrap(), list[str]()
    frameworks = {Framework.PYTORCH: configured(folder), Framework.PADDLE: FrameworkConfig()}
    for _ in range(2):
        build_missing([Framework.PYTORCH, Framework.PADDLE, Framework.PYTORCH], frameworks, said.append, bootstrap)
    (argv,) = bootstrap.asked
    assert list(argv[1:]) == [
        str(REQUIREMENTS / "bootstrap.py"), "--requirements", "pytorch", "--venv", str(folder),
    ]  # fmt: skip
    assert [line.split(" the ")[0] for line in said] == ["building", "built"]


def test_a_build_says_how_long_it_took(tmp_path: Path) -> None:
    said: list[str] = []
    times = iter([10.0, 88.4])
    build(in_folder(tmp_path / "env"), said.append, StandInBootstrap(), clock=lambda: next(times))
    assert said[-1] == "built the environment of pytorch in 78 s"


def test_a_failed_build_names_the_command_and_its_last_words(tmp_path: Path) -> None:
    output = "".join(f"line {number}\n" for number in range(20)) + "ERROR: no space left\n\n"
    with pytest.raises(LaunchError) as caught:
        build(in_folder(tmp_path / "env"), lambda line: None, StandInBootstrap(2, output))
    text = str(caught.value)
    assert "exit status 2" in text
    assert text.endswith("Its last output: line 16 | line 17 | line 18 | line 19 | ERROR: no space left")
    assert f"python requirements/bootstrap.py --requirements pytorch --venv {tmp_path / 'env'}" in text


def test_a_build_that_leaves_no_whole_environment_has_failed(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"exit status 0.*Its last output: none"):
        build(in_folder(tmp_path / "env"), lambda line: None, lambda argv: (0, ""))


def test_the_real_bootstrap_refuses_a_name_that_it_does_not_know(tmp_path: Path) -> None:
    unknown = FrameworkEnvironment(Framework.MXNET, tmp_path / "env", "mxnet-1.5")
    with pytest.raises(LaunchError, match=r"exit status 2.*invalid choice: 'mxnet-1.5'"):
        build(unknown, lambda line: None)
    assert not (tmp_path / "env").exists()
