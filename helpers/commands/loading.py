"""Functions that several commands need: the suite and the history that the options name, cases by their ids, and the
printed answer."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import difflib
import getpass
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from helpers.common.own_folder import own_folder
from helpers.common.words import counted
from helpers.history import default_url, open_history
from helpers.history.address import named_address, refuse_in_command_line
from helpers.history.run_folders import is_session, session_record
from helpers.history.session_file import SessionRecord
from helpers.history.unwritten import Unwritten
from helpers.judging.case.evidence import CaseKey
from helpers.launch.launchers import CHOICES
from helpers.launch.tail import Progress
from helpers.plan.case_plan import SuiteCase
from helpers.plan.perf_yaml import load_config
from helpers.report.colours import wanted, with_colours
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract.errors import ConfigError, HistoryError, printable

if TYPE_CHECKING:
    # Not imported at run time: it would import the database libraries, even for commands that read no history.
    from helpers.history.history import History

_NEAREST = 3
_WIDEST, _NARROWEST = 100, 60

TEXT, LINES = "text", "lines"


def add_history(parser: argparse.ArgumentParser) -> None:
    """Add ``--history`` and ``--runs-dir``, by which ``history_of`` finds the history."""
    parser.add_argument(
        "--history",
        metavar="URL",
        type=history_option,
        help="Use the history at URL. Default: perf.yaml's, else history.sqlite in runs",
    )
    add_runs_folder(parser, "Look for runs in FOLDER")


def add_runs_folder(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--runs-dir``; ``what`` says in the help what is done with it."""
    folder = own_folder() / "runs"
    parser.add_argument("--runs-dir", type=Path, default=folder, metavar="FOLDER", help=f"{what}. Default: runs")


def history_option(url: str) -> str:
    """Check a database's address on the command line, for argparse."""
    try:
        refuse_in_command_line(url)
    except HistoryError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return url


def absolute(path: str | None) -> str | None:
    """A path of the command line in the form that SuiteOptions needs."""
    return None if path is None else str(Path(path).expanduser().absolute())


def add_build(parser: argparse.ArgumentParser) -> None:
    """Add ``--build``: the build to be measured."""
    parser.add_argument(
        "--build",
        metavar="BUILD",
        help="Measure BUILD: an environment, a Python, a wheel's path or URL, a requirement (paddlepaddle==3.2.2) or "
        "commit:SHA. Default: what perf.yaml's interpreters have",
    )


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add ``--data``: the images for training."""
    parser.add_argument("--data", metavar="FOLDER", help="Train from the ImageNet-layout FOLDER")


def build_option(given: str | None) -> str | None:
    """A build of the command line in the form that SuiteOptions needs."""
    from helpers.builds.naming import anchored

    return anchored(given, Path.cwd())


def measuring_options(arguments: argparse.Namespace, kind: str) -> SuiteOptions:
    """The options of a command that measures; the name of a new session begins with ``kind``. Raises ConfigError."""
    runs_folder = arguments.runs_dir.expanduser().absolute()
    session, record = _session(arguments, kind, runs_folder)
    return SuiteOptions(
        config_path=arguments.config,
        baselines_folder=arguments.baselines,
        runs_folder=runs_folder,
        session=session,
        resume=arguments.resume is not None,
        record=record,
        data_root=absolute(arguments.data),
        allow_contention=arguments.allow_contention,
        history_url=arguments.history,
        build=build_option(arguments.build),
    )


def add_session(parser: argparse.ArgumentParser, what: str) -> None:
    """Add ``--session`` and ``--resume``; ``what`` describes an interrupted session in the help."""
    named = parser.add_mutually_exclusive_group()
    named.add_argument("--session", metavar="NAME", help="Name this session's folder NAME")
    named.add_argument("--resume", metavar="SESSION", help=f"Go on with {what}")


def _session(arguments: argparse.Namespace, kind: str, runs_folder: Path) -> tuple[str, SessionRecord]:
    """The name of the session to continue, or of a new one, and what it is. Raises ConfigError if the session to
    continue is not of this kind, or the named new one exists; ResultError if it is damaged."""
    resumed, named = arguments.resume, arguments.session
    if resumed is not None:
        return resumed, _resumed(runs_folder, resumed, kind)
    if named is not None and is_session(runs_folder, named):
        expected, before = f"a name that {runs_folder} lacks", session_record(runs_folder, named)
        remedy = "Name another one" if before is None else f"{before.going_on(named)} goes on with it"
        raise ConfigError("--session", got=named, expected=expected, remedy=remedy)
    return named or new_session(kind), SessionRecord(kind)


def _resumed(runs_folder: Path, name: str, kind: str) -> SessionRecord:
    record = session_record(runs_folder, name)
    if record is None or record.kind != kind:
        raise ConfigError(
            "--resume",
            got=name if record is None else f"{name}, a session of {record.kind}",
            expected=f"a session of {kind} in {runs_folder} that has begun a run",
            remedy=None if record is None else f"Go on with it: {record.going_on(name)}",
        )
    return record


def new_session(kind: str, when: str | None = None) -> str:
    """A name for a new session, which no other session has. ``when`` is its time; None takes the local time."""
    return f"{kind}-{when or format(datetime.datetime.now(), '%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def history_url(arguments: argparse.Namespace) -> str:
    """The address of the history: that of the options, else of perf.yaml, else the file in the run folder. Raises
    ConfigError and HistoryError."""
    config = load_config(arguments.config, CHOICES)
    named = named_address(arguments.history, config.history.url, config.path)
    return named or default_url(arguments.runs_dir.expanduser().absolute())


def history_of(arguments: argparse.Namespace, *, writes: bool = False) -> History:
    """The history as a context manager, opened for reading, or with ``writes`` for writing too. Raises ConfigError and
    HistoryError, also if the file does not exist, since no command makes an empty one."""
    url = history_url(arguments)
    runs_folder = arguments.runs_dir.expanduser().absolute()
    if waiting := len(Unwritten.of(runs_folder, url).cases()):
        say(f"note: the history lacks {counted(waiting, 'case')} of {runs_folder}. perfgate reindex writes them")
    reading = open_history(url, writes=False)
    if not writes:
        return reading
    reading.close()
    return open_history(url, runs_folder=runs_folder)


def say(text: str) -> None:
    """Print a message about progress on standard error; standard output is for the answer."""
    with contextlib.suppress(OSError):
        print(printable(text), file=sys.stderr, flush=True)


def say_each_run(name_of: Callable[[Progress], str]) -> Callable[[Progress], None]:
    """A function that reports the beginning of each run, and before the first its phases, on standard error, since a
    command may take an hour."""
    printed: set[tuple[str, int, str]] = set()

    def tell(progress: Progress) -> None:
        phase = progress.phase if progress.steps == 0 else ""
        if (progress.case_id, progress.replicate, phase) not in printed:
            printed.add((progress.case_id, progress.replicate, phase))
            say(phase or name_of(progress))

    return tell


def user_name() -> str:
    """The user's name; ``unknown`` if the system has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def width_of(out: TextIO) -> int:
    """The width for text: that of the terminal (or COLUMNS), but from 60 to 100 columns."""
    columns = shutil.get_terminal_size((_WIDEST, 0)).columns if out is sys.stdout else _WIDEST
    return max(_NARROWEST, min(_WIDEST, columns))


