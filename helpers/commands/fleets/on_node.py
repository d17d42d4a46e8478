"""What a task of a fleet runs on its node: ``perfgate calibrate`` for each card, in turn or side by side, and once more
for the cases that need several cards.

Each is a process with a session of its own. A session that is there already, as after a requeue, is continued.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from helpers.commands.calibrate import chosen, options_of
from helpers.commands.loading import say
from helpers.commands.main import EXIT_INTERRUPTED, EXIT_USAGE, parsed
from helpers.history.run_folders import is_session
from helpers.history.stored import session_of_place
from helpers.judging.wording import counted
from helpers.launch.signals import signals_interrupt
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import SuiteError

MODULE = "helpers.commands.fleets.on_node"
_CALIBRATE = "calibrate"

T = TypeVar("T")


@dataclass(frozen=True)
class Part:
    """The cases of one card, or those of several cards."""

    session: str
    cases: tuple[str, ...]
    # None for cases of several cards.
    card: int | None = None

    @property
    def name(self) -> str:
        return "cases of several cards" if self.card is None else f"card {self.card}"

    def command(self, options: Sequence[str], *, resume: bool) -> list[str]:
        return [
            *(sys.executable, "-u", "-m", "helpers.commands", _CALIBRATE),
            f"--{'resume' if resume else 'session'}={self.session}",
            *([] if self.card is None else [f"--card={self.card}"]),
            *options,
            *self.cases,
        ]


@dataclass
class Node:
    """The processes on this node."""

    share: bool
    runs_folder: Path
    options: Sequence[str]
    start: Callable[[Sequence[str]], subprocess.Popen[bytes]] = subprocess.Popen
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def measure(self, parts: Sequence[Part]) -> int:
        """The exit status of all together. An interrupt ends them in order."""
        of_cards, others = _split(parts, lambda part: part.card is not None)
        statuses = []
        with signals_interrupt():
            try:
                for together in [of_cards] if self.share and of_cards else [[part] for part in of_cards]:
                    statuses += self._ended(together, [*self.options, *(["--share-machine"] if self.share else [])])
                for part in others:
                    statuses += self._ended([part], self.options)
            except KeyboardInterrupt:
                self._end()
                return EXIT_INTERRUPTED
        return EXIT_INTERRUPTED if EXIT_INTERRUPTED in statuses else max(statuses, default=EXIT_OK)

    def _ended(self, parts: Sequence[Part], options: Sequence[str]) -> list[int]:
        for part in parts:
            say(f"{part.name}: {counted(len(part.cases), 'case')}, {part.session}")
            self.running.append(self.start(part.command(options, resume=is_session(self.runs_folder, part.session))))
        statuses = []
        for part, process in zip(parts, list(self.running), strict=True):
            status = process.wait()
            self.running.remove(process)
            if status:
                say(f"{part.name}: ended with {status}")
            # As a shell does, 128 and the number of the signal that ended the command.
            statuses.append(status if status >= 0 else 128 - status)
        return statuses

    def _end(self) -> None:
        """Tell each process to end, and wait for it. Where Slurm has sent a signal to all processes of the job, SIGHUP
        counts as the same request (helpers.launch.signals)."""
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGHUP)
        for process in self.running:
            process.wait()


def parts_of(suite: Suite, arguments: argparse.Namespace, session: str, most_cards: int) -> list[Part]:
    """What this node measures: the cases of one card on each card, up to ``most_cards`` (0: all), then the others.
    Raises SuiteError for wrong cases and a machine without a card."""
    cases = chosen(suite, arguments.cases, arguments.target)
    of_one, others = _split(cases, lambda each: each.case.cards == 1)
    fleet, _, node = session.partition(".")
    parts = []
    for target in dict.fromkeys(each.target for each in of_one):
        cards = suite.machine.cards_of(target)[: most_cards or None]
        if len(cards) < most_cards or not cards:
            found = f"{len(cards)} cards of {target} ({suite.machine.describe()})"
            say(f"{node}: {found}, and {most_cards or 'at least one'} of them were to be measured")
        ids = tuple(each.case.id for each in of_one if each.target == target)
        parts += [Part(session_of_place(fleet, (node, str(card.index))), ids, card.index) for card in cards]
    if others:
        parts.append(Part(session, tuple(each.case.id for each in others)))
    return parts


def _split(values: Sequence[T], first: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    return [each for each in values if first(each)], [each for each in values if not first(each)]


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.splitlines()[0])
    parser.add_argument("--session", required=True, help="The name of the node's session")
    parser.add_argument("--cards", type=int, default=0, help="Measure on so many cards. Default: on all")
    parser.add_argument("--share-machine", action="store_true", help="Measure the cards side by side")
    parser.add_argument("words", nargs="+", metavar="-- WORDS", help="Options and case ids for perfgate calibrate")
    asked = parser.parse_args(argv)
    try:
        given = parsed([_CALIBRATE, *asked.words])
        options = options_of(given)
        parts = parts_of(Suite.load(options), given, asked.session, asked.cards)
    except SuiteError as error:
        say(f"error: {error}")
        return EXIT_USAGE
    node = Node(asked.share_machine, options.runs_folder, [word for word in asked.words if word.startswith("--")])
    status = node.measure(parts)
    measured = sum(part.card is not None for part in parts)
    return status or (EXIT_NOT_JUDGED if not parts or measured < asked.cards else EXIT_OK)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
