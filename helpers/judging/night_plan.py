"""The plan of a night of limited time: its cases, how each is measured, and what is kept. Pure.

helpers.judging.night_layout makes it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# On an ordinary night one of 16 cases is suspected (docs/verdicts.md, "One case, one night"). A case that is compared
# in pairs unasked is confirmed with certainty, so it counts as 16 cases in the night's correction.
PAIRS_COUNT_AS = 16
# More runs, and pairs that nothing asks for, leave time to confirm a drop in one of so many cases. Without that, nights
# of double time on which four of 60 cases were slower did not reach their last ones (docs/verdicts.md, "Nights of
# limited time").
_A_DROP_IN = 16

# Where the seconds of a run come from if nothing is known of any run.
GUESSED = "a guess: limits.start_up_seconds"

Key = tuple[str, str]


@dataclass(frozen=True)
class CaseNeed:
    """What is known of a case before the night."""

    case_id: str
    target: str
    # One run, from its start to its end, and where that number comes from.
    run_seconds: float
    seconds_from: str
    # Standard deviations of log rates between runs and between nights.
    sigma: float
    tau: float
    # The runs that are made in any case, and the most of them while the answer is open.
    least_runs: int = 1
    most_runs: int = 6
    # The most pairs with the good build; 0 if none is at hand.
    pairs: int = 0
    # The smallest change that counts, as a fraction.
    tolerance: float = 0.005
    # The probability that pairs are made although nothing is suspected (budgets.rotation).
    unasked: float = 0.0
    # Whether there is a recorded figure, without which no drop is found.
    recorded: bool = True
    weight: float = 1.0
    # The nights of this machine since the case was last measured, tonight included; for a case that was never measured,
    # all that are known.
    waited: int = 1
    # The day, as 2026-11-23; empty if it was never measured here.
    last_measured: str = ""

    @property
    def key(self) -> Key:
        return self.target, self.case_id


@dataclass(frozen=True)
class Choice:
    """One way to measure a case. Minutes are expectations for an unchanged build, but for ``drop_minutes``."""

    runs: int
    # Whether it is compared with the good build in pairs, whatever its runs show.
    in_pairs: bool
    # Of the runs of the build under test alone, and of all pairs.
    screening_minutes: float
    pairs_minutes: float
    # The variance of ``pairs_minutes``.
    variance: float
    # The smallest drop that is found with 80% power at the threshold of a night of 60 cases, as a fraction;
    # LARGEST_REPORTED if none is.
    drop: float
    # What the pairs take that confirm a drop of a few percent, beyond those that are planned; 0 if none can be made.
    drop_minutes: float = 0.0

    @property
    def minutes(self) -> float:
        return self.screening_minutes + self.pairs_minutes

    @property
    def kept_minutes(self) -> float:
        """The part that is kept for a confirmation; pairs that are planned are not kept, they are made."""
        return 0.0 if self.in_pairs else self.pairs_minutes

    @property
    def counts_as(self) -> int:
        """How many cases it is in the night's correction."""
        return PAIRS_COUNT_AS if self.in_pairs else 1


class Why(enum.Enum):
    """Why a case is measured tonight, or is not."""

    # There is no limit: the night is as it is configured.
    CONFIGURED = "as configured"
    DUE = "due"
    # Too much would be due on a later night.
    AHEAD = "ahead of time"
    GAIN = "finds most a minute"
    # Others find more a minute.
    LATER = "later"
    # It is due and there is no time for it; it is tried at the night's end.
    NO_TIME = "due, and no time"


@dataclass(frozen=True)
class PlannedCase:
    """A case in a night's plan."""

    need: CaseNeed
    why: Why
    # None for a case that is not measured tonight. A case that is due without time has one, too.
    choice: Choice | None
    # In how many nights at the latest it is measured: 0 is tonight.
    due_in: int
    # The smallest drop that tonight finds with 80% power, and that any night of a week finds, as fractions, at the
    # nights' own thresholds; or None.
    # ``with_week`` (helpers.judging.night_layout) sets the second one.
    drop: float | None = None
    week_drop: float | None = None

    @property
    def key(self) -> Key:
        return self.need.key

    @property
    def tonight(self) -> bool:
        """Whether the plan has time for it."""
        return self.choice is not None and self.why is not Why.NO_TIME


@dataclass(frozen=True)
class NightLimits:
    """How long a night may take. Without ``minutes`` every case is measured, as it is configured."""

    minutes: float | None = None
    search_minutes: float = 0.0
    every_nights: int = 7


@dataclass(frozen=True)
class NightPlan:
    """A night as it is laid out."""

    limits: NightLimits
    # In the order of measuring; first those with time, then those that are due without.
    tonight: tuple[PlannedCase, ...]
    no_time: tuple[PlannedCase, ...]
    # Not measured tonight; the one that is due first comes first.
    later: tuple[PlannedCase, ...]
    # What every case at least once in ``every_nights`` takes of a night, with what is kept.
    needed_minutes: float
    # What the reader has to know of the plan besides; empty if nothing.
    note: str = ""

    @property
    def screening_minutes(self) -> float:
        """The runs that are planned."""
        return sum(each.minutes - each.kept_minutes for each in self.choices)

    @property
    def confirmation_minutes(self) -> float:
        """What is kept to confirm suspects and, as far as there is time, drops."""
        return self._suspects_minutes + self.drops_minutes

    @property
    def drops_minutes(self) -> float:
        """The part of it that is kept for drops; 0 without a limit."""
        if self.limits.minutes is None:
            return 0.0
        left = self.limits.minutes - self.limits.search_minutes - self.screening_minutes - self._suspects_minutes
        return max(0.0, min(left, drops_minutes(self.choices)))

    @property
    def _suspects_minutes(self) -> float:
        return sum(each.kept_minutes for each in self.choices) + margin_minutes(self.choices)

    @property
    def choices(self) -> tuple[Choice, ...]:
        """How the cases are measured for which the plan has time."""
        return tuple(each.choice for each in self.tonight if each.choice is not None)

    @property
    def spare_minutes(self) -> float:
        """What no case can use; 0 without a limit."""
        if self.limits.minutes is None:
            return 0.0
        used = self.screening_minutes + self.confirmation_minutes + self.limits.search_minutes
        return max(0.0, self.limits.minutes - used)

    @property
    def counted(self) -> int:
        """How many cases the night's correction counts: those that are laid out, a case in pairs as several."""
        return counted_of([each.choice for each in (*self.tonight, *self.no_time) if each.choice is not None])

    @property
    def keeps_its_word(self) -> bool:
        """Whether every case is measured at least once in ``every_nights``."""
        return not self.no_time and (self.limits.minutes is None or self.needed_minutes <= self.limits.minutes)


def counted_of(choices: Sequence[Choice]) -> int:
    """How many cases the night's correction counts."""
    return max(1, sum(each.counts_as for each in choices))


def margin_minutes(choices: Iterable[Choice]) -> float:
    """Two standard deviations of the time of all confirmations, which are kept beyond what is expected. With one, quiet
    nights often ended before their last cases, and measured no more (docs/verdicts.md, "Nights of limited time")."""
    return 2 * math.sqrt(sum(each.variance for each in choices))


def drops_minutes(choices: Sequence[Choice]) -> float:
    """What it takes to confirm a drop in one of 16 of the cases in which one can be confirmed, and in at least one; of
    each as much as such cases take on average."""
    each_takes = [each.drop_minutes for each in choices if each.drop_minutes]
    return max(1 / _A_DROP_IN, 1 / max(len(each_takes), 1)) * sum(each_takes)
