"""``perfgate mark``: excludes a result or a night from later comparisons, or restores it. Nothing is deleted."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TextIO

from helpers.commands.loading import add_history, history_of, user_name
from helpers.common.wall_clock import utc_now
from helpers.session.gate import EXIT_OK
from helpers.session.measuring.case_loop import Clock
from helpers.trainers.contract.errors import ConfigError, HistoryError, printable

if TYPE_CHECKING:
    from helpers.history.history import History

NAME = "mark"
HELP = "Mark a result or a night as excluded from later comparisons, with the reason; --restore takes it back"
EXITS = {
    0: "it is excluded, restored or listed",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what",
        metavar="UUID|SESSION/CASE[/rN]",
        nargs="?",
        help="The night or its run N, named by its folder in runs or by its uuid (6 or more digits)",
    )
    others = parser.add_mutually_exclusive_group()
    others.add_argument("--restore", action="store_true", help="Take its mark back: it counts again")
    others.add_argument("--list", action="store_true", help="List what is marked")
    parser.add_argument("--reason", metavar="TEXT", help="Say why; the reason is shown with the result")
    add_history(parser)


def run(arguments: argparse.Namespace, out: TextIO, now: Clock = utc_now) -> int:
    """Exclude, restore or list. Raises ConfigError if the options do not fit each other, and HistoryError if there is
    no such result or night."""
    reason = (arguments.reason or "").strip()
    if arguments.list == (arguments.what is not None):
        raise ConfigError("perfgate mark", expected="a result or night, or --list")
    if not arguments.list and not reason:
        raise ConfigError("perfgate mark", field="--reason", got=arguments.reason, expected="why")
    with history_of(arguments, writes=not arguments.list) as history:
        if arguments.list:
            _list(history, out)
            return EXIT_OK
        uuid = _uuid_of(history, arguments.what)
        change = history.restore if arguments.restore else history.exclude
        done = change(uuid, user_name(), now().isoformat(), reason)
    text = f"{'restored' if arguments.restore else 'excluded'}: {done.subject} {done.uuid}: {reason}"
    print(printable(text), file=out)
    return EXIT_OK


def _list(history: History, out: TextIO) -> None:
    for each in (found := history.exclusions()):
        text = f"{each.subject} {each.uuid}: {each.reason} ({each.who}, {each.created[:10]})"
        print(printable(text), file=out)
    print(f"{len(found)} excluded", file=out)


def _uuid_of(history: History, what: str) -> str:
    """The uuid of what the user named: by a uuid (perhaps only its first digits), a night by SESSION/CASE, or a run by
    SESSION/CASE/rN."""
    session, slash, case_id = what.partition("/")
    if not slash:
        return what
    case_id, slash, folder = case_id.partition("/")
    if slash:
        runs = [
            each.result.uuid
            for each in history.results_of(session=session, case_id=case_id)
            if folder == f"r{each.result.replicate}"
        ]
        if len(runs) != 1:
            raise HistoryError(
                f"result {what}",
                got=f"{len(runs)} results",
                expected="one",
                remedy="Its folder is runs/SESSION/CASE/rN; the uuid is in its result.json",
            )
        return runs[0]
    nights = [night for night in history.series(case_id) if night.record.session == session]
    if len(nights) != 1:
        raise HistoryError(
            f"night {what}",
            got=f"{len(nights)} nights",
            expected="one",
            remedy="perfgate history CASE lists them, with --json their uuids too",
        )
    return nights[0].uuid
