"""Finds the interpreter that runs a framework, and the build of it that the interpreter has."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from helpers.machine.framework_probe import identity, libraries, probe
from helpers.trainers.contract.frameworks import Framework, spec_of
from helpers.trainers.contract.paths import ROOT

_PROBE_SECONDS = 60


@dataclass(frozen=True)
class FrameworkBuild:
    """A framework that is ready to run."""

    interpreter: str
    framework: Framework
    distribution: str
    version: str
    # Empty where the build does not state it.
    commit: str = ""

    @property
    def for_cpu_alone(self) -> bool:
        """Whether the build has no GPU kernels, so that a GPU case would train on the processor. This is so for
        Paddle's distribution for CPUs, and for a version such as 2.13.0+cpu."""
        return self.distribution == "paddlepaddle" or self.version.endswith("+cpu")


@dataclass(frozen=True)
class BuildIdentity:
    """Which installation a build is (framework_probe.identity). A field is empty where it could not be found out."""

    # The folder of the interpreter's environment.
    prefix: str = ""
    # The folder of the framework's packages.
    place: str = ""
    # A digest over what was installed.
    digest: str = ""


class BuildFinder:
    """Finds builds, and asks each interpreter only once.

    ``root`` is the checkout with ``helpers/trainers``. ``named_in`` is the file or option that names the interpreters;
    where it is empty, that is perf.yaml.
    """

    def __init__(self, root: Path = ROOT, named_in: str = "") -> None:
        self._root = root
        self._named_in = named_in
        self._known: dict[tuple[Framework, str], FrameworkBuild | str] = {}
        self._libraries: dict[tuple[Framework, str], dict[str, str] | str] = {}
        self._identities: dict[tuple[Framework, str], BuildIdentity] = {}

    def find_build(self, framework: Framework, interpreter: str | None = None) -> FrameworkBuild | str:
        """The build, or one line that says why there is none and what to do. With ``interpreter`` None it is looked for
        in the suite's own interpreter.

        The framework is not imported: the metadata of its distribution are read.
        """
        path = interpreter or sys.executable
        key = (framework, path)
        if key not in self._known:
            self._known[key] = self._find(framework, path)
        return self._known[key]

    def find_libraries(self, build: FrameworkBuild) -> dict[str, str] | str:
        """The libraries that the build's interpreter has (framework_probe.libraries), or why it does not say."""
        key = (build.framework, build.interpreter)
        if key not in self._libraries:
            name, executable = build.framework.value, build.interpreter
            own = executable == sys.executable
            self._libraries[key] = libraries(name) if own else _ask(executable, name, "libraries")
        return self._libraries[key]

    def find_identity(self, build: FrameworkBuild) -> BuildIdentity:
        """Which installation the build is; empty where its interpreter does not say. The first call takes up to 1 s."""
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
        if found and set(found) != {"distribution", "version", "commit"}:
            return _no_json(executable, name, self._named_in)
        if not found:
            wanted = " or ".join(spec_of(framework).distributions)
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
