"""``perfgate pin BUILD --reason TEXT``: makes a build the good build of perf.yaml. The history keeps who pinned it,
when and why."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TextIO

from helpers.builds.cache import cache_of
from helpers.builds.making import PreparedBuild, prepare
from helpers.builds.naming import NONE, BuildKind, BuildSource, anchored, parse_build, without_user
from helpers.commands.loading import add_history, history_of, history_url, say, user_name
from helpers.history import open_history
from helpers.history.decisions import DecisionFiles
from helpers.history.stored import Pin
from helpers.launch.launchers import CHOICES
from helpers.machine.wall_clock import utc_now
from helpers.plan.perf_yaml import load_config
from helpers.plan.yaml_edit import replace_text, set_values
from helpers.session.gate import EXIT_OK
from helpers.trainers.contract.errors import ConfigError, NoHistory, printable

NAME = "pin"
HELP = "Make a build the good one of perf.yaml, against which suspects are confirmed; --list shows who pinned what"
EXITS = {
    0: "the build is pinned, or the pins are listed",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("build", metavar="BUILD", nargs="?", help="A build as for pytest --build")
    parser.add_argument("--reason", metavar="TEXT", help="Say why it is good")
    parser.add_argument("--who", metavar="NAME", default=None, help="Name who says so. Default: the user")
    parser.add_argument("--list", action="store_true", help="List what was pinned, by whom, when and why")
    add_history(parser)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Pin a build (which must be available and importable), or list the pins. Raises ConfigError, BuildUnavailable and
    HistoryError; perf.yaml is unchanged then."""
    reason = (arguments.reason or "").strip()
    if arguments.list == (arguments.build is not None):
        raise ConfigError("perfgate pin", expected="a build, or --list")
    if arguments.list:
        return _list(arguments, out)
    if not reason:
        raise ConfigError("perfgate pin", field="--reason", got=arguments.reason, expected="why it is good")
    config = load_config(arguments.config, CHOICES)
    if arguments.build == NONE:
        remedy = f"To have no good build, set builds.good and builds.reason to null in {config.path}"
        raise ConfigError("perfgate pin", got=NONE, expected="a build", remedy=remedy)
    source = parse_build(arguments.build, Path.cwd(), config)
    with cache_of(config.path.parent, config.builds.most_gigabytes) as cache:
        build = prepare(source, cache=cache, progress=say, settings=config.builds)
        kept = next((each for each in cache.kept() if each.digest == build.digest), None)
    text = lasting_name(arguments.build, source, build, kept.note["sha256"] if kept is not None else "")
    now = utc_now().isoformat()
    who = arguments.who or user_name()
    before = config.builds.good or ""
    pin = Pin(text, build.name, build.version, build.commit, build.digest, before, reason, who, now)
    runs_folder = arguments.runs_dir.expanduser().absolute()
    old = set_values(config.path, "builds", {"good": text, "reason": reason})
    try:
        with open_history(history_url(arguments), say, runs_folder=runs_folder) as history:
            history.pin(pin)
    except BaseException:
        # A pin without a remark must not stay. Its file is the remark, whether or not the database has it already.
        if not DecisionFiles(runs_folder).path(pin).exists():
            replace_text(config.path, old)
        raise
    after = f", after {before}" if before else ""
    print(printable(f"pinned by {who}: {text} ({build.name} {build.commit[:12]}){after}: {reason}"), file=out)
    return EXIT_OK


def lasting_name(given: str, source: BuildSource, build: PreparedBuild, sha256: str) -> str:
    """A name by which the same build will be found again: with its exact version or digest, and with an absolute path.
    Raises ConfigError if the name contains a password."""
    if without_user(given) != given:
        raise ConfigError(
            "perfgate pin", got=without_user(given), expected="an address without a password: perf.yaml is read by many"
        )
    if source.kind is BuildKind.REQUIREMENT:
        return f"{source.distribution}=={build.version}"
    name = anchored(given, Path.cwd()) or given
    return name if not sha256 or "#" in name else f"{name}#sha256={sha256}"


def _list(arguments: argparse.Namespace, out: TextIO) -> int:
    try:
        with history_of(arguments) as history:
            found = history.pins()
    except NoHistory:
        found = ()
    for each in found:
        built = f"{each.build} ({each.name} {each.commit[:12]})"
        print(printable(f"{each.created[:16].replace('T', ' ')} {each.who}: {built}: {each.reason}"), file=out)
    print(f"{len(found)} pinned", file=out)
    return EXIT_OK
