"""Set-up: what is chosen for which machine, when the environment is made anew, and what is refused."""

from __future__ import annotations

import ast
import ctypes
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

REQUIREMENTS = Path(__file__).parents[2] / "requirements"
SCRIPT = REQUIREMENTS / "bootstrap.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bootstrap: Any = _load()
V100 = bootstrap.Gpu("Tesla V100-SXM2-32GB", (7, 0))
A100 = bootstrap.Gpu("A100-SXM4-80GB", (8, 0))
H200 = bootstrap.Gpu("H200", (9, 0))
P100 = bootstrap.Gpu("Tesla P100-PCIE-16GB", (6, 0))


# ---- the choice


@pytest.mark.parametrize("minor", [10, 11, 12, 13])
def test_without_a_gpu_the_cpu_set_is_taken(minor: int) -> None:
    assert bootstrap.choose_set([], (3, minor, 1)) == "cpu"


@pytest.mark.parametrize("minor", [10, 11, 12])
@pytest.mark.parametrize("capability", [(6, 1), (7, 0), (7, 5), (8, 0), (8, 6)])
def test_gpus_of_the_supported_capabilities_take_the_cuda_11_set(capability: tuple[int, int], minor: int) -> None:
    gpus = [V100, bootstrap.Gpu("a card", capability)]
    assert bootstrap.choose_set(gpus, (3, minor, 1)) == "gpu-cuda11"


@pytest.mark.parametrize("gpu", [H200, P100])
def test_another_gpu_is_refused_by_name_with_what_to_do(gpu: Any) -> None:
    with pytest.raises(bootstrap.SetUpError) as caught:
        bootstrap.choose_set([V100, gpu], (3, 11, 7))
    text = str(caught.value)
    assert f"NVIDIA {gpu.name} of compute capability {gpu.capability[0]}.{gpu.capability[1]}" in text
    assert "6.1 to 8.6" in text
    assert "frameworks.paddle.interpreter in perf.yaml" in text
    assert "make REQUIREMENTS=cpu perf" in text


def test_a_gpu_with_python_3_13_is_refused_with_the_pythons_that_do() -> None:
    with pytest.raises(bootstrap.SetUpError, match=r"V100.*Python 3\.10 to 3\.12; this is Python 3\.13\.0"):
        bootstrap.choose_set([V100], (3, 13, 0))


@given(st.tuples(st.integers(0, 20), st.integers(0, 20)), st.integers(0, 30))
def test_every_gpu_and_python_get_a_set_that_exists_or_an_error(capability: tuple[int, int], minor: int) -> None:
    fits = (6, 1) <= capability <= (8, 6) and 10 <= minor <= 12
    try:
        chosen = bootstrap.choose_set([bootstrap.Gpu("a card", capability)], (3, minor, 0))
    except bootstrap.SetUpError:
        assert not fits
    else:
        assert fits
        assert (REQUIREMENTS / f"{chosen}.txt").is_file()


@pytest.mark.parametrize("version", [(2, 7, 18), (3, 6, 15), (3, 9, 18), (3, 14, 0), (4, 0, 0)])
def test_a_python_without_wheels_is_refused_with_those_that_have_them(version: tuple[int, int, int]) -> None:
    with pytest.raises(bootstrap.SetUpError, match=r"expected 3\.10 to 3\.13.*make PYTHON="):
        bootstrap.check_python(version)


@pytest.mark.parametrize("minor", [10, 11, 12, 13])
def test_a_python_with_wheels_is_accepted(minor: int) -> None:
    assert bootstrap.check_python((3, minor, 0)) is None


@pytest.mark.parametrize(
    "machine",
    [("Linux", "aarch64", "glibc"), ("Darwin", "arm64", ""), ("Linux", "x86_64", ""), ("Windows", "AMD64", "")],
)
def test_a_machine_without_wheels_is_refused(machine: tuple[str, str, str]) -> None:
    with pytest.raises(bootstrap.SetUpError, match="Linux on x86_64 with glibc"):
        bootstrap.check_platform(*machine)


def test_missing_libraries_are_named_with_their_packages() -> None:
    with pytest.raises(bootstrap.SetUpError) as caught:
        bootstrap.check_libraries(lambda name: name == "libgcc_s.so.1")
    assert "libstdc++.so.6, libz.so.1" in str(caught.value)
    assert "apt-get install libstdc++6 zlib1g;" in str(caught.value)
    assert "dnf install libstdc++ zlib" in str(caught.value)