def load_suite(arguments: argparse.Namespace) -> Suite:
    """The suite of ``--config`` and ``--baselines``, and of ``--runs-dir`` and ``--history`` if the command has them.
    Raises SuiteError if one of their files cannot be read."""
    runs_folder = getattr(arguments, "runs_dir", None)
    return Suite.load(
        SuiteOptions(
            config_path=arguments.config,
            baselines_folder=arguments.baselines,
            runs_folder=own_folder() / "runs" if runs_folder is None else Path(runs_folder).expanduser().absolute(),
            session="asked",
            history_url=getattr(arguments, "history", None),
        )
    )


def matching_cases(cases: Iterable[SuiteCase], pattern: str, target: str | None) -> tuple[SuiteCase, ...] | None:
    """The cases whose ids match the pattern, on ``target`` or on any target; None if the text is not a pattern.

    Raises ConfigError if no case matches.
    """
    # No case id has these signs.
    if not any(sign in pattern for sign in "*?["):
        return None
    found = tuple(each for each in cases if fnmatchcase(each.case.id, pattern) and target in (None, each.target))
    if not found:
        raise ConfigError("case pattern", got=pattern, expected="a pattern that a case matches")
    return found


def find_cases(
    cases: Iterable[SuiteCase], case_id: str, target: str | None, imported: Iterable[str] = ()
) -> tuple[SuiteCase, ...]:
    """The case of this id on each of its targets, or on ``target``.

    Raises ConfigError, with the nearest ids, if there is none. ``imported`` are the ids of stored logs.
    """
    cases = tuple(cases)
    found = tuple(each for each in cases if each.case.id == case_id and target in (None, each.target))
    if not found:
        known = list(dict.fromkeys(each.case.id for each in cases if target in (None, each.target)))
        nearest = ", ".join(difflib.get_close_matches(case_id, known, _NEAREST, cutoff=0.0))
        expected = "a case of perf.yaml or baselines/published" + (f" on {target}" if target else "")
        logs = ", ".join(difflib.get_close_matches(case_id, list(imported), _NEAREST, cutoff=0.0))
        remedy = f"Nearest: {nearest}" + (f". Imported from logs: {logs}" if logs else "")
        raise ConfigError("case id", got=case_id, expected=expected, remedy=remedy)
    return found


def cases_named(suite: Suite, wanted: Iterable[str], target: str | None) -> tuple[SuiteCase, ...]:
    """The cases of the ids and patterns, in the order of the matrix. Of the cases that a pattern matches, only those
    that run here are taken, if there are any. Raises ConfigError if one of ``wanted`` matches no case."""
    keys: set[CaseKey] = set()
    for each in wanted:
        matching = matching_cases(suite.cases, each, target)
        if matching is None:
            found = find_cases(suite.cases, each, target)
        else:
            found = tuple(case for case in matching if suite.why_not(case) is None) or matching
        keys |= {case.key for case in found}
    return tuple(each for each in suite.cases if each.key in keys)


def add_json(parser: argparse._ActionsContainer, **given: Any) -> None:
    """Add ``--json``, which is the same in every command."""
    parser.add_argument("--json", action="store_true", help="Print the answer as JSON instead of the text", **given)


def print_answer(arguments: argparse.Namespace, out: TextIO, text: str, record: Any) -> None:
    """Print the record as JSON if ``--json`` asks for it, else the text, in colours if ``out`` is a terminal that shows
    them. No line for an empty text. Raises ValueError on a number that is not finite."""
    if arguments.json:
        text = json.dumps(record, indent=1, sort_keys=True, allow_nan=False, default=dict)
    elif wanted(out, os.environ):
        text = with_colours(text)
    if text:
        print(text, file=out)
