"""The ordered builds of a search for the first bad build: lines of a file, commits of git rev-list, or the releases in
an index."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_version
from packaging.version import InvalidVersion, Version

from helpers.builds.naming import (
    COMMIT,
    BuildSource,
    BuildUnavailable,
    Why,
    anchored,
    exact_version,
    parse_build,
)
from helpers.builds.uv import Uv
from helpers.plan.perf_yaml import BuildsConfig, Config
from helpers.trainers.contract.errors import ConfigError

# The most builds of a search. More means that the file is probably another one.
MOST_BUILDS = 10_000
_FULL_COMMIT = re.compile(r"[0-9a-fA-F]{4,40}", re.ASCII)
# uv's words where the index has the package, in other versions than those that were asked for.
_ONLY, _AVAILABLE = re.compile(r"\bonly "), re.compile(r" (is|are) available\b")
_NO_VERSION = re.compile(r"\bno versions? of\b")

# Returns the newest version that a requirement allows; empty if it allows none.
Newest = Callable[[str], str]


def _has_others(words: str) -> bool:
    """Whether uv says that the index has the package in other versions; one pattern for both would be quadratic."""
    found = ((_ONLY.search(line), line) for line in words.splitlines())
    return bool(_NO_VERSION.search(words)) or any(
        only and _AVAILABLE.search(line, only.end() - 1) for only, line in found
    )


@dataclass(frozen=True)
class BuildSeries:
    """The names of builds, from the good build to the bad build, both included."""

    builds: tuple[str, ...]
    # How many builds of the list are before the good build or after the bad build.
    left_out: int = 0


def series_of_lines(
    text: str, about: str, good: str, bad: str, root: Path, config: Config, *, commits: bool = False
) -> BuildSeries:
    """The builds of a file, one on each line, oldest first. Empty lines and lines that begin with # are ignored.

    With ``commits`` the lines are commits as printed by ``git rev-list --reverse GOOD..BAD``. As this does not print
    GOOD, the good build is put first if it is missing. Raises ConfigError if a line does not name a build, if a build
    occurs twice, if the good or the bad build is missing, and if the bad build comes before the good one.
    """
    named: list[tuple[str, int]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if (name := line.strip()) and not name.startswith("#"):
            named.append((_commit(name, about, number) if commits else name, number))
    if len(named) > MOST_BUILDS:
        raise ConfigError(about, got=f"{len(named)} builds", expected=f"at most {MOST_BUILDS}")
    ends = [parse_build(each, root, config) for each in (good, bad)]
    _refuse_same(*ends)
    sources = [_parsed(name, f"{about}, line {number}", root, config) for name, number in named]
    if commits and not any(_same(each, ends[0]) for each in sources):
        sources.insert(0, ends[0])
        named.insert(0, (good, 0))
    _refuse_twice(sources, [number for _, number in named], about)
    places = [_place(end, sources, about, option) for end, option in zip(ends, ("--good", "--bad"), strict=True)]
    if places[0] > places[1]:
        raise _exchanged(good, bad, f"{about} has {bad} before {good}")
    chosen = named[places[0] : places[1] + 1]
    builds = [anchored(name, root) or name for name, _ in chosen]
    return BuildSeries(tuple(builds), len(named) - len(chosen))


def series_of_releases(
    good: str,
    bad: str,
    root: Path,
    config: Config,
    newest: Newest | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> BuildSeries:
    """All releases of a distribution from one exact requirement to a later one, in the index for which uv is
    configured.

    Raises ConfigError unless they are two exact requirements of one distribution, the older one first. Raises
    BuildUnavailable if the index does not answer.
    """
    ends = [parse_build(each, root, config) for each in (good, bad)]
    _refuse_same(*ends)
    names, versions = {each.distribution for each in ends}, [_exact(each) for each in ends]
    if len(names) > 1 or None in versions:
        raise ConfigError(
            f"--good {good} and --bad {bad}",
            got="no list of the builds between them",
            expected="two releases of one distribution (paddlepaddle==3.0.0), or --builds FILE, or --commits FILE",
        )
    name = names.pop()
    first, last = (each for each in versions if each is not None)
    if first > last:
        raise _exchanged(good, bad, f"{bad} is the older release")
    newest = newest or newest_of_index(config.builds)
    say(f"asking the index for the releases from {good} to {bad}")
    found = [last]
    while version := newest(f"{name}>{first},<{found[-1]}"):
        found.append(Version(version))
        if len(found) > MOST_BUILDS or not first < found[-1] < found[-2]:
            raise ConfigError(f"releases of {name}", got=version, expected=f"one between {first} and {found[-2]}")
    return BuildSeries(tuple(f"{name}=={version}" for version in (first, *reversed(found))))


def newest_of_index(settings: BuildsConfig) -> Newest:
    """A function that asks the index of the caller's uv or pip for the newest version that can be installed on the
    Python of perf.yaml."""
    uv = Uv.of(silence_seconds=settings.silence_seconds)

    def newest(requirement: str) -> str:
        name = Requirement(requirement).name
        try:
            locked = uv.resolve(requirement, [requirement], settings.python or sys.executable, alone=True)
        except BuildUnavailable as error:
            if error.kind is not Why.NOT_FETCHED and _has_others(str(error)):
                return ""
            raise
        pinned = next((line for line in locked if line.startswith(f"{name}==")), "")
        return pinned.partition("==")[2].split(" ")[0]

    return newest


def _commit(line: str, about: str, number: int) -> str:
    sha = line.split()[0].removeprefix(COMMIT)
    if not _FULL_COMMIT.fullmatch(sha):
        raise ConfigError(f"{about}, line {number}", got=line, expected="a commit, as git rev-list prints it")
    return COMMIT + sha


def _parsed(name: str, about: str, root: Path, config: Config) -> BuildSource:
    try:
        return parse_build(name, root, config)
    except ConfigError as error:
        raise ConfigError(f"{about}: {error}") from error


def _exact(source: BuildSource) -> Version | None:
    try:
        return Version(exact_version(source.requirement)) if source.requirement else None
    except InvalidVersion:
        return None


def _refuse_same(good: BuildSource, bad: BuildSource) -> None:
    if _same(good, bad):
        got = f"{good.text} and {bad.text}, which is one build"
        raise ConfigError("--good and --bad", got=got, expected="two builds")


def _exchanged(good: str, bad: str, why: str) -> ConfigError:
    expected, remedy = "the good build, which is older, before the bad one", "Exchange them"
    return ConfigError(f"--good {good} --bad {bad}", got=why, expected=expected, remedy=remedy)


def _refuse_twice(sources: Sequence[BuildSource], lines: Sequence[int], about: str) -> None:
    seen: dict[object, int] = {}
    for source, line in zip(sources, lines, strict=True):
        first = seen.setdefault(_key(source), line)
        if first != line:
            got = f"{source.text} in line {first} and in line {line}"
            raise ConfigError(about, got=got, expected="every build once")


def _place(end: BuildSource, sources: Sequence[BuildSource], about: str, option: str) -> int:
    places = [place for place, each in enumerate(sources) if _same(each, end)]
    if len(places) != 1:
        raise ConfigError(
            f"{option} {end.text}",
            got=f"{len(places)} such builds in {about}, among {len(sources)}",
            expected="one: the good build and the bad one are lines of the list too, by the same names",
        )
    return places[0]


def _same(one: BuildSource, other: BuildSource) -> bool:
    if one.commit and other.commit:
        return one.commit.startswith(other.commit) or other.commit.startswith(one.commit)
    return _key(one) == _key(other)


def _key(source: BuildSource) -> tuple[str, ...]:
    """A key that is equal for two names of the same build, as far as names show it."""
    if source.commit:
        return (COMMIT, source.commit)
    if (version := _exact(source)) is not None:
        return (source.distribution, canonicalize_version(version))
    # Only the folder is resolved, since an environment's Python is a link to the Python with which it was made.
    path = "" if source.path is None else str(source.path.parent.resolve() / source.path.name)
    return (source.requirement, source.url, path)
