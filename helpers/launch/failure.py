"""What may end a run, and what ended a process by its exit status and last lines."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from helpers.common.files import open_regular


@dataclass(frozen=True)
class Failure:
    """What ended a run."""

    # Begins the reason of an INFRA_ERROR.
    what: str
    # Whether another attempt at the same run may end differently. Bad data, a diverged loss, a missing module or a full
    # disk would fail again. A run over its time limit may be a build that got slower, which no attempt must hide.
    retriable: bool = True
    # Whether it is the machine's fault, whichever build was running.
    of_machine: bool = False


KILLED = Failure("killed by a signal")
OOM_KILLED = Failure("killed by the kernel for want of memory")
NATIVE_CRASH = Failure("native crash")
EXCEPTION = Failure("Python exception")
BAD_EXIT = Failure("non-zero exit")
GPU_MEMORY = Failure("out of GPU memory")
DISK_FULL = Failure("disk full", retriable=False, of_machine=True)
HUNG = Failure("hung")
TIMED_OUT = Failure("over the time limit", retriable=False)
NEVER_STARTED = Failure("never started")
# The launcher's process ended while its ranks were alive.
LAUNCHER_DIED = Failure("launcher died")
# A rank's process ended, or lost its connection to other ranks, and nothing says why.
RANK_LOST = Failure("rank lost")
# A node said that it cannot run its share: without the shared file system no attempt ends differently.
NODE_NOT_READY = Failure("node not ready", retriable=False, of_machine=True)
UNREACHABLE = Failure("rendezvous unreachable", of_machine=True)
DIVERGED = Failure("training diverged", retriable=False)
BAD_LOG = Failure("bad log")

_NATIVE_SIGNALS = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})

# The order counts: the allocator's own name comes first, since "out of memory" alone may mean either memory.
_WORDS = (
    (
        GPU_MEMORY,
        r"CUDA out of memory|out of memory error on GPU|CUDA error ?\(2\)|CUDA error: out of memory|CUDA: out of memory"
        r"|cudaErrorMemoryAllocation|CU(?:DNN|BLAS|SOLVER|SPARSE|FFT)_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY"
        r"|cuda failure.{0,20}out of memory|cudaMalloc.{0,40}out of memory|OOM when allocating tensor.{0,200}GPU",
    ),
    (
        DISK_FULL,
        r"no space left on device|disk quota exceeded|ENOSPC|\[Errno 28\]|insufficient shared memory \(shm\)",
    ),
    (
        Failure("out of host memory"),
        r"\bMemoryError\b|cannot allocate memory|std::bad_alloc|ENOMEM|\[Errno 12\]|fail to alloc memory of"
        r"|Failed to allocate CPU Memory",
    ),
    # PyTorch says this of a data worker only if it was killed from outside; a worker's exception is printed as it is.
    (KILLED, r"DataLoader worker \(pid(?:\(s\))? [^)]*\) (?:is killed by signal|exited unexpectedly)"),
    (
        Failure("framework missing", retriable=False),
        r"\bModuleNotFoundError\b|ImportError: [^\n]{0,500}cannot open shared object file",
    ),
    (Failure("data fault", retriable=False, of_machine=True), r"\bDatasetError\b"),
    (DIVERGED, r"\bLossError\b"),
    # If its port is taken, Paddle 3's TCPStore aborts without a message: only its traceback, or libuv's, shows it.
    (
        Failure("port in use", of_machine=True),
        r"address already in use|EADDRINUSE|\[Errno 98\]|TCPServer::create\(|uv__finish_close: Assertion",
    ),
    (
        Failure("host name not resolvable", of_machine=True),
        r"name or service not known|temporary failure in name resolution|no address associated with hostname"
        r"|nodename nor servname|\bgaierror\b|could not resolve host",
    ),
)
_PATTERNS = tuple((failure, re.compile(words, re.IGNORECASE)) for failure, words in _WORDS)
_OF_MACHINE = (UNREACHABLE.what, NODE_NOT_READY.what, *(failure.what for failure, _ in _WORDS if failure.of_machine))
_UNREACHABLE = re.compile(
    r"while the server is not yet listening|no route to host|network is unreachable|connection refused|host is down"
    r"|connection timed out|client socket has (?:timed out|failed to connect)|connection to the C10d store has failed"
    r"|\d+/\d+ clients joined",
    re.IGNORECASE,
)
# What a rank prints when it fails only because another rank ended.
_COMMUNICATION = re.compile(
    r"connection (?:reset|closed|refused)|closed by peer|broken pipe|gloo|nccl|c10d|tcp_?store|timed? ?out"
    r"|collective ops is aborted|socket closed|failed to connect to all addresses",
    re.IGNORECASE,
)
# The last line that Python prints for an uncaught exception. torchrun's own exceptions do not match, since they say
# only that a rank failed.
EXCEPTION_LINE = re.compile(
    r"^(?!torch\.distributed\.elastic\.multiprocessing\.)[\w.]*(?:Error|Exception|Exit|Interrupt)\b.*", re.MULTILINE
)


def is_consequence(reason: str) -> bool:
    """Whether the text of a rank's failure shows that it lost another rank, which is then to blame."""
    return _COMMUNICATION.search(reason) is not None and failure_in(reason) is None


def failure_in(text: str) -> Failure | None:
    """The failure that the text of an exception or an output shows; None if it shows none."""
    return next((failure for failure, pattern in _PATTERNS if pattern.search(text)), None)


def is_of_machine(reason: str) -> bool:
    """Whether the reason of a failed run begins with a failure that is the machine's fault."""
    return reason.startswith(_OF_MACHINE)


