"""Finds the build that the interpreter of a framework has, or the command that makes a missing environment."""

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
        self._answers: dict[tuple[str, Framework, str], dict[str, str] | str] = {}

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
        return self._ask("libraries", build.framework, build.interpreter)

    def find_identity(self, build: FrameworkBuild) -> BuildIdentity:
        """The identity of the build's installation; empty if its interpreter does not answer. The first call takes up
        to 1 s."""
        found = self._ask("identity", build.framework, build.interpreter)
        is_known = isinstance(found, dict) and set(found) == {"prefix", "place", "digest"}
        return BuildIdentity(**found) if is_known and isinstance(found, dict) else BuildIdentity()

    def _find(self, framework: Framework, interpreter: str) -> FrameworkBuild | str:
        name = framework.value
        trainer = f"helpers/trainers/{name}/trainer.py"
        if not (self._root / trainer).exists():
            return f"there is no trainer for {name} yet ({trainer})"
        executable = shutil.which(interpreter)
        if executable is None:
            remedy = f"correct {self._named_in or f'frameworks.{name}.interpreter in perf.yaml'}"
            return f"the interpreter of {name} does not exist: {interpreter}; {remedy}"
        found = self._ask("", framework, executable)
        if isinstance(found, str):
            return found
        if not found:
            wanted = " or ".join(framework.spec.distributions)
            remedy = f"install {wanted} there, or name another interpreter in {self._named_in or 'perf.yaml'}"
            # Not resolved: the environment's own name of its Python, a link to another one.
            why = why_missing(str(Path(executable).absolute().parent.parent), name)
            return f"{name} is not installed in {executable}{why and f' ({why})'}: {remedy}"
        if set(found) != {"distribution", "version", "commit", "no_dali"}:
            return self._no_json(executable, name)
        return FrameworkBuild(executable, framework, **found)

    def _ask(self, question: str, framework: Framework, executable: str) -> dict[str, str] | str:
        """The answer of framework_probe in that interpreter, or why there is none."""
        key = (question, framework, executable)
        if key not in self._answers:
            here = {"": probe, "libraries": libraries, "identity": identity}[question]
            if executable == sys.executable:
                self._answers[key] = here(framework.value)
            else:
                self._answers[key] = self._ask_there(question, framework.value, executable)
        return self._answers[key]

    def _ask_there(self, question: str, name: str, executable: str) -> dict[str, str] | str:
        argv = [executable, "-m", "helpers.machine.framework_probe", name, *filter(None, [question])]
        try:
            done = subprocess.run(
                argv, env=passed_on(), cwd=ROOT, capture_output=True, text=True, timeout=_PROBE_SECONDS, check=True
            )
            found = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            told = f"{executable} does not answer which {name} it has within {_PROBE_SECONDS} s"
            return f"{told}: look what it waits for ({executable} -X importtime -c pass)"
        except (OSError, subprocess.SubprocessError) as error:
            detail = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            return f"{executable} does not answer which {name} it has: {detail[-1] if detail else error!r}"
        except ValueError:
            found = None
        is_answer = isinstance(found, dict)
        return {key: str(value) for key, value in found.items()} if is_answer else self._no_json(executable, name)

    def _no_json(self, executable: str, name: str) -> str:
        remedy = f"name a Python in {self._named_in or f'frameworks.{name}.interpreter of perf.yaml'}"
        return f"{executable} printed no JSON when it was asked which {name} it has: {remedy}"


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
    # What starts its cases of one node and several cards; None: its own launcher.
    launcher: str | None = None


def find_framework(framework: Framework, configured: FrameworkConfig, builds: BuildFinder) -> FrameworkBuild | str:
    """The framework's build, or a text that says why there is none and, if its environment is missing or not complete,
    which command builds it."""
    found = builds.find_build(framework, configured.interpreter)
    if not isinstance(found, str) or configured.interpreter is None or configured.requirements is None:
        return found
    folder, name = Path(configured.interpreter).parents[1], configured.requirements
    # The Python with which it was made may be gone.
    if (folder / _STAMP).exists() and os.access(folder / "bin" / "python", os.X_OK):
        return found
    bootstrap = "requirements/bootstrap.py" if not is_installed() else ROOT / "requirements/bootstrap.py"
    command = f"python {bootstrap} --requirements {name} --venv {folder}"
    if folder == ROOT / f".venv-{name}":
        command = f"make env-{name}"
    state = "not complete" if folder.exists() else "missing"
    return f"the environment of {framework.value} is {state} ({folder}): {command} builds it"
