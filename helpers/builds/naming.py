"""Parses the names by which a user may call a build: an environment, a Python, a wheel, a requirement, or a commit.

Nothing is downloaded or made here.
"""

from __future__ import annotations

import enum
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from helpers.common.masking import without_password, without_secrets
from helpers.plan.perf_yaml import COMMIT_FIELD, Config
from helpers.trainers.contract.errors import ConfigError, SuiteError
from helpers.trainers.contract.frameworks import FRAMEWORKS, Framework

COMMIT = "commit:"
# The name for no build: --reference-build none ignores the build that perf.yaml pins.
NONE = "none"
NAMES = (
    "a virtual environment's folder, a Python, a wheel's path or URL (with #sha256=…), a requirement "
    "(paddlepaddle==3.2.2), or commit:SHA"
)
_SHA256 = re.compile(r"sha256=([0-9a-f]{64})", re.ASCII)
_COMMIT = re.compile(r"[0-9a-fA-F]{4,40}", re.ASCII)
_HOST = re.compile(rb"[A-Za-z0-9_.:-]+")


class Why(enum.Enum):
    """Why a build is not available. Such a build is never judged, so it cannot count as slow."""

    NOT_FETCHED = "cannot be fetched"
    WRONG_DIGEST = "wrong digest"
    WRONG_PYTHON = "wrong Python"
    NOT_INSTALLED = "cannot be installed"
    NO_FRAMEWORK = "has no framework"
    NOT_IMPORTED = "cannot be imported"
    LACKS_FEATURE = "lacks a feature"
    NO_PROGRAM = "does not build a program"
    BAD_COMPANION = "stands beside a package that does not fit it"
    NO_SPACE = "no space"


class BuildUnavailable(SuiteError):
    """A build cannot be used here; ``kind`` is the reason."""

    def __init__(self, build: str, kind: Why, got: str, expected: str | None = None, remedy: str | None = None) -> None:
        self.kind = kind
        # All that the installer said, a line each; empty if it was not asked.
        self.output: tuple[str, ...] = ()
        super().__init__(f"build {build} {_is(kind)}", got=without_secrets(got), expected=expected, remedy=remedy)


def _is(kind: Why) -> str:
    if kind in (Why.WRONG_DIGEST, Why.WRONG_PYTHON):
        return f"has the {kind.value}"
    return "finds no space" if kind is Why.NO_SPACE else kind.value


@dataclass(frozen=True)
class BuildSource:
    """A build by its name. Only the name is checked."""

    # The name as the user gave it, without a password.
    text: str
    # The path of the environment's Python, or of the wheel; None for the other kinds.
    path: Path | None = None
    # The address of the wheel, with user, password or signature.
    url: str = ""
    # The SHA-256 that the wheel must have, 64 hexadecimal digits; empty if none was given.
    sha256: str = ""
    # ``paddlepaddle==3.2.2``.
    requirement: str = ""
    commit: str = ""
    # None for an environment, which may have any framework.
    framework: Framework | None = None
    # The distribution, by its name in package indexes; empty for an environment.
    distribution: str = ""

    @property
    def is_made(self) -> bool:
        """Whether the suite makes an environment for it."""
        return bool(self.distribution)


def parse_build(text: str, root: Path, config: Config) -> BuildSource:
    """The build that ``text`` names; relative paths start at ``root``. Raises ConfigError if it does not name a
    build."""
    if not text.strip() or not text.isprintable():
        raise _refused(text, text or "nothing")
    if text.startswith(COMMIT):
        return _commit(text, config)
    if "://" in text:
        return _url(text)
    try:
        return _path_or_requirement(text, root)
    except (OSError, RuntimeError) as error:
        # A home that nobody has, a name that is too long, a folder that may not be read.
        raise _refused(text, str(error)) from error


def _path_or_requirement(text: str, root: Path) -> BuildSource:
    name, _, fragment = text.partition("#")
    path = root / Path(name).expanduser()
    if name.endswith(".whl"):
        if not path.is_file():
            raise _refused(text, f"no file {path}")
        framework, distribution = _of_wheel(text, path.name)
        return BuildSource(text, path, sha256=_digest(text, fragment), framework=framework, distribution=distribution)
    if path.is_dir():
        python = path.absolute() / "bin" / "python"
        if not python.exists():
            raise _refused(text, f"a folder without bin/python, {path}")
        return BuildSource(text, python)
    if path.exists():
        if not path.is_file() or not os.access(path, os.X_OK):
            raise _refused(text, f"no program that can be run, {path}")
        return BuildSource(text, path.absolute())
    return _requirement(text)


