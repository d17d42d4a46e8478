"""What a verdict rests on: a case's runs, its references, its earlier nights and its budget of runs. Plain values.

Log rates are natural logarithms of samples/s by the median step.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.job import finite


@dataclass(frozen=True)
class Budget:
    """How many runs a case may take in one night (docs/verdicts.md, "Judge" and "No history")."""

    # The most runs of the build under test before its answer is settled or goes to confirmation.
    screen_runs: int = 6
    # Its runs while fewer than 15 nights are known and no reference build is at hand.
    first_runs: int = 5
    # The most interleaved pairs of a confirmation.
    pairs: int = 40
    # Every how many nights a case is confirmed without a suspicion, while a reference build is at hand and fewer than
    # 15 nights are known; twice as often while the level against that build is unknown or nothing explains where the
    # nights stand.
    rotation: int = 16
    # How many times an invalid run (throttled, contended, never steady) is made again.
    repeats: int = 2
    # How many times a night makes a run again, of either build, that an infrastructure failure ended.
    retries: int = 1


class Build(enum.Enum):
    """CANDIDATE is the build under test, REFERENCE the pinned good one (``--reference-env``)."""

    CANDIDATE = "candidate"
    REFERENCE = "reference"


class Stage(enum.Enum):
    """SCREEN: runs of the build under test alone. CONFIRM: both builds in turn, on the same cards."""

    SCREEN = "screen"
    CONFIRM = "confirm"


@dataclass(frozen=True)
class RunEvidence:
    """One run as judge() sees it."""

    # Each rule's samples/s, or the reason why the rule does not apply.
    figures: Mapping[str, float | str] = field(default_factory=dict)
    build: Build = Build.CANDIDATE
    stage: Stage = Stage.SCREEN
    log_rate: float | None = None
    # Mean over median of the step seconds, minus 1.
    stall_share: float | None = None
    # The median of the window's losses, where they were fetched.
    loss: float | None = None
    # Why there is no throughput: a crash, a hang, a lost log.
    failure: str | None = None
    # Why the throughput must not be used: contended, throttled, never steady.
    invalid: str | None = None
    # Why this device or build does not run the case.
    refusal: str | None = None
    # Whether another attempt after ``failure`` may end otherwise.
    retriable: bool = False

    @property
    def usable(self) -> bool:
        """Whether its throughput may be used."""
        return self.failure is self.invalid is self.refusal is None


def invalid_in_a_row(runs: Sequence[RunEvidence]) -> list[str]:
    """The reasons of the longest unbroken row of invalid runs; empty where no run is invalid.

    A row is counted and not all runs, because a confirmation takes many runs and that is no fault of the machine's. A
    failed run inside a row neither ends it nor belongs to it: failures have a bound of their own.
    """
    longest: list[str] = []
    row: list[str] = []
    for run in runs:
        if run.failure is not None:
            continue
        row = [] if run.invalid is None else [*row, run.invalid]
        longest = max(longest, row, key=len)
    return longest


@dataclass(frozen=True)
class PublishedReference:
    """A published figure that this device can be held against."""

    samples_per_s: float
    rule: str
    label: str
    # Whether it sets the case's status; reference and disputed rows are only shown.
    gates: bool
    # The band below the figure, as a fraction.
    tolerance: float

    def __post_init__(self) -> None:
        _check_reference(self)


@dataclass(frozen=True)
class RecordedReference:
    """What this machine recorded for the case."""

    samples_per_s: float
    rule: str
    label: str
    # The smallest change that counts, as a fraction.
    tolerance: float
    # Whether it sets the case's status; else it is only shown.
    gates: bool = True
    # The facts in which tonight's segment differs from the recorded one.
    differences: tuple[str, ...] = ()
    # The recorded runs' samples/s by ``rule``.
    replicates: tuple[float, ...] = ()
    # The drop below the figure, as a fraction, beyond which SLOWER fails the case where no good build is at hand
    # (docs/verdicts.md, "No good build").
    band: float = 0.05
    # The build it was recorded with, named as Evidence.reference_id names builds; empty where that is not known.
    build: str = ""

    def __post_init__(self) -> None:
        _check_reference(self)
        if not finite(self.band) or not 0 < self.band < 1:
            raise SuiteError(f"reference {self.label}", field="band", got=self.band, expected="above 0 and below 1")
        for rate in self.replicates:
            if not finite(rate) or rate <= 0:
                raise SuiteError(
                    f"reference {self.label}", field="replicates", got=rate, expected="images/s, finite and above 0"
                )


@dataclass(frozen=True)
class Night:
    """One earlier night of a case in its present segment."""

    # Of its screening runs, first run first.
    log_rates: tuple[float, ...]
    # Whether the first run belongs to what later nights are held against.
    accepted: bool = True
    # What the night carried on to the next one.
    evidence: float = 1.0
    # Whether the night's verdict was REGRESSION.
    confirmed_regression: bool = False
    # Of the first run, as in RunEvidence.
    stall_share: float | None = None
    created: str = ""
    session: str = ""
    # In a pool, the id of the node that it was measured on.
    node: str = ""

    def __post_init__(self) -> None:
        numbers = (*self.log_rates, self.evidence, self.stall_share or 0.0)
        if not all(map(finite, numbers)) or self.evidence <= 0:
            raise SuiteError(
                f"night {self.session or self.created}",
                got=numbers,
                expected="finite log rates, evidence above 0, a finite stall share",
            )


@dataclass(frozen=True)
class Compared:
    """The interleaved runs of one earlier night, pair by pair."""

    # The good build's Evidence.reference_id.
    good: str
    # Log rates of the build under test and of the good build beside it.
    new: tuple[float, ...]
    reference: tuple[float, ...]
    # Whether that night's build stood where later nights are to stand, so that the pairs tell the level of the segment
    # against the good build.
    teaches_level: bool = True
    # Whether the good build ran as it usually does, so that later nights hold it against these log rates of its own.
    teaches_good: bool = True

    def __post_init__(self) -> None:
        if len(self.new) != len(self.reference) or not all(map(finite, (*self.new, *self.reference))):
            raise SuiteError(
                f"pairs with {self.good}",
                got=(self.new, self.reference),
                expected="as many finite log rates of either build",
            )


@dataclass(frozen=True)
class Past:
    """What history knows of a case in tonight's segment."""

    # Oldest first: the newest 40 accepted nights, and what lies between and after them.
    nights: tuple[Night, ...] = ()
    # What noise is shrunk towards: the accepted nights' first log rates of the other cases of this machine with as
    # many cards, one series a case, oldest first.
    siblings: tuple[tuple[float, ...], ...] = ()
    # As the newest night left it (verdict.Standing).
    unexplained: bool = False
    # Why the history did not answer, empty where it did; the rest is then empty, and unknown.
    unreachable: str = ""
    # Oldest first, at most 40: the nights on which a good build ran too, since the case was last recorded or a gain
    # confirmed, with that night itself, and also those before a beginning that nothing explains.
    compared: tuple[Compared, ...] = ()
    # Whether a confirmed gain came after what was recorded.
    gained: bool = False
    # Whether the segment is a pool's, whose nights are of several nodes.
    pool: bool = False
    # Standard deviation of log rates between runs that the segment's newest calibration found; 0 without one.
    calibrated: float = 0.0


