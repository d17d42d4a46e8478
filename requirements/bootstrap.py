#!/usr/bin/env python3
"""Makes the virtual environment with the pinned requirements that fit this machine; does nothing if it already exists.

It uses only the standard library. It must also parse on Python 3.6, so that an old interpreter prints a sentence and
not a SyntaxError.
"""

import argparse
import contextlib
import errno
import json
import os
import platform
import shutil
import subprocess
import sys
from typing import Dict, Iterator, NamedTuple, Optional, Sequence, Tuple

# Done here, since PYTHONSAFEPATH keeps the interpreter from doing it.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import console_script
import machine
from machine import SetUpError
from parts import (
    ALONE,
    CUDA_PART,
    EXTRAS,
    FRAMEWORK_SETS,
    FRAMEWORKS,
    LINKS_SCRIPT,
    OPENMP_PART,
    OPENMP_SCRIPT,
    OPTIONAL,
    SETS,
    TOOLS,
    wanted_parts,
)

# The function that chooses a framework's set by the GPUs and the driver.
FRAMEWORK_CHOICES = {
    "pytorch": machine.choose_pytorch_set,
    "tensorflow": machine.choose_tensorflow_set,
    "mxnet": machine.choose_mxnet_set,
}
# Sets that replace a set that pip cannot install, and why they can.
INSTEAD = {
    "pytorch-cpu": (
        "pytorch-gpu",
        "pip has put no CPU build of torch there, see above; the CUDA build trains on a CPU too",
    )
}
PIP = "pip.txt"
# Only files whose SHA-256 is in requirements/*.txt (written by hashes.py) are installed.
PIP_OPTIONS = ("--disable-pip-version-check", "--no-input", "--require-hashes")
OPENMP = "libgomp.so.1"
# 1: {"stamp": 1, "python", "base", "parts": {requirement part: SHA-256}}
# 2: "missing" too: {part that could not be had: why}
STAMP_VERSION = 2
STAMP, OWNED = ".perfgate-stamp.json", ".perfgate-venv"


class Plan(NamedTuple):
    """The action: nothing, adding parts to the environment, or making it again."""

    action: str
    parts: Tuple[str, ...]
    why: str


def make_plan(
    stamp: Optional[Dict[str, object]], python: str, base: str, wanted: Dict[str, str], again: bool = False
) -> Plan:
    """Compare the stamp of the present environment (None if there is none) with the wanted parts. A part that could not
    be had is tried ``again`` or not. A pure function."""
    everything = tuple(wanted)
    if stamp is None:
        return Plan("make", everything, "there is no complete environment yet")
    if (stamp.get("python"), stamp.get("base")) != (python, base):
        return Plan("make", everything, "it was made by {} ({})".format(stamp.get("base"), stamp.get("python")))
    parts = stamp.get("parts")
    have = parts if isinstance(parts, dict) else {}
    # A part that this call does not ask for must still be of this version, or its packages may not fit. A libgomp in
    # the environment stays if the machine gets one too, so that results do not change.
    changed = [name for name in have if name not in wanted and name not in (*EXTRAS, OPENMP_PART)]
    changed += [name for name in wanted if name in have and have[name] != wanted[name]]
    if changed:
        return Plan("make", everything, "its requirements changed ({})".format(", ".join(changed)))
    missing = tuple(name for name in wanted if name not in have and (again or name not in missing_of(stamp)))
    return Plan("add" if missing else "nothing", missing, "")


def missing_of(stamp: Optional[Dict[str, object]]) -> Dict[str, str]:
    """The parts that could not be had, with the reasons."""
    missing = stamp.get("missing") if stamp else None
    return missing if isinstance(missing, dict) else {}


def read_stamp(venv: str) -> Optional[Dict[str, object]]:
    """The stamp of a complete environment whose interpreter still exists; else None."""
    try:
        with open(os.path.join(venv, STAMP), encoding="utf-8") as file:
            stamp = json.load(file)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    whole = isinstance(stamp, dict) and stamp.get("stamp") == STAMP_VERSION and os.access(python_of(venv), os.X_OK)
    return stamp if whole else None


