"""Reads requirements/companions.yaml: the packages that are installed with a framework, by ranges of its versions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from helpers.plan.yaml_file import YamlValue, read_yaml
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework

COMPANIONS = ROOT / "requirements" / "companions.yaml"
_OR = "||"
_GPU = "gpu"


@dataclass(frozen=True)
class Part:
    """Packages without which an environment is complete."""

    # In words.
    name: str
    # Requirements, each with one exact version.
    requirements: tuple[str, ...]
    # The distributions for which it is, by their names in package indexes; empty for all.
    distributions: tuple[str, ...] = ()
    # Whether it is for machines with an NVIDIA GPU alone.
    on_gpu: bool = False
    # A range of versions of the NVIDIA driver; empty for all, and where the driver is not known.
    driver: str = ""
    # The major version of CUDA of the builds that it is for; empty for all, and where a build's version states none.
    cuda: str = ""

    def fit(self, distribution: str, version: Version, has_gpu: bool, driver: str) -> bool:
        # Paddle's own index has 2.6.2.post120 for CUDA 12.0; the plain 2.6.2 is for CUDA 11.8.
        if self.cuda and (version.post or 0) >= 100 and str((version.post or 0) // 10) != self.cuda:
            return False
        if self.distributions and canonicalize_name(distribution) not in self.distributions:
            return False
        if self.on_gpu and not has_gpu:
            return False
        return not self.driver or (bool(driver) and SpecifierSet(self.driver).contains(Version(driver)))


@dataclass(frozen=True)
class Companions:
    """The packages that are installed with the builds of one range of versions."""

    # As in the file: ranges of versions, separated by ``||``.
    versions: str
    why: str
    # Requirements, each with one exact version.
    requirements: tuple[str, ...]
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
    top = read_yaml(path).mapping(optional=[each.value for each in Framework])
    return {Framework(name): tuple(map(_entry, value.sequence())) for name, value in top.items()}


def _entry(value: YamlValue) -> Companions:
    keys = value.mapping(required=("versions", "why", "requirements"), optional=("parts",))
    versions = keys["versions"].text()
    try:
        _ranges(versions)
    except InvalidSpecifier as error:
        raise keys["versions"].refuse("ranges as '>=3,<4 || ==0.0.0'") from error
    return Companions(
        versions,
        keys["why"].text(),
        tuple(map(_exact, keys["requirements"].sequence())),
        tuple(map(_part, keys["parts"].sequence())) if "parts" in keys else (),
    )


def _part(value: YamlValue) -> Part:
    keys = value.mapping(required=("name", "requirements"), optional=("distributions", "machine", "driver", "cuda"))
    driver = keys["driver"].text() if "driver" in keys else ""
    try:
        SpecifierSet(driver)
    except InvalidSpecifier as error:
        raise keys["driver"].refuse("a range as '<525'") from error
    names = keys["distributions"].sequence(1) if "distributions" in keys else []
    return Part(
        keys["name"].text(),
        tuple(map(_exact, keys["requirements"].sequence(1))),
        tuple(canonicalize_name(each.text()) for each in names),
        "machine" in keys and keys["machine"].one_of((_GPU,)) == _GPU,
        driver,
        keys["cuda"].text() if "cuda" in keys else "",
    )


def _ranges(text: str) -> list[SpecifierSet]:
    return [SpecifierSet(each.strip()) for each in text.split(_OR)]


def _exact(value: YamlValue) -> str:
    text = value.text()
    try:
        specifiers = list(Requirement(text).specifier)
    except InvalidRequirement as error:
        raise value.refuse("a requirement, as numpy==2.2.6") from error
    if [each.operator for each in specifiers] != ["=="] or "*" in specifiers[0].version:
        raise value.refuse("one exact version, as numpy==2.2.6")
    return text
