"""``perfgate builds``: lists the environments that were made of builds; makes, checks and removes them, and pins one as
the reference build of perf.yaml. The history keeps who pinned it, when and why."""

from __future__ import annotations

import argparse
import datetime
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO

from helpers.builds.cache import BuildCache, KeptBuild, cache_of, refuse_unknown
from helpers.builds.making import ImportedBuild, PreparedBuild, import_build, prepare
from helpers.builds.naming import NONE, BuildSource, anchored, parse_build
from helpers.commands.loading import add_history, add_json, history_of, history_url, print_answer, say, user_name
from helpers.commands.main import add_configuration
from helpers.common.masking import shown_words
from helpers.common.own_folder import own_folder
from helpers.common.wall_clock import utc_now
from helpers.history import open_history
from helpers.history.decisions import DecisionFiles
from helpers.history.stored import Pin
from helpers.launch.launchers import CHOICES
from helpers.plan.perf_yaml import Config, load_config
from helpers.plan.yaml_edit import replace_text, set_values
from helpers.report.table import Align, Column, Table
from helpers.session.builds import named_builds
from helpers.session.gate import EXIT_OK
from helpers.session.programs import built_ahead, cases_to_check, program_lines, refuse_broken
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract.errors import ConfigError, NoHistory, printable

NAME = "builds"
HELP = "List the builds that the suite keeps; make, check or remove one, or pin the reference build"
EXITS = {
    0: "it is done",
    1: "the checked build would train nothing here, or the one to remove is in use",
}

# 1: first format.
BUILDS_SCHEMA_VERSION = 1
# The checked build would train nothing here, or the environment to remove is in use.
EXIT_NOT = 1