@pytest.mark.parametrize(
    ("absent", "extras"),
    [(set(), ["dev"]), ({"libgomp.so.1"}, ["libgomp", "dev"])],
    ids=["a machine with libgomp", "a machine without libgomp"],
)
def test_libgomp_is_a_part_of_the_environment_only_where_the_machine_has_none(
    monkeypatch: pytest.MonkeyPatch, absent: set[str], extras: list[str]
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(bootstrap, "loads", lambda name: name not in absent)
    monkeypatch.setattr(bootstrap, "set_up", lambda *arguments: asked.append(arguments[3]))
    assert bootstrap.main(["--requirements", "cpu", "--with", "dev"]) == 0
    assert asked == [extras]


def test_a_machine_without_the_c_plus_plus_library_is_refused_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bootstrap, "loads", lambda name: name != "libstdc++.so.6")
    monkeypatch.setattr(bootstrap, "set_up", lambda *arguments: pytest.fail("set-up was started"))
    assert bootstrap.main(["--requirements", "cpu"]) == 2
    assert "apt-get install libstdc++6;" in capsys.readouterr().err


# ---- what NVML says


class FakeNvml:
    """The calls bootstrap makes, over a list of GPUs; ``failing`` maps a function to its error code."""

    def __init__(self, gpus: Sequence[Any], failing: dict[str, int] | None = None) -> None:
        self.gpus, self.failing, self.was_shut_down = gpus, failing or {}, False
        self.nvmlErrorString: Callable[[int], bytes] = _Text(b"Driver Not Loaded")

    def __getattr__(self, name: str) -> Callable[..., int]:
        code = self.failing.get(name, 0)
        return (lambda *_: code) if code else getattr(self, "_" + name)

    def _nvmlInit_v2(self) -> int:
        return 0

    def _nvmlShutdown(self) -> int:
        self.was_shut_down = True
        return 0

    def _nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.gpus)
        return 0

    def _nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, handle: Any) -> int:
        handle._obj.value = index.value + 1
        return 0

    def _nvmlDeviceGetName(self, handle: ctypes.c_void_p, name: Any, size: ctypes.c_uint) -> int:
        assert handle.value is not None
        assert size.value >= 96
        name.value = self.gpus[handle.value - 1].name.encode()
        return 0

    def _nvmlDeviceGetCudaComputeCapability(self, handle: ctypes.c_void_p, major: Any, minor: Any) -> int:
        assert handle.value is not None
        major._obj.value, minor._obj.value = self.gpus[handle.value - 1].capability
        return 0


class _Text:
    restype: object = None

    def __init__(self, text: bytes) -> None:
        self.text = text

    def __call__(self, code: int) -> bytes:
        return self.text


def _unloadable(message: str) -> Callable[[str], ctypes.CDLL]:
    def load(name: str) -> ctypes.CDLL:
        raise OSError(f"{name}: {message}")

    return load


def test_every_gpu_is_found_with_name_and_capability() -> None:
    nvml = FakeNvml([V100, A100])
    assert bootstrap.find_gpus(lambda _: nvml) == [V100, A100]
    assert nvml.was_shut_down


def test_a_machine_without_the_driver_library_has_no_gpus(tmp_path: Path) -> None:
    load = _unloadable("cannot open shared object file: No such file or directory")
    assert bootstrap.find_gpus(load, str(tmp_path / "absent")) == []


def test_a_driver_without_its_library_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "0000:01:00.0").mkdir()
    load = _unloadable("cannot open shared object file: No such file or directory")
    with pytest.raises(bootstrap.SetUpError, match="lists GPUs, but their library"):
        bootstrap.find_gpus(load, str(tmp_path))


def test_a_library_that_cannot_be_loaded_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(bootstrap.SetUpError, match="file too short"):
        bootstrap.find_gpus(_unloadable("file too short"), str(tmp_path / "absent"))


@pytest.mark.parametrize(
    "name", ["nvmlInit_v2", "nvmlDeviceGetCount_v2", "nvmlDeviceGetName", "nvmlDeviceGetCudaComputeCapability"]
)
def test_a_driver_that_does_not_answer_is_an_error_and_never_the_cpu(name: str) -> None:
    nvml = FakeNvml([V100], failing={name: 9})
    with pytest.raises(bootstrap.SetUpError, match=rf"{name} failed with error 9 \(Driver Not Loaded\)"):
        bootstrap.find_gpus(lambda _: nvml)
    assert nvml.was_shut_down == (name != "nvmlInit_v2")


# ---- when the environment is made


def _stamp(
    parts: dict[str, str], python: str = "CPython 3.11.7", base: str = "/usr/bin/python3.11"
) -> dict[str, object]:
    return {"stamp": 1, "python": python, "base": base, "parts": parts}


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
    for name in ("suite", "cpu", "dataset", "dev", "libgomp"):
        (folder / f"{name}.txt").write_text(name)
    (folder / bootstrap.OPENMP_SCRIPT).write_text("pass")
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


class Steps:
    """Stands in for the commands: notes them, makes the interpreter, and fails at the step it is told."""

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


def _set_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, extras: Sequence[str] = (), **steps: Any) -> list[str]:
    runner = Steps(**steps)
    monkeypatch.setattr(bootstrap, "run", runner)
    bootstrap.set_up(str(tmp_path / "requirements"), str(tmp_path / ".venv"), "cpu", extras, sys.executable)
    return list(runner.done)


