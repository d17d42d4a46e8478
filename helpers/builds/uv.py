"""Runs uv: which versions a build needs, an empty environment, and what is put into it.

uv does not read pip's settings, so a caller's index in them is passed on; its own (UV_INDEX_URL, uv.toml) come first.
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

# What pip calls a setting -> what uv calls it, and what separates several values of it there.
_SETTINGS = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "cert": ("SSL_CERT_FILE", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    # uv has no variable for it, only an option.
    "no-index": ("--no-index", " "),
}
# A caller that sets one of these has configured uv itself.
_TOLD_UV = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
# They name another environment, or other Pythons, than the ones that are meant.
_FOREIGN = (
    "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "UV_PYTHON", "UV_SYSTEM_PYTHON", "UV_TARGET",
    "UV_PREFIX", "UV_PROJECT_ENVIRONMENT", "UV_CONSTRAINT", "UV_OVERRIDE", "UV_VENV_SEED", "UV_REQUIRE_HASHES",
)  # fmt: skip
# pip takes the best version of all its indexes, uv that of the first index that has the package.
_AS_PIP = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
_LINE = re.compile(r"^(?P<key>[^=]+)='(?P<value>.*)'$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NO_SPACE = ("No space left on device", "Disk quota exceeded", "os error 28", "os error 122")
# What uv's errors say, by what is wrong; the first that is found counts.
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
# Resolving and unpacking gigabytes takes minutes on a slow disk.
_MOST_SECONDS = 3600.0


@dataclass(frozen=True)
class Uv:
    """uv with the caller's settings."""

    program: str
    variables: Mapping[str, str] = field(default_factory=dict)
    # Whether no index is asked, only folders of wheels.
    no_index: bool = False

    @classmethod
    def of(cls, environ: Mapping[str, str] | None = None, silence_seconds: float = 30.0) -> Uv:
        """uv of this environment. Raises ConfigError where it has none."""
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
        """What decides where packages come from, as one text."""
        names = (*(name for name, _ in _SETTINGS.values()), "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_INDEX_STRATEGY")
        given = [f"{name}={self.variables[name]}" for name in sorted(names) if self.variables.get(name)]
        return " ".join([*given, *self._no_index])

    @property
    def _no_index(self) -> tuple[str, ...]:
        return ("--no-index",) if self.no_index else ()

    def resolve(self, build: str, requirements: Sequence[str], python: str, *, alone: bool = False) -> tuple[str, ...]:
        """Exact versions with their hashes for ``requirements`` and, unless ``alone``, all that they need, sorted."""
        more = (*self._no_index, *(("--no-deps",) if alone else ()))
        argv = ["pip", "compile", "-", "--python", python, "--generate-hashes", "--no-header", "--no-annotate", *more]
        text = self._run(build, argv, stdin="\n".join(requirements) + "\n")
        joined = re.sub(r"\\\n\s*", "", text)
        return tuple(sorted(line.strip() for line in joined.splitlines() if line.strip() and not line.startswith("#")))

    def make_environment(self, build: str, folder: Path, python: str, keep_open: Sequence[int] = ()) -> None:
        """An empty environment whose scripts are right wherever it is moved to."""
        # uv lays no file of its cache into it yet.
        argv = ["venv", "--quiet", "--no-project", "--relocatable", "--python", python, str(folder)]
        self._run(build, argv, keep_open=keep_open)

    def install(self, build: str, folder: Path, locked: Sequence[str], keep_open: Sequence[int] = ()) -> None:
        """Put exactly these pins, of ``resolve``, into the environment."""
        argv = [
            "pip",
            "install",
            "--quiet",
            "--python",
            str(folder / "bin" / "python"),
            "--no-deps",
            "--require-hashes",
        ]
        # Not from standard input, which uv does not take for requirements with hashes of local wheels.
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
    """uv's variables for the indexes that the caller's pip uses, from its files and variables; empty without any."""
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
    """uv's variables for what ``pip config list`` printed. A variable comes before a file, and ``install``'s section
    before ``global``'s, as in pip."""
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
    text = " ".join(lines)
    last = without_user(" | ".join(lines[-_LAST_LINES:])) or "no word of uv"
    if any(sign in text for sign in _NO_SPACE):
        return BuildUnavailable(build, Why.NO_SPACE, last, remedy="Free the disk, or call perfgate builds remove")
    why = next((why for why, signs in _SIGNS if any(sign in text for sign in signs)), Why.NOT_INSTALLED)
    missing = why is Why.NOT_INSTALLED and any(sign in text for sign in _MISSING)
    remedy = "Look which versions the index has that uv or pip is configured with" if missing else None
    # A message has room for the cause, and uv says at length what follows from it.
    return BuildUnavailable(build, why, _CONCLUSION.sub("", _PREAMBLE.sub("", last)), remedy=remedy)


def to_json(record: Mapping[str, object]) -> bytes:
    """A note beside environments, as bytes of JSON."""
    return json.dumps(record, indent=1, sort_keys=True).encode()
