"""Runs uv: resolves the versions that a build needs, makes an empty environment, and installs packages into it.

uv does not read pip's settings, so the caller's index in pip's settings is passed on to uv; uv's own settings
(UV_INDEX_URL, uv.toml) take precedence.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from helpers.builds.naming import BuildUnavailable, Why, without_user
from helpers.trainers.contract.errors import ConfigError

# pip's name of a setting -> uv's name of it, and the separator of several values.
_SETTINGS = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "cert": ("SSL_CERT_FILE", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    # An option, since uv has no variable for it.
    "no-index": ("--no-index", " "),
}
# If the caller has set one of these, uv is configured and pip's settings are not used.
_TOLD_UV = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
# Variables of the caller that would choose another environment or another Python.
_FOREIGN = (
    "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_TARGET",
    "UV_PREFIX", "UV_PROJECT_ENVIRONMENT", "UV_CONSTRAINT", "UV_OVERRIDE", "UV_VENV_SEED", "UV_REQUIRE_HASHES",
)  # fmt: skip
# As pip does: take the best version of all indexes. By default uv takes that of the first index that has the package.
_AS_PIP = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
_LINE = re.compile(r"^(?P<key>[^=]+)='(?P<value>.*)'$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NO_SPACE = ("No space left on device", "Disk quota exceeded", "os error 28", "os error 122")
# Texts in uv's errors, for each reason; the first text that is found decides.
_SIGNS = (
    (Why.WRONG_DIGEST, ("Hash mismatch", "hash mismatch")),
    (Why.WRONG_PYTHON, (
        "no wheels with a matching Python", "is not compatible with the current platform", "Python ABI tag",
        "does not satisfy Python", "is incompatible with the current Python", "no wheels are available with a matching",
    )),
    (Why.NOT_FETCHED, (
        "Failed to fetch", "error sending request", "timed out", "Failed to download", "Could not connect",
        "dns error", "Network is unreachable", "Connection refused", "no network",
    )),
)  # fmt: skip
_MISSING = ("there is no version of", "is available and", "are available and", "was not found in the")
_PREAMBLE = re.compile(r"^(error: |[×╰─▶|:\s]|cause: |No solution found when resolving dependencies)+")
_CONCLUSION = re.compile(r",?( and)? we can conclude that .*$")
_LAST_LINES = 6
# The time limit of uv. Resolving and unpacking gigabytes takes minutes on a slow disk.
_MOST_SECONDS = 3600.0


@dataclass(frozen=True)
class Uv:
    """uv with the caller's settings."""

    program: str
    variables: Mapping[str, str] = field(default_factory=dict)
    # Whether uv uses no index, only folders of wheels.
    no_index: bool = False

    @classmethod
    def of(cls, environ: Mapping[str, str] | None = None, silence_seconds: float = 30.0) -> Uv:
        """uv of the suite's environment. Raises ConfigError if it has none."""
        environ = os.environ if environ is None else environ
        program = Path(sys.executable).parent / "uv"
        found = str(program) if program.exists() else shutil.which("uv")
        if found is None:
            raise ConfigError(
                "builds",
                got=f"no uv beside {sys.executable}",
                expected="the one of requirements/uv.txt, which makes environments",
                remedy="make env installs it",
            )
        kept = {name: value for name, value in environ.items() if name not in _FOREIGN}
        passed_on = {} if any(environ.get(name) for name in _TOLD_UV) else pip_settings(environ)
        own = {
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_NO_PROGRESS": "1",
            "NO_COLOR": "1",
            "UV_HTTP_TIMEOUT": environ.get("UV_HTTP_TIMEOUT", f"{silence_seconds:.0f}"),
            "UV_LINK_MODE": environ.get("UV_LINK_MODE", "hardlink"),
        }
        no_index = passed_on.pop("--no-index", "") != ""
        return cls(found, {**passed_on, **kept, **own}, no_index)

    @property
    def indexes(self) -> str:
        """All settings on which the origin of packages depends, as one text."""
        names = (*(name for name, _ in _SETTINGS.values()), "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX_STRATEGY")
        given = [f"{name}={self.variables[name]}" for name in sorted(names) if self.variables.get(name)]
        return " ".join([*given, *self._no_index])

    @property
    def _no_index(self) -> tuple[str, ...]:
        return ("--no-index",) if self.no_index else ()

    def resolve(self, build: str, requirements: Sequence[str], python: str, *, alone: bool = False) -> tuple[str, ...]:
        """Exact versions with hashes for ``requirements`` and, unless ``alone``, for everything that they need;
        sorted."""
        more = (*self._no_index, *(("--no-deps",) if alone else ()))
        argv = ["pip", "compile", "-", "--python", python, "--generate-hashes", "--no-header", "--no-annotate", *more]
        text = self._run(build, argv, stdin="\n".join(requirements) + "\n")
        joined = re.sub(r"\\\n\s*", "", text)
        return tuple(sorted(line.strip() for line in joined.splitlines() if line.strip() and not line.startswith("#")))

    def make_environment(self, build: str, folder: Path, python: str, keep_open: Sequence[int] = ()) -> None:
        """Make an empty environment that can be moved: its scripts do not depend on its place."""
        # No file of uv's cache is linked into it at this point.
        argv = ["venv", "--quiet", "--no-project", "--relocatable", "--python", python, str(folder)]
        self._run(build, argv, keep_open=keep_open)

    def install(self, build: str, folder: Path, locked: Sequence[str], keep_open: Sequence[int] = ()) -> None:
        """Install exactly these pins, which ``resolve`` returned, into the environment."""
        argv = [
            "pip",
            "install",
            "--quiet",
            "--python",
            str(folder / "bin" / "python"),
            "--no-deps",
            "--require-hashes",
        ]
        # A file, since uv does not accept requirements with hashes of local wheels on standard input.
        file = folder / ".perfgate-requirements.txt"
        try:
            file.write_text("\n".join(locked) + "\n", encoding="utf-8")
        except OSError as error:
            raise BuildUnavailable(build, Why.NO_SPACE, str(error)) from error
        self._run(build, [*argv, *self._no_index, "-r", str(file)], keep_open=keep_open)

    def _run(self, build: str, argv: Sequence[str], stdin: str = "", keep_open: Sequence[int] = ()) -> str:
        command = [self.program, *argv]
        try:
            done = subprocess.run(
                command, env=self.variables, input=stdin, capture_output=True, text=True, errors="replace",
                timeout=_MOST_SECONDS, check=False, pass_fds=tuple(keep_open),
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise BuildUnavailable(build, Why.NOT_INSTALLED, f"no end of uv within {error.timeout:.0f} s") from error
        except OSError as error:
            raise BuildUnavailable(build, Why.NOT_INSTALLED, f"{shlex.join(command[:2])}: {error}") from error
        if done.returncode != 0:
            raise _refusal(build, done.stderr or done.stdout)
        return done.stdout


def pip_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that make uv use the indexes of the caller's pip, from pip's files and variables; empty if it has
    none."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "config", "list"], env={**environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return {}
    if done.returncode != 0:
        return {}
    return uv_variables(done.stdout)


def uv_variables(listed: str) -> dict[str, str]:
    """uv's variables for the output of ``pip config list``. As in pip, a variable takes precedence over a file, and the
    section ``install`` over ``global``."""
    found: dict[str, tuple[int, str]] = {}
    for line in listed.splitlines():
        match = _LINE.match(line.strip())
        section, _, name = match["key"].rpartition(".") if match else ("", "", "")
        rank = {"global": 0, "install": 1, ":env:": 2}.get(section)
        if match is None or rank is None or name not in _SETTINGS:
            continue
        if name not in found or rank > found[name][0]:
            found[name] = (rank, match["value"].replace("\\n", " "))
    chosen = {}
    for name, (_, value) in found.items():
        variable, between = _SETTINGS[name]
        words = value.split()
        if name == "no-index" and value.lower() in ("", "0", "false", "no"):
            continue
        chosen[variable] = between.join(words)
    return {**chosen, **(_AS_PIP if {"UV_DEFAULT_INDEX", "UV_INDEX"} & set(chosen) else {})}


def _refusal(build: str, output: str) -> BuildUnavailable:
    lines = [line.strip() for line in _COLOUR.sub("", output).splitlines() if line.strip()]
    error = _of_lines(build, lines)
    error.output = tuple(map(without_user, lines))
    return error


def _of_lines(build: str, lines: Sequence[str]) -> BuildUnavailable:
    text = " ".join(lines)
    last = without_user(" | ".join(lines[-_LAST_LINES:])) or "no output of uv"
    if any(sign in text for sign in _NO_SPACE):
        return BuildUnavailable(build, Why.NO_SPACE, last, remedy="Free the disk, or call perfgate builds remove")
    why = next((why for why, signs in _SIGNS if any(sign in text for sign in signs)), Why.NOT_INSTALLED)
    missing = why is Why.NOT_INSTALLED and any(sign in text for sign in _MISSING)
    remedy = "Look which versions the index has that uv or pip is configured with" if missing else None
    # Only the cause fits into a message; uv also prints at length what follows from it.
    return BuildUnavailable(build, why, _CONCLUSION.sub("", _PREAMBLE.sub("", last)), remedy=remedy)


def to_json(record: Mapping[str, object]) -> bytes:
    """A note that is kept beside environments, as JSON."""
    return json.dumps(record, indent=1, sort_keys=True).encode()
