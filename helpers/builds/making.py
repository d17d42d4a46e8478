"""Prepares a build: from its name to a checked interpreter that has it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

from packaging.utils import canonicalize_name

from helpers.builds.cache import BuildCache, KeptBuild, removed
from helpers.builds.companions import COMPANIONS, Companions, OptionalPackages, companions_for
from helpers.builds.fetching import Fetched, Wheel, check_python, digest_of, fetch, open_wheel, wheel_name
from helpers.builds.naming import BuildSource, BuildUnavailable, Why, exact_version
from helpers.builds.uv import Uv
from helpers.common.inherited import passed_on
from helpers.common.wall_clock import utc_now
from helpers.machine.drivers import kernel_driver
from helpers.machine.framework_builds import BuildFinder
from helpers.machine.libraries import with_libraries
from helpers.machine.nvml import open_nvml
from helpers.machine.surroundings import home_problem, refuse_home
from helpers.plan.perf_yaml import BuildsConfig
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import FRAMEWORKS, Framework

# Increased whenever the same names would result in another environment.
_CONTENT_VERSION = 2
# Paddle's import takes seconds, and less than a minute if two gigabytes must be read from a disk first.
_IMPORT_SECONDS = 60.0
_LINKS_SECONDS = 60.0
_NOT_TO_BE_HAD = (Why.NOT_INSTALLED, Why.NOT_FETCHED, Why.WRONG_PYTHON)
_LINKS = ROOT / "requirements" / "link_libraries.py"
_PYTHON = "import platform, sys; print(platform.python_version(), *sys.version_info[:2])"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class PreparedBuild:
    """A build that is ready to run."""

    interpreter: Path
    # 16 hexadecimal digits over everything that decides the content. For an environment made by the suite it is the key
    # in the cache; for the user's own it is the digest of the framework's installed files, empty if that is not known.
    digest: str
    # The distribution.
    name: str
    version: str
    # Empty if the build does not state it.
    commit: str
    # The build's name as the user gave it.
    source_text: str
    framework: Framework
    # Whether the suite made its environment; such an environment has only this framework.
    made: bool

    def to_record(self) -> dict[str, str]:
        """The build as plain values, for a file."""
        values = {**asdict(self), "interpreter": str(self.interpreter), "framework": self.framework.value}
        return {**values, "made": "yes" if self.made else ""}


@dataclass(frozen=True)
class ImportedBuild:
    """The answers of a build after its import."""

    version: str
    commit: str
    # Empty for a build without CUDA.
    cuda: str
    # Why DALI does not work with it; empty if it does.
    dali: str


class _PartMissing(Exception):
    """A part of an environment cannot be had."""

    def __init__(self, part: str, reason: str) -> None:
        self.part, self.reason = part, reason
        super().__init__(f"{part}: {reason}")


@dataclass(frozen=True)
class _Python:
    path: str
    version: str
    numbers: tuple[int, int]


@dataclass(frozen=True)
class _Making:
    """One preparation of a build; its fields are shared by all steps."""

    source: BuildSource
    cache: BuildCache
    framework: Framework
    progress: Progress
    settings: BuildsConfig
    companions: Path
    has_gpu: bool
    python: _Python
    uv: Uv
    driver: str = ""
    # The parts that could not be had, by name, with the reasons.
    missing: Mapping[str, str] = field(default_factory=dict)

    def of_requirement(self) -> KeptBuild:
        """The environment of a requirement. An exact requirement is resolved only once, any other each time."""
        wanted = self.source.requirement
        version = exact_version(wanted) or self._newest(wanted)
        pin = f"{self.source.distribution}=={version}"
        return self._without_what_is_missing(
            lambda making: making._taken(making._locked(pin, [pin], version), "", version)
        )

    def of_file(self) -> KeptBuild:
        path = self.source.path
        assert path is not None
        check_python(self.source, path.name, self.python.numbers)
        return self._of_wheel(open_wheel(self.source, path.absolute(), digest_of(path)))

    def of_url(self) -> KeptBuild:
        """The environment of a wheel at an address. Nothing is downloaded if there is an environment for the wheel's
        digest, or for the version that the server still has."""
        name, source = wheel_name(self.source), self.source
        check_python(source, name, self.python.numbers)
        key = _key("address", source.url)
        known = _fetched(self.cache.read_answer(key))
        if source.sha256 and (kept := self._kept(source.sha256, name)):
            return kept
        again = known if known and known.name == name and self._digest_if_kept(known.sha256, name) else None
        with self.cache.scratch() as folder:
            self.progress(f"fetching {source.text}")
            cert = self.uv.variables.get("SSL_CERT_FILE")
            found = fetch(source, folder, self.settings.silence_seconds, again, cert, self.progress)
            if found is again and (kept := self._kept(found.sha256, name)):
                return kept
            wheel = open_wheel(source, folder / name, found.sha256)
            self.cache.keep_answer(key, asdict(found))
            return self._of_wheel(wheel)

    def _without_what_is_missing(self, steps: Callable[[_Making], KeptBuild]) -> KeptBuild:
        """The environment of these steps, without the parts that cannot be had. The next call tries them again."""
        try:
            return steps(self)
        except _PartMissing as error:
            self.progress(f"{self.source.text} is made without {error.part}: {error.reason}")
            less = replace(self, missing={**self.missing, error.part: error.reason})
            return less._without_what_is_missing(steps)

    def _of_wheel(self, wheel: Wheel) -> KeptBuild:
        return self._without_what_is_missing(lambda making: making._with_wheel(wheel))

    def _with_wheel(self, wheel: Wheel) -> KeptBuild:
        direct = f"{wheel.distribution} @ {wheel.path.as_uri()}"
        locked = self._locked(f"wheel {wheel.sha256}", [direct], wheel.version)
        beside = tuple(each for each in locked if not _is_of(each, wheel.distribution))
        return self._taken(beside, wheel.sha256, wheel.version, (*beside, f"{direct} --hash=sha256:{wheel.sha256}"))

    def _kept(self, sha256: str, name: str) -> KeptBuild | None:
        """The environment of a wheel with this digest; None if it is not in the cache."""
        digest = self._digest_if_kept(sha256, name)
        return self.cache.take(digest, self.source.text, partial(removed, self.source.text)) if digest else None

    def _digest_if_kept(self, sha256: str, name: str) -> str:
        version, distribution = name.split("-")[1], self.source.distribution
        answer = self.cache.read_answer(self._question(f"wheel {sha256}", version))
        if answer is None:
            return ""
        beside = [each for each in answer["locked"].splitlines() if not _is_of(each, distribution)]
        digest = self._digest(beside, sha256)
        return digest if self.cache.is_complete(digest) else ""

    def _newest(self, wanted: str) -> str:
        locked = self.uv.resolve(self.source.text, [wanted], self.python.path, alone=True)
        found = next((each for each in locked if _is_of(each, self.source.distribution)), "")
        return found.partition("==")[2].split()[0]

    def _locked(self, what: str, requirements: Sequence[str], version: str) -> tuple[str, ...]:
        """All packages of the environment, each with its exact version and hashes."""
        question = self._question(what, version)
        if (answer := self.cache.read_answer(question)) is not None:
            return tuple(answer["locked"].splitlines())
        self.progress(f"resolving {self.source.text}")
        with self._naming_parts(version):
            locked = self.uv.resolve(self.source.text, [*requirements, *self._beside(version)], self.python.path)
        try:
            self.cache.keep_answer(question, {"what": what, "locked": "\n".join(locked)})
        except OSError as error:
            raise BuildUnavailable(self.source.text, Why.NO_SPACE, str(error), remedy="Free the disk") from error
        return locked

    def _beside(self, version: str) -> tuple[str, ...]:
        found = self._companions(version)
        return (*found.requirements, *(each for part in self._parts(version) for each in part.requirements))

    def _parts(self, version: str) -> list[OptionalPackages]:
        return [part for part in self._companions(version).parts if part.name not in self.missing]

    def _companions(self, version: str) -> Companions:
        distribution, has_gpu = self.source.distribution, self.has_gpu
        return companions_for(self.framework, distribution, version, has_gpu, self.driver, self.companions)

    @contextlib.contextmanager
    def _naming_parts(self, version: str) -> Iterator[None]:
        """Raises _PartMissing instead of an error that names a package of a part."""
        try:
            yield
        except BuildUnavailable as error:
            # A wrong digest or a full disk is no part that cannot be had.
            for part in self._parts(version) if error.kind in _NOT_TO_BE_HAD else ():
                names = [each.partition("==")[0] for each in part.requirements]
                told = [line for line in error.output if any(name in line for name in names)]
                if told:
                    # Among them may be lines that only say what was begun.
                    raise _PartMissing(part.name, next((each for each in told if "ailed" in each), told[0])) from error
            raise

    def _question(self, what: str, version: str) -> str:
        python = f"{self.python.path} {self.python.version} {platform.machine()}"
        return _key(str(_CONTENT_VERSION), what, python, self.uv.indexes, *self._beside(version))

    def _digest(self, locked: Sequence[str], sha256: str) -> str:
        python = f"{self.python.path} {self.python.version} {platform.machine()}"
        return _key(str(_CONTENT_VERSION), self.source.distribution, sha256, python, *sorted(locked))

    def _taken(
        self, locked: Sequence[str], sha256: str, version: str, to_install: Sequence[str] | None = None
    ) -> KeptBuild:
        text = self.source.text

        def fill(folder: Path, lock: int) -> Mapping[str, str]:
            self.progress(f"making the environment of {text}: {len(locked)} packages")
            self.uv.make_environment(text, folder, self.python.path, keep_open=[lock])
            with self._naming_parts(version):
                self.uv.install(text, folder, to_install or locked, keep_open=[lock])
            _link_libraries(text, folder / "bin" / "python")
            self.progress(f"checking {text}")
            found = import_build(text, self.framework, folder / "bin" / "python")
            return {
                "source": text,
                "framework": self.framework.value,
                "distribution": self.source.distribution,
                "version": version,
                "commit": found.commit or self.source.commit,
                "cuda": found.cuda,
                "dali": self.missing.get("DALI", found.dali),
                "missing": "\n".join(f"{part}: {why}" for part, why in self.missing.items()),
                "python": self.python.version,
                "sha256": sha256,
                "locked": "\n".join(locked),
                "made": utc_now().isoformat(timespec="seconds"),
            }

        return self.cache.take(self._digest(locked, sha256), text, fill, self.progress)


def prepare(
    source: BuildSource,
    *,
    cache: BuildCache,
    progress: Progress = lambda text: None,
    settings: BuildsConfig | None = None,
    companions: Path = COMPANIONS,
    has_gpu: bool | None = None,
) -> PreparedBuild:
    """Prepare a build. Its environment is made if it is missing, and is in use until ``cache`` releases it.

    A kept environment that is named by its folder is in use too. In the user's own environment the build is that of
    the first framework found. Raises BuildUnavailable, and ConfigError if perf.yaml or
    requirements/companions.yaml lack an entry.
    """
    settings = settings or BuildsConfig()
    if not source.is_made:
        assert source.path is not None
        cache.hold(source.text, source.path, progress)
        return _found(source)
    own = source.framework
    assert own is not None
    uv = Uv.of(silence_seconds=settings.silence_seconds)
    if has_gpu is None:
        has_gpu = _has_gpu()
    python, driver = _python(settings), kernel_driver()
    making = _Making(source, cache, own, progress, settings, companions, has_gpu, python, uv, driver)
    try:
        steps = making.of_url if source.url else making.of_file
        kept = making.of_requirement() if source.requirement else steps()
    except OSError as error:
        raise BuildUnavailable(source.text, Why.NOT_INSTALLED, str(error)) from error
    note = kept.note
    return PreparedBuild(
        kept.interpreter, kept.digest, f"{note['distribution']} {note['version']}", note["version"],
        note["commit"] or source.commit, source.text, own, made=True,
    )  # fmt: skip


def _link_libraries(text: str, interpreter: Path) -> None:
    """Make the links to libraries of the environment's wheels, as in an environment of bootstrap.py."""
    try:
        subprocess.run(
            [str(interpreter), str(_LINKS)], env=passed_on(), capture_output=True, text=True, errors="replace",
            timeout=_LINKS_SECONDS, check=True,
        )  # fmt: skip
    except subprocess.SubprocessError as error:
        said = (getattr(error, "stderr", None) or type(error).__name__).strip()
        raise BuildUnavailable(text, Why.NOT_INSTALLED, f"{_LINKS.name}: {said[-200:]}") from error


