"""Says why a process ended, from its exit status and its last lines, and of which class of faults that is.

The class decides whether the run is worth another attempt.
"""

from __future__ import annotations

import enum
import re
import signal
from collections.abc import Iterable
from pathlib import Path

from helpers.machine.files import open_regular


class FailureClass(enum.Enum):
    """The value stands at the beginning of an INFRA_ERROR's reason and in a result's ``facts["failure_class"]``."""

    KILLED = "killed by a signal"
    OOM_KILLED = "killed by the kernel for want of memory"
    NATIVE_CRASH = "native crash"
    EXCEPTION = "Python exception"
    BAD_EXIT = "non-zero exit"
    HOST_MEMORY = "out of host memory"
    GPU_MEMORY = "out of GPU memory"
    DISK_FULL = "disk full"
    HUNG = "hung"
    TIMED_OUT = "over the time limit"
    NEVER_STARTED = "never started"
    # Its ranks were still alive.
    LAUNCHER_DIED = "launcher died"
    # A rank's process is gone, or lost the connection to other ranks, and nothing says how.
    RANK_LOST = "rank lost"
    PORT_IN_USE = "port in use"
    UNREACHABLE = "rendezvous unreachable"
    UNRESOLVABLE = "host name not resolvable"
    DATA_FAULT = "data fault"
    DIVERGED = "training diverged"
    BAD_LOG = "bad log"
    FRAMEWORK_MISSING = "framework missing"

    @property
    def retriable(self) -> bool:
        """Whether another attempt at the same run may end differently.

        Bad data, a diverged loss, a missing module and a full disk stay as they are. A run over its time limit may show
        a build that got slower, and another attempt must not hide that.
        """
        return self not in _FINAL


_FINAL = frozenset(
    {
        FailureClass.DATA_FAULT,
        FailureClass.DIVERGED,
        FailureClass.FRAMEWORK_MISSING,
        FailureClass.DISK_FULL,
        FailureClass.TIMED_OUT,
    }
)
# The name of the fact of a result that holds its failure class.
FAILURE_FACT = "failure_class"

NATIVE_SIGNALS = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})

# The order counts: the allocator's own name comes first, since "out of memory" alone may mean either memory.
_WORDS = (
    (
        FailureClass.GPU_MEMORY,
        r"CUDA out of memory|out of memory error on GPU|CUDA error ?\(2\)|CUDA error: out of memory|CUDA: out of memory"
        r"|cudaErrorMemoryAllocation|CU(?:DNN|BLAS|SOLVER|SPARSE|FFT)_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY"
        r"|cuda failure.{0,20}out of memory|cudaMalloc.{0,40}out of memory|OOM when allocating tensor.{0,200}GPU",
    ),
    (
        FailureClass.DISK_FULL,
        r"no space left on device|disk quota exceeded|ENOSPC|\[Errno 28\]|insufficient shared memory \(shm\)",
    ),
    (
        FailureClass.HOST_MEMORY,
        r"\bMemoryError\b|cannot allocate memory|std::bad_alloc|ENOMEM|\[Errno 12\]|fail to alloc memory of"
        r"|Failed to allocate CPU Memory",
    ),
    # PyTorch's data workers die of this only when killed from outside: an exception of theirs is shown as itself.
    (FailureClass.KILLED, r"DataLoader worker \(pid(?:\(s\))? [^)]*\) (?:is killed by signal|exited unexpectedly)"),
    (
        FailureClass.FRAMEWORK_MISSING,
        r"\bModuleNotFoundError\b|ImportError: [^\n]{0,500}cannot open shared object file",
    ),
    (FailureClass.DATA_FAULT, r"\bDatasetError\b"),
    (FailureClass.DIVERGED, r"\bLossError\b"),
    # Paddle 3's TCPStore aborts without a message where its port is taken: only its traceback, or libuv's, shows it.
    (
        FailureClass.PORT_IN_USE,
        r"address already in use|EADDRINUSE|\[Errno 98\]|TCPServer::create\(|uv__finish_close: Assertion",
    ),
    (
        FailureClass.UNRESOLVABLE,
        r"name or service not known|temporary failure in name resolution|no address associated with hostname"
        r"|nodename nor servname|\bgaierror\b|could not resolve host",
    ),
)
_PATTERNS = tuple((failure, re.compile(words, re.IGNORECASE)) for failure, words in _WORDS)
_UNREACHABLE = re.compile(
    r"while the server is not yet listening|no route to host|network is unreachable|connection refused|host is down"
    r"|connection timed out|client socket has (?:timed out|failed to connect)|connection to the C10d store has failed"
    r"|\d+/\d+ clients joined",
    re.IGNORECASE,
)
# What a rank prints when another one's end is all that is wrong with it.
_COMMUNICATION = re.compile(
    r"connection (?:reset|closed|refused)|closed by peer|broken pipe|gloo|nccl|c10d|tcp_?store|timed? ?out"
    r"|collective ops is aborted|socket closed|failed to connect to all addresses",
    re.IGNORECASE,
)
# The last line that Python prints of an exception that nobody caught. torchrun's own exceptions are left out, since
# they say only that a rank failed.
EXCEPTION_LINE = re.compile(
    r"^(?!torch\.distributed\.elastic\.multiprocessing\.)[\w.]*(?:Error|Exception|Exit|Interrupt)\b.*", re.MULTILINE
)


