"""What must hold when a fault has ended a case, and when a disturbed session goes on."""

from __future__ import annotations

import re
from typing import Any

from tests.faults.fault import Seen, expect
from tests.faults.workshop import LIMITS, Finished, Workshop

EXIT_OK, EXIT_INTERRUPTED, EXIT_USAGE, EXIT_NOT_JUDGED = 0, 2, 4, 6
# A fault prints this before it strikes, and the tail of the case's log must show it.
LAST_WORDS = "the last words of rank"
NO_PADDLE = "the interpreter has no paddle.distributed.launch"


def one_attempt(workshop: Workshop, **limits: float) -> dict[str, float]:
    """Allow no retries, so that a fault that comes every time costs its row one run. Returns all limits."""
    wanted = {**LIMITS, **limits}

    def change(config: dict[str, Any]) -> None:
        config["budgets"]["retries"] = 0
        config["limits"].update(wanted)

    workshop.configure(change)
    return wanted


def infra_error(
    workshop: Workshop,
    done: Finished,
    *expected: str,
    rank: int | None = None,
    limit_seconds: float = 0.0,
    words: bool = True,
    also: tuple[str, ...] = (),
) -> Seen:
    """Expects INFRA_ERROR and exit code 6, with all ``expected`` texts in the reason and nothing else lost or left.

    The first text is the failure's class, with which the reason begins. ``rank`` is the first one that the reason has.
    A watchdog sees the fault ``limit_seconds`` after its mark. With ``words`` the log's tail must show LAST_WORDS.
    ``also`` are further problems that the row has found.
    """
    named = re.search(r"\brank (\d+)", done.reason)
    seconds = done.end_seconds
    wrong = expect(
        (done.status == "INFRA_ERROR", f"status {done.status}"),
        (done.exit_code == EXIT_NOT_JUDGED, f"exit code {done.exit_code}"),
        (done.reason.startswith(expected[0]), f"the class {expected[0]!r} does not come first: {done.reason}"),
        *((each in done.reason, f"{each!r} is missing: {done.reason}") for each in expected[1:]),
        (rank is None or (named is not None and int(named[1]) == rank), f"rank {rank} not named: {done.reason}"),
        (not words or LAST_WORDS in done.output, f"no log tail: {done.output[-600:]}"),
        (not done.marks or seconds is not None, "the job was not seen to end"),
        (bool(done.marks) or not words, "the fault was not made"),
    )
    if seconds is not None:
        seconds = max(0.0, seconds - limit_seconds)
    return Seen(done.status, done.exit_code, done.reason, seconds, len(done.left), workshop.lost(), (*wrong, *also))


def ended_as(
    workshop: Workshop,
    done: Finished,
    status: str,
    exit_code: int,
    *checks: tuple[bool, str],
    also: tuple[str, ...] = (),
) -> Seen:
    """Expects this status and exit code, and that the ``checks`` hold. ``also`` are further problems."""
    wrong = expect(
        (done.status == status, f"status {done.status}: {done.reason}"),
        (done.exit_code == exit_code, f"exit code {done.exit_code}: {done.output[-600:]}"),
        *checks,
    )
    return Seen(done.status, done.exit_code, done.reason, None, len(done.left), workshop.lost(), (*wrong, *also))


def measured(workshop: Workshop, done: Finished, *checks: tuple[bool, str]) -> Seen:
    """Expects that the case was measured all the same: it is NO_BASELINE, since a workshop has recorded nothing."""
    return ended_as(workshop, done, "NO_BASELINE", EXIT_OK, *checks)
