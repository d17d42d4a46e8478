"""The classes of failures of a job. The class decides whether the run is tried again. Pure."""

from __future__ import annotations

import enum


class FailureClass(enum.Enum):
    """Classes of failures. The value begins the reason of an INFRA_ERROR and is in a result's
    ``facts["failure_class"]``."""

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
    # The launcher's process ended while its ranks were alive.
    LAUNCHER_DIED = "launcher died"
    # A rank's process ended, or lost its connection to other ranks, and nothing says why.
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

        Bad data, a diverged loss, a missing module or a full disk would fail again. A run over its time limit may be a
        build that got slower, which another attempt must not hide.
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
# The key of the failure class in the facts of a result.
FAILURE_FACT = "failure_class"
