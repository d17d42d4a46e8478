"""The installer: what is asked for, when an environment is made, added to or left, and a part that cannot be had."""

from __future__ import annotations

import ast
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.builds.conftest import make_wheel, sha256
from tests.requirements.scripts import REQUIREMENTS, load

installer: Any = load("installer")
sets: Any = load("sets")
PINNED_UV = (REQUIREMENTS / "uv.in").read_text(encoding="utf-8").split("==")[1].strip()


# ---- what is asked for


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, list[str]]]:
    """Notes folder and parts of each set-up, which is not done. The machine has one H200."""
    calls: list[tuple[str, list[str]]] = []

    def set_up(environment: Any, parts: dict[str, Any], again: bool) -> dict[str, str]:
        calls.append((environment.venv.name, list(parts)))
        return {}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(installer.Environment, "set_up", set_up)
    monkeypatch.setattr(installer.Environment, "write_command", lambda environment, checkout: None)
    monkeypatch.setattr(installer.machine, "find_gpus", lambda: [installer.machine.Gpu("H200", (9, 0))])
    monkeypatch.setattr(installer.subprocess, "call", lambda *words, **named: 0)
    return calls


@pytest.mark.parametrize(
    ("arguments", "folder", "parts"),
    [
        ("cpu --with dev", ".venv", ["suite", "paddle", "dev", "dali-cuda12"]),
        ("fuzz", ".venv-fuzz", ["fuzz"]),
        ("fuzz --venv elsewhere", "elsewhere", ["fuzz"]),
        ("pytorch", ".venv-pytorch", ["pytorch", "dali-cuda12"]),
        ("tensorflow-cpu", ".venv-tensorflow", ["tensorflow", "dali-cuda12"]),
        ("beside", ".venv", ["suite", "paddle", "dali-cuda12"]),
        ("gpu-cuda11 --venv .venv-paddle26", ".venv-paddle26", ["suite", "paddle", "cuda11", "dali-cuda12"]),
    ],
)
def test_the_suite_every_tool_and_every_framework_has_an_environment_of_its_own(
    asked: list[tuple[str, list[str]]], arguments: str, folder: str, parts: list[str]
) -> None:
    assert installer.main(["--requirements", *arguments.split()]) == 0
    assert asked == [(folder, parts)]


@pytest.mark.parametrize("arguments", ["auto", "mxnet", "fuzz --with dev", "pytorch --with dev"])
def test_what_does_not_fit_is_refused_before_anything_is_made(
    asked: list[tuple[str, list[str]]], capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: str
) -> None:
    assert installer.main(["--requirements", *arguments.split()]) == 2
    assert capsys.readouterr().err.startswith("bootstrap: error: ")
    assert asked == [] and list(tmp_path.iterdir()) == []