def write_stamp(venv: str, python: str, base: str, parts: Dict[str, str], missing: Dict[str, str]) -> None:
    """Write the stamp, whole or not at all."""
    stamp = {"stamp": STAMP_VERSION, "python": python, "base": base, "parts": parts, "missing": missing}
    path = os.path.join(venv, STAMP)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(stamp, file, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def set_up(
    folder: str,
    venv: str,
    chosen: str,
    extras: Sequence[str],
    base: str,
    driver: Sequence[int] = (),
    again: bool = False,
) -> None:
    """Bring ``venv`` to the wanted state. If this is interrupted, the next call makes it again, unless only parts were
    added without which it is complete. Such a part that could not be had is tried again if ``again``."""
    venv = os.path.realpath(venv)
    if not os.path.isdir(venv):
        # Refused before there is a folder, which is what is locked.
        source_of_pip(base)
        os.makedirs(venv, exist_ok=True)
    with locked(venv):
        python = "{} {}".format(platform.python_implementation(), platform.python_version())
        wanted = wanted_parts(folder, chosen, extras, driver)
        stamp = read_stamp(venv)
        plan = make_plan(stamp, python, base, wanted, again)
        missing = {}  # type: Dict[str, str]
        if plan.action != "nothing":
            say("{} with {}: {}".format(os.path.relpath(venv), python, ", ".join(plan.parts)), plan.why)
            added = plan.action == "add"
            if stamp is not None and not (added and all(part in OPTIONAL for part in plan.parts)):
                os.remove(os.path.join(venv, STAMP))
            missing = carry_out(plan, venv, folder, base)
            kept = stamp["parts"] if stamp and added else {}
            assert isinstance(kept, dict)
            had = {part: wanted[part] for part in plan.parts if part not in missing}
            before = {part: why for part, why in missing_of(stamp).items() if added and part not in had}
            write_stamp(venv, python, base, {**kept, **had}, {**before, **missing})
        elif chosen not in SETS:
            # Printed only if it was asked for by name; the suite's own environment is made before other commands,
            # without output.
            say("{} exists: nothing to do".format(os.path.relpath(venv)), "")
        if chosen in SETS:
            # Not in the stamp, so that an existing environment gets it, or a new version, without being made again.
            console_script.provide(venv, os.path.dirname(folder))
        for part, why in missing.items():
            say("{} is missing in {}: {}; a call with --again, as make env, tries it again".format(
                part, os.path.relpath(venv), OPTIONAL[part]), why)  # fmt: skip


def carry_out(plan: Plan, venv: str, folder: str, base: str) -> Dict[str, str]:
    """Make the environment, or add the plan's parts to it. Returns the optional parts that could not be had, with the
    reasons."""
    if plan.action == "make":
        make_venv(venv, folder, base)
    missing = {}
    for part in plan.parts:
        try:
            install(venv, folder, part)
        except SetUpError as error:
            if part not in OPTIONAL:
                raise
            missing[part] = str(error)
    return missing


def make_venv(venv: str, folder: str, base: str) -> None:
    """Make an empty environment with pip. Refuses a folder that this script did not make."""
    owned = os.path.join(venv, OWNED)
    os.makedirs(venv, exist_ok=True)
    if os.listdir(venv) and not os.path.exists(owned):
        raise SetUpError(
            "{} exists and was not made by this script. Move it away, or delete it, and call again".format(venv)
        )
    pip = source_of_pip(base)
    # The marker stays until the end; without it, an interrupted deletion would leave a folder that looks like
    # another's.
    for entry in os.scandir(venv):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        elif entry.name != OWNED:
            os.remove(entry.path)
    with open(owned, "w", encoding="utf-8") as file:
        file.write("Made by requirements/bootstrap.py, which deletes this folder when it has to be made anew.\n")
    if pip == "ensurepip":
        run([base, "-m", "venv", venv])
    else:
        run([base, "-m", "venv", "--without-pip", venv])
        where = [python_of(venv), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        site = subprocess.check_output(where, universal_newlines=True, env=clean_environment()).strip()
        run([base, "-m", "pip", "install", *PIP_OPTIONS, "--target", site, "-r", os.path.join(folder, PIP)])


def source_of_pip(base: str) -> str:
    """``ensurepip``, or ``pip`` if only the pip of ``base`` can install pip there. Raises SetUpError if it has
    neither."""
    # Debian removes some files of ensurepip, and reading its version needs these.
    if answers(base, "import venv, ensurepip; ensurepip.version()"):
        return "ensurepip"
    if answers(base, "import venv, pip"):
        return "pip"
    raise SetUpError(
        "{} cannot make a virtual environment: it has neither ensurepip nor pip. Debian, Ubuntu: apt-get install "
        "python3-venv; elsewhere: a Python with pip, from your distribution or python.org".format(base)
    )


def answers(python: str, code: str) -> bool:
    """Whether ``python`` runs ``code`` without an error."""
    quiet = subprocess.DEVNULL
    return subprocess.call([python, "-c", code], stdout=quiet, stderr=quiet, env=clean_environment()) == 0


def install(venv: str, folder: str, part: str) -> None:
    """Install one part, with all versions and the digests of all files pinned; some parts without dependencies."""
    requirements = os.path.join(folder, SETS.get(part, part + ".txt"))
    if part == OPENMP_PART:
        run([python_of(venv), os.path.join(folder, OPENMP_SCRIPT), requirements])
        return
    pip = [python_of(venv), "-m", "pip", "install", *PIP_OPTIONS]
    alone = ["--no-deps"] if part in (*ALONE, *TOOLS) else []
    try:
        run(pip + alone + ["-r", requirements])
    except SetUpError:
        if part not in INSTEAD:
            raise
        other, why = INSTEAD[part]
        say("taking requirements/{}.txt".format(other), why)
        run([*pip, "-r", os.path.join(folder, other + ".txt")])
    if part == CUDA_PART:
        run([python_of(venv), os.path.join(folder, LINKS_SCRIPT)])


def run(command: Sequence[str]) -> None:
    """Run a command. Raises SetUpError, with the command and what it said of its error, if it fails."""
    pips, pythons = "", ""
    # The lock's handle is inherited, since pip may outlive a killed bootstrap, and no other process may write
    # meanwhile.
    with subprocess.Popen(
        command, env=clean_environment(), close_fds=False, stderr=subprocess.PIPE, universal_newlines=True,
        errors="replace",
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(line)
            word, _, told = line.strip().partition(": ")
            if told and word.lower() == "error":
                pips = pips or line.strip()
            # The first error of a package's own build says more than pip's.
            elif told and word.endswith("Error"):
                pythons = pythons or line.strip()
    if process.returncode != 0:
        why = " ({})".format(pythons or pips) if pythons or pips else ""
        raise SetUpError(
            "{!r} ended with {}{}; its own output above says why".format(" ".join(command), process.returncode, why)
        )


def clean_environment() -> Dict[str, str]:
    """The variables, without those that make Python or pip use another folder than the given one."""
    foreign = ("PYTHONHOME", "PYTHONPATH", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER", "PIP_REQUIRE_VIRTUALENV")
    kept = {name: value for name, value in os.environ.items() if name not in foreign}
    kept["PIP_USER"] = "0"
    return kept


def python_of(venv: str) -> str:
    return os.path.join(venv, "bin", "python")


def say(what: str, why: str) -> None:
    print("bootstrap: " + what + (" (" + why + ")" if why else ""), flush=True)


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Allow one set-up at a time of an environment's folder. The system releases the lock when its holder and its
    commands are gone."""
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    os.set_inheritable(handle, True)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            say("waiting for another set-up of this folder", "")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bootstrap.py", description="Make the suite's virtual environment.")
    parser.add_argument("--venv", help="make it in this folder; unless told .venv, .venv-TOOL, .venv-FRAMEWORK")
    parser.add_argument("--with", dest="extras", action="append", default=[], choices=EXTRAS, help="add these tools")
    parser.add_argument(
        "--requirements",
        default="auto",
        choices=("auto", "beside", *SETS, *TOOLS, *FRAMEWORKS, *FRAMEWORK_SETS),
        help="take this set, whatever the hardware; of auto, beside and {} the hardware decides which; beside is "
        "auto, and cpu where no Paddle runs on the GPU, for a suite whose other frameworks use it".format(
            ", ".join(FRAMEWORKS)
        ),
    )
    parser.add_argument(
        "--and",
        dest="others",
        action="append",
        default=[],
        choices=tuple(FRAMEWORKS),
        help="make this framework's environment too, at the same time",
    )
    parser.add_argument("--again", action="store_true", help="try again the parts that could not be had")
    parser.add_argument(
        "--probe",
        action="store_true",
        help="only say by the exit status if this Python will do, or if a framework's Python and libraries are there",
    )
    return parser.parse_args(arguments)


def choose(asked: str, version: Sequence[int], driver: Sequence[int] = ()) -> str:
    """The name of a set: the one asked for, or the one for this machine's hardware and NVIDIA driver."""
    if asked in FRAMEWORKS:
        way_round = machine.TRAIN_ON_CPU.format(asked, FRAMEWORKS[asked][0])
        return FRAMEWORK_CHOICES[asked](machine.find_gpus(way_round=way_round), driver)
    if asked == "auto":
        return machine.choose_set(machine.find_gpus(), version, driver)
    if asked == "beside":
        gpus = machine.find_gpus()
        try:
            return machine.choose_set(gpus, version, driver)
        except SetUpError as error:
            say("taking requirements/cpu.txt, with which Paddle trains on the CPU alone", str(error))
            return "cpu"
    if asked in machine.GPU_WHEEL_SETS:
        machine.check_gpu_python(version, asked, "the set {} was asked for".format(asked))
    return asked


def side_by_side(options: argparse.Namespace) -> int:
    """Make several environments at once, each by a process of its own, since pip unpacks and compiles on one core.
    Returns 0 if all were made, else 2."""
    first = ["--requirements", options.requirements] + (["--venv", options.venv] if options.venv else [])
    for extra in options.extras:
        first += ["--with", extra]
    again = ["--again"] if options.again else []
    wanted = [words + again for words in [first] + [["--requirements", other] for other in options.others]]
    # The progress bars of several would be drawn over each other.
    environment = dict(os.environ, PIP_PROGRESS_BAR="off")
    script = os.path.abspath(__file__)
    running = [subprocess.Popen([sys.executable, script, *words], env=environment) for words in wanted]
    try:
        codes = [each.wait() for each in running]
    except KeyboardInterrupt:
        # A terminal interrupts them too: what they say of it comes before the prompt.
        for each in running:
            each.wait()
        raise
    return 2 if any(codes) else 0


def default_venv(chosen: str) -> str:
    """The environment's folder: one each for the suite, every tool and every framework."""
    return ".venv" if chosen in SETS else ".venv-" + (framework_of(chosen) or chosen)


def framework_of(asked: str) -> str:
    """The framework that is named, or of which a set is named; empty for anything else."""
    return next((name for name, sets in FRAMEWORKS.items() if asked in (name, *sets)), "")


def older_python(framework: str, version: Sequence[int]) -> str:
    """A Python on PATH for which the framework has wheels; empty if this one, of ``version``, can be used.

    Raises SetUpError if there is none.
    """
    newest = machine.FRAMEWORK_NEWEST.get(framework, machine.NEWEST)
    if tuple(version[:2]) <= newest:
        return ""
    will_do = "import sys; assert sys.version_info[:2] <= {!r}".format(newest)
    for name in machine.pythons_up_to(newest):
        for folder in os.get_exec_path():
            python = os.path.join(folder, name)
            # On PATH may be a version manager's program for a Python that it cannot start.
            if os.access(python, os.X_OK) and answers(python, will_do):
                return python
    raise SetUpError(machine.too_new(framework, newest, version))


def main(arguments: Sequence[str]) -> int:
    version = sys.version_info[:3]
    # In an activated environment sys.executable belongs to the environment that may have to be deleted.
    base = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    try:
        machine.check_python(version)
        options = parse(arguments)
        if options.others and not options.probe:
            return side_by_side(options)
        framework = framework_of(options.requirements)
        if options.probe:
            source_of_pip(base)
            if framework:
                machine.check_libraries(machine.loads, framework)
                older_python(framework, version)
            return 0
        machine.check_platform(platform.system(), platform.machine(), machine.libc_name())
        machine.check_libraries(machine.loads, framework)
        older = older_python(framework, version)
        if older:
            say("going on with " + older, "{} has no wheels for Python {}".format(framework, machine.dotted(version)))
            os.execve(older, [older, os.path.abspath(__file__), *arguments], clean_environment())
        driver = machine.find_driver()
        chosen = choose(options.requirements, version, driver)
        venv, extras = options.venv or default_venv(chosen), sorted(set(options.extras))
        if chosen not in SETS:
            if extras:
                raise SetUpError("--with adds to the suite's environment; {} is one of its own".format(chosen))
        elif not machine.loads(OPENMP):
            extras.insert(0, OPENMP_PART)
        set_up(os.path.dirname(os.path.abspath(__file__)), venv, chosen, extras, base, driver, options.again)
    except (SetUpError, OSError) as error:
        print("bootstrap: error: {}".format(error), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bootstrap: interrupted; the next call starts the environment again", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
