"""Runs uv: resolves the versions that a build needs, makes an empty environment, and installs packages into it.

uv does not read pip's settings, so those that lead to packages (requirements/pip_settings.py) are passed on to uv; uv's
own settings (UV_INDEX_URL, uv.toml) take precedence.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from helpers.builds.naming import BuildUnavailable, Why
from helpers.common.inherited import passed_to_installer
from helpers.common.masking import without_secrets
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ConfigError

# The installer's reading of pip's settings. requirements/ holds scripts and is no package.
_PIP = runpy.run_path(str(ROOT / "requirements" / "pip_settings.py"))
# Settings on which the origin of packages depends.
_ORIGINS = (
    "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_INDEX", "UV_INDEX_STRATEGY", "UV_INDEX_URL",
    "UV_INSECURE_HOST", "SSL_CERT_FILE",
)  # fmt: skip
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
    # ``--no-index`` if uv uses only folders of wheels.
    options: tuple[str, ...] = ()

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
        given = passed_to_installer(environ)
        try:
            variables, options = _PIP["for_uv"](_PIP["read"](sys.executable, given), given)
        except _PIP["PipError"] as error:
            raise ConfigError(
                "builds", got=str(error), expected="pip's settings, which lead to packages",
                remedy="correct that setting of pip, or remove it",
            ) from None  # fmt: skip
        unless_given = {"UV_HTTP_TIMEOUT": f"{silence_seconds:.0f}", "UV_LINK_MODE": "hardlink"}
        own = {"UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
        return cls(found, {**unless_given, **variables, **own}, tuple(options))

    @property
    def indexes(self) -> str:
        """All settings on which the origin of packages depends, as one text."""
        given = [f"{name}={self.variables[name]}" for name in sorted(_ORIGINS) if self.variables.get(name)]
        return " ".join([*given, *self.options])

    def resolve(self, build: str, requirements: Sequence[str], python: str, *, alone: bool = False) -> tuple[str, ...]:
        """Exact versions with hashes for ``requirements`` and, unless ``alone``, for everything that they need;
        sorted."""
        more = (*self.options, *(("--no-deps",) if alone else ()))
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
        python = str(folder / "bin" / "python")
        argv = ["pip", "install", "--quiet", "--python", python, "--no-deps", "--require-hashes"]
        # A file, since uv does not accept requirements with hashes of local wheels on standard input.
        file = folder / ".perfgate-requirements.txt"
        try:
            file.write_text("\n".join(locked) + "\n", encoding="utf-8")
        except OSError as error:
            raise BuildUnavailable(build, Why.NO_SPACE, str(error)) from error
        self._run(build, [*argv, *self.options, "-r", str(file)], keep_open=keep_open)

    def _run(self, build: str, argv: Sequence[str], stdin: str = "", keep_open: Sequence[int] = ()) -> str:
        command = [self.program, *argv]
        try:
            done = subprocess.run(
                command, env=self.variables, input=stdin, capture_output=True, text=True, errors="replace",
                timeout=_MOST_SECONDS, check=False, pass_fds=tuple(keep_open),
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise BuildUnavailable(
                build, Why.NOT_INSTALLED, f"no end of uv within {error.timeout:.0f} s", "its packages by then",
                f"Try what hangs: {shlex.join(command[:3])} …; or set another index, or a faster one, for uv or pip",
            ) from error  # fmt: skip
        except OSError as error:
            raise BuildUnavailable(build, Why.NOT_INSTALLED, f"{shlex.join(command[:2])}: {error}") from error
        if done.returncode != 0:
            raise _refusal(build, done.stderr or done.stdout)
        return done.stdout


def _refusal(build: str, output: str) -> BuildUnavailable:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    text = " ".join(lines)
    last = without_secrets(" | ".join(lines[-_LAST_LINES:])) or "no output of uv"
    if any(sign in text for sign in _NO_SPACE):
        error = BuildUnavailable(build, Why.NO_SPACE, last, remedy="Free the disk, or call perfgate builds remove")
    else:
        why = next((why for why, signs in _SIGNS if any(sign in text for sign in signs)), Why.NOT_INSTALLED)
        # Only the cause fits into a message; uv also prints at length what follows from it.
        cause = _CONCLUSION.sub("", _PREAMBLE.sub("", last))
        error = BuildUnavailable(build, why, cause, remedy="Look which versions the index of uv or pip has")
    error.output = tuple(map(without_secrets, lines))
    return error
