"""The evidence for a verdict: a case's runs, its references, its earlier nights and its budget of runs. Plain values.

Log rates are natural logarithms of samples/s by the median step.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from helpers.judging.finding import Finding
from helpers.judging.rules.own import MEDIAN_STEP
from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.records import finite

# A case's target and id, by which results, reports and baselines name it.
CaseKey = tuple[str, str]


@dataclass(frozen=True)
class Budget:
    """How many runs a case may take in one night (docs/verdicts.md, "One case, one night" and "The first nights")."""

    # The most runs of the build under test before the case is settled or goes to confirmation.
    screen_runs: Annotated[int, Meta(ge=1, le=100)] = 6
    # Its runs while fewer than 15 nights are known and no reference build is at hand.
    first_runs: Annotated[int, Meta(ge=2, le=100)] = 5
    # The most interleaved pairs of a confirmation.
    pairs: Annotated[int, Meta(ge=3, le=100)] = 40
    # While a reference build is at hand and the level against it is unknown or uncertain, a case is compared with it
    # without a suspicion on one night in so many.
    rotation: Annotated[int, Meta(ge=1, le=100)] = 8
    # How many times an invalid run (throttled, contended, never steady) is repeated.
    repeats: Annotated[int, Meta(ge=0, le=100)] = 2
    # How many times a night repeats a run, of either build, that an infrastructure failure ended.
    retries: Annotated[int, Meta(ge=0, le=10)] = 1
    # How many minutes its runs may take in one night, after the first one; None: as many as they take.
    case_minutes: Annotated[float, Meta(gt=0, lt=24 * 60)] | None = None


class Build(enum.Enum):
    """CANDIDATE is the build under test, REFERENCE the one that is known to be good (``--reference-build``)."""

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
    # The median of the window's losses, if they were fetched.
    loss: float | None = None
    # Why there is no throughput: a crash, a hang, a lost log.
    failure: str | None = None
    # Why the throughput must not be used: contended, throttled, never steady.
    invalid: str | None = None
    # Why this device or build does not run the case.
    refusal: str | None = None
    # Whether another attempt after ``failure`` may succeed.
    retriable: bool = False
    # The kind of static program that it trained (contract.program.ProgramKind); empty without one.
    program: str = ""

    @property
    def usable(self) -> bool:
        """Whether its throughput may be used."""
        return self.failure is self.invalid is self.refusal is None


def invalid_in_a_row(runs: Sequence[RunEvidence]) -> list[str]:
    """The reasons of the longest unbroken row of invalid runs; empty if no run is invalid.

    Only invalid runs in a row are counted, because a confirmation takes many runs, and that is not the machine's fault.
    A failed run inside a row neither ends it nor belongs to it: failures have a limit of their own.
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
class ProgramEvidence:
    """The static program that the build under test made of a GPU case."""

    # A value of contract.program.ProgramKind.
    kind: str
    # Whether a program of this kind may be judged against a published figure.
    is_published: bool
    # In what it differs from the program behind the published figures.
    differences: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublishedReference:
    """A published figure that this device can be compared with."""

    samples_per_s: float
    rule: str
    label: str
    # Whether it sets the case's status. Reference and disputed rows are only shown.
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
    # Whether it sets the case's status. Otherwise it is only shown.
    gates: bool = True
    # The facts in which tonight's segment differs from the recorded one.
    differences: tuple[str, ...] = ()
    # The recorded runs' samples/s by ``rule``.
    replicates: tuple[float, ...] = ()
    # The drop below the figure, as a fraction, beyond which SLOWER fails the case if no reference build is at hand
    # (docs/verdicts.md, "Without a reference build").
    band: float = 0.05
    # The build it was recorded with, named as Evidence.reference_id names builds; empty if that is not known.
    build: str = ""
    # Whether tonight may be compared with the figure. If not (nothing is recorded, or the stack changed), pairs with a
    # reference build decide, and only ``tolerance`` and ``band`` count.
    comparable: bool = True
    # Whether it was measured by another protocol. The nights before may have been, too, so that they stand for nothing.
    other_protocol: bool = False

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

    # The log rates of its screening runs, first run first.
    log_rates: tuple[float, ...]
    # Whether later nights are compared with its first run.
    accepted: bool = True
    # The evidence that the night passed on to the next one.
    evidence: float = 1.0
    # Whether the night's verdict was REGRESSION.
    confirmed_regression: bool = False
    # The first run's, as in RunEvidence.
    stall_share: float | None = None
    # The local date on which its session began, as 2026-11-21.
    date: str = ""
    session: str = ""
    # In a pool, the id of the node on which it was measured.
    node: str = ""

    def __post_init__(self) -> None:
        numbers = (*self.log_rates, self.evidence, self.stall_share or 0.0)
        if not all(map(finite, numbers)) or self.evidence <= 0:
            raise SuiteError(
                f"night {self.session or self.date}",
                got=numbers,
                expected="finite log rates, evidence above 0, a finite stall share",
            )


