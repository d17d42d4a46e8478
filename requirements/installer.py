"""Makes the virtual environment with the pinned requirements that fit this machine; does nothing if it already exists.

pip gets uv from the package index, and uv installs everything else: only files whose SHA-256 is in requirements/*.txt
("make pins" writes these), in parts. A part without which the environment is of use is recorded when it cannot be had,
and costs only its cases.
"""

import argparse
import fcntl
import itertools
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import link_libraries
import machine
import pip_settings
from machine import SetUpError
from sets import EXTRAS, FRAMEWORKS, LIBGOMP, PADDLE, SETS, TOOLS, Part, choose, parts_of

REQUIREMENTS = Path(__file__).absolute().parent
# {"python", "base", "parts": {part: SHA-256}, "missing": {part that could not be had: why}}
STAMP, OWNED = ".perfgate-stamp.json", ".perfgate-venv"
# The Python with which it is made.
BASE = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
PYTHON = f"{platform.python_implementation()} {platform.python_version()}"
CHECK = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
# Seconds for one command: 5 GB at 2 MB/s take 2500 s.
COMMAND_SECONDS, LOCK_SECONDS = 2 * 3600.0, 4 * 3600.0
# The longest reason that is kept of a failed command, in characters.
REASON_LENGTH = 500
# /bin/sh finds the interpreter: a first line that names it would be cut off at 127 characters, and could not contain a
# space. With -P the files of the current folder hide no module.
COMMAND = """\
#!/bin/sh
checkout={checkout}
if [ ! -f "$checkout/helpers/commands/main.py" ]; then
    echo "perfgate: error: its checkout is not at $checkout any more; call 'make env' where it is now" >&2
    exit 4
fi
exec {python} -P -c '
import sys
sys.path.insert(0, sys.argv.pop(1))
from helpers.commands.__main__ import main
sys.exit(main(sys.argv[1:]))
' "$checkout" "$@"
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and the files that pin its packages."""

    venv: Path
    requirements: Path = REQUIREMENTS

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    def stamp(self) -> dict[str, Any] | None:
        """The stamp of a complete environment of this Python; None if it has to be made."""
        try:
            stamp = json.loads((self.venv / STAMP).read_text(encoding="utf-8"))
            whole = isinstance(stamp["parts"], dict) and isinstance(stamp["missing"], dict)
            same = (stamp["python"], stamp["base"]) == (PYTHON, BASE)
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return stamp if whole and same and os.access(self.python, os.X_OK) else None

    def set_up(self, parts: Mapping[str, Part], again: bool = False) -> dict[str, str]:
        """Bring the environment to these parts; the parts that could not be had now, with the reasons. A part that
        could not be had before is tried ``again`` or not.

        If this is interrupted, the next call makes the environment again, unless only parts were added without which it
        is complete.
        """
        wanted = {name: part.digest(self.requirements) for name, part in parts.items()}
        stamp = self.stamp()
        have: dict[str, str] = stamp["parts"] if stamp else {}
        missing: dict[str, str] = stamp["missing"] if stamp else {}
        # A part that this call does not ask for must still fit, and only tools may be there besides.
        # A libgomp in the environment stays if the machine gets one too, so that results do not change.
        kept = (*EXTRAS, LIBGOMP)
        if any(wanted.get(name) != digest for name, digest in have.items() if name in wanted or name not in kept):
            stamp, have, missing = None, {}, {}
        new = [name for name in wanted if name not in have and (again or name not in missing)]
        if not new:
            return {}
        say(f"{os.path.relpath(self.venv)} with {PYTHON}: {', '.join(new)}")
        if stamp is None or not all(parts[name].cost for name in new):
            (self.venv / STAMP).unlink(missing_ok=True)
        if stamp is None:
            self._make()
        failed = self._install({name: parts[name] for name in new})
        had = {name: wanted[name] for name in new if name not in failed}
        before = {name: why for name, why in missing.items() if name not in had}
        record = {"parts": {**have, **had}, "missing": {**before, **failed}, "python": PYTHON, "base": BASE}
        write_whole(self.venv / STAMP, json.dumps(record, sort_keys=True))
        return failed

    def _make(self) -> None:
        """Make an empty environment, and have its pip put uv there. Refuses a folder that this script did not make."""
        owned = self.venv / OWNED
        if any(self.venv.iterdir()) and not owned.exists():
            raise SetUpError(f"{self.venv} exists and was not made by this script. Move it away, or delete it")
        # Written first, and kept to the end: an interrupted deletion must not leave a folder that looks like another's.
        owned.write_text("Made by requirements/bootstrap.py, which deletes this folder when it has to be made anew.\n")
        for entry in self.venv.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry != owned:
                entry.unlink()
        run([BASE, "-m", "venv", self.venv], clean_environment())
        options = ["--quiet", "--disable-pip-version-check", "--no-input", "--require-hashes", "--no-deps"]
        variables = pip_settings.for_pip(self._settings(), clean_environment())
        run([self.python, "-m", "pip", "install", *options, "-r", self.requirements / "uv.txt"], variables)

    def _install(self, parts: Mapping[str, Part]) -> dict[str, str]:
        """Install the parts and import them. Returns those that could not be had, with the reasons; raises SetUpError
        for a part without which there is no environment."""
        variables, options = pip_settings.for_uv(self._settings(), clean_environment())
        # A uv.toml can move and withhold packages as pip.conf can.
        variables |= {"UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1"}
        variables.pop("UV_CONFIG_FILE", None)
        uv = [self.venv / "bin" / "uv", "pip", "install", "--python", self.python, "--no-deps", "--require-hashes"]

        def install(part: Part, files: Sequence[str]) -> None:
            pins = [word for name in files for word in ("-r", self.requirements / name)]
            run([*uv, *options, *([] if part.builds else ["--no-build"]), *pins], variables)

        def provide(part: Part) -> None:
            try:
                install(part, part.files)
            except SetUpError:
                if not part.instead:
                    raise
                say(f"taking requirements/{part.instead[0]} instead")
                install(part, part.instead)
            if part.script:
                run([self.python, self.requirements / part.script], clean_environment())

        # As a rank finds its libraries (helpers/machine/libraries.py).
        loading = clean_environment()
        own = (str(self.venv / link_libraries.FOLDER), loading.get("LD_LIBRARY_PATH", ""))
        loading["LD_LIBRARY_PATH"] = ":".join(filter(None, own))
        failed: dict[str, str] = {}
        # Imported after all are installed, since a part may load what a later one brings.
        steps = (provide, lambda part: run([self.python, "-I", "-c", CHECK, *part.modules], loading))
        for step in steps:
            for name, part in parts.items():
                try:
                    if name not in failed:
                        step(part)
                except SetUpError as error:
                    if not part.cost:
                        raise SetUpError(f"{name}: {error}") from None
                    failed[name] = str(error)
        return failed

    def _settings(self) -> dict[str, str]:
        """The caller's settings of pip that lead to packages, as the environment's pip reads them."""
        try:
            return pip_settings.read(str(self.python), clean_environment())
        except pip_settings.PipError as error:
            raise SetUpError(f"{error}. Correct that setting of pip, or remove it") from None

    def write_command(self, checkout: Path) -> None:
        """Write ``bin/perfgate``, unless it is there: a present environment gets it without being made again."""
        path = self.venv / "bin" / "perfgate"
        text = COMMAND.format(checkout=shlex.quote(str(checkout)), python=shlex.quote(str(self.python)))
        if not (path.exists() and path.read_text(encoding="utf-8") == text and os.access(path, os.X_OK)):
            write_whole(path, text, 0o755)


