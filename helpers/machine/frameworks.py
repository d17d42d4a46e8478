"""Finds the interpreter of a framework and the build that it has, and makes missing environments with
``requirements/bootstrap.py``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.machine.framework_probe import identity, libraries, probe
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.frameworks import Framework

_PROBE_SECONDS = 60


@dataclass(frozen=True)
class FrameworkBuild:
    """An installed build of a framework, with the interpreter that runs it."""

    interpreter: str
    framework: Framework
    distribution: str
    version: str
    # Empty if the build does not state it.
    commit: str = ""
    # Why its interpreter lacks DALI; empty if it has it.
    no_dali: str = ""

    @property
    def for_cpu_alone(self) -> bool:
        """Whether the build has no GPU kernels, so that a GPU case would train on the processor: a distribution for
        CPUs, or a version such as 2.13.0+cpu."""
        return self.distribution in self.framework.spec.for_cpu_alone or self.version.endswith("+cpu")


@dataclass(frozen=True)
class BuildIdentity:
    """Identifies the installation of a build (framework_probe.identity). A field is empty if it is not known."""

    # The folder of the interpreter's environment.
    prefix: str = ""
    # The folder of the framework's packages.
    place: str = ""
    # A digest over the installed files.
    digest: str = ""


class BuildFinder:
    """Finds builds, and asks each interpreter only once.

    ``root`` is the checkout with ``helpers/trainers``. ``named_in`` is the file or option that names the interpreters;
    empty stands for perf.yaml.
    """

    def __init__(self, root: Path = ROOT, named_in: str = "") -> None:
        self._root = root
        self._named_in = named_in
        self._known: dict[tuple[Framework, str], FrameworkBuild | str] = {}
        self._libraries: dict[tuple[Framework, str], dict[str, str] | str] = {}
        self._identities: dict[tuple[Framework, str], BuildIdentity] = {}

    def find_build(self, framework: Framework, interpreter: str | None = None) -> FrameworkBuild | str:
        """The build, or one line that says why there is none and what to do. With ``interpreter`` None the suite's own
        interpreter is searched.

        The framework is not imported; the metadata of its distribution is read.
        """
        path = interpreter or sys.executable
        key = (framework, path)
        if key not in self._known:
            self._known[key] = self._find(framework, path)
        return self._known[key]

    def find_libraries(self, build: FrameworkBuild) -> dict[str, str] | str:
        """The libraries that the build's interpreter has (framework_probe.libraries), or why they are not known."""
        key = (build.framework, build.interpreter)
        if key not in self._libraries:
            name, executable = build.framework.value, build.interpreter
            own = executable == sys.executable
            self._libraries[key] = libraries(name) if own else _ask(executable, name, "libraries")
        return self._libraries[key]

    def find_identity(self, build: FrameworkBuild) -> BuildIdentity:
        """The identity of the build's installation; empty if its interpreter does not answer. The first call takes up
        to 1 s."""
        key = (build.framework, build.interpreter)
        if key not in self._identities:
            name, executable = build.framework.value, build.interpreter
            found = identity(name) if executable == sys.executable else _ask(executable, name, "identity")
            known = isinstance(found, dict) and set(found) == {"prefix", "place", "digest"}
            self._identities[key] = BuildIdentity(**found) if known and isinstance(found, dict) else BuildIdentity()
        return self._identities[key]

    def _find(self, framework: Framework, interpreter: str) -> FrameworkBuild | str:
        name = framework.value
        trainer = f"helpers/trainers/{name}/trainer.py"
        if not (self._root / trainer).exists():
            return f"there is no trainer for {name} yet ({trainer})"
        executable = shutil.which(interpreter)
        if executable is None:
            remedy = f"correct {self._named_in or f'frameworks.{name}.interpreter in perf.yaml'}"
            return f"the interpreter of {name} does not exist: {interpreter}; {remedy}"
        found = probe(name) if executable == sys.executable else _ask(executable, name, named_in=self._named_in)
        if isinstance(found, str):
            return found
        if found and set(found) != {"distribution", "version", "commit", "no_dali"}:
            return _no_json(executable, name, self._named_in)
        if not found:
            wanted = " or ".join(framework.spec.distributions)
            remedy = f"install {wanted} there, or name another interpreter in {self._named_in or 'perf.yaml'}"
            return f"{name} is not installed in {executable}: {remedy}"
        return FrameworkBuild(executable, framework, **found)