@dataclass(frozen=True)
class Evidence:
    """Everything that a verdict rests on."""

    case_id: str
    # The case's own measuring rule.
    rule: str
    # The protocol's number of runs.
    planned_runs: int
    runs: tuple[RunEvidence, ...] = ()
    published: tuple[PublishedReference, ...] = ()
    recorded: RecordedReference | None = None
    # Keys of changed settings.
    overrides: tuple[str, ...] = ()
    # Those of them that are known to leave the throughput alone, each with the reason.
    neutral: Mapping[str, str] = field(default_factory=dict)
    record_command: str = "pytest perf_tests --update-baselines"
    past: Past = field(default_factory=Past)
    budget: Budget = field(default_factory=Budget)
    # What the reference build at hand is called, None without one.
    reference_build: str | None = None
    # Its framework, version, commit and digest, which are the same whatever environment it is in.
    reference_id: str = ""
    # Why the case has no reference build at hand; empty where none was given.
    why_no_reference: str = ""
    # Why the case is to be confirmed whatever its own runs say: it belongs to a group of cases that fell together.
    suspicion: str = ""
    # The number of selected cases, over which the error rates hold together.
    cases_tonight: int = 1
    # Decides which build is first in the first pair; it stays the same when a session is resumed.
    seed: str = ""
    # Why the case is held against no recorded figure (its runs were read from logs); empty: none is recorded.
    why_not_recorded: str = ""
    # Whether the case passes only with a recorded figure; None: only where no published figure decides here.
    recorded_required: bool | None = None


def _check_reference(reference: PublishedReference | RecordedReference) -> None:
    """NaN compares false with everything, so a reference that holds one would pass every case."""
    if not finite(reference.samples_per_s) or reference.samples_per_s <= 0:
        raise SuiteError(
            f"reference {reference.label}",
            field="samples_per_s",
            got=reference.samples_per_s,
            expected="images/s, finite and above 0",
        )
    if not finite(reference.tolerance) or not 0 <= reference.tolerance <= 1:
        raise SuiteError(
            f"reference {reference.label}", field="tolerance", got=reference.tolerance, expected="a share from 0 to 1"
        )
