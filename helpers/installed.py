"""What this machine can run with what is installed on it, asked before anything is started."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from helpers.config import Config
from helpers.devices import Machine, why_not_run
from helpers.launch.frameworks import BuildFinder, FrameworkBuild
from helpers.plan import CPU, SuiteCase

# The distribution without GPU kernels: it would train a GPU case on the processor.
_CPU_DISTRIBUTION = "paddlepaddle"


@dataclass(frozen=True)
class Installed:
    """The machine's cards, perf.yaml's hosts and the frameworks' builds."""

    config: Config
    machine: Machine
    builds: BuildFinder

    def build(self, suite_case: SuiteCase) -> FrameworkBuild | str:
        """The framework's build that would run the case, or why there is none."""
        framework = suite_case.case.framework
        return self.builds.find_build(framework, self.config.frameworks[framework].interpreter)

    def why_not(self, suite_case: SuiteCase) -> str | None:
        """Why the case cannot run here, in one line; None where it can."""
        hosts = len(self.config.nodes.hosts)
        if reason := why_not_run(suite_case.case, suite_case.target, self.machine, hosts):
            return reason
        build = self.build(suite_case)
        if isinstance(build, str):
            return build
        if suite_case.device != CPU and build.distribution == _CPU_DISTRIBUTION:
            return (
                f"{build.distribution} {build.version} in {build.interpreter} has no GPU kernels: install the GPU build"
            )
        return None


def build_record(build: FrameworkBuild) -> dict[str, str]:
    """A build as it stands in results."""
    return {key: str(getattr(value, "value", value) or "") for key, value in asdict(build).items()}
