"""What a task of a fleet runs on its node: a session for each card, in turn or side by side."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers.commands.fleets.on_node import Node, Part

ONE = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"
TWO = "paddle-resnet50v1.5-fp32-bs4-1x2-synthetic-dynamic"
CARDS = [Part(f"fleet-a.n1.card{card}", (ONE,), card) for card in range(3)]
ALL = Part("fleet-a.n1", (TWO,))


class Started:
    """Starts a program that runs for ``seconds`` and ends with ``status``, in place of each command."""

    def __init__(self, seconds: float = 0.2, status: int = 0) -> None:
        self.commands: list[Sequence[str]] = []
        self.at: list[float] = []
        self._text = f"import sys, time; time.sleep({seconds}); sys.exit({status})"

    def __call__(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        self.commands.append(argv[argv.index("calibrate") :])
        self.at.append(time.monotonic())
        return subprocess.Popen([sys.executable, "-c", self._text])


@pytest.mark.slow
def test_cards_are_measured_in_turn_each_in_its_session(tmp_path: Path) -> None:
    started = Started()
    (tmp_path / "fleet-a.n1.card1").mkdir()
    assert Node(False, tmp_path, ["--runs=4"], started).measure([*CARDS, ALL]) == 0
    assert started.commands == [
        ["calibrate", "--session=fleet-a.n1.card0", "--card=0", "--runs=4", ONE],
        # A second start of the task goes on.
        ["calibrate", "--resume=fleet-a.n1.card1", "--card=1", "--runs=4", ONE],
        ["calibrate", "--session=fleet-a.n1.card2", "--card=2", "--runs=4", ONE],
        ["calibrate", "--session=fleet-a.n1", "--runs=4", TWO],
    ]
    assert all(later - earlier >= 0.2 for earlier, later in zip(started.at, started.at[1:], strict=False))


@pytest.mark.slow
def test_cards_are_measured_side_by_side_only_if_the_machine_is_shared(tmp_path: Path) -> None:
    started = Started(1.0)
    assert Node(True, tmp_path, [], started).measure([*CARDS, ALL]) == 0
    assert ["--share-machine" in command for command in started.commands] == [True, True, True, False]
    # The third card began before the first one had ended, and the cases of several cards after all.
    assert started.at[2] - started.at[0] < 1.0 <= started.at[3] - started.at[2]


def test_a_card_that_fails_does_not_keep_the_others_from_being_measured(tmp_path: Path) -> None:
    started = Started(0.0, 6)
    assert Node(False, tmp_path, [], started).measure(CARDS) == 6
    assert len(started.commands) == 3


def test_an_interrupt_ends_what_runs_and_starts_no_more(tmp_path: Path) -> None:
    started = Started(60.0)
    node = Node(True, tmp_path, [], started)

    def interrupt() -> None:
        while len(node.running) < 3:
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    threading.Thread(target=interrupt).start()
    began = time.monotonic()
    assert node.measure([*CARDS, ALL]) == 130
    assert time.monotonic() - began < 30.0 and len(started.commands) == 3
    assert all(process.poll() is not None for process in node.running)
