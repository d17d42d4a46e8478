"""The builds of a session by the names that a user gave: the build under test and the reference build."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from helpers.builds.cache import BuildCache
from helpers.builds.making import PreparedBuild, import_build, prepare
from helpers.builds.naming import NONE, parse_build
from helpers.judging.case.evidence import Build
from helpers.machine.framework_builds import BuildFinder, FrameworkBuild
from helpers.plan.case_plan import build_label
from helpers.plan.installed import BUILD, REFERENCE_BUILD
from helpers.plan.perf_yaml import Config
from helpers.session import SuiteOptions
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import FRAMEWORKS

NamedBuilds = Mapping[str, Mapping[str, str]]


def wants_builds(options: SuiteOptions, config: Config) -> bool:
    """Whether a build is named, by an option or as the pinned reference build of perf.yaml."""
    return options.build is not None or _reference_name(options, config) is not None


def named_builds(options: SuiteOptions, config: Config, cache: BuildCache, say: Callable[[str], None]) -> NamedBuilds:
    """The named builds, ready to run, each as plain values: the fields of PreparedBuild, the ``frameworks`` that it
    has, and for the reference build whether perf.yaml has ``pinned`` it.

    Raises ConfigError for a name that means nothing and if both names mean one build, and BuildUnavailable if a build
    cannot be made.
    """
    reference_name = _reference_name(options, config)
    # A name that means nothing is refused before the first environment is made.
    candidate = None if options.build is None else parse_build(options.build, Path.cwd(), config)
    folder = config.path.parent if options.reference_build is None else Path.cwd()
    reference = None if reference_name is None else parse_build(reference_name, folder, config)
    found = {}
    if candidate is not None:
        found[Build.CANDIDATE.value] = _record(prepare(candidate, cache=cache, progress=say, settings=config.builds))
    if reference is not None:
        made = prepare(reference, cache=cache, progress=say, settings=config.builds)
        pinned = "" if options.reference_build is not None else "yes"
        found[Build.REFERENCE.value] = {**_record(made), "pinned": pinned}
        _refuse_same(found, options)
    return found


def with_builds(config: Config, builds: NamedBuilds) -> Config:
    """perf.yaml, with the interpreter of the named build under test for the frameworks that it has."""
    named = builds.get(Build.CANDIDATE.value)
    if named is None:
        return config
    own = named["frameworks"].split()
    found = {
        each: replace(entry, interpreter=named["interpreter"], requirements=None) if each.value in own else entry
        for each, entry in config.frameworks.items()
    }
    return replace(config, frameworks=found)


def refuse_not_importable(
    builds: Iterable[tuple[FrameworkBuild, Mapping[str, str]]], say: Callable[[str], None]
) -> None:
    """Import each build, given with its record, in a process of its own, which takes seconds. Raises BuildUnavailable
    with the import's own error, so that no case is begun with a build that trains nothing."""
    for build, record in builds:
        label = build_label(record)
        say(f"importing {label}")
        import_build(label, build.framework, Path(build.interpreter))


def _reference_name(options: SuiteOptions, config: Config) -> str | None:
    if options.reference_build is not None:
        return None if options.reference_build == NONE else options.reference_build
    return config.builds.reference if options.pinned_reference else None


def _record(build: PreparedBuild) -> dict[str, str]:
    if build.made:
        own = [build.framework.value]
    else:
        finder, interpreter = BuildFinder(), str(build.interpreter)
        known = [each for each in FRAMEWORKS if each.spec.version_file]
        own = [each.value for each in known if not isinstance(finder.find_build(each, interpreter), str)]
    return {**build.to_record(), "frameworks": " ".join(own)}


def _refuse_same(builds: NamedBuilds, options: SuiteOptions) -> None:
    """Raises ConfigError if one build is named twice. Whether two names mean the same files is checked before
    measuring."""
    candidate, reference = builds.get(Build.CANDIDATE.value), builds[Build.REFERENCE.value]
    if candidate is None or options.same_build or reference["pinned"]:
        return
    if candidate["interpreter"] == reference["interpreter"]:
        raise ConfigError(
            f"{BUILD} {candidate['source_text']} and {REFERENCE_BUILD} {reference['source_text']}",
            got=f"one build, {candidate['name']} in {candidate['interpreter']}",
            expected="two: against itself every drop looks like the machine's",
        )


def reference_line(options: SuiteOptions, config: Config) -> str:
    """A line for the header on the reference build."""
    named = options.builds.get(Build.REFERENCE.value)
    if named is None:
        return f"no reference build ({REFERENCE_BUILD}), so a drop cannot be confirmed"
    pinned = f", pinned: {config.builds.reason or 'without a reason'}" if named["pinned"] else ""
    return f"reference build: {named['name']} @{named['commit'][:12]} ({named['source_text']}){pinned}"
