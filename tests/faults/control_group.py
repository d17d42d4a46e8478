"""A control group for one fault, made beside or below this process's own."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Generator
from pathlib import Path

from helpers.machine.control_groups import control_groups


@contextlib.contextmanager
def made_group(controller: str, prepare: Callable[[Path], bool]) -> Generator[Path, None, None]:
    """Make a group and yield its folder, which ``prepare`` has found to be one of ``controller``; remove it at the end.

    Raises OSError where this process may not make one.
    """
    error = OSError(f"no {controller} controller is mounted")
    for parent in control_groups(Path("/"), controller):
        folder = parent / f"perfgate-fault-{uuid.uuid4().hex[:8]}"
        try:
            if not parent.is_dir():
                continue
            folder.mkdir()
        except OSError as refused:
            error = refused
            continue
        with _gone_at_the_end(folder):
            try:
                suits = prepare(folder)
            except OSError as refused:
                error, suits = refused, False
            if suits:
                yield folder
                return
    raise error


def enter_words(folder: Path) -> tuple[str, ...]:
    """Words before a command line that put it into the group."""
    return ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(folder / "cgroup.procs"))


@contextlib.contextmanager
def _gone_at_the_end(folder: Path) -> Generator[None, None, None]:
    try:
        yield
    finally:
        # A process that has just ended stays in the group for a moment.
        for _ in range(50):
            with contextlib.suppress(OSError):
                folder.rmdir()
                break
            time.sleep(0.1)
