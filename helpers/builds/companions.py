"""Reads requirements/companions.yaml: the packages that are installed with a framework, by ranges of its versions."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework

COMPANIONS = ROOT / "requirements" / "companions.yaml"


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    # Each with one exact version.
    requirements: tuple[str, ...]

    def __post_init__(self) -> None:
        for text in self.requirements:
            if [each.operator for each in Requirement(text).specifier] != ["=="] or "*" in text:
                raise ValueError(f"{text}: expected one exact version, as numpy==2.2.6")


class OptionalPackages(_Entry, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Packages without which an environment is complete."""

    # In words.
    name: str
    # The distributions for which it is, by their names in package indexes; empty for all.
    distributions: tuple[str, ...] = ()
    # ``gpu`` if it is for machines with an NVIDIA GPU alone.
    machine: Literal["gpu", ""] = ""
    # A range of versions of the NVIDIA driver; empty for all, and where the driver is not known.
    driver: str = ""
    # The major version of CUDA of the builds that it is for; empty for all, and where a build's version states none.
    cuda: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        SpecifierSet(self.driver)

    def fit(self, distribution: str, version: Version, has_gpu: bool, driver: str) -> bool:
        # Paddle's own index has 2.6.2.post120 for CUDA 12.0; the plain 2.6.2 is for CUDA 11.8.
        if self.cuda and (version.post or 0) >= 100 and str((version.post or 0) // 10) != self.cuda:
            return False
        if self.distributions and canonicalize_name(distribution) not in self.distributions:
            return False
        if self.machine and not has_gpu:
            return False
        return not self.driver or (bool(driver) and SpecifierSet(self.driver).contains(Version(driver)))


class Companions(_Entry, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The packages that are installed with the builds of one range of versions."""

    # Ranges of versions, separated by ``||``.
    versions: str
    why: str
    parts: tuple[OptionalPackages, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        self.fit(Version("0"))

    def fit(self, version: Version) -> bool:
        ranges = [SpecifierSet(each.strip()) for each in self.versions.split("||")]
        return any(each.contains(version, prereleases=True) for each in ranges)


def companions_for(
    framework: Framework, distribution: str, version: str, has_gpu: bool, driver: str = "", path: Path = COMPANIONS
) -> Companions:
    """The first entry of the file that fits, with the parts that fit; ``has_gpu`` says whether the machine has an
    NVIDIA GPU, ``driver`` is the version of its driver if it is known. Raises ConfigError if the file cannot be read,
    and if no entry fits."""
    entries = read_companions(path).get(framework, ())
    for entry in entries:
        if entry.fit(Version(version)):
            # Of each name the first: the last one that is put into the mapping.
            fitting = [each for each in entry.parts if each.fit(distribution, Version(version), has_gpu, driver)]
            parts = tuple({each.name: each for each in reversed(fitting)}.values())
            return msgspec.structs.replace(entry, parts=parts)
    known = list(dict.fromkeys(each.versions for each in entries))
    raise ConfigError(
        f"build {distribution} {version}",
        got=f"no line of versions in {path} that it belongs to",
        expected=f"a version of {'; '.join(known) or 'a framework that the file has'}",
        remedy="Check that there is such a version; for a new line of versions, add its packages to the file",
    )


def read_companions(path: Path = COMPANIONS) -> dict[Framework, tuple[Companions, ...]]:
    """All entries of the file. Raises ConfigError if it cannot be read."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
        return msgspec.convert(found, dict[Framework, tuple[Companions, ...]])
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise ConfigError(str(path), got=str(error), expected="the packages beside each line of versions") from error