def words_of_failure(text: str) -> str:
    """The last line of an output that shows a failure; empty if none does."""
    named = [line.strip() for line in text.splitlines() if failure_in(line) is not None]
    return named[-1] if named else ""


def failure_of_rank(reason: str, started: bool) -> Failure:
    """A rank's failure by the ``reason`` in its footer, which is an exception's class and text.

    ``started``: whether the job had taken a step.
    """
    named = failure_in(reason)
    if named is not None:
        return named
    if not started and _UNREACHABLE.search(reason):
        return UNREACHABLE
    return RANK_LOST if _COMMUNICATION.search(reason) else EXCEPTION


def failure_of_exit(exit_code: int | None, tail: str, started: bool) -> Failure:
    """The failure of a process whose log does not say why it ended.

    ``exit_code`` is None if it is not known; ``tail`` is the end of the process's output, and ``started`` says
    whether the job had taken a step. The output counts before the exit code: an allocator that finds no memory aborts.
    """
    named = failure_in(tail)
    if named is not None:
        return named
    signalled = None if exit_code is None else signal_of(exit_code)
    if not started and waits_for_rendezvous(tail) and signalled not in _NATIVE_SIGNALS | {signal.SIGKILL}:
        return UNREACHABLE
    if signalled is not None:
        return NATIVE_CRASH if signalled in _NATIVE_SIGNALS else KILLED
    if EXCEPTION_LINE.search(tail):
        return failure_of_rank(tail, started)
    return RANK_LOST if exit_code in (None, 0) else BAD_EXIT


def waits_for_rendezvous(tail: str) -> bool:
    """Whether the last lines of an output say that nothing answers at the rendezvous."""
    return any(_UNREACHABLE.search(line) for line in tail.splitlines()[-8:])


def signal_of(exit_code: int) -> signal.Signals | None:
    """The signal that ended a process, from its own status (-9, as Popen has it) or a shell's (137)."""
    number = -exit_code if exit_code < 0 else exit_code - 128
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
# The lists of failed ranks: torch.distributed.run's, which includes the ranks that it ended itself with SIGTERM; and
# that of start_ranks, which marks these.
_LISTED = (
    re.compile(r"rank\s*: \d+ \(local_rank: (?P<rank>\d+)\)\s+exitcode\s*: (?P<code>-?\d+) "),
    re.compile(r"^rank \d+ \(local (?P<rank>\d{1,9})\) failed \w+: exit status (?P<code>-?\d{1,9})$", re.MULTILINE),
)
_ENDED = re.compile(r"^rank \d+ \(local (?P<rank>\d{1,9})\) was ended: exit status", re.MULTILINE)
_SIGNAL_MEANINGS = {
    signal.SIGKILL: "killed from outside",
    signal.SIGSEGV: "a crash in native code",
    signal.SIGBUS: "a full /dev/shm, or a library that was cut short",
    signal.SIGABRT: "native code gave up",
    signal.SIGTERM: "asked to end from outside",
}


def crash_reason(exit_code: int | None, tail: str, first_rank: int = 0, guilty: int | None = None) -> str:
    """One line that says how the process ended and, if its output shows it, why.

    ``first_rank`` is the node's first rank in the job. The node's launcher counts only its own ranks; ``guilty`` is
    counted so too.
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
    return ": ".join(parts) or "ended without a message"


def status_of(exit_code: int | None, tail: str, guilty: int | None = None) -> int | None:
    """The exit status of the rank that the launcher names as the first to fail; if it names none, ``exit_code``.

    With ``guilty``, one of the node's ranks, it is that rank's status; None if the launcher names only other ranks.
    """
    first = _own_end(guilty, tail) or _first_failed(tail)
    if first is None:
        return exit_code
    return first[1] if guilty in (None, first[0]) else None


def failed_first(tail: str) -> int | None:
    """The number, within its node, of the rank that failed first by the launcher's output; None if the output names
    none."""
    first = _first_failed(tail)
    return None if first is None else first[0]


def _first_failed(text: str) -> tuple[int, int] | None:
    """The rank (numbered within its node) that the launcher's output names as the first to fail, and its exit
    status."""
    found = next((match for pattern in _FIRST_FAILED if (match := pattern.search(text))), None)
    return None if found is None else (int(found["rank"]), int(found["code"]))


def ended_by_launcher(tail: str) -> frozenset[int]:
    """The ranks (numbered within their node) that, by its output, the launcher ended because another rank had
    failed."""
    listed = {int(match["rank"]) for match in _LISTED[0].finditer(tail) if int(match["code"]) == -signal.SIGTERM}
    listed |= {int(match["rank"]) for match in _ENDED.finditer(tail)}
    return frozenset(listed - {failed_first(tail)})


def _own_end(rank: int | None, text: str) -> tuple[int, int] | None:
    """The rank and its exit status, if the launcher lists the rank and did not end it itself."""
    if rank in ended_by_launcher(text):
        return None
    found = (match for listed in _LISTED for match in listed.finditer(text) if int(match["rank"]) == rank)
    return next(((int(match["rank"]), int(match["code"])) for match in found), None)


def last_words(tail: str) -> str:
    """The line of an output that names a known fault; else its last exception, or an empty text."""
    exceptions = EXCEPTION_LINE.findall(tail)
    last = exceptions[-1].strip() if exceptions else ""
    if failure_in(last) is None:
        last = words_of_failure(tail) or last
    return last[:200]


def exit_text(exit_code: int) -> str:
    """The exit code in words, such as ``ended by SIGKILL (...)`` or ``exited with 1``; signals as ``signal_of`` reads
    them."""
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

    A launcher may quote so much of that rank's output that its own line is no longer among the last lines.
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