def is_consequence(reason: str) -> bool:
    """Whether a rank's failure reads as if it lost another rank, so that the other one is to blame."""
    return _COMMUNICATION.search(reason) is not None and class_of_words(reason) is None


def class_of_words(text: str) -> FailureClass | None:
    """The class that the words of an exception or an output name; None where they name none."""
    return next((failure for failure, pattern in _PATTERNS if pattern.search(text)), None)


def words_of_class(text: str) -> str:
    """The last line of an output that names a class; empty where none does."""
    named = [line.strip() for line in text.splitlines() if class_of_words(line) is not None]
    return named[-1] if named else ""


def class_of_failure(reason: str, started: bool) -> FailureClass:
    """The class of a rank's failure by its footer's ``reason``, which is an exception's class and text.

    ``started``: whether the job had taken a step.
    """
    named = class_of_words(reason)
    if named is not None:
        return named
    if not started and _UNREACHABLE.search(reason):
        return FailureClass.UNREACHABLE
    return FailureClass.RANK_LOST if _COMMUNICATION.search(reason) else FailureClass.EXCEPTION


def class_of_exit(exit_code: int | None, tail: str, started: bool) -> FailureClass:
    """The class of a failure of a process whose log does not say why it ended.

    ``exit_code`` is None where it is not known; ``tail`` is the end of the process's output, and ``started`` says
    whether the job had taken a step. The output counts before the exit code: an allocator that finds no memory aborts.
    """
    named = class_of_words(tail)
    if named is not None:
        return named
    signalled = None if exit_code is None else signal_of(exit_code)
    if not started and waits_for_rendezvous(tail) and signalled not in NATIVE_SIGNALS | {signal.SIGKILL}:
        return FailureClass.UNREACHABLE
    if signalled is not None:
        return FailureClass.NATIVE_CRASH if signalled in NATIVE_SIGNALS else FailureClass.KILLED
    if EXCEPTION_LINE.search(tail):
        return class_of_failure(tail, started)
    return FailureClass.RANK_LOST if exit_code in (None, 0) else FailureClass.BAD_EXIT


def waits_for_rendezvous(tail: str) -> bool:
    """Whether the last lines of an output say that nobody answers at the rendezvous."""
    return any(_UNREACHABLE.search(line) for line in tail.splitlines()[-8:])


def signal_of(exit_code: int) -> signal.Signals | None:
    """The signal that ended a process: by its own status (-9), a shell's (137) or ``sys.exit(-9)``'s (247)."""
    if 0 <= exit_code <= 128:
        return None
    number = -exit_code if exit_code < 0 else exit_code - 128 if exit_code <= 192 else 256 - exit_code
    try:
        return signal.Signals(number)
    except ValueError:
        return None


_TAIL_BYTES = 16_384
_TAIL_LINES = 40

# How Paddle's launcher, torch.distributed.run and start_ranks name the rank that failed first, and how it ended.
_FIRST_FAILED = (
    re.compile(r"Container rank (?P<rank>\d{1,9}) status failed .{0,2000} code (?P<code>-?\d{1,9}) log"),
    re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+) \(pid"),
    re.compile(r"^rank \d+ \(local (?P<rank>\d{1,9})\) failed first: exit status (?P<code>-?\d{1,9})$", re.MULTILINE),
)
# torch.distributed.run's list of all ranks that failed, among them those that it ended itself, with SIGTERM; and
# start_ranks' lines, which tell the two apart.
_LISTED = (
    re.compile(r"rank\s*: \d+ \(local_rank: (?P<rank>\d+)\)\s+exitcode\s*: (?P<code>-?\d+) "),
    re.compile(r"^rank \d+ \(local (?P<rank>\d{1,9})\) failed \w+: exit status (?P<code>-?\d{1,9})$", re.MULTILINE),
)
_ENDED = re.compile(r"^rank \d+ \(local (?P<rank>\d{1,9})\) was ended: exit status", re.MULTILINE)
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
    listed = {int(match["rank"]) for match in _LISTED[0].finditer(tail) if int(match["code"]) == -signal.SIGTERM}
    listed |= {int(match["rank"]) for match in _ENDED.finditer(tail)}
    return frozenset(listed - {failed_first(tail)})


def _own_end(rank: int | None, text: str) -> tuple[int, int] | None:
    """The rank and its exit status, where the launcher lists it and did not end it itself."""
    if rank in ended_by_launcher(text):
        return None
    found = (match for listed in _LISTED for match in listed.finditer(text) if int(match["rank"]) == rank)
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
