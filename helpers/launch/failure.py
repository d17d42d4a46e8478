"""Which fault ended a run: the classes, what their words look like, and which are worth another attempt."""

from __future__ import annotations

import enum
import re
import signal


class FailureClass(enum.Enum):
    """The value stands at the beginning of an INFRA_ERROR's reason and in a result's ``facts["failure_class"]``.

    RANK_LOST: a rank's process is gone, or lost its peers, and nothing says how. LAUNCHER_DIED: its ranks lived on.
    """

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
    LAUNCHER_DIED = "launcher died"
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
        """Whether the same run may end otherwise.

        Data, a diverged loss, a missing module and a full disk stay what they are; and a run over its time limit may
        be a build that got slower, which no attempt may hide.
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
# The facts of a result in which its class stands.
FAILURE_FACT = "failure_class"

NATIVE_SIGNALS = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGILL, signal.SIGFPE})

# In this order: the allocator's own name first, since "out of memory" alone may be said of either memory.
_WORDS = (
    (
        FailureClass.GPU_MEMORY,
        r"CUDA out of memory|out of memory error on GPU|CUDA error ?\(2\)|CUDA error: out of memory"
        r"|cudaErrorMemoryAllocation|CU(?:DNN|BLAS|SOLVER|SPARSE|FFT)_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY"
        r"|cuda failure.{0,20}out of memory|cudaMalloc.{0,40}out of memory|OOM when allocating tensor.{0,200}GPU",
    ),
    (
        FailureClass.DISK_FULL,
        r"no space left on device|disk quota exceeded|ENOSPC|\[Errno 28\]|insufficient shared memory \(shm\)",
    ),
    (
        FailureClass.HOST_MEMORY,
        r"\bMemoryError\b|cannot allocate memory|std::bad_alloc|ENOMEM|\[Errno 12\]|fail to alloc memory of",
    ),
    # PyTorch's: its workers die of what the kernel or a person does, since what they raise comes as their own error.
    (FailureClass.KILLED, r"DataLoader worker \(pid(?:\(s\))? [^)]*\) (?:is killed by signal|exited unexpectedly)"),
    (
        FailureClass.FRAMEWORK_MISSING,
        r"\bModuleNotFoundError\b|ImportError: [^\n]*cannot open shared object file",
    ),
    (FailureClass.DATA_FAULT, r"\bDatasetError\b"),
    (FailureClass.DIVERGED, r"\bLossError\b"),
    # Paddle 3's TCPStore says nothing and aborts where its port is taken: only its traceback tells, or that of libuv.
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
# What a rank says that only suffers from another one's end.
_COMMUNICATION = re.compile(
    r"connection (?:reset|closed|refused)|closed by peer|broken pipe|gloo|nccl|c10d|tcp_?store|timed? ?out",
    re.IGNORECASE,
)
# The line that Python prints last of an exception that nobody caught; torchrun's own say only that a rank failed.
EXCEPTION_LINE = re.compile(
    r"^(?!torch\.distributed\.elastic\.multiprocessing\.)[\w.]*(?:Error|Exception|Exit|Interrupt)\b.*", re.MULTILINE
)


def is_consequence(reason: str) -> bool:
    """Whether a rank's failure reads like the loss of a peer, so that the peer is the one to name."""
    return _COMMUNICATION.search(reason) is not None and class_of_words(reason) is None


def class_of_words(text: str) -> FailureClass | None:
    """The class that an exception or an output names; None where it names none."""
    return next((failure for failure, pattern in _PATTERNS if pattern.search(text)), None)


def words_of_class(text: str) -> str:
    """The line of an output that names its class, empty where none does; the last one counts."""
    named = [line.strip() for line in text.splitlines() if class_of_words(line) is not None]
    return named[-1] if named else ""


def class_of_failure(reason: str, started: bool) -> FailureClass:
    """Of a rank that could still say why: ``reason`` is its footer's, an exception's class and text.

    ``started``: whether the job had taken a step.
    """
    named = class_of_words(reason)
    if named is not None:
        return named
    if not started and _UNREACHABLE.search(reason):
        return FailureClass.UNREACHABLE
    return FailureClass.RANK_LOST if _COMMUNICATION.search(reason) else FailureClass.EXCEPTION


def class_of_exit(exit_code: int | None, tail: str, started: bool) -> FailureClass:
    """Of a process that ended without a word in its log; ``tail`` is the end of its output, None an unknown status.

    What was said counts before how it ended: an allocator that gives up aborts.
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
    """Whether the last that an output says is that nobody answers at the rendezvous."""
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
