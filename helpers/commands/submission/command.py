"""The command that a job runs: which cases it measures, and how a gate's command line is split among jobs."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType

from helpers.commands.main import add_configuration, parsed
from helpers.commands.submission.needs import Shape
from helpers.plan.case_plan import SuiteCase
from helpers.plan.clusters import ClusterConfig
from helpers.session.gate import Gate
from helpers.session.suite import Suite
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ConfigError

GATE, PYTEST = "gate", "pytest"
# How pytest names a case of this suite when it collects: test_TARGET[CASE].
_COLLECTED = re.compile(r"\btest_(?P<target>\w+)\[(?P<case>[^][\s]+)\]")
_COLLECT_SECONDS = 300.0
_SESSION = re.compile(r"--(?:session|resume)(?:=.*)?", re.DOTALL)
_SHARE, _WORKERS = "--share-machine", re.compile(r"(?:-n=?|--numprocesses=?)(?P<number>\d+|auto|logical|)")
# Options of pytest that leave cases out. A gate in several jobs cannot know which cases these are.
_LEAVES_OUT = re.compile(
    r"-m.*|--(?:deselect|ignore|ignore-glob|lf|last-failed|sw|stepwise)(?:=.*)?|[^-].*::.*", re.DOTALL
)


class Restart(Enum):
    """What a job does that Slurm starts again after a node was lost."""

    # It goes on with its session.
    RESUMES = "resumes"
    # The same command line goes on by itself.
    SAME = "same"
    # It cannot go on, perhaps because it is on another machine.
    NEVER = "never"


@dataclass(frozen=True)
class MeasuringCommand:
    """A command that measures, as it stands behind ``--``."""

    name: str
    options: tuple[str, ...]
    # The options as the command itself reads them.
    arguments: argparse.Namespace

    @property
    def argv(self) -> tuple[str, ...]:
        """The words that start it on a node, without its options."""
        module = ("helpers.commands", self.name) if self._kind.is_perfgate else (self.name,)
        return ("env", f"PYTHONPATH={ROOT}", sys.executable, "-u", "-m", *module)

    @property
    def session(self) -> str | None:
        """The name of a new session."""
        found: str | None = getattr(self.arguments, "session", None)
        return found

    @property
    def resume(self) -> str | None:
        """The session with which it goes on; empty for the newest one."""
        found: str | None = getattr(self.arguments, "resume", None)
        return found

    @property
    def named(self) -> bool:
        return self.session is not None

    @property
    def resumed(self) -> bool:
        return self.resume is not None

    @property
    def with_new_session(self) -> bool:
        """Whether the job's script names the session, so that a second start of the job can go on with it."""
        return self._kind.restart is Restart.RESUMES and not (self.named or self.resumed)

    @property
    def requeue(self) -> bool:
        return self.with_new_session or self._kind.restart is Restart.SAME or (self._kind.resumes and self.resumed)

    @property
    def runs_folder(self) -> Path:
        given = getattr(self.arguments, "runs_dir", None)
        return ROOT / "runs" if given is None else Path(given).expanduser().absolute()

    @property
    def output(self) -> Path:
        return Path(getattr(self.arguments, "output", "."))

    @property
    def follows_plan(self) -> bool:
        """Whether the command measures what a night of limited time has planned: a gate for which pytest's options
        choose no cases."""
        options = getattr(self.arguments, "pytest_options", [])
        return self.name == GATE and not any(word.startswith(("-k", "-m")) or "::" in word for word in options)

    @property
    def explains(self) -> bool:
        """Whether it explains REGRESSIONs where perf.yaml has a night do so."""
        return self.name in (GATE, PYTEST)

    def cases(self, suite: Suite, cluster: ClusterConfig) -> tuple[SuiteCase, ...]:
        """The cases that it measures on the cluster's nodes, as far as its command line and perf.yaml say."""
        target = cluster.target or getattr(self.arguments, "target", None)
        cases = tuple(each for each in suite.cases if target in (None, each.target))
        return self._kind.cases(self, suite, cluster, cases)

    def cards(self, shapes: Collection[Shape]) -> int:
        """The cards on each node of a job of all ``shapes``: those of the largest, and with ``--share-machine -n N`` at
        least N."""
        return max(self._workers(), *(each.cards for each in shapes))

    def side_by_side(self, shape: Shape, shapes: Collection[Shape]) -> int:
        """How many cases of ``shape`` are measured at the same time: as many as fit on ``cards(shapes)`` of one node.
        Cases of several nodes are measured one after the other."""
        return self.cards(shapes) // shape.cards if self._workers() > 1 and shape.nodes == 1 else 1

    @property
    def without_session(self) -> tuple[str, ...]:
        """The options without ``--session`` and ``--resume``."""
        kept: list[str] = []
        own, of_pytest = self._halves()
        skip = False
        for word, following in zip_longest(own, own[1:]):
            if not skip and not _SESSION.fullmatch(word):
                kept.append(word)
            skip = not skip and word in ("--session", "--resume") and following in (self.session, self.resume)
        return (*kept, *(("--", *of_pytest) if of_pytest else ()))

    def going_on_with(self, session: str) -> MeasuringCommand:
        """The same command with ``--resume=SESSION``."""
        words = (f"--resume={session}", *self.without_session)
        return MeasuringCommand(self.name, words, self._kind.read((self.name, *words)))

    def _halves(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The options of the command itself, and those for pytest."""
        mark = self.options.index("--") if "--" in self.options else len(self.options)
        return self.options[:mark], self.options[mark + 1 :]

    def options_for(
        self, cases: Sequence[SuiteCase], output: Path, at_once: int, part: Path, resume: str = ""
    ) -> tuple[str, ...]:
        """A gate's options for a job that measures only ``cases``, ``at_once`` of them at the same time, and that
        leaves its part of the gate in the file ``part``. It goes on with the session ``resume`` if that is given."""
        whole = replace(self, options=self.without_session)
        own, of_pytest = whole._halves()
        _refuse_for_several_jobs(of_pytest)
        of_pytest = _with_workers(of_pytest, at_once) if self._workers() > 1 else of_pytest
        resumed = (f"--resume={resume}",) if resume else ()
        chosen = ("-k", " or ".join(each.case.id for each in cases))
        # The last -k counts.
        return (*own, *resumed, f"--output={output}", "--", f"--results={part}", *of_pytest, *chosen)

    def _workers(self) -> int:
        options = list(getattr(self.arguments, "pytest_options", []))
        given = _number_of_workers(options) if _SHARE in options else ""
        return max(1, int(given)) if given.isdecimal() else 1

    @property
    def _kind(self) -> _Kind:
        return COMMANDS[self.name]


_FindCases = Callable[[MeasuringCommand, Suite, ClusterConfig, tuple[SuiteCase, ...]], tuple[SuiteCase, ...]]


def read_command(words: Sequence[str]) -> MeasuringCommand:
    """The command behind ``--``. Raises ConfigError if it does not measure, and SystemExit if it takes no such
    options."""
    if not words or words[0] not in COMMANDS:
        raise ConfigError(
            "perfgate submit",
            got=words[0] if words else "no command",
            expected=f"a command that measures behind --: {', '.join(COMMANDS)}",
        )
    return MeasuringCommand(words[0], tuple(words[1:]), COMMANDS[words[0]].read(words))


def gate_of(suite: Suite, cluster: ClusterConfig) -> Gate:
    """The gate of the cluster's nodes, which may differ from this machine's. Raises ConfigError if perf.yaml does not
    say which it is."""
    machines = suite.config.machines
    if cluster.machine is None and len(machines) != 1:
        raise ConfigError(
            str(suite.config.path),
            field=f"clusters.{cluster.name or 'NAME'}.machine",
            got="no entry",
            expected="the entry of machines whose gate the cluster's nodes have",
            remedy=f"Entries: {', '.join(machines) or 'none'}",
        )
    machine = next(iter(machines.values())) if cluster.machine is None else machines[cluster.machine]
    return Gate(True, machine.gate)


def _of_gate(
    command: MeasuringCommand, suite: Suite, cluster: ClusterConfig, cases: tuple[SuiteCase, ...]
) -> tuple[SuiteCase, ...]:
    gate, keyword = gate_of(suite, cluster), _keyword(command.arguments.pytest_options)
    return tuple(each for each in cases if gate.judges(each) and keyword in each.case.id)


def _by_pattern(
    command: MeasuringCommand, suite: Suite, cluster: ClusterConfig, cases: tuple[SuiteCase, ...]
) -> tuple[SuiteCase, ...]:
    given = command.arguments
    patterns = [*(getattr(given, "cases", None) or []), *(getattr(given, "case", None) or [])]
    if keyword := getattr(given, "keyword", None):
        patterns.append(f"*{keyword}*")
    return tuple(each for each in cases if any(fnmatchcase(each.case.id, pattern) for pattern in patterns))


def _by_pytest(
    command: MeasuringCommand, suite: Suite, cluster: ClusterConfig, cases: tuple[SuiteCase, ...]
) -> tuple[SuiteCase, ...]:
    """The cases that pytest collects here with these options. Raises ConfigError if it refuses them."""
    words = [
        sys.executable,
        "-m",
        "pytest",
        *command.options,
        "--collect-only",
        "--verbosity=-1",
        "-p",
        "no:cacheprovider",
    ]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_COLLECT_SECONDS, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise ConfigError("pytest --collect-only", got="no end", expected="its cases") from None
    if done.returncode:
        lines = [line for line in (*done.stdout.splitlines(), *done.stderr.splitlines()) if line.strip()]
        raise ConfigError(
            "pytest",
            got=lines[-1].strip() if lines else f"exit status {done.returncode}",
            expected="a command line by which pytest finds cases",
            remedy="Try it: pytest … --collect-only",
        )
    found = {(match["target"], match["case"]) for match in _COLLECTED.finditer(done.stdout)}
    return tuple(each for each in cases if (each.target, each.case.id) in found)


def _read_pytest(words: Sequence[str]) -> argparse.Namespace:
    """Those options of pytest on which the job depends."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    add_configuration(parser, ROOT / "perf.yaml", ROOT / "baselines")
    for name in ("--runs-dir", "--session"):
        parser.add_argument(name)
    parser.add_argument("--resume", nargs="?", const="")
    arguments, _ = parser.parse_known_args(words[1:])
    arguments.pytest_options = list(words[1:])
    return arguments


@dataclass(frozen=True)
class _Kind:
    """What is special about one command."""

    restart: Restart = Restart.RESUMES
    # Whether ``--resume`` works on any node of the cluster.
    resumes: bool = True
    cases: _FindCases = _by_pattern
    read: Callable[[Sequence[str]], argparse.Namespace] = parsed
    # Whether it is a command of perfgate; if not, a Python module has its name.
    is_perfgate: bool = True


# The commands that measure.
COMMANDS: Mapping[str, _Kind] = MappingProxyType(
    {
        GATE: _Kind(cases=_of_gate),
        PYTEST: _Kind(cases=_by_pytest, read=_read_pytest, is_perfgate=False),
        "calibrate": _Kind(),
        "compare-frameworks": _Kind(),
        "bisect": _Kind(Restart.NEVER, resumes=False),
        "prove-gpu": _Kind(Restart.SAME),
    }
)


def _refuse_for_several_jobs(options: Sequence[str]) -> None:
    """Raises ConfigError for options of pytest with which it is not known which cases each job has, or how many it
    measures at the same time."""
    one_job = "Or one job: --shape"
    if any(word.startswith("-k") for word in options) and not _keyword(options):
        raise ConfigError("-k", got="an expression", expected="one text, for a gate in several jobs", remedy=one_job)
    if word := next((each for each in options if _LEAVES_OUT.fullmatch(each)), ""):
        raise ConfigError(
            "pytest's options",
            got=word,
            expected="in a gate in several jobs no choice of cases but -k with one text",
            remedy=one_job,
        )
    given = _number_of_workers(options) if _SHARE in options else ""
    if given and not given.isdecimal():
        raise ConfigError(
            "-n", got=given, expected="a number with --share-machine, for a gate in several jobs", remedy=one_job
        )


def _number_of_workers(options: Sequence[str]) -> str:
    """What the last ``-n`` says; empty without one."""
    given = ""
    for number, word in enumerate(options):
        if match := _WORKERS.fullmatch(word):
            given = match["number"] or (options[number + 1] if number + 1 < len(options) else "")
    return given


def _with_workers(options: Sequence[str], workers: int) -> tuple[str, ...]:
    """``options`` with which ``workers`` cases are measured at the same time; for one, the machine is not shared."""
    kept: list[str] = []
    skip = False
    for word in options:
        match = _WORKERS.fullmatch(word)
        if not skip and match is None and word != _SHARE:
            kept.append(word)
        skip = match is not None and not match["number"]
    return (_SHARE, "-n", str(workers), *kept) if workers > 1 else tuple(kept)


def _keyword(options: Sequence[str]) -> str:
    """The text of ``-k`` if it is a single text; empty (which means all cases) if it is an expression."""
    given = ""
    for number, word in enumerate(options):
        if word == "-k":
            given = options[number + 1] if number + 1 < len(options) else ""
        elif word.startswith("-k") and not word.startswith("--"):
            given = word[2:].removeprefix("=")
    return given if all(char.isalnum() or char in "-._" for char in given) else ""
