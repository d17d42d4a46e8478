"""The environments that ``requirements/bootstrap.py`` makes for frameworks: which is missing, and how it is built."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.case import Framework
from helpers.config import FrameworkConfig
from helpers.errors import LaunchError
from helpers.launch.frameworks import BuildFinder, FrameworkBuild
from helpers.launch.launcher import ROOT

BUILD_OPTION = "--build-envs"
_BOOTSTRAP = Path("requirements") / "bootstrap.py"
# Written last by the bootstrap, into an environment that is whole.
_STAMP = ".perfgate-stamp.json"
# Of a failed build's output: pip's reason stands in its last lines.
_LAST_LINES = 5

# Runs a command from the checkout and returns its exit status and output.
Run = Callable[[Sequence[str]], tuple[int, str]]


@dataclass(frozen=True)
class FrameworkEnvironment:
    """``folder`` is made of ``requirements``, a name that the bootstrap knows."""

    framework: Framework
    folder: Path
    requirements: str

    @property
    def is_whole(self) -> bool:
        """As the bootstrap sees it: the Python that it was made by may be gone since."""
        return (self.folder / _STAMP).exists() and os.access(self.folder / "bin" / "python", os.X_OK)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The bootstrap's."""
        return ("--requirements", self.requirements, "--venv", str(self.folder))

    @property
    def command(self) -> str:
        """What its user would type, in the checkout."""
        if self.folder == ROOT / f".venv-{self.requirements}":
            return f"make env-{self.requirements}"
        return " ".join(["python", str(_BOOTSTRAP), *self.arguments])

    def why_missing(self) -> str:
        """In one line, with the command that builds it."""
        state = "not complete" if self.folder.exists() else "missing"
        return (
            f"the environment of {self.framework.value} is {state} ({self.folder}): {self.command} builds it, "
            f"or pytest perf_tests {BUILD_OPTION}"
        )


def environment_for(framework: Framework, configured: FrameworkConfig) -> FrameworkEnvironment | None:
    """The environment that perf.yaml says how to build; None where it is the user's own."""
    if configured.requirements is None or configured.interpreter is None:
        return None
    return FrameworkEnvironment(framework, Path(configured.interpreter).parents[1], configured.requirements)


def find_framework(framework: Framework, configured: FrameworkConfig, builds: BuildFinder) -> FrameworkBuild | str:
    """The framework's build, or why there is none and, where its environment is missing, what builds that."""
    found = builds.find_build(framework, configured.interpreter)
    environment = environment_for(framework, configured)
    if isinstance(found, str) and environment is not None and not environment.is_whole:
        return environment.why_missing()
    return found


def missing_environments(
    frameworks: Iterable[Framework], configured: Mapping[Framework, FrameworkConfig]
) -> tuple[FrameworkEnvironment, ...]:
    """Those of ``frameworks`` that can be built and are not there, each once."""
    found = (environment_for(each, configured[each]) for each in dict.fromkeys(frameworks))
    return tuple(each for each in found if each is not None and not each.is_whole)


def build(
    environment: FrameworkEnvironment,
    say: Callable[[str], None],
    run: Run | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Build it, or wait for another session that does. Raises LaunchError with the last words of a failed build."""
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
    """Build what of ``frameworks`` is missing, one after another. Raises LaunchError at the first that fails."""
    for environment in missing_environments(frameworks, configured):
        build(environment, say, run)


def _run(argv: Sequence[str]) -> tuple[int, str]:
    done = subprocess.run(
        argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    return done.returncode, done.stdout