def anchored(text: str | None, folder: Path) -> str | None:
    """A build's name that is valid in every folder: a relative path is made absolute, starting at ``folder``."""
    if text is None or "://" in text or text.startswith(COMMIT) or text == NONE:
        return text
    name, sign, fragment = text.partition("#")
    try:
        path = folder / Path(name).expanduser()
        if not name or not path.exists():
            return text
        # The last part is not resolved: it may be an environment's link to its Python, which names the environment.
        path = path.resolve() if path.name == ".." else path.parent.resolve() / path.name
        return f"{path}{sign}{fragment}"
    except (OSError, RuntimeError, ValueError):
        return text


def framework_of(distribution: str) -> Framework | None:
    """The framework of a distribution; None for any other distribution."""
    name = canonicalize_name(distribution)
    known = ((each, spec.distributions) for each, spec in FRAMEWORKS.items())
    return next((each for each, names in known if name in names), None)


def exact_version(requirement: str) -> str:
    """The version of a requirement that pins a single one; else empty."""
    specifiers = list(Requirement(requirement).specifier)
    alone = len(specifiers) == 1 and specifiers[0].operator in ("==", "===") and "*" not in specifiers[0].version
    return specifiers[0].version if alone else ""


def _commit(text: str, config: Config) -> BuildSource:
    sha, _, fragment = text.removeprefix(COMMIT).partition("#")
    if not _COMMIT.fullmatch(sha):
        raise _refused(text, sha, "4 to 40 hexadecimal digits after commit:")
    template = config.builds.commit_url
    if template is None:
        raise ConfigError(
            f"build {text}",
            got=f"no {COMMIT_FIELD} in {config.path}",
            expected="the address of a commit's wheel, with {commit} in it",
            remedy=f"Set {COMMIT_FIELD}: https://…/{{commit}}/paddlepaddle-0.0.0-cp311-cp311-linux_x86_64.whl",
        )
    address = template.replace("{commit}", sha) + (f"#{fragment}" if fragment else "")
    named = _url(address) if "://" in address else parse_build(address, config.path.parent, config)
    if not named.is_made:
        raise _refused(text, address, "a wheel's path or address, or a requirement")
    return replace(named, text=text, commit=sha.lower())


def _url(text: str) -> BuildSource:
    address, _, fragment = text.partition("#")
    shown = without_password(text)
    try:
        parts = urlsplit(address)
        _ = parts.port
        # urllib decodes a host's percent signs, and Python's codec refuses what no name server could be asked for.
        if not _HOST.fullmatch(unquote(parts.hostname or "x").encode("idna")):
            raise ValueError(f"no host is named {parts.hostname}")
    except ValueError as error:
        raise _refused(shown, str(error), "a wheel's URL") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _refused(shown, parts.scheme, "http or https, or a path")
    framework, distribution = _of_wheel(shown, parts.path.rpartition("/")[2].replace("%2B", "+").replace("%2b", "+"))
    return BuildSource(
        shown, url=address, sha256=_digest(shown, fragment), framework=framework,
        distribution=distribution,
    )  # fmt: skip


def _requirement(text: str) -> BuildSource:
    try:
        wanted = Requirement(text)
    except InvalidRequirement as error:
        raise _refused(text, f"nothing there, and no requirement ({str(error).splitlines()[0]})") from error
    framework = framework_of(wanted.name)
    if framework is None or wanted.url or wanted.marker or wanted.extras:
        trained = ", ".join(name for each in Framework for name in each.spec.distributions)
        got = f"nothing there, and the requirement {text}"
        raise _refused(text, got, f"{NAMES}; the distributions are {trained}")
    return BuildSource(
        text, requirement=f"{canonicalize_name(wanted.name)}{wanted.specifier}",
        framework=framework, distribution=canonicalize_name(wanted.name),
    )  # fmt: skip


def _of_wheel(text: str, name: str) -> tuple[Framework, str]:
    try:
        distribution = parse_wheel_filename(name)[0]
    except InvalidWheelFilename as error:
        raise _refused(text, name, "a wheel's file name, NAME-VERSION-PYTHON-ABI-PLATFORM.whl") from error
    framework = framework_of(distribution)
    if framework is None:
        known = ", ".join(each for item in Framework for each in item.spec.distributions)
        raise _refused(text, f"a wheel of {distribution}", f"one of {known}")
    return framework, distribution


def _digest(text: str, fragment: str) -> str:
    if not fragment:
        return ""
    found = _SHA256.fullmatch(fragment)
    if found is None:
        raise _refused(text, fragment, "#sha256= and 64 hexadecimal digits")
    return found.group(1)


def _refused(text: str, got: str, expected: str = NAMES) -> ConfigError:
    return ConfigError(f"build {without_secrets(text)}", got=without_secrets(got), expected=expected)