_ACTIONS = {
    "list": "List what is kept, as without an action",
    "make": "Make the environment of BUILD",
    "check": "Import BUILD, build its programs, and say what it would train here",
    "remove": "Remove the environment of BUILD",
    "pin": "Make BUILD the reference build of perf.yaml; without BUILD, list what was pinned, by whom, when and why",
}
_MEGABYTE = 1_000_000
_NOTED = ("source", "framework", "distribution", "version", "commit", "cuda", "python", "made")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    for name, text in _ACTIONS.items():
        action = actions.add_parser(name, help=text, description=text)
        if name == "pin":
            action.add_argument("build", metavar="BUILD", nargs="?", help="A build as for pytest --build")
            action.add_argument("--reason", metavar="TEXT", help="Say why it is good")
            action.add_argument("--who", metavar="NAME", help="Name who says so. Default: the user")
            add_history(action)
        elif name != "list":
            also = "" if name == "make" else ", or the first digits of one in the list"
            action.add_argument("build", metavar="BUILD", help=f"A build as for pytest --build{also}")
        # These options may also follow the action. If they do not, values given before the action stay.
        add_json(action, default=argparse.SUPPRESS)
        add_configuration(action, argparse.SUPPRESS, argparse.SUPPRESS)
    parser.set_defaults(action="list")


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Run the action. Exit status 1 if the checked build would train nothing here, or if the one to remove is in use.
    Raises ConfigError on a name that is not that of a build, and BuildUnavailable if a build is not available."""
    config = load_config(arguments.config, CHOICES)
    with cache_of(config.path.parent, config.builds.most_gigabytes) as cache:
        cache.sweep()
        if arguments.action == "list":
            return _list(arguments, cache, config, out)
        if arguments.action == "make":
            return _make(arguments, cache, config, out)
        if arguments.action == "remove":
            return _remove(arguments, cache, out)
        if arguments.action == "pin":
            return _pin(arguments, cache, config, out)
        return _check(arguments, cache, config, out)


def _answer(arguments: argparse.Namespace, lines: Iterable[str], record: Mapping[str, Any], out: TextIO) -> None:
    print_answer(arguments, out, "\n".join(lines), {"schema_version": BUILDS_SCHEMA_VERSION, **record})


def _list(arguments: argparse.Namespace, cache: BuildCache, config: Config, out: TextIO) -> int:
    found = cache.kept()
    grid = Table.of(_COLUMNS, found).grid()
    alone = sum(each.own_size for each in found) / _MEGABYTE
    good = config.builds.reference
    why = config.builds.reason or "no reason given"
    pinned = f"{good} ({why})" if good else "none (perfgate builds pin BUILD --reason TEXT)"
    lines = [
        *([grid.heading, *grid.lines] if found else []),
        f"{len(found)} in {_shown(cache.folder)}, {alone:.0f} MB of their own",
        printable(f"pinned as the reference build: {pinned}"),
    ]
    _answer(arguments, lines, {"builds": [kept_record(each) for each in found]}, out)
    return EXIT_OK


def _make(arguments: argparse.Namespace, cache: BuildCache, config: Config, out: TextIO) -> int:
    start = time.monotonic()
    build = prepare(parse_build(arguments.build, Path.cwd(), config), cache=cache, progress=say, settings=config.builds)
    seconds = time.monotonic() - start
    kept = next((each for each in cache.kept() if each.digest == build.digest), None)
    what = f"{build.name} {_commit(build.commit)}in {_shown(build.interpreter)}"
    if kept is not None:
        own, shared = (each / _MEGABYTE for each in (kept.own_size, kept.size - kept.own_size))
        what += f", {seconds:.1f} s; {own:.0f} MB of its own, {shared:.0f} MB shared with uv's cache"
    record = {**build.to_record(), "seconds": seconds, **({} if kept is None else kept_record(kept))}
    _answer(arguments, [printable(what)], {"build": record}, out)
    return EXIT_OK


def _remove(arguments: argparse.Namespace, cache: BuildCache, out: TextIO) -> int:
    text = arguments.build
    found = [each for each in cache.kept() if each.digest in cache.matching(text) or each.note["source"] == text]
    if not found:
        raise refuse_unknown(text, cache)
    if len(found) > 1:
        raise ConfigError(
            "perfgate builds remove", got=text, expected="one of " + ", ".join(each.digest for each in found)
        )
    digest = found[0].digest
    removed = cache.remove(digest)
    text = f"removed {digest}: {_named(found[0])}" if removed else f"{digest} is in use: nothing was removed"
    _answer(arguments, [printable(text)], {"digest": digest, "removed": removed}, out)
    return EXIT_OK if removed else EXIT_NOT


def _check(arguments: argparse.Namespace, cache: BuildCache, config: Config, out: TextIO) -> int:
    text = arguments.build
    matching = found if len(found := cache.matching(text)) == 1 else ()
    if matching:
        text = str(cache.folder / matching[0])
    build = prepare(parse_build(text, Path.cwd(), config), cache=cache, progress=say, settings=config.builds)
    if matching:
        # Named by its folder it has another digest, that of its files.
        build = replace(build, digest=matching[0], made=True)
    imported = import_build(build.source_text, build.framework, build.interpreter)
    options = SuiteOptions(
        config_path=arguments.config, baselines_folder=arguments.baselines, runs_folder=own_folder() / "runs",
        session="asked", build=str(build.interpreter),
    )  # fmt: skip
    # The build is in use until the ``with`` block of the cache ends.
    suite = Suite.load(replace(options, builds=named_builds(options, config, cache, say)))
    trains, reasons = trained_here(suite, build)
    mine = [each for each in suite.cases if each.case.framework is build.framework]
    asked = cases_to_check(mine, lambda each: each.case.id in trains.get(each.target, ()))
    programs = built_ahead(asked, str(build.interpreter), say)
    record = {
        **build.to_record(), "cuda": imported.cuda, "dali": imported.dali, "trains": trains, "reasons": reasons,
        "programs": [each.to_record() for each in programs],
    }  # fmt: skip
    lines = [*check_lines(build, imported, trains, reasons), *program_lines(programs)]
    _answer(arguments, map(printable, lines), {"build": record}, out)
    refuse_broken(build.source_text, programs)
    return EXIT_OK if trains else EXIT_NOT


def _pin(arguments: argparse.Namespace, cache: BuildCache, config: Config, out: TextIO) -> int:
    """Pin a build, which must be available and importable; perf.yaml is unchanged if it is not, and if the history
    cannot keep the pin."""
    if arguments.build is None:
        return _list_pins(arguments, out)
    reason = (arguments.reason or "").strip()
    if not reason:
        raise ConfigError("perfgate builds pin", field="--reason", got=arguments.reason, expected="why it is good")
    if arguments.build == NONE:
        remedy = f"To have no reference build, set builds.reference and builds.reason to null in {config.path}"
        raise ConfigError("perfgate builds pin", got=NONE, expected="a build", remedy=remedy)
    source = parse_build(arguments.build, Path.cwd(), config)
    build = prepare(source, cache=cache, progress=say, settings=config.builds)
    kept = next((each for each in cache.kept() if each.digest == build.digest), None)
    text = lasting_name(arguments.build, source, build, kept.note["sha256"] if kept is not None else "")
    now = utc_now().isoformat()
    who = arguments.who or user_name()
    before = config.builds.reference or ""
    pin = Pin(text, build.name, build.version, build.commit, build.digest, before, reason, who, now)
    runs_folder = arguments.runs_dir.expanduser().absolute()
    old = set_values(config.path, "builds", {"reference": text, "reason": reason})
    try:
        with open_history(history_url(arguments), runs_folder=runs_folder) as history:
            history.pin(pin)
    except BaseException:
        # A pin without a remark must not stay. Its file is the remark, whether or not the database has it already.
        if not DecisionFiles(runs_folder).path(pin).exists():
            replace_text(config.path, old)
        raise
    after = f", after {before}" if before else ""
    line = printable(f"pinned by {who}: {text} ({build.name} {build.commit[:12]}){after}: {reason}")
    _answer(arguments, [line], {"pin": asdict(pin)}, out)
    return EXIT_OK


def lasting_name(given: str, source: BuildSource, build: PreparedBuild, sha256: str) -> str:
    """A name by which the same build will be found again: with its exact version or digest, and with an absolute path.
    Raises ConfigError if the name contains a password."""
    (shown,) = shown_words([given])
    if shown != given:
        raise ConfigError(
            "perfgate builds pin",
            got=shown,
            expected="an address without user, password and query: perf.yaml is read by many",
            remedy="Download the wheel and name its file, or name the requirement",
        )
    if source.requirement and not source.commit:
        return f"{source.distribution}=={build.version}"
    name = anchored(given, Path.cwd()) or given
    return name if not sha256 or "#" in name else f"{name}#sha256={sha256}"


def _list_pins(arguments: argparse.Namespace, out: TextIO) -> int:
    try:
        with history_of(arguments) as history:
            found = history.pins()
    except NoHistory:
        found = ()
    lines = []
    for each in found:
        built = f"{each.build} ({each.name} {each.commit[:12]})"
        lines.append(printable(f"{each.created[:16].replace('T', ' ')} {each.who}: {built}: {each.reason}"))
    _answer(arguments, [*lines, f"{len(found)} pinned"], {"pins": [asdict(each) for each in found]}, out)
    return EXIT_OK


def trained_here(suite: Suite, build: PreparedBuild) -> tuple[dict[str, list[str]], dict[str, int]]:
    """By target, the ids of the cases that this machine would run with the build; and for the other cases of its
    framework the reasons, each with the number of cases."""
    trains: dict[str, list[str]] = {}
    reasons: Counter[str] = Counter()
    for each in suite.cases:
        if each.case.framework is build.framework:
            why = suite.why_not(each)
            if why is None:
                trains.setdefault(each.target, []).append(each.case.id)
            else:
                reasons[why] += 1
    return trains, dict(reasons.most_common())


def check_lines(
    build: PreparedBuild, imported: ImportedBuild, trains: Mapping[str, Sequence[str]], reasons: Mapping[str, int]
) -> list[str]:
    """The result of a check as lines of text."""
    here = [f"{len(ids)} cases of {target}" for target, ids in sorted(trains.items())]
    lines = [
        f"build        {build.source_text}",
        f"imports      {build.framework.value} {imported.version} ({build.name})",
        f"commit       {imported.commit or build.commit or 'not stated'}",
        f"CUDA         {imported.cuda or 'none: for a CPU'}",
        f"DALI         {imported.dali or 'works with it'}",
        f"digest       {build.digest or 'none'}",
        f"interpreter  {_shown(build.interpreter)}",
        f"trains here  {', '.join(here) or 'nothing'}",
    ]
    return [*lines, *(f"  not {count}: {why}" for why, count in reasons.items())]


def kept_record(kept: KeptBuild) -> dict[str, Any]:
    """A kept environment as plain values."""
    note = {name: kept.note.get(name, "") for name in _NOTED}
    return {
        **note,
        "digest": kept.digest,
        "interpreter": str(kept.interpreter),
        "last_used": _moment(kept.last_used),
        "bytes": kept.size,
        "own_bytes": kept.own_size,
        "in_use": kept.in_use,
    }


def _named(kept: KeptBuild) -> str:
    return f"{kept.note['distribution']} {kept.note['version']} {_commit(kept.note['commit'])}".strip()


def _commit(commit: str) -> str:
    return f"@{commit[:12]} " if commit else ""


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")


def _shown(path: Path) -> str:
    """A path for messages: relative if it is below the current folder."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


_COLUMNS: tuple[Column[KeptBuild], ...] = (
    Column("digest", lambda each: each.digest),
    Column("build", lambda each: printable(_named(each))),
    Column("CUDA", lambda each: printable(each.note.get("cuda", "")) or "-"),
    Column("used", lambda each: _moment(each.last_used)[:16].replace("T", " ") + (" now" if each.in_use else "")),
    Column("own MB", lambda each: f"{each.own_size / _MEGABYTE:.0f}", Align.RIGHT),
    Column("MB", lambda each: f"{each.size / _MEGABYTE:.0f}", Align.RIGHT),
    Column("made of", lambda each: printable(each.note["source"])),
)
