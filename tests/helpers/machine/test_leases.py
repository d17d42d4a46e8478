"""Cards are held by one case at a time, in the order of asking, and a dead holder's are free."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.machine.devices import CpuCard
from helpers.machine.leases import Leases, default_folder
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import DeviceError

CARDS = (CpuCard(0, (0,)), CpuCard(1, (1,)), CpuCard(2, (2,)))

HOLDER = """
import subprocess, sys
from pathlib import Path
from helpers.machine.devices import CpuCard
from helpers.machine.leases import Leases
cards = (CpuCard(0, (0,)), CpuCard(1, (1,)), CpuCard(2, (2,)))
with Leases(Path(sys.argv[1])).lease(cards, 3, "held-case"):
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    print(child.pid, flush=True)
    sys.stdin.read()
"""


class Clock:
    """Time that passes only while someone sleeps; ``event`` happens at each sleep."""

    def __init__(self, event: Callable[[], None] = lambda: None) -> None:
        self.now = 0.0
        self.event = event

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.event()


def leases(folder: Path, event: Callable[[], None] = lambda: None) -> Leases:
    clock = Clock(event)
    return Leases(folder, clock=clock, sleep=clock.sleep)


def refused(folder: Path, message: str, count: int = 1, exclusive: bool = False) -> None:
    """A case asks for cards in vain."""
    late = leases(folder).lease(CARDS, count, "late", exclusive_machine=exclusive, timeout_seconds=1)
    with pytest.raises(DeviceError, match=message), late:
        pytest.fail("cards that another case holds")


def test_shared_leases_never_hold_the_same_card_and_take_the_first_free_ones(tmp_path: Path) -> None:
    shared = leases(tmp_path)
    one = shared.lease(CARDS, 1, "a", exclusive_machine=False)
    two = shared.lease(CARDS, 2, "b", exclusive_machine=False)
    with one as first, two as second:
        assert (first, second) == (CARDS[:1], CARDS[1:])
        refused(tmp_path, f"cpu0 is held by process {os.getpid()} for a since .*; cpu1 is held by")


def test_while_a_case_is_timed_alone_nothing_else_gets_a_card_and_it_waits_for_the_others(tmp_path: Path) -> None:
    both = leases(tmp_path)
    with both.lease(CARDS, 1, "timed"):
        refused(tmp_path, f"the machine is held by process {os.getpid()} for timed since")
    with contextlib.suppress(ZeroDivisionError), both.lease(CARDS, 1, "a", exclusive_machine=False):
        refused(tmp_path, "the machine is held by another process", exclusive=True)
        # Who gave up has left the queue.
        with both.lease(CARDS, 1, "next", exclusive_machine=False, timeout_seconds=0) as lease:
            assert lease == CARDS[1:2]
        raise ZeroDivisionError
    with both.lease(CARDS, 3, "b", timeout_seconds=0) as lease:
        assert lease == CARDS


def test_a_case_of_all_cards_is_served_before_a_later_case_of_one(tmp_path: Path) -> None:
    events = contextlib.ExitStack()
    events.enter_context(leases(tmp_path).lease(CARDS, 1, "night", exclusive_machine=False))
    obstacles: list[str] = []

    def while_waiting() -> None:
        refused(tmp_path, "first place in the queue is held by process .* for wide")
        if wide.now > 10 * 3600.0:
            events.close()

    wide = Clock(while_waiting)
    waiting = Leases(tmp_path, clock=wide, sleep=lambda seconds: wide.sleep(3600.0))
    with waiting.lease(CARDS, 3, "wide", exclusive_machine=False, on_wait=obstacles.append) as lease:
        assert lease == CARDS
    assert len(obstacles) == 1 and "cpu0 is held by" in obstacles[0]


@pytest.mark.slow
def test_kill_9_of_the_holder_frees_its_cards_although_its_child_lives(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert holder.stdin is not None and holder.stdout is not None
    with holder, holder.stdin, holder.stdout:
        child = int(holder.stdout.readline())
        try:
            refused(tmp_path, f"process {holder.pid} for held-case")
            holder.kill()
            holder.wait()
            with leases(tmp_path).lease(CARDS, 3, "next", timeout_seconds=0) as lease:
                assert lease == CARDS
        finally:
            os.kill(child, signal.SIGKILL)


def test_more_cards_than_there_are_and_none_are_refused(tmp_path: Path) -> None:
    for count in (0, 4):
        refused(tmp_path, "1 to 3", count)


def test_who_holds_what_is_said_without_making_a_file(tmp_path: Path) -> None:
    assert leases(tmp_path / "new").held(CARDS) == ()
    assert not (tmp_path / "new").exists()
    with leases(tmp_path).lease(CARDS, 1, "some-case", exclusive_machine=False):
        (holder,) = leases(tmp_path).held(CARDS)
    assert holder.startswith(f"cpu0 is held by process {os.getpid()} for some-case since ")
    with leases(tmp_path).lease(CARDS, 2, "other-case"):
        (holder,) = leases(tmp_path).held(CARDS)
    assert holder.startswith(f"the machine is held by process {os.getpid()} for other-case")
    assert leases(tmp_path).held(CARDS) == ()


def test_the_folder_is_the_users_and_the_machines_whatever_the_session() -> None:
    folder = default_folder("abc", {"XDG_CACHE_HOME": "/home/me/cache", "XDG_RUNTIME_DIR": "/run/user/1"})
    assert folder == Path("/home/me/cache/perfgate/leases/abc")
    assert default_folder("abc", {"XDG_CACHE_HOME": "relative"}) == Path.home() / ".cache/perfgate/leases/abc"
