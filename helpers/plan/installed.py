"""Says, before anything is started, which cases this machine can run with the builds that are installed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from helpers.judging.case.evidence import Build
from helpers.machine.devices import Machine, why_not_run
from helpers.machine.drivers import why_build_runs_on_none
from helpers.machine.framework_builds import BuildFinder, FrameworkBuild, find_framework
from helpers.machine.nvml import Gpu
from helpers.plan.case_plan import CPU, SuiteCase, build_label
from helpers.plan.perf_yaml import Config
from helpers.trainers.contract.case import DataSource
from helpers.trainers.contract.errors import ConfigError

BUILD, REFERENCE_BUILD = "--build", "--reference-build"
SAME_BUILD = "the build under test itself"
_NAMED_BY = ("version", "commit")


@dataclass(frozen=True)
class Installed:
    """The machine's cards, perf.yaml's hosts and the frameworks' builds."""

    config: Config
    machine: Machine
    builds: BuildFinder
    references: BuildFinder = field(default_factory=lambda: BuildFinder(named_in=REFERENCE_BUILD))
    # The builds that were named, by side (helpers/session/builds.py).
    named: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # Whether the build under test may be its own reference build, for A/A runs; no option of the command line sets it.
    same_build: bool = False

    def build(self, suite_case: SuiteCase) -> FrameworkBuild | str:
        """The framework's build that would run the case, or why there is none."""
        framework = suite_case.case.framework
        return find_framework(framework, self.config.frameworks[framework], self.builds)

    def reference(self, suite_case: SuiteCase) -> FrameworkBuild | str:
        """The reference build with which a suspected case is confirmed, or why this case has none; empty if none was
        given.

        The build under test cannot be its own reference build: pairs of equal builds would blame the machine for every
        drop.
        """
        if not (named := self._named_reference):
            return ""
        if suite_case.case.framework.value not in named["frameworks"].split():
            return f"the reference build {named['source_text']} is of {named['frameworks'] or 'no framework'}"
        if suite_case.case.nodes > 1:
            return (
                f"{self._reference_option} is of this machine, and the other hosts of a case run the Python that "
                "perf.yaml names for them"
            )
        build = self.references.find_build(suite_case.case.framework, named["interpreter"])
        if isinstance(build, str):
            return build
        return _without_gpu_kernels(suite_case, build) or self._same_as_tested(suite_case, build) or build

    def record(self, build: FrameworkBuild, *, of_reference: bool = False) -> dict[str, str]:
        """The names of a build in results, with the digest of its installed files."""
        finder = self.references if of_reference else self.builds
        named = self.named.get((Build.REFERENCE if of_reference else Build.CANDIDATE).value, {})
        ours = named.get("interpreter") == build.interpreter
        source = {"source": named["source_text"], "environment": named["digest"]} if ours else {}
        return {**build_record(build), "digest": finder.find_identity(build).digest, **source}

    @property
    def _named_reference(self) -> Mapping[str, str]:
        """The named reference build; empty if none was named."""
        return self.named.get(Build.REFERENCE.value, {})

    @property
    def _reference_option(self) -> str:
        """The reference build as the user named it."""
        named = self._named_reference
        return (
            f"builds.reference {named['source_text']}"
            if named["pinned"]
            else f"{REFERENCE_BUILD} {named['source_text']}"
        )

    def why_no_pairs(
        self, suite_case: SuiteCase, reference: Mapping[str, str], recorded: Mapping[str, str] | None
    ) -> str:
        """Why pairs with the reference build would answer nothing, if no digest distinguishes the builds; else empty.

        If both have the same version and commit, and neither is the build with which the entry was ``recorded`` (its
        environment), pairs would compare a build with itself and blame the machine for the drop.
        """
        tested = self.build(suite_case)
        if self.same_build or isinstance(tested, str) or not reference or not recorded:
            return ""
        record = self.record(tested)
        if (record["digest"] and reference["digest"]) or any(record[each] != reference[each] for each in _NAMED_BY):
            return ""
        if all(recorded.get(f"framework_{each}") in ("", None, record[each]) for each in _NAMED_BY):
            return ""
        then = " @".join(filter(None, (recorded.get(f"framework_{each}", "")[:12] for each in _NAMED_BY)))
        return (
            f"{build_label(reference)} and the build under test are alike in version and commit, neither has a digest, "
            f"and the recorded entry is of another, {then}: pairs would compare a build with itself. Name an "
            f"environment that holds {then}"
        )

    def _same_as_tested(self, suite_case: SuiteCase, reference: FrameworkBuild) -> str:
        """What shows that the reference is the build under test; empty if it is another build."""
        tested = self.build(suite_case)
        if self.same_build or isinstance(tested, str):
            return ""
        mine, other = self.builds.find_identity(tested), self.references.find_identity(reference)
        label = build_label(build_record(tested))
        if os.path.realpath(tested.interpreter) == os.path.realpath(reference.interpreter) and not other.prefix:
            return f"{SAME_BUILD}: its interpreter is {tested.interpreter}"
        if other.place and other.place == mine.place:
            return f"{SAME_BUILD}: {label} ({mine.place})"
        if other.digest and other.digest == mine.digest:
            return f"{SAME_BUILD}: {label}, installed once more (digest {mine.digest})"
        return ""

    def check_reference(self, cases: Iterable[SuiteCase]) -> None:
        """Raises ConfigError if a reference build was given that cannot run one of ``cases``.

        The pinned build may be the build under test, and a named one may be of another framework. Then a case has no
        reference build.
        """
        for case in cases:
            found = self.reference(case)
            own = self._named_reference.get("frameworks", "").split()
            pinned_itself = bool(self._named_reference.get("pinned")) and str(found).startswith(SAME_BUILD)
            if case.case.framework.value not in own or pinned_itself:
                continue
            if isinstance(found, str) and found.startswith(SAME_BUILD):
                raise ConfigError(
                    self._reference_option,
                    got=found,
                    expected="another build, one that is known to be good: against itself every drop looks like "
                    "the machine's",
                    remedy="Name the environment of the last release or accepted build, or leave the option out: "
                    "suspects then stay unconfirmed",
                )
            if isinstance(found, str) and found and case.case.nodes == 1:
                raise ConfigError(
                    self._reference_option,
                    got=found,
                    expected=f"a Python interpreter or a virtual environment, with {case.case.framework.value}",
                    remedy="Correct the path, or leave the option out: suspects then stay INCONCLUSIVE",
                )

    def why_not(self, suite_case: SuiteCase) -> str | None:
        """Why the case cannot run here, in one line; None if it can."""
        nodes = self.config.nodes
        if model := next((each for each in suite_case.models if self.machine.cards_of(each)), None):
            return f"this machine's {model.upper()} has this case of its own (-m {model})"
        if reason := why_not_run(suite_case.case, suite_case.target, self.machine, len(nodes.hosts), nodes.described):
            return reason
        build = self.build(suite_case)
        if isinstance(build, str):
            return build
        return (
            _without_gpu_kernels(suite_case, build)
            or self._why_not_on_cards(suite_case, build)
            or self._why_no_dali(suite_case, build)
            or None
        )

    def _why_no_dali(self, suite_case: SuiteCase, build: FrameworkBuild) -> str:
        if not build.no_dali or suite_case.case.read_from not in (DataSource.DALI, DataSource.DALI_CPU):
            return ""
        return f"the case reads through DALI, which {build.interpreter} lacks: {build.no_dali}"

    def _why_not_on_cards(self, suite_case: SuiteCase, build: FrameworkBuild) -> str:
        if suite_case.device == CPU:
            return ""
        stated = self.builds.find_libraries(build)
        cards = [card for card in self.machine.cards_of(suite_case.target) if isinstance(card, Gpu)]
        return why_build_runs_on_none(build, stated, self.machine.driver, cards, self.machine.cuda_driver)


def _without_gpu_kernels(suite_case: SuiteCase, build: FrameworkBuild | str) -> str:
    if isinstance(build, str) or suite_case.device == CPU or not build.for_cpu_alone:
        return ""
    found = f"{build.distribution} {build.version} in {build.interpreter} has no GPU kernels"
    return f"{found}: make env, or make env-NAME of another framework, installs the GPU build"


def build_record(build: FrameworkBuild) -> dict[str, str]:
    """The names of a build: interpreter, distribution, version and commit."""
    named = {key: str(getattr(value, "value", value) or "") for key, value in asdict(build).items()}
    del named["no_dali"]
    return named