@dataclass(frozen=True)
class Compared:
    """The interleaved runs of one earlier night, pair by pair."""

    # The reference build's Evidence.reference_id.
    good: str
    # Log rates of the build under test and of the reference build beside it.
    new: tuple[float, ...]
    reference: tuple[float, ...]
    # Whether that night's build was at the level that later nights should have, so that the pairs give the level of the
    # segment against the reference build.
    teaches_level: bool = True
    # Whether the reference build ran as it usually does, so that later nights compare it with these log rates of its
    # own.
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

    # Oldest first: the newest 40 accepted nights, and the nights between and after them.
    nights: tuple[Night, ...] = ()
    # The series towards which noise is shrunk: the first log rates of the accepted nights of this machine's other cases
    # with as many cards, one series a case, oldest first.
    siblings: tuple[tuple[float, ...], ...] = ()
    # Why the history did not answer; empty if it did. If it did not, the other fields are empty, which means
    # unknown.
    unreachable: str = ""
    # Oldest first, at most 40: the nights on which a reference build ran too, from the night on which the case was last
    # recorded or a gain was confirmed.
    compared: tuple[Compared, ...] = ()
    # The same of the case's other segments on this machine (another driver, library or line of the framework). Their
    # differences teach the level too, but their log rates say nothing about tonight's.
    elsewhere: tuple[Compared, ...] = ()
    # Whether a gain was confirmed after the case was recorded.
    gained: bool = False
    # Whether the segment belongs to a pool, whose nights were measured on several nodes.
    pool: bool = False
    # The standard deviation of log rates between runs by the segment's newest calibration; 0 without one.
    calibrated: float = 0.0


@dataclass(frozen=True)
class Evidence:
    """Everything from which a verdict is computed."""

    case_id: str
    # The case's own measuring rule.
    rule: str
    # The protocol's number of runs.
    planned_runs: int
    runs: tuple[RunEvidence, ...] = ()
    published: tuple[PublishedReference, ...] = ()
    recorded: RecordedReference | None = None
    # The keys of settings that were changed.
    overrides: tuple[str, ...] = ()
    # Those of them that are known not to change the throughput, each with the reason.
    neutral: Mapping[str, str] = field(default_factory=dict)
    # Whether the session records (--update-baselines).
    to_record: bool = False
    past: Past = field(default_factory=Past)
    budget: Budget = field(default_factory=Budget)
    # The name of the reference build at hand; None without one.
    reference_build: str | None = None
    # Its framework, version, commit and digest, which are the same whatever environment it is in.
    reference_id: str = ""
    # Why the case has no reference build at hand; empty if none was given.
    why_no_reference: str = ""
    # Why the case is to be confirmed whatever its own runs say: it belongs to a group of cases that fell together.
    suspicion: Finding | None = None
    # The number of selected cases. The error rates hold over all of them together.
    cases_tonight: int = 1
    # The number of the night, by the local date on which its session began (wall_clock.night_number). It decides whose
    # turn it is for unasked pairs.
    day: int = 0
    # It decides which build is first in the first pair, and stays the same when a session is resumed.
    seed: str = ""
    # Whether the case passes only with a recorded figure; None means only where no published figure decides here.
    recorded_required: bool | None = None
    # None without a static program on a GPU.
    program: ProgramEvidence | None = None
    # The smallest change that counts, and the band, where nothing is recorded (RecordedReference).
    tolerance: float = 0.005
    band: float = 0.05

    @property
    def record_options(self) -> str:
        """The options of pytest with which the case is recorded."""
        return f"--update-baselines -k {self.case_id}"

    @property
    def entry(self) -> RecordedReference:
        """What is recorded. Where nothing is, it is compared with nothing, and its tolerance and band alone count."""
        if self.recorded is not None:
            return self.recorded
        return RecordedReference(1.0, MEDIAN_STEP, "", self.tolerance, band=self.band, comparable=False)

    @property
    def screened(self) -> tuple[RunEvidence, ...]:
        """The usable screening runs."""
        mine = Build.CANDIDATE, Stage.SCREEN
        return tuple(run for run in self.runs if run.usable and (run.build, run.stage) == mine)

    def in_pairs(self, build: Build) -> tuple[RunEvidence, ...]:
        """The usable confirmation runs of a build."""
        return tuple(run for run in self.runs if run.usable and (run.build, run.stage) == (build, Stage.CONFIRM))


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
