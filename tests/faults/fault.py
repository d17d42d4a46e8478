"""A row of the fault table: what is broken, and what was seen when the suite met it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.faults.workshop import Workshop

# A job has to be gone so many seconds after its fault was seen.
MOST_SECONDS = 10.0


@dataclass(frozen=True)
class Seen:
    """What became of one fault."""

    # Of the case.
    status: str
    # Of the suite.
    exit_code: int | None
    message: str
    # From when the fault was seen to the end of the job's last process; None where no job was running.
    seconds: float | None = None
    # Processes that were still alive when the suite had ended.
    left: int = 0
    # Finished results that are nowhere.
    lost: int = 0
    # Everything that is not as it must be.
    wrong: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """``wrong``, and what no fault may cost: processes left, results lost, a late end."""
        found = list(self.wrong)
        if self.left:
            found.append(f"{self.left} processes left")
        if self.lost:
            found.append(f"{self.lost} results lost")
        if self.seconds is not None and self.seconds > MOST_SECONDS:
            found.append(f"ended only after {self.seconds:.1f} s")
        return tuple(found)


@dataclass(frozen=True)
class Fault:
    """One fault of the table. ``row`` is its number in the list of faults that a night meets (README).

    ``make`` breaks something for real in a fresh workshop and runs the suite against it. ``needs`` says why this
    machine cannot make the fault, empty where it can.
    """

    row: int
    name: str
    what: str
    make: Callable[[Workshop], Seen]
    needs: Callable[[], str] = lambda: ""


def expect(*checks: tuple[bool, str]) -> tuple[str, ...]:
    """The texts of the checks that fail."""
    return tuple(words for right, words in checks if not right)
