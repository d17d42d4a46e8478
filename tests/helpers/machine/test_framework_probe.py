"""Which build of a framework an interpreter has, where that is asked, and what makes a missing environment."""

from __future__ import annotations

import re
import sys
import venv
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.machine import framework_builds
from helpers.machine.framework_builds import (
    BuildFinder,
    FrameworkBuild,
    FrameworkConfig,
    find_framework,
)
from helpers.machine.framework_probe import identity, libraries, probe, why_missing
from helpers.trainers.contract.frameworks import Framework
from tests.requirements.scripts import REQUIREMENTS


def trainers(root: Path, *names: str) -> BuildFinder:
    folder = root / "helpers/trainers"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).mkdir()
        (folder / name / "trainer.py").write_text("")
    return BuildFinder(root)


def test_the_build_of_this_interpreter_is_found_without_importing_it(tmp_path: Path) -> None:
    if not probe("paddle"):
        pytest.skip("Paddle is not installed")
    imported = "paddle" in sys.modules
    build = trainers(tmp_path, "paddle").find_build(Framework.PADDLE)
    assert isinstance(build, FrameworkBuild)
    assert build.version[0].isdigit() and len(build.commit) == 40
    assert ("paddle" in sys.modules) is imported


def test_another_interpreter_is_asked_and_asked_once(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\necho x >> {calls}\nexec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    finder = trainers(tmp_path, "paddle")
    first = finder.find_build(Framework.PADDLE, str(wrapper))
    assert finder.find_build(Framework.PADDLE, str(wrapper)) is first
    assert calls.read_text() == "x\n"
    own = finder.find_build(Framework.PADDLE)
    if isinstance(own, FrameworkBuild):
        assert first == replace(own, interpreter=str(wrapper))
    else:
        assert "not installed" in str(first)


def test_a_missing_trainer_framework_or_interpreter_is_a_reason_and_not_an_error(tmp_path: Path) -> None:
    finder = trainers(tmp_path, "mxnet", "pytorch")
    assert finder.find_build(Framework.PADDLE) == (
        "there is no trainer for paddle yet (helpers/trainers/paddle/trainer.py)"
    )
    missing = str(finder.find_build(Framework.MXNET))
    assert "mxnet is not installed in" in missing and "install mxnet or mxnet-cu112" in missing
    nowhere = str(finder.find_build(Framework.PYTORCH, "/nowhere/python"))
    assert "/nowhere/python" in nowhere and "frameworks.pytorch.interpreter" in nowhere


@pytest.mark.parametrize("answer", ["", "3", '{"python": "3.8"}', "null", "Python 3.8"])
def test_an_interpreter_that_prints_something_else_is_a_reason_with_a_remedy(tmp_path: Path, answer: str) -> None:
    other = tmp_path / "python"
    other.write_text(f"#!/bin/sh\necho '{answer}'\n")
    other.chmod(0o755)
    reason = str(trainers(tmp_path, "paddle").find_build(Framework.PADDLE, str(other)))
    assert reason.startswith(f"{other} printed no JSON when it was asked which paddle it has: ")
    assert "frameworks.paddle.interpreter" in reason


def test_an_interpreter_that_hangs_is_a_reason_with_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework_builds, "_PROBE_SECONDS", 0.5)
    hanging = tmp_path / "python"
    hanging.write_text("#!/bin/sh\nexec tail -f /dev/null\n")
    hanging.chmod(0o755)
    reason = str(trainers(tmp_path, "mxnet").find_build(Framework.MXNET, str(hanging)))
    assert "does not answer which mxnet it has within 0.5 s: look what it waits for" in reason


