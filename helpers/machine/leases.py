"""Leases cards, so that two cases never share a card, across all processes and checkouts of a user on this machine.

Each card, and the machine as a whole, has a file that its holder locks with ``flock``. The operating system releases
the lock of a dead holder, and programs that a holder starts do not inherit it. The folder belongs to one user; other
users' work is found by the contention check.

Only the holder of the queue's lock may take cards. It keeps that lock until it has all its cards, so no later case
takes them first, and two cases never wait for each other's cards.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

from helpers.common.files import MOST_NOTE_BYTES, make_private_folder, open_lock, read_text_limited
from helpers.machine.devices import Card
from helpers.trainers.contract.errors import DeviceError

_POLL_SECONDS = 0.2
# As long as a night of another session may hold the cards.
MOST_WAIT_SECONDS = 24 * 3600.0
_QUEUE, _MACHINE = "queue", "machine"
_HELD = {_QUEUE: "the first place in the queue", _MACHINE: "the machine"}


def default_folder(host_id: str, variables: Mapping[str, str] | None = None) -> Path:
    """The folder of this user's locks for this machine: under XDG_CACHE_HOME, else in the home folder's cache.

    It does not depend on how the user logged in, since cron and a shell must use the same locks. Raises DeviceError if
    the user has no home.
    """
    variables = os.environ if variables is None else variables
    configured = variables.get("XDG_CACHE_HOME", "")
    try:
        cache = Path(configured) if configured.startswith("/") else Path.home() / ".cache"
    except RuntimeError as error:
        raise DeviceError(
            "the folder of locks",
            got=f"no HOME, and user {os.getuid()} is in no list of users",
            expected="a home",
            remedy="Set HOME, the same for everything that this user runs here",
        ) from error
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
        candidates: Sequence[Card],
        count: int,
        case_id: str,
        *,
        exclusive_machine: bool = True,
        timeout_seconds: float = MOST_WAIT_SECONDS,
        on_wait: Callable[[str], None] | None = None,
    ) -> Generator[tuple[Card, ...], None, None]:
        """Yields ``count`` of the candidates, held until the block ends: the first free ones in the given order.

        With ``exclusive_machine`` no other lease of this machine is given meanwhile; without it, other cards can be
        leased at the same time. ``on_wait`` is called with a text on who holds what this case waits for, whenever that
        changes. Raises DeviceError if there are too few candidates, after ``timeout_seconds``, and if the folder cannot
        be written.
        """
        if not 1 <= count <= len(candidates):
            raise DeviceError(
                "lease", field="cards", got=count, expected=f"1 to {len(candidates)} cards of this machine"
            )
        deadline = self._clock() + timeout_seconds
        reported = ""
        chosen: list[Card] = []

        def take_cards() -> str:
            obstacles = []
            for card in candidates:
                if card not in chosen and len(chosen) < count:
                    if obstacle := self._take(card.id, True, case_id, held):
                        obstacles.append(obstacle)
                    else:
                        chosen.append(card)
            return "; ".join(obstacles) if len(chosen) < count else ""

        with contextlib.ExitStack() as held:
            with contextlib.ExitStack() as queued:
                takes: tuple[Callable[[], str], ...] = (
                    lambda: self._take(_QUEUE, True, case_id, queued),
                    lambda: self._take(_MACHINE, exclusive_machine, case_id, held),
                    take_cards,
                )
                for take in takes:
                    while obstacle := take():
                        if self._clock() >= deadline:
                            raise DeviceError(
                                f"lease for {case_id}",
                                got=f"no {count} free within {timeout_seconds:g} s: {obstacle}",
                                expected="a free machine" if exclusive_machine else "free cards",
                                remedy="Wait for the holder or end it; a dead holder's lock is already free",
                            )
                        if on_wait is not None and obstacle != reported:
                            on_wait(obstacle)
                            reported = obstacle
                        self._sleep(_POLL_SECONDS)
            yield tuple(card for card in candidates if card in chosen)

    def held(self, candidates: Sequence[Card]) -> tuple[str, ...]:
        """One line on the holder of the machine, else one line on the holder of each card. It makes no file."""
        names = [_MACHINE] if self._is_locked(_MACHINE) else [card.id for card in candidates]
        return tuple(self._holder(name) for name in names if self._is_locked(name))

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

    def _take(self, name: str, exclusive: bool, case_id: str, stack: contextlib.ExitStack) -> str:
        """Take a lock until ``stack`` closes, without waiting; its holder if somebody has it."""
        path = self._path(name)
        try:
            make_private_folder(self._folder)
            descriptor = open_lock(path)
        except OSError as error:
            raise DeviceError(
                f"lease file {path}",
                got=str(error),
                expected="a folder for locks that only this user can write to",
                remedy="Set XDG_CACHE_HOME to such a folder, the same for everything that this user runs here",
            ) from error
        with contextlib.ExitStack() as taken:
            taken.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            except BlockingIOError:
                return self._holder(name)
            if exclusive:
                taken.callback(os.ftruncate, descriptor, 0)
                os.ftruncate(descriptor, 0)
                since = time.strftime("%Y-%m-%d %H:%M:%S")
                os.pwrite(descriptor, f"{os.getpid()} for {case_id} since {since}".encode(), 0)
            stack.push(taken.pop_all())
        return ""

    def _holder(self, name: str) -> str:
        """Who holds a lock, by its file's text. The text is only for messages; the lock itself decides."""
        who = "another process"
        with contextlib.suppress(OSError, ValueError, IndexError, OverflowError):
            text = read_text_limited(self._path(name), MOST_NOTE_BYTES, within=self._folder)
            # A shared lock writes no text, so the text may be that of an earlier holder, which was killed.
            os.kill(int(text.split()[0]), 0)
            who = f"process {text}"
        return f"{_HELD.get(name, name)} is held by {who}"

    def _path(self, name: str) -> Path:
        return self._folder / (re.sub(r"[^A-Za-z0-9._-]", "_", name) + ".lock")