def test_the_first_call_makes_everything_and_the_second_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _requirements(tmp_path / "requirements")
    assert _set_up(monkeypatch, tmp_path) == [".venv", "cpu.txt", "dataset.txt"]
    assert _set_up(monkeypatch, tmp_path) == []
    assert _set_up(monkeypatch, tmp_path, ["dev"]) == ["dev.txt"]
    assert _set_up(monkeypatch, tmp_path) == []


def test_libgomp_comes_after_the_set_it_serves_and_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _requirements(tmp_path / "requirements")
    assert _set_up(monkeypatch, tmp_path, ["libgomp"]) == [".venv", "cpu.txt", "dataset.txt", "libgomp.txt"]
    assert _set_up(monkeypatch, tmp_path, ["libgomp"]) == []
    assert _set_up(monkeypatch, tmp_path) == []
    stamp = json.loads((tmp_path / ".venv" / bootstrap.STAMP).read_text())
    assert "libgomp" in stamp["parts"]


@pytest.mark.parametrize("step", [".venv", "cpu.txt", "dataset.txt"])
@pytest.mark.parametrize("error", [bootstrap.SetUpError, KeyboardInterrupt])
def test_an_interrupted_set_up_starts_again_from_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: type[BaseException]
) -> None:
    _requirements(tmp_path / "requirements")
    with pytest.raises(error):
        _set_up(monkeypatch, tmp_path, fail_at=step, error=error)
    half = tmp_path / ".venv" / "lib" / "half.py"
    half.parent.mkdir()
    half.write_text("half a package")
    assert _set_up(monkeypatch, tmp_path) == [".venv", "cpu.txt", "dataset.txt"]
    assert not half.exists()


def test_an_interrupted_addition_starts_again_from_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _requirements(tmp_path / "requirements")
    _set_up(monkeypatch, tmp_path)
    with pytest.raises(bootstrap.SetUpError):
        _set_up(monkeypatch, tmp_path, ["dev"], fail_at="dev.txt")
    assert _set_up(monkeypatch, tmp_path) == [".venv", "cpu.txt", "dataset.txt"]


def test_a_vanished_interpreter_makes_the_environment_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _requirements(tmp_path / "requirements")
    _set_up(monkeypatch, tmp_path)
    (tmp_path / ".venv" / "bin" / "python").unlink()
    assert _set_up(monkeypatch, tmp_path) == [".venv", "cpu.txt", "dataset.txt"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"stamp": 2}'])
def test_a_damaged_or_unknown_stamp_makes_the_environment_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    _requirements(tmp_path / "requirements")
    _set_up(monkeypatch, tmp_path)
    (tmp_path / ".venv" / bootstrap.STAMP).write_text(text)
    assert _set_up(monkeypatch, tmp_path) == [".venv", "cpu.txt", "dataset.txt"]


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
    assert done == [".venv", bootstrap.PIP, "cpu.txt", "dataset.txt"]


def test_without_ensurepip_and_pip_the_package_to_install_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _requirements(tmp_path / "requirements")
    monkeypatch.setattr(bootstrap, "answers", lambda python, code: False)
    with pytest.raises(bootstrap.SetUpError, match="apt-get install python3-venv"):
        _set_up(monkeypatch, tmp_path)


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


def test_settings_that_send_pip_elsewhere_do_not_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PIP_USER", "1")
    environment = bootstrap.clean_environment()
    assert environment["PIP_USER"] == "0"
    assert not {"PIP_TARGET", "PYTHONPATH"} & set(environment)


# ---- the files


def test_an_old_python_can_parse_the_script() -> None:
    assert ast.parse(SCRIPT.read_text(encoding="utf-8"), feature_version=(3, 6)).body


def test_the_probe_says_by_its_exit_status_that_this_python_will_do() -> None:
    environment = {"PATH": os.environ["PATH"]}
    base = getattr(sys, "_base_executable", sys.executable)
    done = subprocess.run([base, str(SCRIPT), "--probe"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def _pins(name: str) -> dict[str, Requirement]:
    found = {}
    for line in (REQUIREMENTS / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", "-r ")):
            requirement = Requirement(line)
            found[re.sub(r"[-_.]+", "-", requirement.name).lower()] = requirement
    return found


@pytest.mark.parametrize("name", sorted(path.name for path in REQUIREMENTS.glob("*.txt")))
def test_every_requirement_is_pinned_to_one_version_and_names_no_registry(name: str) -> None:
    for requirement in _pins(name).values():
        assert re.fullmatch(r"==[\w.]+", str(requirement.specifier)), requirement
        assert requirement.url is None
    assert "://" not in (REQUIREMENTS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("chosen", bootstrap.SETS)
def test_a_set_includes_the_suite_and_repeats_none_of_it(chosen: str) -> None:
    assert "-r suite.txt" in (REQUIREMENTS / f"{chosen}.txt").read_text(encoding="utf-8").splitlines()
    for other in ("suite.txt", "dev.txt", "dataset.txt"):
        assert not _pins(f"{chosen}.txt").keys() & _pins(other).keys()


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
