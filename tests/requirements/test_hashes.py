"""The digests of the pins: every pin has one, a file with another is refused, and which files the command asks for."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.for_each import for_each
from tests.requirements.scripts import REQUIREMENTS, load

bootstrap: Any = load("bootstrap")
hashes: Any = load("hashes")
FILES = sorted(REQUIREMENTS.glob("*.txt"))


@for_each("path", FILES, ids=lambda path: path.name)
def test_every_pin_has_the_digest_of_its_files_and_the_command_leaves_it_as_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    parts = list(hashes.parts_of(text))
    for pin in hashes.pins_of(text):
        assert pin.hashes, f"{pin.requirement}: requirements/hashes.py finds its digests"
        assert all(len(each) == 64 and set(each) <= set("0123456789abcdef") for each in pin.hashes), pin
    assert "".join(f"{each if isinstance(each, str) else each.text()}\n" for each in parts) == text


def test_the_same_pin_has_the_same_digests_in_every_file() -> None:
    found: dict[str, set[tuple[str, ...]]] = {}
    for path in FILES:
        for pin in hashes.pins_of(path.read_text(encoding="utf-8")):
            found.setdefault(pin.exact, set()).add(pin.hashes)
    assert {pin: digests for pin, digests in found.items() if len(digests) > 1} == {}


# ---- what is installed


def _wheel(folder: Path) -> str:
    """A package of one module as a wheel in ``folder``; its SHA-256."""
    path = folder / "perfgate_pinned-1.0-py3-none-any.whl"
    about = "perfgate_pinned-1.0.dist-info"
    files = {
        "perfgate_pinned.py": "",
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: perfgate-pinned\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{about}/RECORD"])
    with zipfile.ZipFile(path, "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_only_a_file_with_a_digest_of_its_pin_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    right = _wheel(tmp_path)
    for name, value in {"DRY_RUN": "1", "NO_INDEX": "1", "FIND_LINKS": str(tmp_path)}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    said = {}
    for given in ([right], ["0" * 64, right], ["0" * 64], []):
        (tmp_path / "cpu.txt").write_text(hashes.Pin("perfgate-pinned==1.0", tuple(given)).text())
        try:
            bootstrap.install(sys.prefix, str(tmp_path), "cpu")
        except bootstrap.SetUpError:
            said[tuple(given)] = capfd.readouterr().err
        else:
            assert "Would install perfgate-pinned-1.0" in capfd.readouterr().out
    assert list(said) == [("0" * 64,), ()]
    assert right in said["0" * 64,]
    assert "require-hashes" in said[()]


# ---- what the command finds


class Index:
    """Stands in for pip: each package's wheels, as {Python: {least minor version of glibc 2: file name}}."""

    def __init__(self, packages: dict[str, dict[str, dict[int, str]]]) -> None:
        self.packages = packages

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        if arguments[0] == "download":
            return subprocess.CompletedProcess(arguments, 1, "", f"  Expected sha256 0\n  Got        {'5' * 64}\n")
        python = next(each for each in arguments if each.startswith("--python-version=")).partition("=")[2]
        newest = max(int(found[0]) for each in arguments if (found := hashes._GLIBC.findall(each)))
        report = []
        for pin in arguments[arguments.index("--report=-") + 1 :]:
            of_python = self.packages[pin].get(python, {})
            least = max((glibc for glibc in of_python if glibc <= newest), default=None)
            if least is None:
                return subprocess.CompletedProcess(arguments, 1, "", "no matching distribution")
            name = of_python[least]
            digest = hashlib.sha256(name.encode()).hexdigest()
            info = {"url": f"file:///wheels/{name}", "archive_info": {"hashes": {"sha256": digest}}}
            report.append({"metadata": {"name": pin.partition("=")[0]}, "download_info": info})
        return subprocess.CompletedProcess(arguments, 0, json.dumps({"install": report}), "")


PURE = {python: {0: "pure-1-py3-none-any.whl"} for python in hashes.PYTHONS}
BUILT = {
    "3.11": {17: "built-1-cp311-cp311-manylinux_2_17_x86_64.whl", 28: "built-1-cp311-cp311-manylinux_2_28_x86_64.whl"},
    "3.12": {28: "built-1-cp312-cp312-manylinux_2_28_x86_64.whl"},
}


def _found(monkeypatch: pytest.MonkeyPatch, pin: str, **packages: dict[str, dict[int, str]]) -> set[str]:
    monkeypatch.setattr(hashes, "_pip", Index({f"{name}==1": wheels for name, wheels in packages.items()}))
    return set(hashes.Wheels().of(pin))


def test_a_wheel_for_every_python_and_for_old_and_new_systems_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _found(monkeypatch, "pure==1", pure=PURE) == {"pure-1-py3-none-any.whl"}
    assert _found(monkeypatch, "built==1", built=BUILT) == {*BUILT["3.11"].values(), *BUILT["3.12"].values()}


def test_pins_without_digests_get_them_and_named_ones_further_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashes, "_pip", Index({"pure==1": PURE, "source==1": {}, "known==1": PURE}))
    monkeypatch.setattr(hashes, "FOLDER", tmp_path)
    text = (
        '# why\n-r other.txt\npure==1 ; python_version < "3.13"\nsource==1\nknown==1 \\\n    --hash=sha256:' + "a" * 64
    )
    (tmp_path / "set.txt").write_text(text + "\n")
    assert hashes.main([]) == 0
    digest = hashlib.sha256(b"pure-1-py3-none-any.whl").hexdigest()
    lines = (tmp_path / "set.txt").read_text().splitlines()
    assert lines == [
        *("# why", "-r other.txt"),
        *('pure==1 ; python_version < "3.13" \\', f"    --hash=sha256:{digest}"),
        *("source==1 \\", f"    --hash=sha256:{'5' * 64}"),
        *("known==1 \\", f"    --hash=sha256:{'a' * 64}"),
    ]
    assert hashes.main(["known"]) == 0
    more = (tmp_path / "set.txt").read_text().splitlines()
    assert (more[:6], sorted(more[6:])) == (
        lines[:6],
        sorted(["known==1 \\", f"    --hash=sha256:{'a' * 64}", f"    --hash=sha256:{digest} \\"]),
    )
