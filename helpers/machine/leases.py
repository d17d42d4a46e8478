"""Leases cards, so that two cases never share a card, across all processes and checkouts of a user on this machine.

Each card, and the machine as a whole, has a file that its holder locks with ``flock``. The operating system releases
the lock of a dead holder, and programs that a holder starts do not inherit it. The folder belongs to one user; other
users' work is found by the contention check.

Cards are leased in the order of requests. Each case takes a numbered ticket, which is a file that it keeps locked until
it has its cards. Only the lowest locked ticket may choose cards. The ticket of a killed process is not locked and does
not count.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from helpers.machine.files import MOST_NOTE_BYTES, make_private_folder, open_lock, read_text_limited
from helpers.trainers.contract.errors import DeviceError

_POLL_SECONDS = 0.2
_TICKET = "ticket-"


class Leasable(Protocol):
    @property
    def id(self) -> str: ...


C = TypeVar("C", bound=Leasable)


@dataclass(frozen=True)
class Lease(Generic[C]):
    """Cards that are held until the ``with`` block ends."""

    cards: tuple[C, ...]
    # Whether no other lease of this machine is given meanwhile.
    exclusive: bool


def default_folder(host_id: str, variables: Mapping[str, str] | None = None) -> Path:
    """The folder of this user's locks for this machine: under XDG_CACHE_HOME, else in the home folder's cache.

    It does not depend on how the user logged in, since cron and a shell must use the same locks.
    """
    variables = os.environ if variables is None else variables
    configured = variables.get("XDG_CACHE_HOME", "")
    cache = Path(configured) if configured.startswith("/") else Path.home() / ".cache"
    return cache / "perfgate" / "leases" / host_id


class Leases:
    """The locks of one machine, in ``folder``. ``clock`` and ``sleep`` are injected for tests."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._sleep = sleep

    @contextlib.contextmanager
    def lease(
        self,
        candidates: Sequence[C],
        count: int,
        case_id: str,
        *,
        exclusive_machine: bool = True,
        timeout_seconds: float | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> Generator[Lease[C], None, None]:
        """Lease ``count`` of the candidates: the first free ones in the given order.

        With ``exclusive_machine`` no other lease of this machine is given meanwhile; without it, other cards can be
        leased at the same time. Requests are served in their order, even if a later one needs fewer cards. ``on_wait``
        is called with a text on who holds the cards, or who waits before this case, whenever that changes. Raises
        DeviceError if there are too few candidates, after ``timeout_seconds`` (None: no limit), and if the folder
        cannot be written.
        """
        if not 1 <= count <= len(candidates):
            raise DeviceError(
                "lease", field="cards", got=count, expected=f"1 to {len(candidates)} cards of this machine"
            )
        deadline = None if timeout_seconds is None else self._clock() + timeout_seconds
        reported = ""
        with contextlib.ExitStack() as held:
            with contextlib.ExitStack() as queued:
                ticket = self._queue_up(case_id, queued)
                while True:
                    chosen: list[C] = []
                    obstacle = self._ahead(ticket)
                    if not obstacle:
                        chosen, obstacle = self._attempt(candidates, count, case_id, exclusive_machine, held)
                    if not obstacle:
                        break
                    if deadline is not None and self._clock() >= deadline:
                        cards = f"{count} free card{'s' if count > 1 else ''}"
                        raise DeviceError(
                            f"lease for {case_id}",
                            got=f"no {cards} within {timeout_seconds:g} s: {obstacle}",
                            expected="a free machine" if exclusive_machine else "free cards",
                            remedy="Wait for the holder or end it; a dead holder's lock is already free",
                        )
                    if on_wait is not None and obstacle != reported:
                        on_wait(obstacle)
                        reported = obstacle
                    self._sleep(_POLL_SECONDS)
            yield Lease(tuple(chosen), exclusive_machine)

    def held(self, candidates: Sequence[Leasable]) -> tuple[str, ...]:
        """One line on the holder of the machine, else one line on the holder of each card. It takes no lock and makes
        no file."""
        names = ["machine"] if self._is_locked("machine") else [card.id for card in candidates]
        return tuple(self._holder(name) for name in names if self._is_locked(name))

    def _attempt(
        self, candidates: Sequence[C], count: int, case_id: str, exclusive: bool, held: contextlib.ExitStack
    ) -> tuple[list[C], str]:
        """Take all cards or none, without waiting. A waiting case holds no card, so cases never wait for each other in
        a circle."""
        with contextlib.ExitStack() as tried:
            if not self._take("machine", exclusive, case_id, tried):
                return [], self._holder("machine")
            chosen: list[C] = []
            obstacles: list[str] = []
            for card in candidates:
                if self._take(card.id, True, case_id, tried):
                    chosen.append(card)
                else:
                    obstacles.append(self._holder(card.id))
                if len(chosen) == count:
                    held.push(tried.pop_all())
                    return chosen, ""
        return [], "; ".join(obstacles)

    def _queue_up(self, case_id: str, queued: contextlib.ExitStack) -> int:
        """Take the ticket behind all others; it is removed when ``queued`` closes."""
        with self._door():
            number = max(self._tickets(), default=0) + 1
            name = _ticket(number)
            if not self._take(name, True, case_id, queued):
                raise DeviceError(f"lease file {self._path(name)}", got="locked", expected="a new ticket")
            queued.callback(self._path(name).unlink, missing_ok=True)
        return number

    def _ahead(self, number: int) -> str:
        """A text on who is served before this ticket; empty when it is this ticket's turn."""
        waiting = []
        # While this process holds the door's lock, no ticket is made, so an unlocked ticket belongs to a dead process.
        with self._door():
            for other in self._tickets():
                if other >= number:
                    break
                if self._is_locked(_ticket(other)):
                    waiting.append(other)
                else:
                    self._path(_ticket(other)).unlink(missing_ok=True)
        if not waiting:
            return ""
        them = "1 case waits" if len(waiting) == 1 else f"{len(waiting)} cases wait"
        return f"{them} before this one, first {self._who(_ticket(waiting[0]))}"

    def _tickets(self) -> list[int]:
        names = (path.stem.removeprefix(_TICKET) for path in self._folder.glob(f"{_TICKET}*.lock"))
        return sorted(int(name) for name in names if name.isdecimal())

    @contextlib.contextmanager
    def _door(self) -> Generator[None, None, None]:
        """Lock the folder of tickets, so that only this process reads or makes tickets."""
        descriptor = self._open("tickets")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _is_locked(self, name: str) -> bool:
        try:
            descriptor = os.open(self._path(name), os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _take(self, name: str, exclusive: bool, case_id: str, stack: contextlib.ExitStack) -> bool:
        descriptor = self._open(name)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        stack.callback(os.close, descriptor)
        if exclusive:
            _write_holder(descriptor, case_id)
            stack.callback(os.ftruncate, descriptor, 0)
        return True

    def _open(self, name: str) -> int:
        path = self._path(name)
        try:
            make_private_folder(self._folder)
            return open_lock(path)
        except OSError as error:
            raise DeviceError(
                f"lease file {path}",
                got=str(error),
                expected="a folder for locks that only this user can write to",
                remedy="Set XDG_CACHE_HOME to such a folder, the same for everything that this user runs here",
            ) from error

    def _holder(self, name: str) -> str:
        what = "the machine" if name == "machine" else name
        return f"{what} is held by {self._who(name)}"

    def _who(self, name: str) -> str:
        """The holder of a lock, by its file's text. The text is only for messages; the lock itself decides."""
        try:
            record = json.loads(read_text_limited(self._path(name), MOST_NOTE_BYTES, within=self._folder))
            # A shared lock writes no text, so the text may be that of an earlier holder, which was killed.
            os.kill(record["pid"], 0)
            return f"process {record['pid']} for {record['case']} since {record['since']}"
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return "another process"

    def _path(self, name: str) -> Path:
        return self._folder / (re.sub(r"[^A-Za-z0-9._-]", "_", name) + ".lock")


def _ticket(number: int) -> str:
    return f"{_TICKET}{number:06}"


def _write_holder(descriptor: int, case_id: str) -> None:
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "case": case_id, "since": since}).encode(), 0)
