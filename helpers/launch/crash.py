"""Says why a process ended, from its exit status and the last lines that it printed."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from pathlib import Path

from helpers.launch.failure import EXCEPTION_LINE, class_of_words, signal_of, words_of_class
from helpers.machine.opening import open_regular

_TAIL_BYTES = 16_384
_TAIL_LINES = 40

# How Paddle's launcher and torch.distributed.run name the rank that failed first, and how it ended.
_FIRST_FAILED = (
    re.compile(r"Container rank (?P<rank>\d{1,9}) status failed .{0,2000} code (?P<code>-?\d{1,9}) log"),
    re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+) \(pid"),
)
# torch.distributed.run's list of all ranks that failed, among them those that it ended itself, with SIGTERM.
_LISTED = re.compile(r"rank\s*: \d+ \(local_rank: (?P<rank>\d+)\)\s+exitcode\s*: (?P<code>-?\d+) ")
_SIGNAL_MEANINGS = {
    signal.SIGKILL: "killed from outside",
    signal.SIGSEGV: "a crash in native code",
    signal.SIGBUS: "often a full /dev/shm",
    signal.SIGABRT: "native code gave up",
    signal.SIGTERM: "asked to end from outside",
}


def crash_reason(exit_code: int | None, tail: str, first_rank: int = 0, guilty: int | None = None) -> str:
    """One line: how the process ended and, where its output says so, why.

    ``first_rank`` is the first of the node: its launcher counts its own ranks only, and ``guilty`` is one of them.
    """
    first = _own_end(guilty, tail) or _first_failed(tail)
    parts = []
    if first is not None:
        rank, code = first
        parts.append(f"rank {first_rank + rank} {exit_text(code)}")
    elif exit_code is not None:
        parts.append(exit_text(exit_code))
    words = last_words(tail)
    if words:
        parts.append(words)
    return ": ".join(parts) or "ended without a word"


def status_of(exit_code: int | None, tail: str, guilty: int | None = None) -> int | None:
    """The exit status of the rank that a launcher names as the first to fail; else ``exit_code``.

    With ``guilty``, one of the node's ranks, it is that rank's status, and None where the launcher names only others.
    """
    first = _own_end(guilty, tail) or _first_failed(tail)
    if first is None:
        return exit_code
    return first[1] if guilty in (None, first[0]) else None


def failed_first(tail: str) -> int | None:
    """Which of its node's ranks failed first by the launcher's output; None where that names none."""
    first = _first_failed(tail)
    return None if first is None else first[0]


def _first_failed(text: str) -> tuple[int, int] | None:
    """The node's rank that a launcher names, and the exit status that it gives."""
    found = next((match for pattern in _FIRST_FAILED if (match := pattern.search(text))), None)
    return None if found is None else (int(found["rank"]), int(found["code"]))


def ended_by_launcher(tail: str) -> frozenset[int]:
    """The node's ranks that the launcher, by its output, ended itself because another one had failed."""
    listed = {int(match["rank"]) for match in _LISTED.finditer(tail) if int(match["code"]) == -signal.SIGTERM}
    return frozenset(listed - {failed_first(tail)})


def _own_end(rank: int | None, text: str) -> tuple[int, int] | None:
    """The rank and its exit status, where the launcher lists it and did not end it itself."""
    if rank in ended_by_launcher(text):
        return None
    found = (match for match in _LISTED.finditer(text) if int(match["rank"]) == rank)
    return next(((int(match["rank"]), int(match["code"])) for match in found), None)


def last_words(tail: str) -> str:
    """The line of an output that names a known fault; else its last exception, or an empty text."""
    exceptions = EXCEPTION_LINE.findall(tail)
    last = exceptions[-1].strip() if exceptions else ""
    if class_of_words(last) is None:
        last = words_of_class(tail) or last
    return last[:200]


def exit_text(exit_code: int) -> str:
    """``ended by SIGKILL (...)`` or ``exited with 1``; a shell's 137 and ``sys.exit(-9)``'s 247 are signals too."""
    name = signal_of(exit_code)
    if name is None:
        return f"exited with {exit_code}"
    meaning = _SIGNAL_MEANINGS.get(name)
    return f"ended by {name.name}" + (f" ({meaning})" if meaning else "")


def tail_of(paths: Iterable[Path]) -> str:
    """The last lines of the files, without control characters, so that no output can control the reader's terminal."""
    text = "\n".join(part for part in map(_end_of, paths) if part)
    return "\n".join(text.splitlines()[-_TAIL_LINES:])


def launcher_tail(path: Path) -> str:
    """The last lines of a launcher's output, and the lines before them that name the rank that failed first.

    A launcher may quote more of that rank's output than the last lines hold.
    """
    lines = _end_of(path).splitlines()
    naming = [line for line in lines[:-_TAIL_LINES] if _first_failed(line)]
    return "\n".join([*naming, *lines[-_TAIL_LINES:]])


def _end_of(path: Path) -> str:
    try:
        with open_regular(path) as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text.replace("\r", "\n")).strip()
