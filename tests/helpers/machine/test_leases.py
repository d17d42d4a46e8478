import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import helpers
from helpers.machine.devices import CpuCard
from helpers.machine.leases import Leases, default_folder
from helpers.trainers.contract.errors import DeviceError

CARDS = (CpuCard(0, (0,)), CpuCard(1, (1,)), CpuCard(2, (2,)))
ROOT = Path(helpers.__file__).parent.parent

HOLDER = """
import subprocess, sys
from pathlib import Path
from helpers.machine.devices import CpuCard
from helpers.machine.leases import Leases
cards = (CpuCard(0, (0,)), CpuCard(1, (1,)), CpuCard(2, (2,)))
with Leases(Path(sys.argv[1])).lease(cards, int(sys.argv[2]), "held-case", exclusive_machine=sys.argv[3] == "True"):
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    print(child.pid, flush=True)
    sys.stdin.read()
"""

WAITER = """
import sys
from pathlib import Path
from helpers.machine.devices import CpuCard
from helpers.machine.leases import Leases
show = lambda obstacle: print(obstacle, flush=True)
with Leases(Path(sys.argv[1])).lease((CpuCard(0, (0,)),), 1, sys.argv[2], on_wait=show):
    with Path(sys.argv[3]).open("a") as served:
        served.write(sys.argv[2] + "\\n")
"""


class Clock:
    """Time that passes only while someone sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@contextmanager
def another_process(folder: Path, count: int, exclusive: bool) -> Generator[subprocess.Popen[str], None, None]:
    """A real process that holds cards, and has started a child of its own."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), str(count), str(exclusive)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert holder.stdin is not None and holder.stdout is not None
    child = int(holder.stdout.readline())
    try:
        yield holder
    finally:
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()
        os.kill(child, signal.SIGKILL)


