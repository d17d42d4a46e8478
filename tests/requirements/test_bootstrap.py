"""Set-up: what is chosen for which machine, when the environment is made anew, and what is refused."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.for_each import for_each
from tests.requirements.scripts import REQUIREMENTS, load

SCRIPTS = ("bootstrap.py", "console_script.py", "machine.py", "parts.py")
bootstrap: Any = load("bootstrap")
machine: Any = bootstrap.machine
hashes: Any = load("hashes")


# ---- what is asked for


@pytest.mark.parametrize(
    ("absent", "extras"),
    [(set(), ["dev"]), ({"libgomp.so.1"}, ["libgomp", "dev"])],
    ids=["a machine with libgomp", "a machine without libgomp"],
)
def test_libgomp_is_a_part_of_the_environment_only_where_the_machine_has_none(
    monkeypatch: pytest.MonkeyPatch, absent: set[str], extras: list[str]
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(machine, "loads", lambda name: name not in absent)
    monkeypatch.setattr(bootstrap, "set_up", lambda *arguments: asked.append(arguments[3]))
    assert bootstrap.main(["--requirements", "cpu", "--with", "dev"]) == 0
    assert asked == [extras]


def test_a_machine_without_the_c_plus_plus_library_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "loads", lambda name: name != "libstdc++.so.6")
    monkeypatch.setattr(bootstrap, "set_up", lambda *arguments: pytest.fail("set-up was started"))
    assert bootstrap.main(["--requirements", "cpu"]) == 2
    assert "apt-get install libstdc++6;" in capsys.readouterr().err


def test_the_gpu_wheel_is_refused_where_it_has_no_build_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 13, 2, "final", 0))
    monkeypatch.setattr(bootstrap, "set_up", lambda *arguments: pytest.fail("set-up was started"))
    assert bootstrap.main(["--requirements", "gpu-wheel-on-cpu"]) == 2
    assert "the set gpu-wheel-on-cpu was asked for" in capsys.readouterr().err


def test_a_tool_has_an_environment_of_its_own_without_the_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(machine, "loads", lambda name: name != "libgomp.so.1")
    monkeypatch.setattr(bootstrap, "set_up", lambda *arguments: asked.append(arguments[1:4]))
    assert bootstrap.main(["--requirements", "fuzz"]) == 0
    assert bootstrap.main(["--requirements", "fuzz", "--venv", "elsewhere"]) == 0
    assert bootstrap.main(["--requirements", "cpu"]) == 0
    assert asked == [(".venv-fuzz", "fuzz", []), ("elsewhere", "fuzz", []), (".venv", "cpu", ["libgomp"])]


def test_nothing_is_added_to_a_tools_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "loads", lambda name: True)
    monkeypatch.setattr(bootstrap, "set_up", lambda *arguments: pytest.fail("set-up was started"))
    assert bootstrap.main(["--requirements", "fuzz", "--with", "dev"]) == 2
    assert "fuzz is one of its own" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "gpus", "venv", "chosen"),
    [
        ("pytorch", [], ".venv-pytorch", "pytorch-cpu"),
        ("pytorch", [("NVIDIA H100", (9, 0))], ".venv-pytorch", "pytorch-gpu"),
        ("pytorch", [("Tesla V100-SXM2-32GB", (7, 0))], ".venv-pytorch", "pytorch-gpu-cuda12"),
        ("pytorch", [("NVIDIA A100-SXM4-40GB", (8, 0))], ".venv-pytorch", "pytorch-gpu"),
        ("pytorch-gpu-cuda12", [], ".venv-pytorch", "pytorch-gpu-cuda12"),
        ("pytorch-cpu", [("NVIDIA H100", (9, 0))], ".venv-pytorch", "pytorch-cpu"),
        ("pytorch-gpu", [], ".venv-pytorch", "pytorch-gpu"),
        ("tensorflow", [], ".venv-tensorflow", "tensorflow-cpu"),
        ("tensorflow", [("Tesla V100-SXM2-32GB", (7, 0))], ".venv-tensorflow", "tensorflow-gpu"),
        ("tensorflow-cpu", [("NVIDIA H100", (9, 0))], ".venv-tensorflow", "tensorflow-cpu"),
        ("mxnet", [], ".venv-mxnet", "mxnet-cpu"),
        ("mxnet", [("Tesla V100-SXM2-32GB", (7, 0))], ".venv-mxnet", "mxnet-gpu"),
        ("mxnet-cpu", [("NVIDIA H100", (9, 0))], ".venv-mxnet", "mxnet-cpu"),
        ("beside", [], ".venv", "cpu"),
        ("beside", [("Tesla V100", (7, 0))], ".venv", "gpu-cuda11"),
        ("beside", [("NVIDIA H100", (9, 0))], ".venv", "cpu"),
    ],
)
def test_the_hardware_decides_which_build_a_framework_s_environment_gets(
    monkeypatch: pytest.MonkeyPatch, asked: str, gpus: list[tuple[str, tuple[int, int]]], venv: str, chosen: str
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(sys, "version_info", (3, 11, 7, "final", 0))
    monkeypatch.setattr(machine, "loads", lambda name: True)
    monkeypatch.setattr(machine, "find_gpus", lambda **values: [machine.Gpu(*gpu) for gpu in gpus])
    monkeypatch.setattr(bootstrap, "set_up", lambda *arguments: made.append(arguments[1:4]))
    assert bootstrap.main(["--requirements", asked]) == 0
    assert made == [(venv, chosen, [])]


def test_a_suite_beside_a_gpu_that_no_paddle_runs_on_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "find_gpus", lambda **values: [machine.Gpu("NVIDIA H100", (9, 0))])
    assert bootstrap.choose("beside", (3, 11)) == "cpu"
    output = capsys.readouterr().out
    assert "taking requirements/cpu.txt" in output
    assert "NVIDIA H100 of compute capability 9.0" in output
    with pytest.raises(machine.SetUpError, match="NVIDIA H100"):
        bootstrap.choose("auto", (3, 11))


def test_a_gpu_that_does_not_answer_is_no_reason_for_a_cpu_build_of_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(way_round: str) -> None:
        raise machine.SetUpError(f"NVML fails. {way_round}")

    monkeypatch.setattr(machine, "find_gpus", broken)
    with pytest.raises(machine.SetUpError, match=r"bootstrap\.py --requirements pytorch-cpu"):
        bootstrap.choose("pytorch", (3, 11))


@pytest.mark.parametrize(
    ("asked", "absent", "named"),
    [("mxnet", "libquadmath.so.0", "libquadmath0"), ("mxnet-gpu", "libgomp.so.1", "libgomp1")],
)
def test_a_library_that_one_framework_alone_loads_is_asked_for_with_that_framework(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], asked: str, absent: str, named: str
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(machine, "loads", lambda name: name != absent)
    monkeypatch.setattr(machine, "find_gpus", lambda **values: [])
    monkeypatch.setattr(bootstrap, "set_up", lambda *arguments: made.append(arguments[2]))
    assert bootstrap.main(["--requirements", asked]) == 2
    assert f"apt-get install {named};" in capsys.readouterr().err
    assert bootstrap.main(["--requirements", "pytorch"]) == 0
    assert made == ["pytorch-cpu"]


def _pythons(folder: Path, *names: str) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to("/bin/true")
    return folder


def test_a_framework_without_wheels_for_this_python_is_made_with_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[Any] = []

    def begin(program: str, words: list[str], environment: dict[str, str]) -> None:
        begun.append((program, words))
        raise KeyboardInterrupt

    shims, real = _pythons(tmp_path / "shims", "python3.11"), _pythons(tmp_path / "real", "python3.11", "python3.12")
    monkeypatch.setenv("PATH", f"{shims}{os.pathsep}{real}")
    monkeypatch.setattr(sys, "version_info", (3, 12, 1, "final", 0))
    monkeypatch.setattr(machine, "loads", lambda name: True)
    monkeypatch.setattr(bootstrap, "answers", lambda python, code: python.startswith(str(real)))
    monkeypatch.setattr(os, "execve", begin)
    assert bootstrap.main(["--requirements", "mxnet"]) == 130
    older = str(real / "python3.11")
    assert begun == [(older, [older, str(REQUIREMENTS / "bootstrap.py"), "--requirements", "mxnet"])]
    assert "going on with" in capsys.readouterr().out


def test_without_such_a_python_it_is_named_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(_pythons(tmp_path / "bin", "python3.12")))
    monkeypatch.setattr(sys, "version_info", (3, 12, 1, "final", 0))
    monkeypatch.setattr(machine, "loads", lambda name: True)
    monkeypatch.setattr(bootstrap, "answers", lambda python, code: True)
    monkeypatch.setattr(bootstrap, "set_up", lambda *arguments: pytest.fail("set-up was started"))
    assert bootstrap.main(["--requirements", "mxnet-cpu"]) == 2
    told = capsys.readouterr().err
    assert "mxnet's wheels exist for Python up to 3.11; this is Python 3.12.1" in told
    assert "uv python install 3.11" in told
    assert bootstrap.older_python("pytorch", (3, 12, 1)) == ""
    assert bootstrap.older_python("mxnet", (3, 11, 7)) == ""


@pytest.mark.parametrize("name", ["pytorch-cpu", "pytorch-gpu", "pytorch-gpu-cuda12", "tensorflow-cpu", "mxnet-cpu"])
def test_nothing_of_the_suite_is_added_to_a_framework_s_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setattr(machine, "loads", lambda name: True)
    monkeypatch.setattr(bootstrap, "set_up", lambda *arguments: pytest.fail("set-up was started"))
    assert bootstrap.main(["--requirements", name, "--with", "dev"]) == 2
    assert f"{name} is one of its own" in capsys.readouterr().err


def test_every_framework_s_environment_has_its_target_in_the_makefile() -> None:
    """And with it the command that a skipped case names."""
    makefile = (REQUIREMENTS.parent / "Makefile").read_text(encoding="utf-8")
    for name in bootstrap.FRAMEWORKS:
        assert f"\nenv-{name}:\n\t$(BOOTSTRAP) --requirements {name}\n" in makefile
        assert f".venv-{name}" in makefile.partition("\nclean:")[2]


# ---- when the environment is made


def _stamp(
    parts: dict[str, str], python: str = "CPython 3.11.7", base: str = "/usr/bin/python3.11"
) -> dict[str, object]:
    return {"stamp": 2, "python": python, "base": base, "parts": parts, "missing": {}}


def _plan(stamp: dict[str, object] | None, wanted: dict[str, str]) -> Any:
    return bootstrap.make_plan(stamp, "CPython 3.11.7", "/usr/bin/python3.11", wanted)


def test_nothing_is_done_when_everything_wanted_stands() -> None:
    stamp = _stamp({"cpu": "a", "dataset": "b", "dev": "c"})
    assert _plan(stamp, {"cpu": "a", "dataset": "b"}).action == "nothing"
    assert _plan(stamp, {"cpu": "a", "dataset": "b", "dev": "c"}).action == "nothing"


def test_only_the_missing_tools_are_added() -> None:
    plan = _plan(_stamp({"cpu": "a", "dataset": "b"}), {"cpu": "a", "dataset": "b", "dev": "c"})
    assert (plan.action, plan.parts) == ("add", ("dev",))


def test_libgomp_is_added_where_the_machine_has_none_any_more() -> None:
    plan = _plan(_stamp({"cpu": "a", "dataset": "b"}), {"cpu": "a", "dataset": "b", "libgomp": "g"})
    assert (plan.action, plan.parts) == ("add", ("libgomp",))


def test_a_libgomp_of_its_own_stays_when_the_machine_gets_one() -> None:
    stamp = _stamp({"cpu": "a", "dataset": "b", "libgomp": "g"})
    assert _plan(stamp, {"cpu": "a", "dataset": "b"}).action == "nothing"


def test_another_libgomp_makes_the_environment_anew() -> None:
    wanted = {"cpu": "a", "dataset": "b", "libgomp": "g"}
    plan = _plan(_stamp({**wanted, "libgomp": "old"}), wanted)
    assert (plan.action, plan.parts, plan.why) == ("make", tuple(wanted), "its requirements changed (libgomp)")


@pytest.mark.parametrize(
    ("stamp", "why"),
    [
        (None, "no complete environment"),
        (_stamp({"cpu": "old", "dataset": "b"}), r"requirements changed \(cpu\)"),
        (_stamp({"gpu-cuda11": "a", "dataset": "b"}), r"requirements changed \(gpu-cuda11\)"),
        (_stamp({"cpu": "a", "dataset": "b"}, python="CPython 3.11.8"), r"made by .* \(CPython 3\.11\.8\)"),
        (_stamp({"cpu": "a", "dataset": "b"}, base="/opt/python3.11"), "made by /opt/python3.11"),
    ],
)
def test_the_environment_is_made_anew_when_it_does_not_fit(stamp: dict[str, object] | None, why: str) -> None:
    plan = _plan(stamp, {"cpu": "a", "dataset": "b"})
    assert (plan.action, plan.parts) == ("make", ("cpu", "dataset"))
    assert re.search(why, plan.why)


def _requirements(folder: Path) -> Path:
    folder.mkdir()
    names = ("suite", "cpu", "gpu-cuda11", "dataset", "otava", "uv", "dev", "libgomp", "cuda11")
    for name in (*names, "dali-cuda11", "dali-cuda12"):
        (folder / f"{name}.txt").write_text(name)
    for script in (bootstrap.OPENMP_SCRIPT, bootstrap.LINKS_SCRIPT):
        (folder / script).write_text("pass")
    return folder


@pytest.mark.parametrize("name", ["suite", "cpu"])
def test_a_changed_requirement_file_changes_the_digest_of_the_set(tmp_path: Path, name: str) -> None:
    folder = _requirements(tmp_path / "requirements")
    before = bootstrap.wanted_parts(str(folder), "cpu", ["dev"])
    (folder / f"{name}.txt").write_text("other")
    after = bootstrap.wanted_parts(str(folder), "cpu", ["dev"])
    assert [part for part in before if before[part] != after[part]] == ["cpu"]


@pytest.mark.parametrize("name", ["libgomp.txt", "provide_libgomp.py"])
def test_the_wheel_and_the_script_both_decide_the_digest_of_libgomp(tmp_path: Path, name: str) -> None:
    folder = _requirements(tmp_path / "requirements")
    before = bootstrap.wanted_parts(str(folder), "cpu", ["libgomp"])
    (folder / name).write_text("other")
    after = bootstrap.wanted_parts(str(folder), "cpu", ["libgomp"])
    assert [part for part in before if before[part] != after[part]] == ["libgomp"]


@pytest.mark.parametrize(
    ("chosen", "changed"),
    [("pytorch-cpu", "cpu"), ("pytorch-cpu", "common"), ("pytorch-cpu", "cuda"), ("pytorch-cpu", "gpu"),
     ("pytorch-gpu", "common"), ("pytorch-gpu", "cuda"), ("pytorch-gpu", "gpu"),
     ("tensorflow-cpu", "cpu"), ("tensorflow-cpu", "common"), ("tensorflow-gpu", "gpu"), ("tensorflow-gpu", "common")],
)  # fmt: skip
def test_every_file_that_a_framework_s_set_reads_decides_its_digest(tmp_path: Path, chosen: str, changed: str) -> None:
    framework = chosen.partition("-")[0]
    (tmp_path / "dali-cuda12.txt").write_text("dali")
    for name in ("cpu", "cuda", "gpu", "common"):
        (tmp_path / f"{framework}-{name}.txt").write_text(name)
    before = bootstrap.wanted_parts(str(tmp_path), chosen, [])
    (tmp_path / f"{framework}-{changed}.txt").write_text("other")
    after = bootstrap.wanted_parts(str(tmp_path), chosen, [])
    assert list(before) == [chosen, "dali-cuda12"]
    assert [part for part in before if before[part] != after[part]] == [chosen]


def test_another_build_of_pytorch_makes_its_environment_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, runner = _requirements(tmp_path / "requirements"), Steps()
    for name in ("cpu", "cuda", "gpu", "common"):
        (folder / f"pytorch-{name}.txt").write_text(name)
    monkeypatch.setattr(bootstrap, "run", runner)
    venv = str(tmp_path / ".venv-pytorch")
    for chosen in ("pytorch-cpu", "pytorch-cpu", "pytorch-gpu"):
        bootstrap.set_up(str(folder), venv, chosen, [], sys.executable)
    assert runner.done == [
        *(".venv-pytorch", "pytorch-cpu.txt", "dali-cuda12.txt"),
        *(".venv-pytorch", "pytorch-gpu.txt", "dali-cuda12.txt"),
    ]
    assert not (tmp_path / ".venv-pytorch" / "bin" / "perfgate").exists()


class Steps:
    """Stands in for the commands: notes them, makes the interpreter, and fails at the step that it is given."""

    def __init__(self, fail_at: str | None = None, error: type[BaseException] | None = None) -> None:
        self.fail_at, self.error, self.done = fail_at, error or bootstrap.SetUpError, []

    def __call__(self, command: Sequence[str]) -> None:
        words = [Path(word).name for word in command[1:]]
        if words[:2] == ["-m", "venv"]:
            python = Path(command[-1]) / "bin" / "python"
            python.parent.mkdir()
            python.symlink_to(sys.executable)
        self.done.append(words[-1])
        if words[-1] == self.fail_at:
            raise self.error("stopped")


def test_a_tools_environment_holds_its_set_alone_and_no_command_of_the_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, runner = _requirements(tmp_path / "requirements"), Steps()
    (folder / "fuzz.txt").write_text("atheris")
    monkeypatch.setattr(bootstrap, "run", runner)
    for _ in range(2):
        bootstrap.set_up(str(folder), str(tmp_path / ".venv-fuzz"), "fuzz", [], sys.executable)
    assert runner.done == [".venv-fuzz", "fuzz.txt"]
    assert not (tmp_path / ".venv-fuzz" / "bin" / "perfgate").exists()
    (folder / "fuzz.txt").write_text("another atheris")
    bootstrap.set_up(str(folder), str(tmp_path / ".venv-fuzz"), "fuzz", [], sys.executable)
    assert runner.done[2:] == [".venv-fuzz", "fuzz.txt"]


def test_an_environment_that_was_asked_for_by_name_and_stands_is_said_to_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _requirements(tmp_path / "requirements")
    (folder / "fuzz.txt").write_text("atheris")
    monkeypatch.setattr(bootstrap, "run", Steps())
    outputs = []
    for _ in range(2):
        bootstrap.set_up(str(folder), str(tmp_path / ".venv-fuzz"), "fuzz", [], sys.executable)
        outputs.append(capsys.readouterr().out)
    assert "nothing to do" not in outputs[0]
    assert outputs[1].endswith(".venv-fuzz exists: nothing to do\n")
    for _ in range(2):
        _set_up(monkeypatch, tmp_path)
    assert capsys.readouterr().out.count("\n") == 1, "the suite's own is made before every other command"


@pytest.mark.parametrize(
    ("part", "alone"),
    [
        ("fuzz", True),
        ("dataset", True),
        ("otava", True),
        ("uv", True),
        ("cpu", False),
        ("dev", False),
        ("pytorch-cpu", False),
    ],
)
def test_some_parts_come_without_what_their_packages_want_beside_them(
    monkeypatch: pytest.MonkeyPatch, part: str, alone: bool
) -> None:
    commands: list[Sequence[str]] = []
    monkeypatch.setattr(bootstrap, "run", commands.append)
    bootstrap.install("venv", "requirements", part)
    assert ("--no-deps" in commands[0]) == alone


def test_where_pip_has_no_cpu_build_of_torch_the_cuda_build_is_taken_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = Steps(fail_at="pytorch-cpu.txt")
    monkeypatch.setattr(bootstrap, "run", runner)
    bootstrap.install("venv", "requirements", "pytorch-cpu")
    assert runner.done == ["pytorch-cpu.txt", "pytorch-gpu.txt"]
    assert "taking requirements/pytorch-gpu.txt (pip has put no CPU build" in capsys.readouterr().out
    monkeypatch.setattr(bootstrap, "run", Steps(fail_at="pytorch-gpu.txt"))
    with pytest.raises(bootstrap.SetUpError):
        bootstrap.install("venv", "requirements", "pytorch-gpu")


def _set_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, extras: Sequence[str] = (), again: bool = False, **steps: Any
) -> list[str]:
    runner = Steps(**steps)
    monkeypatch.setattr(bootstrap, "run", runner)
    bootstrap.set_up(
        str(tmp_path / "requirements"), str(tmp_path / ".venv"), "cpu", extras, sys.executable, again=again
    )
    return list(runner.done)


def test_the_first_call_makes_everything_and_the_second_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _requirements(tmp_path / "requirements")
    assert _set_up(monkeypatch, tmp_path) == [
        ".venv",
        "cpu.txt",
        "dataset.txt",
        "otava.txt",
        "uv.txt",
        "dali-cuda12.txt",
    ]
    assert _set_up(monkeypatch, tmp_path) == []
    assert _set_up(monkeypatch, tmp_path, ["dev"]) == ["dev.txt"]
    assert _set_up(monkeypatch, tmp_path) == []


# ---- parts that cannot be had


def test_a_part_that_cannot_be_had_costs_only_itself_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _requirements(tmp_path / "requirements")
    _set_up(monkeypatch, tmp_path, fail_at="dali-cuda12.txt")
    stamp = json.loads((tmp_path / ".venv" / bootstrap.STAMP).read_text())
    assert stamp["missing"] == {"dali-cuda12": "stopped"}
    assert list(stamp["parts"]) == ["cpu", "dataset", "otava", "uv"]
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == (
        f"bootstrap: dali-cuda12 is missing in {os.path.relpath(tmp_path / '.venv')}: cases with DALI are skipped; a "
        "call with --again, as make env, tries it again (stopped)"
    )
    assert _set_up(monkeypatch, tmp_path) == []
    assert _set_up(monkeypatch, tmp_path, again=True) == ["dali-cuda12.txt"]
    stamp = json.loads((tmp_path / ".venv" / bootstrap.STAMP).read_text())
    assert (stamp["missing"], "dali-cuda12" in stamp["parts"]) == ({}, True)
    assert _set_up(monkeypatch, tmp_path) == []


def test_an_addition_keeps_what_is_missing_in_mind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _requirements(tmp_path / "requirements")
    _set_up(monkeypatch, tmp_path, fail_at="dali-cuda12.txt")
    assert _set_up(monkeypatch, tmp_path, ["dev"]) == ["dev.txt"]
    assert _set_up(monkeypatch, tmp_path) == []
    assert _set_up(monkeypatch, tmp_path, again=True) == ["dali-cuda12.txt"]


def test_an_interrupted_second_try_of_a_part_keeps_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _requirements(tmp_path / "requirements")
    _set_up(monkeypatch, tmp_path, fail_at="dali-cuda12.txt")
    with pytest.raises(KeyboardInterrupt):
        _set_up(monkeypatch, tmp_path, again=True, fail_at="dali-cuda12.txt", error=KeyboardInterrupt)
    assert _set_up(monkeypatch, tmp_path) == []
    assert _set_up(monkeypatch, tmp_path, again=True) == ["dali-cuda12.txt"]


@pytest.mark.parametrize(
    ("driver", "dali"),
    [((525, 60, 13), "dali-cuda12"), ((), "dali-cuda12"), ((470, 256, 2), "dali-cuda11"), ((524,), "dali-cuda11")],
)
def test_a_machine_with_a_card_gets_cuda_s_libraries_and_the_dali_that_its_driver_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: tuple[int, ...], dali: str
) -> None:
    folder, runner = _requirements(tmp_path / "requirements"), Steps()
    monkeypatch.setattr(bootstrap, "run", runner)
    bootstrap.set_up(str(folder), str(tmp_path / ".venv"), "gpu-cuda11", [], sys.executable, driver)
    assert runner.done == [
        *(".venv", "gpu-cuda11.txt", "dataset.txt", "otava.txt", "uv.txt"),
        *("cuda11.txt", "link_libraries.py", f"{dali}.txt"),
    ]


def test_the_same_wheel_without_a_card_gets_no_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, runner = _requirements(tmp_path / "requirements"), Steps()
    monkeypatch.setattr(bootstrap, "run", runner)
    bootstrap.set_up(str(folder), str(tmp_path / ".venv"), "gpu-wheel-on-cpu", [], sys.executable)
    assert runner.done == [".venv", "gpu-cuda11.txt", "dataset.txt", "otava.txt", "uv.txt", "dali-cuda12.txt"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("x: y\n  wheel_stub.error.InstallFailedError: no host\nERROR: later\n", "InstallFailedError: no host"),
        ("WARNING: w\nERROR: No matching distribution found\nnote: n\n", "ERROR: No matching distribution found"),
    ],
)
def test_a_command_that_fails_is_told_with_its_first_error(
    said: str, told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code = f"import sys; sys.stderr.write({said!r}); sys.exit(1)"
    with pytest.raises(bootstrap.SetUpError) as caught:
        bootstrap.run([sys.executable, "-c", code])
    assert f"({told})" in str(caught.value) or f".{told})" in str(caught.value)
    assert capfd.readouterr().err == said


def test_an_environment_that_stands_gets_the_command_without_being_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _requirements(tmp_path / "requirements")
    _set_up(monkeypatch, tmp_path)
    command = tmp_path / ".venv" / "bin" / "perfgate"
    assert os.access(command, os.X_OK)
    command.unlink()
    assert _set_up(monkeypatch, tmp_path) == []
    assert os.access(command, os.X_OK)


def test_libgomp_comes_after_the_set_it_serves_and_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _requirements(tmp_path / "requirements")
    assert _set_up(monkeypatch, tmp_path, ["libgomp"]) == [
        ".venv",
        "cpu.txt",
        "dataset.txt",
        "otava.txt",
        "uv.txt",
        "libgomp.txt",
        "dali-cuda12.txt",
    ]
    assert _set_up(monkeypatch, tmp_path, ["libgomp"]) == []
    assert _set_up(monkeypatch, tmp_path) == []
    stamp = json.loads((tmp_path / ".venv" / bootstrap.STAMP).read_text())
    assert "libgomp" in stamp["parts"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "error"),
    [
        *((step, bootstrap.SetUpError) for step in (".venv", "cpu.txt", "dataset.txt", "otava.txt", "uv.txt")),
        *((step, KeyboardInterrupt) for step in (".venv", "cpu.txt", "dali-cuda12.txt")),
    ],
)
def test_an_interrupted_set_up_starts_again_from_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: type[BaseException]
) -> None:
    _requirements(tmp_path / "requirements")
    with pytest.raises(error):
        _set_up(monkeypatch, tmp_path, fail_at=step, error=error)
    half = tmp_path / ".venv" / "lib" / "half.py"
    half.parent.mkdir()
    half.write_text("half a package")
    assert _set_up(monkeypatch, tmp_path) == [
        ".venv",
        "cpu.txt",
        "dataset.txt",
        "otava.txt",
        "uv.txt",
        "dali-cuda12.txt",
    ]
    assert not half.exists()


def test_an_interrupted_addition_starts_again_from_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _requirements(tmp_path / "requirements")
    _set_up(monkeypatch, tmp_path)
    with pytest.raises(bootstrap.SetUpError):
        _set_up(monkeypatch, tmp_path, ["dev"], fail_at="dev.txt")
    assert _set_up(monkeypatch, tmp_path) == [
        ".venv",
        "cpu.txt",
        "dataset.txt",
        "otava.txt",
        "uv.txt",
        "dali-cuda12.txt",
    ]


@pytest.mark.slow
def test_a_vanished_interpreter_makes_the_environment_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _requirements(tmp_path / "requirements")
    _set_up(monkeypatch, tmp_path)
    (tmp_path / ".venv" / "bin" / "python").unlink()
    assert _set_up(monkeypatch, tmp_path) == [
        ".venv",
        "cpu.txt",
        "dataset.txt",
        "otava.txt",
        "uv.txt",
        "dali-cuda12.txt",
    ]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"stamp": 1}', '{"stamp": 3}'])
def test_a_damaged_or_unknown_stamp_makes_the_environment_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    _requirements(tmp_path / "requirements")
    _set_up(monkeypatch, tmp_path)
    (tmp_path / ".venv" / bootstrap.STAMP).write_text(text)
    assert _set_up(monkeypatch, tmp_path) == [
        ".venv",
        "cpu.txt",
        "dataset.txt",
        "otava.txt",
        "uv.txt",
        "dali-cuda12.txt",
    ]


def test_a_folder_that_the_script_did_not_make_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _requirements(tmp_path / "requirements")
    own = tmp_path / ".venv" / "mine.txt"
    own.parent.mkdir()
    own.write_text("mine")
    with pytest.raises(bootstrap.SetUpError, match="was not made by this script"):
        _set_up(monkeypatch, tmp_path)
    assert own.read_text() == "mine"


def test_without_ensurepip_the_pip_of_the_base_puts_one_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _requirements(tmp_path / "requirements")
    monkeypatch.setattr(bootstrap, "answers", lambda python, code: "ensurepip" not in code)
    done = _set_up(monkeypatch, tmp_path)
    assert done == [".venv", "pip.txt", "cpu.txt", "dataset.txt", "otava.txt", "uv.txt", "dali-cuda12.txt"]


def test_without_ensurepip_and_pip_the_package_to_install_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _requirements(tmp_path / "requirements")
    monkeypatch.setattr(bootstrap, "answers", lambda python, code: False)
    with pytest.raises(bootstrap.SetUpError, match="apt-get install python3-venv"):
        _set_up(monkeypatch, tmp_path)
    assert not (tmp_path / ".venv").exists()


def test_a_failing_command_is_an_error_with_the_command() -> None:
    with pytest.raises(bootstrap.SetUpError, match=r"-c raise SystemExit\(3\)' ended with 3"):
        bootstrap.run([sys.executable, "-c", "raise SystemExit(3)"])


def test_a_command_that_outlives_its_set_up_keeps_the_next_one_waiting(tmp_path: Path) -> None:
    try_lock = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    with bootstrap.locked(str(tmp_path)):
        orphan = subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False)
    attempt = [sys.executable, "-c", try_lock, str(tmp_path)]
    assert subprocess.run(attempt, capture_output=True, check=False).returncode != 0
    orphan.communicate()
    assert subprocess.run(attempt, capture_output=True, check=False).returncode == 0


def test_an_environment_is_made_while_another_one_beside_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _requirements(tmp_path / "requirements")
    (tmp_path / ".venv-pytorch").mkdir()
    with bootstrap.locked(str(tmp_path)), bootstrap.locked(str(tmp_path / ".venv-pytorch")):
        assert _set_up(monkeypatch, tmp_path) == [
            ".venv",
            "cpu.txt",
            "dataset.txt",
            "otava.txt",
            "uv.txt",
            "dali-cuda12.txt",
        ]


# Ends once all three have begun, so only where they run side by side.
_MAKER = """
import os, sys, time
from pathlib import Path
assert os.environ["PIP_PROGRESS_BAR"] == "off"
_, _, name, *more = sys.argv
begun = Path(__file__).parent / "begun"
(begun / name).write_text(" ".join(more))
while len(list(begun.iterdir())) < 3:
    time.sleep(0.01)
