"""``perfgate acknowledge CASE``: mark a step in a case's trend as known, with the commit that caused it and the
reason."""

from __future__ import annotations

import argparse
import datetime
import re
from collections.abc import Sequence
from typing import TextIO

from helpers.commands.loading import add_history, history_of, user_name
from helpers.history.stored import Acknowledgement, StoredNight
from helpers.trainers.contract.errors import ConfigError, printable

NAME = "acknowledge"
HELP = "Mark a step of the trend as known, with its commit and the reason; nothing is deleted"
EXITS = {
    0: "the step is marked",
}

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-fA-F]{4,40}")
_SHOWN_NIGHTS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="CASE", help="Case id, or a pattern over several")
    parser.add_argument(
        "--at",
        metavar="DATE|SESSION|COMMIT",
        required=True,
        help="Mark the step at this night, at this session alone, or at the first night of this build",
    )
    parser.add_argument("--commit", metavar="HASH", required=True, type=_commit, help="Name the commit that caused it")
    parser.add_argument("--reason", metavar="TEXT", required=True, help="Say why it stays")
    parser.add_argument("--who", metavar="NAME", default=None, help="Name whoever says so. Default: the user")
    add_history(parser)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Store the acknowledgement. Raises SuiteError on a case that the history does not know and on a night that the
    case does not have."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    if not arguments.reason.strip():
        raise ConfigError("perfgate acknowledge", field="--reason", got="an empty text", expected="why the step stays")
    with history_of(arguments) as history:
        case_ids = sorted({line.case_id for line in history.cases(arguments.case)})
        if not case_ids:
            raise ConfigError(
                "perfgate acknowledge", field="case", got=arguments.case, expected="a case that the history holds"
            )
        nights = [night for case_id in case_ids for night in history.series(case_id)]
        first, last = bounds_of(nights, arguments.at)
        who = arguments.who or user_name()
        reason = arguments.reason.strip()
        known = Acknowledgement(arguments.case, first, last, arguments.commit, reason, who, now)
        history.acknowledge(known)
    of = f"{case_ids[0]}" if len(case_ids) == 1 else f"{len(case_ids)} cases"
    text = f"acknowledged by {who}: the step of {of} at {first if first == last else f'{first} to {last}'}"
    print(printable(f"{text}, {known.commit}: {reason}"), file=out)
    return 0


def bounds_of(nights: Sequence[StoredNight], at: str) -> tuple[str, str]:
    """The first and the last time that ``at`` names. It may be a day, a session (the times of its nights), or a build
    (the day of each case's first night with it).

    Raises ConfigError if it names no night.
    """
    if _DAY.fullmatch(at):
        days = sorted({night.record.created[:10] for night in nights})
        if at in days:
            return at, at
        nearest = sorted(days, key=lambda day: abs(_ordinal(day) - _ordinal(at)))[:_SHOWN_NIGHTS]
        raise ConfigError(
            "perfgate acknowledge",
            field="--at",
            got=at,
            expected="a night of the case",
            remedy="Nearest: " + ", ".join(sorted(nearest)),
        )
    if of_session := [night.record.created for night in nights if night.record.session == at]:
        # The exact times, since another session may have measured the case on the same day.
        moments = sorted(of_session, key=datetime.datetime.fromisoformat)
        return moments[0], moments[-1]
    if not _COMMIT.fullmatch(at):
        raise ConfigError(
            "perfgate acknowledge",
            field="--at",
            got=at,
            expected="a day (2026-11-21), a session that measured the case, or 4 or more digits of a commit",
        )
    firsts: dict[tuple[str, str], str] = {}
    for night in nights:
        record = night.record
        if record.build.get("commit", "").startswith(at.lower()):
            firsts.setdefault((record.case_id, record.target), record.created[:10])
    if not firsts:
        raise ConfigError(
            "perfgate acknowledge", field="--at", got=at, expected="a commit that a night of the case measured"
        )
    return min(firsts.values()), max(firsts.values())


def _ordinal(day: str) -> int:
    try:
        return datetime.date.fromisoformat(day).toordinal()
    except ValueError as error:
        raise ConfigError("perfgate acknowledge", field="--at", got=day, expected="a day of the calendar") from error


def _commit(text: str) -> str:
    if not _COMMIT.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no commit: expected 4 to 40 hexadecimal digits")
    return text.lower()