@contextmanager
def waiting_process(
    folder: Path, case_id: str, served: Path
) -> Generator[tuple[subprocess.Popen[str], str], None, None]:
    """A real process in the queue, with the first obstacle it was given; served, it writes its case's id and ends."""
    waiter = subprocess.Popen(
        [sys.executable, "-c", WAITER, str(folder), case_id, str(served)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert waiter.stdout is not None
    try:
        yield waiter, waiter.stdout.readline()
    finally:
        waiter.kill()
        waiter.wait()
        waiter.stdout.close()


def leases(folder: Path) -> Leases:
    clock = Clock()
    return Leases(folder, clock=clock, sleep=clock.sleep)


def test_a_lease_gives_the_first_free_cards(tmp_path: Path) -> None:
    with leases(tmp_path).lease(CARDS, 2, "a") as lease:
        assert [card.index for card in lease.cards] == [0, 1] and lease.exclusive


def test_shared_leases_never_hold_the_same_card(tmp_path: Path) -> None:
    shared = leases(tmp_path)
    one = shared.lease(CARDS, 1, "a", exclusive_machine=False)
    two = shared.lease(CARDS, 2, "b", exclusive_machine=False)
    with one as first, two as second:
        held = [card.index for card in (*first.cards, *second.cards)]
    assert sorted(held) == [0, 1, 2]


def test_while_a_case_is_timed_alone_nothing_else_gets_a_card(tmp_path: Path) -> None:
    both = leases(tmp_path)
    late = both.lease(CARDS, 1, "late", exclusive_machine=False, timeout_seconds=5)
    holder = f"process {os.getpid()} for timed since"
    with both.lease(CARDS, 1, "timed"), pytest.raises(DeviceError, match=holder), late:
        pytest.fail("two leases of one exclusive machine")


def test_an_exclusive_lease_waits_for_shared_ones(tmp_path: Path) -> None:
    both = leases(tmp_path)
    shared = both.lease(CARDS, 1, "a", exclusive_machine=False)
    early = both.lease(CARDS, 1, "early", timeout_seconds=1)
    with shared, pytest.raises(DeviceError, match="a free machine"), early:
        pytest.fail("exclusive beside a shared lease")
    with both.lease(CARDS, 1, "timed", timeout_seconds=1) as lease:
        assert lease.exclusive


def test_all_or_nothing_a_waiter_holds_no_card(tmp_path: Path) -> None:
    shared = leases(tmp_path)
    with shared.lease(CARDS, 2, "a", exclusive_machine=False):
        greedy = shared.lease(CARDS, 2, "b", exclusive_machine=False, timeout_seconds=1)
        with pytest.raises(DeviceError, match=r"cpu0 is held by.*cpu1 is held by"), greedy:
            pytest.fail("two cards of one free")
        with shared.lease(CARDS, 1, "c", exclusive_machine=False, timeout_seconds=1) as third:
            assert third.cards == (CARDS[2],)


def test_a_waiter_is_told_once_who_holds_and_gets_the_card_hours_later_when_it_is_free(tmp_path: Path) -> None:
    clock, obstacles = Clock(), []
    with another_process(tmp_path, 1, True) as holder:

        def sleep(seconds: float) -> None:
            clock.sleep(3600.0)
            if clock.now > 10 * 3600.0:
                holder.kill()
                holder.wait()

        waiting = Leases(tmp_path, clock=clock, sleep=sleep)
        with waiting.lease(CARDS, 3, "waiter", on_wait=obstacles.append) as lease:
            assert lease.cards == CARDS
    assert len(obstacles) == 1 and f"process {holder.pid} for held-case" in obstacles[0]


@pytest.mark.parametrize("exclusive", [True, False])
def test_kill_9_of_the_holder_frees_its_cards_although_its_child_lives(tmp_path: Path, exclusive: bool) -> None:
    with another_process(tmp_path, 3, exclusive) as holder:
        with pytest.raises(DeviceError), leases(tmp_path).lease(CARDS, 1, "early", timeout_seconds=1):
            pytest.fail("the card of another process")
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
        with leases(tmp_path).lease(CARDS, 3, "next", timeout_seconds=1) as lease:
            assert lease.cards == CARDS


def test_a_holder_that_asks_again_at_once_comes_after_who_waited(tmp_path: Path) -> None:
    folder, served = tmp_path / "leases", tmp_path / "served"
    night = leases(folder)
    with contextlib.ExitStack() as started:
        with night.lease(CARDS, 1, "night"):
            waiter, obstacle = started.enter_context(waiting_process(folder, "waiter", served))
            assert f"the machine is held by process {os.getpid()} for night" in obstacle
        with Leases(folder).lease(CARDS, 1, "night"):
            assert served.read_text() == "waiter\n"
        assert waiter.wait(timeout=30) == 0


def test_those_who_wait_are_served_in_the_order_they_came(tmp_path: Path) -> None:
    folder, served = tmp_path / "leases", tmp_path / "served"
    with contextlib.ExitStack() as started:
        with leases(folder).lease(CARDS, 1, "night"):
            first, _ = started.enter_context(waiting_process(folder, "first", served))
            second, told_second = started.enter_context(waiting_process(folder, "second", served))
            third, told_third = started.enter_context(waiting_process(folder, "third", served))
            assert told_second.startswith(f"1 case waits before this one, first process {first.pid} for first since ")
            assert told_third.startswith(f"2 cases wait before this one, first process {first.pid} for first since ")
        assert [waiter.wait(timeout=30) for waiter in (first, second, third)] == [0, 0, 0]
    assert served.read_text() == "first\nsecond\nthird\n"
    assert list(folder.glob("ticket-*")) == []


def test_kill_9_of_who_is_next_in_line_lets_the_others_on(tmp_path: Path) -> None:
    folder, served = tmp_path / "leases", tmp_path / "served"
    with leases(folder).lease(CARDS, 1, "night"), waiting_process(folder, "dies", served) as (next_in_line, _):
        next_in_line.kill()
        next_in_line.wait()
        assert len(list(folder.glob("ticket-*"))) == 1
    with leases(folder).lease(CARDS, 1, "later", timeout_seconds=0) as lease:
        assert lease.exclusive
    assert list(folder.glob("ticket-*")) == [] and not served.exists()


def test_who_gives_up_waiting_leaves_the_line(tmp_path: Path) -> None:
    both = leases(tmp_path)
    with both.lease(CARDS, 1, "night", exclusive_machine=False):
        impatient = both.lease(CARDS, 1, "impatient", timeout_seconds=1)
        with pytest.raises(DeviceError), impatient:
            pytest.fail("exclusive beside a shared lease")
        with both.lease(CARDS, 1, "next", exclusive_machine=False, timeout_seconds=0) as lease:
            assert lease.cards == (CARDS[1],)


def test_a_dead_holders_name_is_not_told_for_a_lock_that_others_share(tmp_path: Path) -> None:
    with another_process(tmp_path, 1, True) as holder:
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    both = leases(tmp_path)
    shared = both.lease(CARDS, 1, "a", exclusive_machine=False)
    late = both.lease(CARDS, 1, "b", timeout_seconds=1)
    with shared, pytest.raises(DeviceError, match="the machine is held by another process"), late:
        pytest.fail("exclusive beside a shared lease")


def test_an_exception_inside_frees_the_cards(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), leases(tmp_path).lease(CARDS, 3, "a"):
        raise ZeroDivisionError
    with leases(tmp_path).lease(CARDS, 3, "b", timeout_seconds=0) as lease:
        assert len(lease.cards) == 3


def test_more_cards_than_there_are_and_none_are_refused(tmp_path: Path) -> None:
    for count in (0, 4):
        with pytest.raises(DeviceError, match="1 to 3"), leases(tmp_path).lease(CARDS, count, "a"):
            pytest.fail("leased")


def test_a_folder_that_cannot_be_made_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeviceError, match="XDG_CACHE_HOME"), leases(tmp_path / "file" / "x").lease(CARDS, 1, "a"):
        pytest.fail("leased")


def test_who_holds_what_is_told_without_taking_anything(tmp_path: Path) -> None:
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
