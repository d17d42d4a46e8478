"""Why a process ended, from its exit status and the last it printed."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from pathlib import Path

_TAIL_BYTES = 16_384
_TAIL_LINES = 40

# What the frameworks print, and what it means to whoever has to act.
_CLASSES = (
    (re.compile(r"CUDA out of memory|Out of memory error on GPU|ResourceExhaustedError|CUBLAS_STATUS_ALLOC_FAILED"
                r"|cudaErrorMemoryAllocation"), "out of GPU memory"),
    (re.compile(r"No space left on device|ENOSPC|\[Errno 28\]"), "the disk is full"),
    (re.compile(r"ModuleNotFoundError: No module named ['\"]([^'\"]+)"), "a module is not installed"),
    (re.compile(r"MemoryError|Cannot allocate memory|std::bad_alloc"), "out of host memory"),
)  # fmt: skip
_EXCEPTION = re.compile(r"^[\w.]*(?:Error|Exception|Exit|Interrupt)\b.*", re.MULTILINE)
# paddle.distributed.launch names the rank that failed first and how it ended.
_CONTAINER = re.compile(r"Container rank (\d+) status failed .* code (-?\d+) log")
# What a rank says that only suffers from another one's end.
_COMMUNICATION = re.compile(
    r"connection (?:reset|closed|refused)|closed by peer|broken pipe|gloo|nccl|tcp_?store|timed? ?out", re.IGNORECASE
)

_SIGNAL_MEANINGS = {
    signal.SIGKILL: "killed from outside: often the kernel, out of memory",
    signal.SIGSEGV: "a crash in native code",
    signal.SIGBUS: "often a full /dev/shm",
    signal.SIGABRT: "native code gave up",
    signal.SIGTERM: "asked to end from outside",
}


def crash_reason(exit_code: int | None, tail: str, first_rank: int = 0) -> str:
    """One line: how the process ended and, where its last words tell, why.

    ``first_rank`` is that of the node: its launcher counts its own ranks only.
    """
    container = _CONTAINER.search(tail)
    parts = []
    if container is not None:
        parts.append(f"rank {first_rank + int(container[1])} {exit_text(int(container[2]))}")
    elif exit_code is not None:
        parts.append(exit_text(exit_code))
    words = last_words(tail)
    if words:
        parts.append(words)
    return ": ".join(parts) or "ended without a word"


def last_words(tail: str) -> str:
    """What an output says about its end: a known class, the last exception, both or nothing."""
    parts = [meaning for pattern, meaning in _CLASSES if pattern.search(tail)][:1]
    exceptions = _EXCEPTION.findall(tail)
    if exceptions:
        parts.append(exceptions[-1].strip()[:200])
    return ": ".join(parts)


def exit_text(exit_code: int) -> str:
    """``ended by SIGKILL (...)`` or ``exited with 1``, through a shell (137) or ``sys.exit(-9)`` (247), too."""
    number = -exit_code if exit_code < 0 else exit_code - 128 if 128 < exit_code <= 192 else 256 - exit_code
    if exit_code < 0 or exit_code > 128:
        try:
            name = signal.Signals(number)
        except ValueError:
            return f"exited with {exit_code}"
        meaning = _SIGNAL_MEANINGS.get(name)
        return f"ended by {name.name}" + (f" ({meaning})" if meaning else "")
    return f"exited with {exit_code}"


def is_consequence(reason: str) -> bool:
    """Whether a rank's failure reads like the loss of a peer, so that the peer is the one to name."""
    return _COMMUNICATION.search(reason) is not None


def tail_of(paths: Iterable[Path]) -> str:
    """The last lines of the files, control characters removed so that no output can forge a terminal."""
    text = "\n".join(part for part in map(_end_of, paths) if part)
    return "\n".join(text.splitlines()[-_TAIL_LINES:])


def _end_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text.replace("\r", "\n")).strip()
