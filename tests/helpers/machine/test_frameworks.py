"""A framework's environment: when it is missing, and what builds it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from helpers.machine import frameworks
from helpers.machine.frameworks import (
    BuildFinder,
    FrameworkBuild,
    FrameworkConfig,
    find_framework,
)
from helpers.trainers.contract.frameworks import Framework
from tests.requirements.scripts import REQUIREMENTS


class NoBuild(BuildFinder):
    def find_build(self, framework: Framework, interpreter: str | None = None) -> FrameworkBuild | str:
        return f"{framework.value} is not there"


def test_the_stamp_is_the_bootstrap_s_own() -> None:
    text = (REQUIREMENTS / "installer.py").read_text(encoding="utf-8")
    assert f'STAMP, OWNED = "{frameworks._STAMP}"' in text


@pytest.mark.parametrize("given", [FrameworkConfig(), FrameworkConfig("/opt/pytorch/bin/python")])
def test_an_environment_of_the_user_s_own_is_never_built(given: FrameworkConfig) -> None:
    assert find_framework(Framework.PYTORCH, given, NoBuild()) == "pytorch is not there"


def test_a_missing_environment_is_told_with_its_command_and_a_whole_one_with_the_finder_s_reason(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "env"
    given = FrameworkConfig(str(folder / "bin" / "python"), "pytorch")
    reason = find_framework(Framework.PYTORCH, given, NoBuild())
    assert re.search(r"environment of pytorch is missing .*--requirements pytorch --venv .* builds it", str(reason))
    folder.mkdir()
    assert "not complete" in str(find_framework(Framework.PYTORCH, given, NoBuild()))
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / ".perfgate-stamp.json").touch()
    assert find_framework(Framework.PYTORCH, given, NoBuild()) == "pytorch is not there"
    # Its Python was upgraded.
    (folder / "bin" / "python").unlink()
    (folder / "bin" / "python").symlink_to(tmp_path / "gone")
    assert "not complete" in str(find_framework(Framework.PYTORCH, given, NoBuild()))