VERSION_FILE = """
nccl_version     = '0'
cuda_version     = '11.8'
cudnn_version    = {cudnn}
commit           = 'abc'
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands where an interpreter's packages do, ahead of the real ones."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder)])
    return folder


def install(folder: Path, name: str, version: str) -> None:
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_what_lies_beside_a_build_is_read_from_its_files_alone(installed: Path) -> None:
    install(installed, "paddlepaddle-gpu", "2.6.2")
    install(installed, "nvidia-dali-cuda110", "1.50.0")
    install(installed, "nvidia-cudnn-cu11", "8.9.4.19")
    install(installed, "nvidia-dali-tf-plugin-cuda110", "9")
    (installed / "paddle/version").mkdir(parents=True)
    text = VERSION_FILE.format(cudnn="'8.6.0'") + "with_pip_cuda_libraries = 'ON'\n"
    (installed / "paddle/version/__init__.py").write_text(text)
    found = libraries("paddle")
    assert found.pop("python").count(".") == 2
    assert found == {
        "cuda": "11.8",
        "cudnn": "8.6.0",
        "cudnn_wheel": "nvidia-cudnn-cu11 8.9.4.19",
        "pip_libraries": "ON",
        "dali_wheel": "nvidia-dali-cuda110 1.50.0",
    }


def test_tensorflow_s_versions_are_items_of_a_dictionary(installed: Path) -> None:
    install(installed, "tensorflow", "2.21.0")
    (installed / "tensorflow/python/platform").mkdir(parents=True)
    (installed / "tensorflow/python/platform/build_info.py").write_text(
        "build_info = collections.OrderedDict([('cuda_version', '12.5.1'), ('cudnn_version', '9'), "
        "('is_cuda_build', True)])\n"
    )
    found = libraries("tensorflow")
    assert (found["cuda"], found["cudnn"]) == ("12.5.1", "9")


def test_a_missing_part_has_the_reason_that_the_set_up_wrote(tmp_path: Path) -> None:
    assert why_missing(str(tmp_path), "dali") == ""
    stamp = tmp_path / ".perfgate-stamp.json"
    stamp.write_text('{"missing": {"cuda11": "no index", "dali-cuda11": "URLError: no such host"}}')
    assert why_missing(str(tmp_path), "dali") == "make env could not have it: URLError: no such host"
    assert why_missing(str(tmp_path), "paddle") == ""
    for text in ('{"missing": {}}', '{"parts": {}}', '{"missing": ["dali"]}'):
        stamp.write_text(text)
        assert why_missing(str(tmp_path), "dali") == ""


def test_a_framework_that_could_not_be_had_is_said_to_be_missing_for_that_reason(tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=False)
    (tmp_path / ".perfgate-stamp.json").write_text('{"missing": {"paddle": "no index has it"}}')
    found = BuildFinder().find_build(Framework.PADDLE, str(tmp_path / "bin" / "python"))
    assert "(make env could not have it: no index has it)" in str(found)


def packages(folder: Path, name: str = "paddlepaddle-gpu", library: bytes = b"code", beside: str = "") -> Path:
    """An installed framework of one module and one library, with the installer's list of its files."""
    folder.mkdir(parents=True)
    install(folder, name, "2.6.2")
    if beside:
        install(folder, "nvidia-cudnn-cu11", beside)
    (folder / "paddle").mkdir()
    (folder / "paddle/__init__.py").write_text("commit = 'abc'\n")
    (folder / "paddle/lib.so").write_bytes(library)
    files = "paddle/__init__.py,sha256=a,17\npaddle/lib.so,sha256=b,4\n../../../bin/fleetrun,sha256=c,9\n"
    (folder / f"{name.replace('-', '_')}-2.6.2.dist-info/RECORD").write_text(files)
    return folder


def digest_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "path", [str(folder)])
    return identity("paddle")["digest"]


def test_a_build_has_the_same_digest_wherever_it_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = digest_in(packages(tmp_path / "one"), monkeypatch)
    other = packages(tmp_path / "two")
    record = other / "paddlepaddle_gpu-2.6.2.dist-info/RECORD"
    # The scripts name their environment's Python, and an installer adds what it will.
    record.write_text(record.read_text().replace("sha256=c", "sha256=d") + "paddlepaddle_gpu-2.6.2.dist-info/X,x=y,1\n")
    assert len(first) == 16
    assert digest_in(other, monkeypatch) == first


@pytest.mark.parametrize("change", ["a library built again", "a module edited", "another wheel", "another cuDNN"])
def test_another_build_has_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    first = digest_in(packages(tmp_path / "one", beside="8.9"), monkeypatch)
    library = b"cold" if change == "a library built again" else b"code"
    other = packages(tmp_path / "two", library=library, beside="9.1" if change == "another cuDNN" else "8.9")
    if change == "a module edited":
        (other / "paddle/__init__.py").write_text("commit = 'abcd'\n")
    if change == "another wheel":
        record = other / "paddlepaddle_gpu-2.6.2.dist-info/RECORD"
        record.write_text(record.read_text().replace("sha256=a", "sha256=e"))
    assert digest_in(other, monkeypatch) != first


def test_another_name_of_an_interpreter_is_the_same_build(tmp_path: Path) -> None:
    if not probe("paddle"):
        pytest.skip("Paddle is not installed")
    link = tmp_path / "env"
    link.symlink_to(sys.prefix)
    finder, names = BuildFinder(), (sys.executable, str(link / "bin/python"))
    one, two = (finder.find_identity(FrameworkBuild(each, Framework.PADDLE, "paddlepaddle", "3")) for each in names)
    assert one == two
    assert one.place and one.prefix and len(one.digest) == 16


class NoBuild(BuildFinder):
    def find_build(self, framework: Framework, interpreter: str | None = None) -> FrameworkBuild | str:
        return f"{framework.value} is not there"


def test_the_stamp_is_the_bootstrap_s_own() -> None:
    text = (REQUIREMENTS / "installer.py").read_text(encoding="utf-8")
    assert f'STAMP, OWNED = "{framework_builds._STAMP}"' in text


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
