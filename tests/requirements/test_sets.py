"""Which set a machine gets, of what parts it is made, and what the files of pins hold."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.requirements.scripts import REQUIREMENTS, load

sets: Any = load("sets")
V100, H200, P100 = ("Tesla V100-SXM2-32GB", (7, 0)), ("H200", (9, 0)), ("Tesla P100-PCIE-16GB", (6, 0))
A100, NEWEST = ("A100-SXM4-80GB", (8, 0)), ("a card", (12, 1))


@pytest.mark.parametrize(
    ("framework", "cards", "driver", "chosen"),
    [
        ("paddle", [], "", "cpu"),
        ("paddle", [V100, A100], "", "gpu-cuda11"),
        ("paddle", [V100], "450.80.02", "gpu-cuda11"),
        ("paddle", [V100], "450.80.01", None),
        ("paddle", [V100, H200], "", None),
        ("paddle", [P100], "", None),
        ("pytorch", [], "", "pytorch-cpu"),
        ("pytorch", [A100, H200], "580.65.06", "pytorch-gpu"),
        ("pytorch", [V100, H200], "", "pytorch-gpu-cuda12"),
        ("pytorch", [A100], "535.104.05", "pytorch-gpu-cuda12"),
        ("pytorch", [NEWEST], "", "pytorch-gpu"),
        ("pytorch", [V100, NEWEST], "", None),
        ("pytorch", [NEWEST], "570.1", None),
        ("pytorch", [P100], "", None),
        ("tensorflow", [], "", "tensorflow-cpu"),
        ("tensorflow", [P100, NEWEST], "525", "tensorflow-gpu"),
        ("tensorflow", [V100], "440.33", None),
        ("mxnet", [], "440.33", "mxnet-cpu"),
        ("mxnet", [V100, A100], "", "mxnet-gpu"),
        ("mxnet", [V100, H200], "", None),
    ],
)
def test_the_first_set_that_runs_on_every_card_with_the_driver_is_taken_and_never_the_cpu_s(
    framework: str, cards: Sequence[tuple[str, tuple[int, int]]], driver: str, chosen: str | None
) -> None:
    gpus = [sets.Gpu(*card) for card in cards]
    if chosen is None:
        with pytest.raises(sets.SetUpError) as caught:
            sets.choose(framework, gpus, driver)
        assert all(card[0] in str(caught.value) for card in cards)
        assert f"frameworks.{framework}.interpreter" in str(caught.value)
    else:
        assert sets.choose(framework, gpus, driver) == chosen
        assert all((REQUIREMENTS / file).is_file() for part in sets.parts_of(chosen).values() for file in part.files)


@pytest.mark.parametrize(
    ("chosen", "driver", "parts"),
    [
        ("cpu", "", ["suite", "paddle", "dev", "dali-cuda12"]),
        ("gpu-cuda11", "525.60.13", ["suite", "paddle", "dev", "cuda11", "dali-cuda12"]),
        ("gpu-cuda11", "470.256.02", ["suite", "paddle", "dev", "cuda11", "dali-cuda11"]),
    ],
)
def test_a_machine_with_a_card_gets_cuda_s_libraries_and_the_dali_that_its_driver_serves(
    chosen: str, driver: str, parts: list[str]
) -> None:
    assert list(sets.parts_of(chosen, ["dev"], driver)) == parts
    assert all(part.cost for name, part in sets.parts_of(chosen).items() if name != "suite")


# ---- the files


class Pin(NamedTuple):
    requirement: Requirement
    hashes: tuple[str, ...]


def _pins(name: str) -> dict[str, Pin]:
    """The pins of a file, by the names that indexes compare."""
    text = (REQUIREMENTS / name).read_text(encoding="utf-8").replace("\\\n", " ")
    found = {}
    for line in text.splitlines():
        if line and not line.startswith(("#", "-r ")):
            words, *hashes = re.split(r"\s+--hash=sha256:", line.strip())
            requirement = Requirement(words)
            found[canonicalize_name(requirement.name)] = Pin(requirement, tuple(hashes))
    return found


def _versions(name: str) -> dict[str, str]:
    return {package: str(pin.requirement.specifier) for package, pin in _pins(name).items()}


def test_every_pin_is_of_one_version_with_the_digests_of_its_files_and_names_no_registry() -> None:
    known: dict[tuple[str, str], tuple[str, ...]] = {}
    for path in REQUIREMENTS.glob("*.txt"):
        for name, (requirement, hashes) in _pins(path.name).items():
            assert re.fullmatch(r"===?[\w.+]+", str(requirement.specifier)) and requirement.url is None, (path, name)
            assert hashes and all(re.fullmatch("[0-9a-f]{64}", each) for each in hashes), (path, name)
            version = str(requirement.specifier).strip("=")
            assert known.setdefault((name, version), hashes) == hashes, (path, name)
    assert not any("://" in path.read_text(encoding="utf-8") for path in REQUIREMENTS.glob("*.*t"))


def test_what_is_installed_is_what_the_file_beside_it_names() -> None:
    """make pins writes it anew."""

    def named(file: Path) -> dict[str, str]:
        found = _versions(file.name)
        for line in file.read_text(encoding="utf-8").splitlines():
            found.update(named(file.parent / line[3:]) if line.startswith("-r ") else {})
        return found

    for path in REQUIREMENTS.glob("*.in"):
        written = path.with_suffix(".txt")
        if written.exists():
            assert _versions(written.name) == named(path), path
        else:
            makefile = (REQUIREMENTS.parent / "Makefile").read_text(encoding="utf-8")
            assert path.stem in makefile.partition("filter-out ")[2].partition(",")[0].split()


def test_both_builds_of_a_framework_are_of_one_version_and_read_images_with_the_same_code() -> None:
    assert _versions("torch-cpu.txt") == {"torch": "===2.13.0+cpu"}
    # Plain == would also take torch's build for CPUs where there is one.
    assert _versions("pytorch-gpu.txt")["torch"] == "===2.13.0"
    assert _versions("pytorch-gpu-cuda12.txt")["torch"] == "===2.10.0"
    assert _versions("tensorflow-cpu.txt")["tensorflow-cpu"] == _versions("tensorflow-gpu.txt")["tensorflow"]
    assert _versions("mxnet-cpu.txt")["mxnet"] == _versions("mxnet-gpu.txt")["mxnet-cu112"]
    suite = {**_versions("suite.txt"), **_versions("numpy2.txt")}
    for name in ("pytorch-common", "pytorch-gpu", "pytorch-gpu-cuda12", "tensorflow-cpu", "tensorflow-gpu"):
        assert all(_versions(f"{name}.txt")[each] == suite[each] for each in ("numpy", "pillow"))
    fuzz = _versions("fuzz.txt")
    del fuzz["atheris"]
    assert {name: suite[name] for name in fuzz} == fuzz


def test_the_installed_versions_are_the_pinned_ones() -> None:
    """In an environment that bootstrap made, nothing was installed over it since."""
    stamp = Path(sys.prefix) / ".perfgate-stamp.json"
    if not stamp.is_file():
        pytest.skip("these tests run in an environment that requirements/bootstrap.py did not make")
    assert "suite" in json.loads(stamp.read_text())["parts"]
    for file in ("suite.txt", "dataset.txt", "otava.txt", "uv.txt"):
        for name, (requirement, _) in _pins(file).items():
            if requirement.marker is None or requirement.marker.evaluate():
                assert requirement.specifier.contains(importlib.metadata.version(name), prereleases=True), requirement