def import_build(text: str, framework: Framework, interpreter: Path) -> ImportedBuild:
    """Import the build in a process of its own. Raises BuildUnavailable if that fails, or if the build lacks a part
    that the trainers use, and DeviceError if no build could be imported here."""
    refuse_home(framework, home_problem(passed_on()))
    argv = [str(interpreter), "-m", "helpers.machine.framework_probe", framework.value, "imports"]
    variables = with_libraries({**passed_on(), "PYTHONDONTWRITEBYTECODE": "1"}, str(interpreter))
    try:
        done = subprocess.run(
            argv, cwd=ROOT, env=variables, capture_output=True, text=True, errors="replace", timeout=_IMPORT_SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise BuildUnavailable(
            text, Why.NOT_IMPORTED, f"import takes longer than {_IMPORT_SECONDS:g} s", f"import of {framework.value}",
            remedy="Look what it waits for (a lock, a download, a slow disk), and call it again, or name another build",
        ) from error  # fmt: skip
    except OSError as error:
        raise BuildUnavailable(text, Why.NOT_IMPORTED, str(error)) from error
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        ended = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit status {done.returncode}"
        # Whole in the remedy: what was got is cut to one line's length.
        remedy = f"Its import says: {lines[-1] if lines else 'nothing'}. Install it again, or name another build"
        raise BuildUnavailable(text, Why.NOT_IMPORTED, ended, f"import of {framework.value}", remedy)
    try:
        found = json.loads(done.stdout.splitlines()[-1])
        imported = ImportedBuild(found["version"], found["commit"], found["cuda"], found["dali"])
    except (ValueError, LookupError, TypeError) as error:
        raise BuildUnavailable(text, Why.NOT_IMPORTED, f"no answer of {interpreter}: {error!r}") from error
    if found["lacks"]:
        raise BuildUnavailable(
            text, Why.LACKS_FEATURE, f"no {', '.join(found['lacks'].split())} in {framework.value}", "what trainers use"
        )
    return imported


def _found(source: BuildSource) -> PreparedBuild:
    finder = BuildFinder(named_in="--build")
    frameworks = [each for each in FRAMEWORKS if each.spec.version_file]
    # Each answer starts the interpreter.
    answers = (finder.find_build(each, str(source.path)) for each in frameworks)
    build = next((each for each in answers if not isinstance(each, str)), None)
    if build is None:
        raise BuildUnavailable(
            source.text, Why.NO_FRAMEWORK, f"none in {source.path}",
            "one of " + ", ".join(name for each in frameworks for name in each.spec.distributions),
        )  # fmt: skip
    return PreparedBuild(
        Path(build.interpreter), finder.find_identity(build).digest, f"{build.distribution} {build.version}",
        build.version, build.commit, source.text, build.framework, made=False,
    )  # fmt: skip


def _python(settings: BuildsConfig) -> _Python:
    """The Python with which environments are made. Raises ConfigError if the Python named in perf.yaml does not run."""
    if settings.python is None:
        base = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
        return _Python(base, platform.python_version(), (sys.version_info.major, sys.version_info.minor))
    try:
        done = subprocess.run(
            [settings.python, "-c", _PYTHON], env=passed_on(), capture_output=True, text=True, timeout=60, check=True
        )
        version, major, minor = done.stdout.split()
        return _Python(settings.python, version, (int(major), int(minor)))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ConfigError(
            "perf.yaml", field="builds.python", got=f"{settings.python} ({error})", expected="a Python that runs"
        ) from error


def _has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU, even if it is hidden from this process. Raises DeviceError."""
    nvml = open_nvml()
    return not isinstance(nvml, str) and bool(nvml.gpus())


def _is_of(line: str, distribution: str) -> bool:
    """Whether a line that uv resolved pins this distribution."""
    return canonicalize_name(re.split(r"[ =@;\[]", line, maxsplit=1)[0]) == canonicalize_name(distribution)


def _fetched(answer: Mapping[str, str] | None) -> Fetched | None:
    try:
        return None if answer is None else Fetched(**answer)
    except TypeError:
        return None


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