def _ask(executable: str, name: str, *more: str, named_in: str = "") -> dict[str, str] | str:
    argv = [executable, "-m", "helpers.machine.framework_probe", name, *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(
            argv, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        detail = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        return f"{executable} does not answer which {name} it has: {detail[-1] if detail else error!r}"
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return _no_json(executable, name, named_in)
    return {key: str(value) for key, value in found.items()}


def _no_json(executable: str, name: str, named_in: str) -> str:
    remedy = f"name a Python in {named_in or f'frameworks.{name}.interpreter of perf.yaml'}"
    return f"{executable} printed no JSON when it was asked which {name} it has: {remedy}"


BUILD_OPTION = "--build-envs"
_BOOTSTRAP = Path("requirements") / "bootstrap.py"
# The file that the bootstrap writes last, when an environment is complete.
_STAMP = ".perfgate-stamp.json"
# How many last lines of a failed build's output are shown; they hold pip's reason.
_LAST_LINES = 5

# Runs a command from the checkout and returns its exit status and output.
Run = Callable[[Sequence[str]], tuple[int, str]]


@dataclass(frozen=True)
class FrameworkConfig:
    """A framework's interpreter, as named in perf.yaml."""

    # The absolute path of the Python that has the framework; None for the Python that runs pytest.
    interpreter: str | None = None
    # The requirements from which ``requirements/bootstrap.py`` makes its environment; None for the user's own
    # environment.
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
        """Whether the environment is complete. It is not if the Python with which it was made is gone."""
        return (self.folder / _STAMP).exists() and os.access(self.folder / "bin" / "python", os.X_OK)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments for the bootstrap."""
        return ("--requirements", self.requirements, "--venv", str(self.folder))

    @property
    def command(self) -> str:
        """The command that builds it, to be called in the checkout."""
        if self.folder == ROOT / f".venv-{self.requirements}":
            return f"make env-{self.requirements}"
        return " ".join(["python", str(_BOOTSTRAP), *self.arguments])

    def why_missing(self) -> str:
        """One line that says what is wrong with it and which command builds it."""
        state = "not complete" if self.folder.exists() else "missing"
        return (
            f"the environment of {self.framework.value} is {state} ({self.folder}): {self.command} builds it, "
            f"or pytest perf_tests {BUILD_OPTION}"
        )


def environment_for(framework: Framework, configured: FrameworkConfig) -> FrameworkEnvironment | None:
    """The environment that the bootstrap builds for a framework according to perf.yaml; None for the user's own
    environment."""
    if configured.requirements is None or configured.interpreter is None:
        return None
    return FrameworkEnvironment(framework, Path(configured.interpreter).parents[1], configured.requirements)


def find_framework(framework: Framework, configured: FrameworkConfig, builds: BuildFinder) -> FrameworkBuild | str:
    """The framework's build, or a text that says why there is none and, if its environment is missing, which command
    builds it."""
    found = builds.find_build(framework, configured.interpreter)
    environment = environment_for(framework, configured)
    if isinstance(found, str) and environment is not None and not environment.is_whole:
        return environment.why_missing()
    return found


def missing_environments(
    frameworks: Iterable[Framework], configured: Mapping[Framework, FrameworkConfig]
) -> tuple[FrameworkEnvironment, ...]:
    """The environments of ``frameworks`` that the bootstrap can build and that are not complete, each once."""
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
            remedy=f"Its last output: {last or 'none'}",
        )
    say(f"built the environment of {name} in {clock() - start:.0f} s")


def build_missing(
    frameworks: Iterable[Framework],
    configured: Mapping[Framework, FrameworkConfig],
    say: Callable[[str], None],
    run: Run | None = None,
) -> None:
    """Build the missing environments of ``frameworks`` one after another. Raises LaunchError when one fails."""
    for environment in missing_environments(frameworks, configured):
        build(environment, say, run)


def _run(argv: Sequence[str]) -> tuple[int, str]:
    done = subprocess.run(
        argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    return done.returncode, done.stdout
