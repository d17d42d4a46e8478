"""What this machine can run with what is installed on it, asked before anything is started."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from helpers.case import Framework
from helpers.config import Config
from helpers.devices import Machine, why_not_run
from helpers.environments import find_framework, missing_environments
from helpers.errors import ConfigError
from helpers.launch.frameworks import BuildFinder, FrameworkBuild
from helpers.plan import CPU, SuiteCase, build_label

REFERENCE_OPTION = "--reference-env"


@dataclass(frozen=True)
class Installed:
    """The machine's cards, perf.yaml's hosts and the frameworks' builds; ``reference_env`` is where the good build is,
    a Python interpreter or the folder of a virtual environment. ``to_build``: what perf.yaml says how to build will
    be there before anything is measured."""

    config: Config
    machine: Machine
    builds: BuildFinder
    reference_env: str | None = None
    references: BuildFinder = field(default_factory=lambda: BuildFinder(named_in=REFERENCE_OPTION))
    to_build: bool = False

    def build(self, suite_case: SuiteCase) -> FrameworkBuild | str:
        """The framework's build that would run the case, or why there is none."""
        framework = suite_case.case.framework
        return find_framework(framework, self.config.frameworks[framework], self.builds)

    def reference(self, suite_case: SuiteCase) -> FrameworkBuild | str:
        """The good build to confirm a suspect against, or why this case has none (empty: none was given)."""
        if self.reference_env is None:
            return ""
        if suite_case.case.nodes > 1:
            return (
                f"{REFERENCE_OPTION} is a path of this machine, and the other hosts of a case run the Python that "
                "perf.yaml names for them"
            )
        interpreter = str(_interpreter(Path(self.reference_env)))
        if shutil.which(interpreter) is None:
            return f"{interpreter} is no program that can be started"
        build = self.references.find_build(suite_case.case.framework, interpreter)
        return _without_gpu_kernels(suite_case, build) or build

    def reference_labels(self) -> list[str]:
        """What the reference environment has of each framework, in words."""
        interpreter = str(_interpreter(Path(self.reference_env or "")))
        found = [self.references.find_build(framework, interpreter) for framework in Framework]
        return [build_label(build_record(build)) for build in found if not isinstance(build, str)]

    def check_reference(self, cases: Iterable[SuiteCase]) -> None:
        """Raises ConfigError where a reference build was given and cannot run one of ``cases``."""
        for case in cases:
            found = self.reference(case)
            if isinstance(found, str) and found and case.case.nodes == 1:
                raise ConfigError(
                    f"{REFERENCE_OPTION} {self.reference_env}",
                    got=found,
                    expected=f"a Python interpreter or a virtual environment, with {case.case.framework.value}",
                    remedy="Correct the path, or leave the option out: suspects then stay INCONCLUSIVE",
                )

    def why_not(self, suite_case: SuiteCase) -> str | None:
        """Why the case cannot run here, in one line; None where it can."""
        hosts = len(self.config.nodes.hosts)
        if model := next((each for each in suite_case.models if self.machine.cards_of(each)), None):
            return f"this machine's {model.upper()} has this case of its own (-m {model})"
        if reason := why_not_run(suite_case.case, suite_case.target, self.machine, hosts):
            return reason
        if self.to_build and missing_environments([suite_case.case.framework], self.config.frameworks):
            return None
        build = self.build(suite_case)
        return build if isinstance(build, str) else _without_gpu_kernels(suite_case, build) or None


def _interpreter(path: Path) -> Path:
    """The Python of a virtual environment's folder; any other path is the interpreter itself. Links are kept: a
    virtual environment's Python is one."""
    path = path.expanduser().absolute()
    return path / "bin" / "python" if path.is_dir() else path


def _without_gpu_kernels(suite_case: SuiteCase, build: FrameworkBuild | str) -> str:
    if isinstance(build, str) or suite_case.device == CPU or not build.for_cpu_alone:
        return ""
    return f"{build.distribution} {build.version} in {build.interpreter} has no GPU kernels: install the GPU build"


def build_record(build: FrameworkBuild) -> dict[str, str]:
    """A build as it stands in results."""
    return {key: str(getattr(value, "value", value) or "") for key, value in asdict(build).items()}
