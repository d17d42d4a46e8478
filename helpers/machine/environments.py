"""Finds which environments of frameworks are missing, and builds them with ``requirements/bootstrap.py``."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.machine.frameworks import BuildFinder, FrameworkBuild
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.paths import ROOT

BUILD_OPTION = "--build-envs"
_BOOTSTRAP = Path("requirements") / "bootstrap.py"
# The file that the bootstrap writes last, into an environment that is complete.
_STAMP = ".perfgate-stamp.json"
# So many last lines of a failed build's output are shown: they hold pip's reason.
_LAST_LINES = 5

# Runs a command from the checkout and returns its exit status and output.
Run = Callable[[Sequence[str]], tuple[int, str]]


@dataclass(frozen=True)
class FrameworkConfig:
    """Where perf.yaml says that a framework is."""

    # The absolute path of the Python that has the framework; None is the Python that runs pytest.
    interpreter: str | None = None
    # The requirements from which ``requirements/bootstrap.py`` makes its environment; None where it is the user's own.
    requirements: str | None = None


@dataclass(frozen=True)
class FrameworkEnvironment:
    """An environment that the bootstrap can build."""

    framework: Framework
    folder: Path
    # A name of requirements that the bootstrap knows.
    requirements: str

    @property
    def is_whole(self) -> bool:
        """Whether the bootstrap would leave it as it is. The Python that it was made with may be gone since."""
        return (self.folder / _STAMP).exists() and os.access(self.folder / "bin" / "python", os.X_OK)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments for the bootstrap."""
        return ("--requirements", self.requirements, "--venv", str(self.folder))

    @property
    def command(self) -> str:
        """The command with which a user builds it in the checkout."""
        if self.folder == ROOT / f".venv-{self.requirements}":
            return f"make env-{self.requirements}"
        return " ".join(["python", str(_BOOTSTRAP), *self.arguments])

    def why_missing(self) -> str:
        """What is wrong with it, in one line with the command that builds it."""
        state = "not complete" if self.folder.exists() else "missing"
        return (
            f"the environment of {self.framework.value} is {state} ({self.folder}): {self.command} builds it, "
            f"or pytest perf_tests {BUILD_OPTION}"
        )


def environment_for(framework: Framework, configured: FrameworkConfig) -> FrameworkEnvironment | None:
    """The environment that the bootstrap builds for a framework by perf.yaml; None where it is the user's own."""
    if configured.requirements is None or configured.interpreter is None:
        return None
    return FrameworkEnvironment(framework, Path(configured.interpreter).parents[1], configured.requirements)


def find_framework(framework: Framework, configured: FrameworkConfig, builds: BuildFinder) -> FrameworkBuild | str:
    """The framework's build; or a text that says why there is none and, where its environment is missing, what builds
    that."""
    found = builds.find_build(framework, configured.interpreter)
    environment = environment_for(framework, configured)
    if isinstance(found, str) and environment is not None and not environment.is_whole:
        return environment.why_missing()
    return found


def missing_environments(
    frameworks: Iterable[Framework], configured: Mapping[Framework, FrameworkConfig]
) -> tuple[FrameworkEnvironment, ...]:
    """The environments of ``frameworks`` that can be built and are not complete, each once."""
    found = (environment_for(each, configured[each]) for each in dict.fromkeys(frameworks))
    return tuple(each for each in found if each is not None and not each.is_whole)


def build(
    environment: FrameworkEnvironment,
    say: Callable[[str], None],
    run: Run | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Build an environment, or wait for another session that builds it. Raises LaunchError with the last lines of a
    failed build's output."""
    name = environment.framework.value
    say(f"building the environment of {name} in {environment.folder} (a download; minutes)")
    start = clock()
    code, output = (run or _run)([sys.executable, str(ROOT / _BOOTSTRAP), *environment.arguments])
    if code != 0 or not environment.is_whole:
        last = " | ".join([line.strip() for line in output.splitlines() if line.strip()][-_LAST_LINES:])
        raise LaunchError(
            f"{BUILD_OPTION}: {environment.command}",
            got=f"exit status {code}",
            expected=f"the environment of {name} in {environment.folder}",
            remedy=f"Its last words: {last or 'none'}",
        )
    say(f"built the environment of {name} in {clock() - start:.0f} s")


def build_missing(
    frameworks: Iterable[Framework],
    configured: Mapping[Framework, FrameworkConfig],
    say: Callable[[str], None],
    run: Run | None = None,
) -> None:
    """Build the missing environments of ``frameworks``, one after another. Raises LaunchError at the first that
    fails."""
    for environment in missing_environments(frameworks, configured):
        build(environment, say, run)


def _run(argv: Sequence[str]) -> tuple[int, str]:
    done = subprocess.run(
        argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    return done.returncode, done.stdout
