"""``perfgate acknowledge CASE``: marks a step in a case's trend as known, with the commit that caused it and the
reason, or takes a mark back."""

from __future__ import annotations

import argparse
import datetime
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from helpers.commands.loading import add_history, history_of, user_name
from helpers.history.stored import Acknowledgement, StoredNight
from helpers.machine.wall_clock import utc_now
from helpers.report.nights import acknowledgement_text
from helpers.session.gate import EXIT_OK
from helpers.trainers.contract.errors import ConfigError, printable

if TYPE_CHECKING:
    from helpers.history.history import History

NAME = "acknowledge"
HELP = "Mark a step of the trend as known, with its commit and the reason; --undo takes it back; nothing is deleted"
EXITS = {
    0: "the step is marked, its mark is taken back, or the marks are listed",
}

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-fA-F]{4,40}")
_SHOWN_NIGHTS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="CASE", nargs="?", help="Case id, or a pattern over several")
    parser.add_argument(
        "--at",
        metavar="DATE|SESSION|COMMIT",
        help="Mark the step at this night, at this session alone, or at the first night of this build",
    )
    parser.add_argument("--commit", metavar="HASH", type=_commit, help="Name the commit that caused it")
    parser.add_argument("--reason", metavar="TEXT", help="Say why it stays, or why it is taken back")
    others = parser.add_mutually_exclusive_group()
    others.add_argument(
        "--undo",
        action="store_true",
        help="Take back the acknowledgement of CASE for exactly the nights at --at, else the only one that has them",
    )
    others.add_argument("--list", action="store_true", help="List what was acknowledged, and what was taken back")
    parser.add_argument("--who", metavar="NAME", default=None, help="Name who says so. Default: the user")
    add_history(parser)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Store the acknowledgement, take one back, or list them. Raises SuiteError on options that do not fit, on a case
    that the history does not know and on a night that the case does not have."""
    _check(arguments)
    with history_of(arguments, writes=not arguments.list) as history:
        lines = _listed(history, arguments.case) if arguments.list else _changed(history, arguments)
    for line in lines:
        print(printable(line), file=out)
    return EXIT_OK


def _check(arguments: argparse.Namespace) -> None:
    """Raises ConfigError if something is not given that the rest of the command line needs."""
    needed = {"case": "which cases", "at": "at which night", "reason": "why"}
    if not arguments.undo:
        needed["commit"] = "the commit that caused it"
    for name, expected in needed.items() if not arguments.list else ():
        if not (getattr(arguments, name) or "").strip():
            field = name if name == "case" else f"--{name}"
            raise ConfigError("perfgate acknowledge", field=field, got=getattr(arguments, name), expected=expected)


def _changed(history: History, arguments: argparse.Namespace) -> list[str]:
    """The acknowledgement that was made or taken back."""
    case_ids = sorted({line.case_id for line in history.cases(arguments.case)})
    if not case_ids:
        raise ConfigError(
            "perfgate acknowledge", field="case", got=arguments.case, expected="a case that the history holds"
        )
    nights = [night for case_id in case_ids for night in history.series(case_id)]
    first, last = bounds_of(nights, arguments.at)
    now = utc_now().isoformat()
    who, reason = arguments.who or user_name(), arguments.reason.strip()
    made = Acknowledgement(arguments.case, first, last, arguments.commit or "", reason, who, now)
    if not arguments.undo:
        history.acknowledge(made)
        place = first if first == last else f"{first} to {last}"
        step = f"the step of {case_ids[0] if len(case_ids) == 1 else f'{len(case_ids)} cases'} at {place}"
        return [f"acknowledged by {who}: {step}, {made.commit}: {reason}"]
    there = [each for each in nights if made.covers(each.record.case_id, each.record.date, each.record.created)]
    holding = _holding(history, made, there)
    meant = _meant(holding, made, f"{arguments.case} at {arguments.at}")
    for each in meant:
        history.take_back(each, who, now, reason)
    return [
        *(f"taken back by {who}: {acknowledgement_text(each)}: {reason}" for each in meant),
        *(f"still acknowledged: {acknowledgement_text(each)}" for each in holding if each not in meant),
    ]


def _holding(history: History, like: Acknowledgement, nights: Sequence[StoredNight]) -> list[Acknowledgement]:
    """The acknowledgements in force of the same cases as ``like`` that cover one of the nights and, if ``like`` names a
    commit, name the same."""
    holding = [each for each in history.acknowledgements() if each.pattern == like.pattern]
    of_commit = [each for each in holding if like.commit in ("", each.commit)]
    records = [night.record for night in nights]
    return [each for each in of_commit if any(each.covers(it.case_id, it.date, it.created) for it in records)]


def _meant(holding: Sequence[Acknowledgement], made: Acknowledgement, got: str) -> list[Acknowledgement]:
    """Those of exactly these nights, or else the only one that covers them. Raises ConfigError if it is not clear which
    one is meant."""
    exact = [each for each in holding if (each.first, each.last) == (made.first, made.last)]
    if exact or len(holding) == 1:
        return exact or list(holding)
    if not holding:
        expected, remedy = "what was acknowledged for the same CASE and holds", "perfgate acknowledge --list shows it"
    else:
        got += f", which {len(holding)} acknowledgements of more nights cover"
        expected = "one of them: its own day with --at, or its commit with --commit"
        remedy = "They are: " + "; and ".join(map(acknowledgement_text, holding))
    raise ConfigError("perfgate acknowledge", field="--undo", got=got, expected=expected, remedy=remedy)


def _listed(history: History, case: str | None) -> list[str]:
    found = history.acknowledgements(case, holding_only=False)
    held = sum(each.holds for each in found)
    return [*map(acknowledgement_text, found), f"{held} acknowledged, {len(found)} with those taken back"]


def bounds_of(nights: Sequence[StoredNight], at: str) -> tuple[str, str]:
    """The first and the last time that ``at`` names. It may be a day, a session (the times of its nights), or a build
    (the day of each case's first night with it).

    Raises ConfigError if it names no night.
    """
    if _DAY.fullmatch(at):
        days = sorted({night.record.date for night in nights})
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
            firsts.setdefault((record.case_id, record.target), record.date)
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
        raise argparse.ArgumentTypeError(f"{text!r} is not a commit: expected 4 to 40 hexadecimal digits")
    return text.lower()
