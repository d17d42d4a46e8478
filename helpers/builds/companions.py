"""Reads requirements/companions.yaml: the packages that are installed with a framework, by ranges of its versions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from helpers.common.records import member_of, one_of
from helpers.plan.yaml_file import Text, read_section, read_yaml
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework

COMPANIONS = ROOT / "requirements" / "companions.yaml"
_OR = "||"
_GPU = "gpu"
_Name = Annotated[str, member_of(Framework)]


@dataclass(frozen=True)
class Part:
    """Packages without which an environment is complete."""

    # In words.
    name: Text
    # Requirements, each with one exact version.
    requirements: Annotated[tuple[Text, ...], Meta(min_length=1)]
    # The distributions for which it is, by their names in package indexes; empty for all.
    distributions: tuple[Text, ...] = ()
    # "gpu" if it is for machines with an NVIDIA GPU alone.
    machine: Annotated[str, one_of(_GPU)] | None = None
    # A range of versions of the NVIDIA driver; empty for all, and where the driver is not known.
    driver: str = ""
    # The major version of CUDA of the builds that it is for; empty for all, and where a build's version states none.
    cuda: str = ""

    def fit(self, distribution: str, version: Version, has_gpu: bool, driver: str) -> bool:
        # Paddle's own index has 2.6.2.post120 for CUDA 12.0; the plain 2.6.2 is for CUDA 11.8.
        if self.cuda and (version.post or 0) >= 100 and str((version.post or 0) // 10) != self.cuda:
            return False
        if self.distributions and canonicalize_name(distribution) not in map(canonicalize_name, self.distributions):
            return False
        if self.machine == _GPU and not has_gpu:
            return False
        return not self.driver or (bool(driver) and SpecifierSet(self.driver).contains(Version(driver)))


@dataclass(frozen=True)
class Companions:
    """The packages that are installed with the builds of one range of versions."""

    # As in the file: ranges of versions, separated by ``||``.
    versions: Text
    why: Text
    # Requirements, each with one exact version.
    requirements: tuple[Text, ...]
    parts: tuple[Part, ...] = ()

    def fit(self, version: Version) -> bool:
        return any(each.contains(version, prereleases=True) for each in _ranges(self.versions))


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
            return replace(entry, parts=tuple({each.name: each for each in reversed(fitting)}.values()))
    known = list(dict.fromkeys(each.versions for each in entries))
    raise ConfigError(
        f"build {distribution} {version}",
        got=f"no line of versions in {path} that it belongs to",
        expected=f"a version of {'; '.join(known) or 'a framework that the file has'}",
        remedy="Check that there is such a version; for a new line of versions, add its packages to the file",
    )


def read_companions(path: Path = COMPANIONS) -> dict[Framework, tuple[Companions, ...]]:
    """All entries of the file. Raises ConfigError if it cannot be read."""
    about = str(path)
    found = {}
    for name, entries in read_section(read_yaml(path), dict[str, list[object]], about).items():
        found[Framework(read_section(name, _Name, about, name))] = tuple(
            _entry(each, about, f"{name}[{index}]") for index, each in enumerate(entries)
        )
    return found


def _entry(value: object, about: str, place: str) -> Companions:
    entry = read_section(value, Companions, about, place)
    try:
        _ranges(entry.versions)
        for part in entry.parts:
            SpecifierSet(part.driver)
    except InvalidSpecifier as error:
        expected = "ranges of versions, as '>=3,<4 || ==0.0.0', and of drivers, as '<525'"
        raise ConfigError(about, field=place, got=str(error), expected=expected) from error
    for requirement in (*entry.requirements, *(each for part in entry.parts for each in part.requirements)):
        if not _is_exact(requirement):
            expected = "one exact version, as numpy==2.2.6"
            raise ConfigError(about, field=f"{place}.requirements", got=requirement, expected=expected)
    return entry


def _ranges(text: str) -> list[SpecifierSet]:
    return [SpecifierSet(each.strip()) for each in text.split(_OR)]


def _is_exact(requirement: str) -> bool:
    try:
        specifiers = list(Requirement(requirement).specifier)
    except InvalidRequirement:
        return False
    return [each.operator for each in specifiers] == ["=="] and "*" not in specifiers[0].version
