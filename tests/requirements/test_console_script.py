"""``perfgate`` is called from anywhere, through links, and where its folders' names are hard on a shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.requirements.scripts import load

console_script: Any = load("console_script")
REPOSITORY = Path(__file__).resolve().parents[2]
COMMAND_LINE = """
import os, sys

def main(arguments):
    import json
    print(json.dumps([__file__, os.getcwd(), arguments]))
    return 7
"""


def _checkout(root: Path) -> Path:
    (root / "helpers" / "commands").mkdir(parents=True)
    for folder in ("helpers", "helpers/commands"):
        (root / folder / "__init__.py").write_text("")
    (root / "helpers" / "commands" / "main.py").write_text(COMMAND_LINE)
    shutil.copy(REPOSITORY / "helpers" / "commands" / "__main__.py", root / "helpers" / "commands")
    return root


def _environment(folder: Path) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    return folder


def _call(command: str | Path, *arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **variables}
    return subprocess.run(
        [str(command), *arguments], cwd=cwd, env=variables, capture_output=True, text=True, timeout=60, check=False
    )


def _answers(command: str | Path, checkout: Path, cwd: Path, **variables: str) -> None:
    done = _call(command, "a b", "--c=$HOME", "'", cwd=cwd, **variables)
    assert (done.returncode, done.stderr) == (7, "")
    main = os.path.realpath(checkout / "helpers" / "commands" / "main.py")
    assert done.stdout == f'["{main}", "{os.path.realpath(cwd)}", ["a b", "--c=$HOME", "\'"]]\n'


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder whose modules have the names of ours and of Python's own."""
    folder = tmp_path / "elsewhere"
    _checkout(folder)
    (folder / "json.py").write_text("raise SystemExit('the wrong json')")
    return folder


@pytest.mark.parametrize("name", ["plain", "with space's and $HOME", "long-" * 40])
@pytest.mark.parametrize("inside", [True, False], ids=["in the checkout", "outside it"])
def test_it_runs_its_checkout_s_command_line_from_another_folder(
    tmp_path: Path, elsewhere: Path, name: str, inside: bool
) -> None:
    checkout = _checkout(tmp_path / name)
    venv = _environment((checkout if inside else tmp_path) / ".venv")
    assert console_script.provide(str(venv), str(checkout))
    _answers(venv / "bin" / "perfgate", checkout, elsewhere)


@pytest.mark.parametrize("variables", [{"PYTHONSAFEPATH": "1"}, {"PYTHONPATH": ""}])
def test_the_caller_s_variables_do_not_change_whose_command_line_it_is(
    tmp_path: Path, elsewhere: Path, variables: dict[str, str]
) -> None:
    checkout = _checkout(tmp_path / "checkout")
    venv = _environment(checkout / ".venv")
    console_script.provide(str(venv), str(checkout))
    _answers(venv / "bin" / "perfgate", checkout, elsewhere, **variables)


def test_it_is_found_through_the_search_path_and_through_a_link(tmp_path: Path, elsewhere: Path) -> None:
    checkout = _checkout(tmp_path / "checkout")
    venv = _environment(checkout / ".venv")
    console_script.provide(str(venv), str(checkout))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "perfgate").symlink_to(venv / "bin" / "perfgate")
    _answers(tmp_path / "bin" / "perfgate", checkout, elsewhere)
    _answers("perfgate", checkout, elsewhere, PATH=f"{venv / 'bin'}:{os.environ['PATH']}")


def test_a_checkout_moves_with_the_environment_in_it(tmp_path: Path, elsewhere: Path) -> None:
    checkout = _checkout(tmp_path / "checkout")
    console_script.provide(str(_environment(checkout / ".venv")), str(checkout))
    moved = checkout.rename(tmp_path / "moved")
    _answers(moved / ".venv" / "bin" / "perfgate", moved, elsewhere)
    assert not console_script.provide(str(moved / ".venv"), str(moved))


def test_without_its_checkout_it_says_what_to_do(tmp_path: Path) -> None:
    checkout, venv = _checkout(tmp_path / "checkout"), _environment(tmp_path / ".venv")
    console_script.provide(str(venv), str(checkout))
    shutil.rmtree(checkout)
    done = _call(venv / "bin" / "perfgate", "doctor", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    assert f"not at {checkout} any more; call 'make env'" in done.stderr


def test_what_cannot_be_loaded_ends_with_no_regression_s_code(tmp_path: Path) -> None:
    checkout = _checkout(tmp_path / "checkout")
    venv = _environment(checkout / ".venv")
    console_script.provide(str(venv), str(checkout))
    (checkout / "helpers" / "commands" / "main.py").write_text("import a_package_that_is_gone")
    done = _call(venv / "bin" / "perfgate", "doctor", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.endswith("perfgate: unforeseen error: it cannot be loaded (ModuleNotFoundError)\n")


def test_it_is_written_only_when_it_is_not_there_as_it_should_be(tmp_path: Path) -> None:
    checkout = _checkout(tmp_path / "checkout")
    venv = _environment(checkout / ".venv")
    command = venv / "bin" / "perfgate"
    (venv / "bin" / "perfgate.new").write_text("half a scr")
    assert [console_script.provide(str(venv), str(checkout)) for _ in range(2)] == [True, False]
    command.write_text("an older one")
    assert console_script.provide(str(venv), str(checkout))
    command.chmod(0o644)
    assert console_script.provide(str(venv), str(checkout))
    assert not console_script.provide(str(venv), str(checkout))
    assert [path.name for path in (venv / "bin").iterdir() if "perfgate" in path.name] == ["perfgate"]