def test_cards_that_do_not_answer_are_no_reason_for_a_cpu_build(
    asked: list[tuple[str, list[str]]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise installer.SetUpError("NVML fails")

    monkeypatch.setattr(installer.machine, "find_gpus", broken)
    assert installer.main(["--requirements", "pytorch"]) == 2 and asked == []
    assert "bootstrap.py --requirements pytorch-cpu" in capsys.readouterr().err


def test_a_python_that_cannot_make_environments_is_refused(
    asked: list[tuple[str, list[str]]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert installer.main(["--probe"]) == 0
    monkeypatch.setattr(installer.subprocess, "call", lambda *words, **named: 1)
    assert installer.main(["--probe"]) == installer.main(["--requirements", "cpu"]) == 2 and asked == []
    assert "apt-get install python3-venv" in capsys.readouterr().err


def test_an_old_python_can_parse_the_script_and_gets_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap: Any = load("bootstrap")
    assert ast.parse((REQUIREMENTS / "bootstrap.py").read_text(encoding="utf-8"), feature_version=(3, 6)).body
    for version in ((3, 6, 15), (3, 10, 20), (3, 14, 0)):
        monkeypatch.setattr(sys, "version_info", version)
        assert bootstrap.main() == 2
        assert "expected 3.11 to 3.13" in capsys.readouterr().err


# ---- when the environment is made


class Install:
    """Sets up an environment with stand-ins for the commands: notes the files of each, and fails at the given ones."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "requirements"
        shutil.copytree(REQUIREMENTS, self.folder)
        self.environment = installer.Environment(folder / ".venv", requirements=self.folder)
        self.environment.venv.mkdir()
        # LD_LIBRARY_PATH of all imports.
        self.searched: set[str] = set()
        monkeypatch.setattr(installer, "run", self.run)
        monkeypatch.setattr(installer.pip_settings, "read", lambda python, environ: {})

    def __call__(
        self, chosen: str = "cpu", extras: Sequence[str] = (), fail_at: Sequence[str] = (), again: bool = False,
        error: type[BaseException] = installer.SetUpError,
    ) -> list[str]:  # fmt: skip
        self.fail_at, self.error = set(fail_at), error
        self.done: list[str] = []
        self.environment.set_up(sets.parts_of(chosen, extras), again)
        return self.done

    def run(self, command: Sequence[object], environment: Mapping[str, str]) -> None:
        words = [Path(str(word)).name for word in command]
        if words[1:3] == ["-m", "venv"]:
            self.environment.python.parent.mkdir()
            self.environment.python.symlink_to(sys.executable)
        imports = words[1:3] == ["-I", "-c"]
        files = [word for before, word in itertools.pairwise(words) if before == "-r"] or words[4 if imports else -1 :]
        if imports:
            self.searched.add(environment["LD_LIBRARY_PATH"])
        else:
            self.done.append(" ".join(files))
        if self.fail_at & set(files):
            raise self.error("stopped")

    @property
    def stamp(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.environment.venv / installer.STAMP).read_text())
        return found


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    return Install(tmp_path, monkeypatch)


NEW = [".venv", "uv.txt", "suite.txt pip.txt uv.txt dataset.txt numpy2.txt", "cpu.txt", "dali-cuda12.txt"]


def test_the_first_call_makes_everything_and_the_next_one_what_is_new_or_changed(install: Install) -> None:
    assert install() == NEW and install() == []
    assert set(install.stamp["parts"]) == {"suite", "paddle", "dali-cuda12"} and install.stamp["missing"] == {}
    assert install(extras=["dev"]) == ["dev.txt otava.txt"] and install() == []
    (install.folder / "cpu.txt").write_text("# another Paddle\n")
    assert install() == NEW
    assert install("gpu-cuda11")[-3:] == ["cuda11.txt", "link_libraries.py", "dali-cuda12.txt"]


@pytest.mark.parametrize(("callers", "more"), [(None, ""), ("", ""), ("/opt/lib", ":/opt/lib")])
def test_parts_are_imported_with_the_environment_s_links_before_the_caller_s_libraries(
    install: Install, monkeypatch: pytest.MonkeyPatch, callers: str | None, more: str
) -> None:
    if callers is None:
        monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    else:
        monkeypatch.setenv("LD_LIBRARY_PATH", callers)
    install()
    assert install.searched == {f"{install.environment.venv}/lib/perfgate-cuda{more}"}


def test_where_there_is_no_cpu_build_of_torch_the_cuda_build_is_taken(install: Install) -> None:
    assert install("pytorch-cpu", fail_at=["torch-cpu.txt"])[-2:] == ["pytorch-gpu.txt uv.txt", "dali-cuda12.txt"]
    assert install.stamp["missing"] == {}


@pytest.mark.parametrize(
    ("fails", "name"), [("dali-cuda12.txt", "dali-cuda12"), ("cpu.txt", "paddle"), ("paddle", "paddle")]
)
def test_a_part_that_cannot_be_had_or_imported_costs_only_itself_and_is_tried_again(
    install: Install, fails: str, name: str
) -> None:
    install(fail_at=[fails])
    assert install.stamp["missing"] == {name: "stopped"}
    assert set(install.stamp["parts"]) == {"suite", "paddle", "dali-cuda12"} - {name}
    assert install() == [] and install(extras=["dev"]) == ["dev.txt otava.txt"] and name in install.stamp["missing"]
    with pytest.raises(KeyboardInterrupt):
        install(again=True, fail_at=["cpu.txt", "dali-cuda12.txt"], error=KeyboardInterrupt)
    assert install() == [], "an interrupted second try keeps the environment"
    assert len(install(again=True)) == 1 and install.stamp["missing"] == {}


@pytest.mark.parametrize(
    ("chosen", "fails"),
    [("cpu", "suite.txt"), ("cpu", "numpy"), ("tensorflow-cpu", "tensorflow"), ("fuzz", "fuzz.txt")],
)
def test_without_what_it_is_for_no_environment_counts_as_complete(install: Install, chosen: str, fails: str) -> None:
    with pytest.raises(installer.SetUpError):
        install(chosen, fail_at=[fails])
    assert not (install.environment.venv / installer.STAMP).exists()


@pytest.mark.parametrize("step", [".venv", "uv.txt", "cpu.txt"])
def test_an_interrupted_set_up_starts_again_from_an_empty_folder(install: Install, step: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        install(fail_at=[step], error=KeyboardInterrupt)
    half = install.environment.venv / "lib" / "half.py"
    half.parent.mkdir()
    half.write_text("half a package")
    assert install() == NEW and not half.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"parts": [], "missing": {}}', None])
def test_a_damaged_stamp_or_a_vanished_interpreter_makes_the_environment_anew(
    install: Install, text: str | None
) -> None:
    install()
    if text is None:
        install.environment.python.unlink()
    else:
        (install.environment.venv / installer.STAMP).write_text(text)
    assert install() == NEW


def test_a_folder_that_the_script_did_not_make_is_left_alone(install: Install) -> None:
    own = install.environment.venv / "mine.txt"
    own.write_text("mine")
    with pytest.raises(installer.SetUpError, match="was not made by this script"):
        install()
    assert own.read_text() == "mine"


@pytest.mark.slow
def test_a_command_is_limited_masked_and_keeps_the_next_set_up_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(installer.SetUpError, match=r"ended with 3 \(error: https://x/\)"):
        installer.run(["sh", "-c", "echo error: https://me:key@x/ >&2; exit 3"], os.environ)
    installer.lock(tmp_path)
    handle = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)
    monkeypatch.setattr(installer, "COMMAND_SECONDS", 0.1)
    with pytest.raises(installer.SetUpError, match="timed out"):
        installer.run(["sleep", "60"], os.environ)


# ---- bin/perfgate


MAIN = "import json, os, sys\ndef main(words):\n    print(json.dumps([__file__, os.getcwd(), words]))\n    return 7\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "with space's and $HOME", "long-" * 40])
def test_perfgate_runs_its_checkout_s_command_line_from_a_folder_of_other_modules(tmp_path: Path, name: str) -> None:
    checkout, elsewhere = tmp_path / name, tmp_path / "elsewhere"
    for folder, text in ((checkout, MAIN), (elsewhere, "raise SystemExit('the wrong one')")):
        (folder / "helpers" / "commands").mkdir(parents=True)
        for file in ("main.py", "__main__.py"):
            (folder / "helpers" / "commands" / file).write_text(text)
    (elsewhere / "json.py").write_text("raise SystemExit('the wrong json')")
    environment = installer.Environment(checkout / ".venv")
    environment.python.parent.mkdir(parents=True)
    environment.python.symlink_to(sys.executable)
    environment.write_command(checkout)
    command = environment.venv / "bin" / "perfgate"

    def call() -> subprocess.CompletedProcess[str]:
        words = [command, "a b", "--c=$HOME", "'"]
        return subprocess.run(words, cwd=elsewhere, capture_output=True, text=True, timeout=60, check=False)

    assert call().returncode == 7
    main = str(checkout / "helpers" / "commands" / "__main__.py")
    assert json.loads(call().stdout) == [main, str(elsewhere), ["a b", "--c=$HOME", "'"]]
    written = command.stat().st_mtime_ns
    environment.write_command(checkout)
    assert command.stat().st_mtime_ns == written
    command.write_text("an older one")
    environment.write_command(checkout)
    assert call().returncode == 7
    shutil.rmtree(checkout / "helpers")
    assert call().returncode == 4


# ---- with a real uv, of a folder of small wheels


def _wheel(folder: Path, name: str, version: str = "1", **files: str) -> str:
    """Make a wheel of these files; its pin with its digest. A name with ``__`` is a path."""
    more = {path.replace("__", "/"): text for path, text in files.items()}
    made = make_wheel(folder, version, name=name, module=f"stands_for_{name}", more=more)
    return f"{name}=={version} --hash=sha256:{sha256(made)}\n"


MOVING = """
[global]
user = true
require-virtualenv = true
constraint = {folder}/constraint.txt
[install]
target = {folder}/elsewhere
dry-run = true
"""


@pytest.mark.slow
def test_only_what_is_pinned_is_installed_and_a_paddle_that_cannot_be_had_leaves_the_suite(tmp_path: Path) -> None:
    requirements, wheels, venv = (tmp_path / name for name in ("requirements", "wheels", "venv"))
    requirements.mkdir()
    wheels.mkdir()
    for path in [*REQUIREMENTS.glob("*.py"), REQUIREMENTS / "drivers.json"]:
        shutil.copy(path, requirements)
    script = f'#!/bin/sh\nexec "{Path(sys.executable).parent / "uv"}" "$@"\n'
    modules = ("numpy", "scipy", "pytest", "xdist", "yaml", "sqlalchemy", "msgspec", "PIL", "jinja2")
    pins = {
        "uv": _wheel(wheels, "uv", PINNED_UV, **{f"uv-{PINNED_UV}.data__scripts__uv": script}),
        "suite": _wheel(wheels, "suite", **{f"{name}.py": "" for name in modules}),
        **dict.fromkeys(("pip", "dataset", "numpy2"), ""),
        "cpu": _wheel(wheels, "paddlepaddle", **{"paddle.py": ""}),
        "dali-cuda12": _wheel(wheels, "dali", **{"nvidia__dali.py": ""}),
    }
    for name, text in pins.items():
        (requirements / f"{name}.txt").write_text(text)
    paddle = wheels / "paddlepaddle-1-py3-none-any.whl"
    paddle.rename(tmp_path / paddle.name)
    # Another DALI than the one that is pinned.
    _wheel(wheels, "dali", **{"nvidia__dali.py": "another = 1"})
    (tmp_path / "constraint.txt").write_text("suite==99\nuv==99\n")
    (tmp_path / "pip.conf").write_text(MOVING.format(folder=tmp_path))
    (tmp_path / "uv.toml").write_text(f'[pip]\ntarget = "{tmp_path}/elsewhere"\n')

    def make(*more: str) -> dict[str, Any]:
        words = [sys._base_executable, requirements / "bootstrap.py", "--venv", venv, "--requirements", "cpu", *more]  # type: ignore[attr-defined]
        variables = {
            "PATH": os.environ["PATH"], "HOME": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels),
            "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"), "UV_CONFIG_FILE": str(tmp_path / "uv.toml"),
            "UV_CONSTRAINT": str(tmp_path / "constraint.txt"), "PYTHONPATH": str(tmp_path / "elsewhere"),
        }  # fmt: skip
        done = subprocess.run(words, env=variables, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert not (tmp_path / "elsewhere").exists()
        stamp: dict[str, Any] = json.loads((venv / ".perfgate-stamp.json").read_text())
        return stamp

    stamp = make()
    assert set(stamp["parts"]) == {"suite"}
    assert "paddlepaddle" in stamp["missing"]["paddle"] and "hash" in stamp["missing"]["dali-cuda12"].lower()
    (tmp_path / paddle.name).rename(paddle)
    stamp = make("--again")
    assert set(stamp["parts"]) == {"suite", "paddle"} and set(stamp["missing"]) == {"dali-cuda12"}
