"""Finds the interpreter of a framework and the build that it has, and makes missing environments with
``requirements/bootstrap.py``."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from helpers.common.inherited import passed_on
from helpers.common.own_folder import is_installed
from helpers.machine.framework_probe import identity, libraries, probe, why_missing
from helpers.trainers.contract import ROOT
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
            # Not resolved: the environment's own name of its Python, a link to another one.
            why = why_missing(str(Path(executable).absolute().parent.parent), name)
            return f"{name} is not installed in {executable}{why and f' ({why})'}: {remedy}"
        return FrameworkBuild(executable, framework, **found)


def _ask(executable: str, name: str, *more: str, named_in: str = "") -> dict[str, str] | str:
    argv = [executable, "-m", "helpers.machine.framework_probe", name, *more]
    try:
        done = subprocess.run(
            argv, env=passed_on(), cwd=ROOT, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True
        )
    except subprocess.TimeoutExpired:
        told = f"{executable} does not answer which {name} it has within {_PROBE_SECONDS} s"
        return f"{told}: look what it waits for ({executable} -X importtime -c pass)"
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


_BOOTSTRAP = Path("requirements") / "bootstrap.py"
# The file that the bootstrap writes last, when an environment is complete.
_STAMP = ".perfgate-stamp.json"


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
        bootstrap = ROOT / _BOOTSTRAP if is_installed() else _BOOTSTRAP
        return " ".join(["python", str(bootstrap), *self.arguments])

    def why_missing(self) -> str:
        """One line that says what is wrong with it and which command builds it."""
        state = "not complete" if self.folder.exists() else "missing"
        return f"the environment of {self.framework.value} is {state} ({self.folder}): {self.command} builds it"


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