sys.exit(2 if name == "FAILS" else 0)
"""


@pytest.mark.parametrize(("failing", "status"), [("", 0), ("cpu", 2), ("pytorch", 2)])
def test_several_environments_are_made_side_by_side_and_one_that_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, status: int
) -> None:
    (tmp_path / "begun").mkdir()
    (tmp_path / "maker.py").write_text(_MAKER.replace("FAILS", failing))
    monkeypatch.setattr(bootstrap, "__file__", str(tmp_path / "maker.py"))
    words = ["--requirements", "cpu", "--with", "dev", "--venv", "here", "--and", "pytorch", "--and", "tensorflow"]
    assert bootstrap.main(words) == status
    found = {path.name: path.read_text() for path in (tmp_path / "begun").iterdir()}
    assert found == {"cpu": "--venv here --with dev", "pytorch": "", "tensorflow": ""}


def test_settings_that_send_pip_elsewhere_do_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PIP_USER", "1")
    environment = bootstrap.clean_environment()
    assert environment["PIP_USER"] == "0"
    assert not {"PIP_TARGET", "PYTHONPATH"} & set(environment)


# ---- the files


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_old_python_can_parse_the_script(name: str) -> None:
    assert ast.parse((REQUIREMENTS / name).read_text(encoding="utf-8"), feature_version=(3, 6)).body


def test_the_probe_says_by_its_exit_status_that_this_python_will_do() -> None:
    environment = {"PATH": os.environ["PATH"]}
    base = getattr(sys, "_base_executable", sys.executable)
    done = subprocess.run(
        [base, str(REQUIREMENTS / "bootstrap.py"), "--probe"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("pythons", "library", "status", "told"),
    [
        (["python3.11"], True, 0, ""),
        ([], True, 2, "mxnet's wheels exist for Python up to 3.11"),
        (["python3.11"], False, 2, "libquadmath"),
    ],
)
def test_the_probe_of_a_framework_says_if_its_python_and_libraries_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    pythons: list[str], library: bool, status: int, told: str,
) -> None:  # fmt: skip
    for name in pythons:
        (tmp_path / name).symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(bootstrap.sys, "version_info", (3, 13, 0))
    monkeypatch.setattr(bootstrap, "answers", lambda python, code: True)
    monkeypatch.setattr(bootstrap.machine, "loads", lambda name: library)
    assert bootstrap.main(["--probe", "--requirements", "mxnet"]) == status
    assert told in capsys.readouterr().err


def _pins(name: str) -> dict[str, Requirement]:
    pins = hashes.pins_of((REQUIREMENTS / name).read_text(encoding="utf-8"))
    return {pin.name: Requirement(pin.requirement) for pin in pins}


def _included(name: str) -> list[str]:
    lines = (REQUIREMENTS / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith(("-r ", "-c "))]


@for_each("name", sorted(path.name for path in REQUIREMENTS.glob("*.txt")))
def test_every_requirement_is_pinned_to_one_version_and_names_no_registry(name: str) -> None:
    for requirement in _pins(name).values():
        assert re.fullmatch(r"===?[\w.+]+", str(requirement.specifier)), requirement
        assert requirement.url is None
    assert "://" not in (REQUIREMENTS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("file", sorted(set(bootstrap.SETS.values())))
def test_a_set_includes_the_suite_and_repeats_none_of_it(file: str) -> None:
    assert _included(file) == ["-r suite.txt"]
    for other in ("suite.txt", "dev.txt", "dataset.txt", "otava.txt", "uv.txt"):
        assert not _pins(file).keys() & _pins(other).keys()


def test_the_suite_alone_has_packaging_as_pytorch_s_environment_has_it() -> None:
    assert _included("suite-alone.txt") == ["-r suite.txt"]
    assert _pins("suite-alone.txt") == {"packaging": _pins("dali-cuda12.txt")["packaging"]}


def test_no_part_has_another_version_of_what_the_parts_before_it_have() -> None:
    """Else pip would replace it. DALI for CUDA 11 bounds some packages, and comes last."""
    for file in set(bootstrap.SETS.values()):
        before = {**_pins("suite.txt"), **_pins(file)}
        for part in ("cuda11.txt", "dali-cuda12.txt"):
            shared = {name: str(pin.specifier) for name, pin in _pins(part).items() if name in before}
            assert shared == {name: str(before[name].specifier) for name in shared}, part


def test_the_libraries_are_those_that_the_wheel_was_built_with() -> None:
    """paddlepaddle-gpu 2.6.2 states CUDA 11.8 and cuDNN 8.6.0 (paddle/version/__init__.py)."""
    pins = {name: str(pin.specifier) for name, pin in _pins("cuda11.txt").items()}
    assert pins["nvidia-cudnn-cu11"] == "==8.6.0.163"
    assert pins["nvidia-cublas-cu11"] == "==11.11.3.6"
    assert pins["nvidia-cuda-runtime-cu11"].startswith("==11.8.")
    opened = {"cublas", "cudnn", "curand", "cusolver", "cusparse", "nccl", "cuda-nvrtc", "cuda-cupti"}
    assert {f"nvidia-{each}-cu11" for each in opened} <= set(pins)


def test_both_of_pytorch_s_sets_have_a_build_of_their_own_of_one_torch_and_the_rest_in_common() -> None:
    cpu, cuda, gpu, common = (_pins(f"pytorch-{name}.txt") for name in ("cpu", "cuda", "gpu", "common"))
    assert {name: str(pin) for name, pin in cpu.items()} == {"torch": "torch===2.13.0+cpu"}
    # Plain == would also take the build for CPUs where pip finds one.
    assert {name: str(pin) for name, pin in gpu.items()} == {"torch": "torch===2.13.0"}
    assert _included("pytorch-cpu.txt") == ["-r pytorch-common.txt"]
    assert _included("pytorch-gpu.txt") == ["-r pytorch-common.txt", "-r pytorch-cuda.txt"]
    assert not common.keys() & cuda.keys() and "torch" not in common.keys() | cuda.keys()


def test_the_pytorch_of_cuda_12_has_another_torch_and_cuda_and_else_what_the_other_sets_have() -> None:
    pins, common, cuda = (_pins(f"pytorch-{name}.txt") for name in ("gpu-cuda12", "common", "cuda"))
    # Plain == could also take a build for CPUs.
    assert str(pins["torch"]) == "torch===2.10.0"
    assert {name: str(pins[name]) for name in common} == {name: str(pin) for name, pin in common.items()}
    own = pins.keys() - common.keys() - {"torch"}
    assert own >= {"triton", "nvidia-cudnn-cu12", "nvidia-nccl-cu12", "nvidia-cuda-runtime-cu12"}
    # Nothing of CUDA 13 beside it; pip itself refuses what torch's own metadata does not name.
    assert own & cuda.keys() == {"triton", "cuda-bindings", "cuda-pathfinder"}


def test_both_of_mxnet_s_sets_have_a_build_of_their_own_of_one_release_and_the_rest_in_common() -> None:
    assert {name: str(pin) for name, pin in _pins("mxnet-cpu.txt").items()} == {"mxnet": "mxnet==1.9.1"}
    assert {name: str(pin) for name, pin in _pins("mxnet-gpu.txt").items()} == {"mxnet-cu112": "mxnet-cu112==1.9.1"}
    assert _included("mxnet-cpu.txt") == _included("mxnet-gpu.txt") == ["-r mxnet-common.txt"]
    common, cpu = _pins("mxnet-common.txt"), _pins("cpu.txt") | _pins("suite.txt")
    # MXNet reads numpy.bool, which 1.24 removed; the images are decoded by the code of the other frameworks.
    assert str(common["numpy"]) == "numpy==1.23.5"
    assert str(common["pillow"]) == str(cpu["pillow"])


def test_both_of_tensorflow_s_sets_have_a_build_of_their_own_of_one_version_and_the_rest_in_common() -> None:
    cpu, gpu, common = (_pins(f"tensorflow-{name}.txt") for name in ("cpu", "gpu", "common"))
    assert {name: str(pin) for name, pin in cpu.items()} == {"tensorflow-cpu": "tensorflow-cpu==2.21.0"}
    assert str(gpu.pop("tensorflow")) == "tensorflow==2.21.0"
    # Nothing but what the wheel's extra and-cuda names, all of CUDA 12.
    assert gpu and all(re.fullmatch(r"nvidia-[a-z-]+-cu12", name) for name in gpu)
    assert _included("tensorflow-cpu.txt") == _included("tensorflow-gpu.txt") == ["-r tensorflow-common.txt"]
    assert not common.keys() & gpu.keys()


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow"])
def test_a_framework_is_fed_with_the_numpy_and_pillow_of_the_cpu_set(framework: str) -> None:
    """And by one DALI, a part of every environment. So the same images are decoded by the same code."""
    pins, cpu = _pins(f"{framework}-common.txt"), _pins("cpu.txt") | _pins("suite.txt")
    assert {name: str(pins[name]) for name in ("numpy", "pillow")} == {
        name: str(cpu[name]) for name in ("numpy", "pillow")
    }


@pytest.mark.parametrize("minor", [11, 12, 13])
def test_the_fuzzer_reads_with_the_packages_that_the_suite_reads_with(minor: int) -> None:
    pins = _pins("fuzz.txt").values()
    environment = {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.1"}
    chosen = {each.name: each.specifier for each in pins if not each.marker or each.marker.evaluate(environment)}
    assert str(chosen.pop("atheris")) == "==3.0.0"
    suite = _pins("suite.txt")
    assert {name: suite[name.lower().replace("_", "-")].specifier for name in chosen} == chosen


def test_the_installed_versions_are_the_pinned_ones() -> None:
    """In an environment that bootstrap made, nothing was installed over it since; libgomp's wheel did not stay."""
    stamp = Path(sys.prefix) / bootstrap.STAMP
    if not stamp.is_file():
        pytest.skip("these tests run in an environment that requirements/bootstrap.py did not make")
    parts = json.loads(stamp.read_text(encoding="utf-8"))["parts"].keys() - {bootstrap.OPENMP_PART}
    pins = {**_pins("suite.txt"), **{name: pin for part in parts for name, pin in _pins(f"{part}.txt").items()}}
    wrong = []
    for name, requirement in pins.items():
        if requirement.marker is None or requirement.marker.evaluate():
            installed = importlib.metadata.version(name)
            if not requirement.specifier.contains(installed, prereleases=True):
                wrong.append(f"{requirement}: {installed}")
    assert wrong == []