def run(command: Sequence[object], environment: Mapping[str, str]) -> None:
    """Run a command. Raises SetUpError, with the command and its error, if it fails."""
    words = [str(word) for word in command]
    try:
        # The lock's handle is inherited, since uv may outlive a killed bootstrap, and no other process may write
        # meanwhile.
        done = subprocess.run(
            words, env=dict(environment), close_fds=False, stderr=subprocess.PIPE, text=True, errors="replace",
            timeout=COMMAND_SECONDS,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise SetUpError(str(error)) from None
    said = pip_settings.masked(done.stderr)
    sys.stderr.write(said)
    if done.returncode != 0:
        raise SetUpError(f"'{' '.join(words[:3])} …' ended with {done.returncode} ({reason(said.splitlines())})")


def reason(said: Sequence[str]) -> str:
    """The error of a command: from the first line that begins as an error of pip or uv, else the last line."""
    lines = [line.strip(" \n×│├╰─▶") for line in said]
    errors = (place for place, line in enumerate(said) if line.strip().lower().startswith(("error", "×")))
    return " ".join(filter(None, lines[next(errors, len(lines) - 1) :]))[:REASON_LENGTH]


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file: a killed process leaves the old or the new one."""
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    new.chmod(mode)
    new.replace(path)


def clean_environment() -> dict[str, str]:
    """The variables, without those that make Python use other folders, warn, or wait for a person."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def say(text: str) -> None:
    print(f"bootstrap: {text}", flush=True)


def lock(folder: Path) -> None:
    """Allow one set-up at a time of an environment's folder. The system releases the lock when this process and its
    commands are gone."""
    handle = os.open(folder, os.O_RDONLY)
    os.set_inheritable(handle, True)
    end = time.monotonic() + LOCK_SECONDS
    for waited in itertools.count():
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise SetUpError(f"another set-up of {folder} does not end: end it (lslocks names it)") from None
            if not waited:
                say(f"waiting for another set-up of {folder} (lslocks names it)")
            time.sleep(1.0)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bootstrap.py", description="Make the suite's virtual environment.")
    parser.add_argument("--venv", type=Path, help="make it in this folder; default .venv, .venv-TOOL, .venv-FRAMEWORK")
    parser.add_argument("--with", dest="extras", action="append", default=[], choices=EXTRAS, help="add these tools")
    own = [name for name in FRAMEWORKS if name != PADDLE]
    parser.add_argument(
        "--requirements",
        default="auto",
        choices=("auto", "beside", *own, *SETS, *TOOLS),
        help="take this set, whatever the hardware; of auto, beside and a framework the hardware decides which; beside "
        "is auto, and cpu where no Paddle runs on the GPU",
    )
    parser.add_argument("--again", action="store_true", help="try again the parts that could not be had")
    parser.add_argument("--probe", action="store_true", help="only say by the exit status if this Python will do")
    return parser.parse_args(arguments)


def chosen_set(asked: str, driver: str) -> str:
    """The name of a set: the one asked for, or the one for this machine's hardware and NVIDIA driver."""
    if asked in SETS or asked in TOOLS:
        return asked
    framework = PADDLE if asked in ("auto", "beside") else asked
    cpu, gpus = FRAMEWORKS[framework].cpu, None
    try:
        gpus = machine.find_gpus()
        return choose(framework, gpus, driver)
    except SetUpError as error:
        if asked != "beside" or gpus is None:
            raise SetUpError(f"{error}. To have the CPU train on purpose: bootstrap.py --requirements {cpu}") from None
        say(f"taking requirements/{cpu}.txt, with which Paddle trains on the CPU alone ({error})")
        return cpu


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    driver = machine.find_driver()
    try:
        if subprocess.call([sys.executable, "-c", "import ensurepip, venv"], env=clean_environment()):
            raise SetUpError(f"{sys.executable} has no ensurepip. Debian, Ubuntu: apt-get install python3-venv")
        if options.probe:
            return 0
        chosen = chosen_set(options.requirements, driver)
        owner = SETS.get(chosen, chosen)
        if owner != PADDLE and options.extras:
            raise SetUpError(f"--with adds to the suite's environment; {chosen} is one of its own")
        venv = (options.venv or Path(".venv" if owner == PADDLE else f".venv-{owner}")).resolve()
        venv.mkdir(parents=True, exist_ok=True)
        extras = [*options.extras, *([] if link_libraries.has_libgomp() else [LIBGOMP])]
        parts, environment = parts_of(chosen, extras, driver), Environment(venv)
        lock(venv)
        failed = environment.set_up(parts, options.again)
        if owner == PADDLE:
            environment.write_command(REQUIREMENTS.parent)
        for name, why in failed.items():
            say(f"{name} is missing: {parts[name].cost}; a call with --again, as make env, tries it again ({why})")
    except (SetUpError, OSError) as error:
        print(f"bootstrap: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bootstrap: interrupted; the next call starts the environment again", file=sys.stderr)
        return 130
    return 0
