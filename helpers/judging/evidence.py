"""What a verdict rests on: the runs of a case and the references it is held against. Plain values.

How many runs a case may take in one night."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.job import finite


@dataclass(frozen=True)
class Budget:
    """Runs of one case in one night (docs/verdicts.md, "Judge" and "No history").

    - ``screen_runs``: the most runs of the build under test before its answer is settled or to be confirmed.
    - ``first_runs``: its restarts while fewer than 15 nights are known and no reference build is at hand.
    - ``pairs``: the most interleaved pairs of a confirmation.
    - ``rotation``: while fewer than 15 nights are known and a reference build is at hand, every how many nights a
      case is confirmed without being suspected; twice as often while its level against that build is unknown or
      nothing explains where its nights stand.
    - ``repeats``: how many times a run that is invalid (throttled, contended, never steady) is made again.
    - ``retries``: how often in one night, over both builds, a run that an infrastructure failure ended is made again.
    """

    screen_runs: int = 6
    first_runs: int = 5
    pairs: int = 40
    rotation: int = 16
    repeats: int = 2
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
    """One run as judge() sees it.

    ``figures`` maps each rule to samples/s, or to the reason why it does not apply. ``log_rate`` is the natural
    logarithm of the samples/s by the median step, ``stall_share`` mean over median step seconds
    minus 1, ``loss`` the median of the window's losses where they were fetched. ``failure`` is
    why there is no throughput (crash, hang, lost log) and ``retriable`` whether another attempt may end otherwise,
    ``invalid`` why it must not be used (contended, throttled), ``refusal`` why this device or build does not run the
    case.
    """

    figures: Mapping[str, float | str] = field(default_factory=dict)
    build: Build = Build.CANDIDATE
    stage: Stage = Stage.SCREEN
    log_rate: float | None = None
    stall_share: float | None = None
    loss: float | None = None
    failure: str | None = None
    invalid: str | None = None
    refusal: str | None = None
    retriable: bool = False

    @property
    def usable(self) -> bool:
        """Whether its throughput may be used."""
        return self.failure is self.invalid is self.refusal is None


def invalid_in_a_row(runs: Sequence[RunEvidence]) -> list[str]:
    """Why the runs of the longest row of invalid ones are invalid; empty where none is.

    In a row, as the number of runs that a confirmation takes is no fault of the machine's. A failed run between them
    neither ends the row nor belongs to it: it has a bound of its own.
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
    """A published figure that this device can be held against; ``gates`` only for rows marked so."""

    samples_per_s: float
    rule: str
    label: str
    gates: bool
    tolerance: float

    def __post_init__(self) -> None:
        _check_reference(self)


@dataclass(frozen=True)
class RecordedReference:
    """What this machine recorded; ``differences`` names in what tonight's segment differs from it.

    ``tolerance`` is the smallest change that counts, as a fraction. ``replicates`` are the recorded runs' samples/s
    by ``rule``. ``band``: the drop below the figure, as a fraction, beyond which SLOWER fails the case where no good
    build is at hand (docs/verdicts.md, "No good build"). ``build``: which build it was recorded with, as
    Evidence.reference_id names builds; empty where nobody knows.
    """

    samples_per_s: float
    rule: str
    label: str
    tolerance: float
    gates: bool = True
    differences: tuple[str, ...] = ()
    replicates: tuple[float, ...] = ()
    band: float = 0.05
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
    """One earlier night of a case in its present segment: the ``log_rates`` of its screening runs, first run first.

    ``accepted``: whether the first run belongs to what later nights are held against. ``confirmed_regression``:
    whether that night's verdict was REGRESSION. ``evidence`` is what it carried on. ``node``: of a pool, the id of the
    node that it was measured on.
    """

    log_rates: tuple[float, ...]
    accepted: bool = True
    evidence: float = 1.0
    confirmed_regression: bool = False
    stall_share: float | None = None
    created: str = ""
    session: str = ""
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
    """The interleaved runs of one earlier night: log rates of the build under test (``new``) and of the good build
    ``good`` beside it (``reference``), pair by pair.

    ``teaches_level``: whether that night's build stood where later nights are to stand, so that the pairs tell the
    level of the segment against the good build. ``teaches_good``: whether the good build ran as it usually does, so
    that its log rates are what it is held against itself.
    """

    good: str
    new: tuple[float, ...]
    reference: tuple[float, ...]
    teaches_level: bool = True
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
    """What history knows of a case in tonight's segment.

    ``nights``, oldest first, hold the newest 40 accepted ones and what lies between and after them.
    ``siblings`` are the accepted nights' first log rates of the other cases of this machine with as many cards,
    one series a case, oldest first: what noise is shrunk towards. ``unexplained``: as the newest night left it
    (Standing). ``compared``, oldest first, at most 40: the nights on which a good build ran too, since the case was
    last recorded or a gain confirmed, with that night itself; also those before an unexplained beginning.
    ``gained``: whether a confirmed gain came after what was recorded. ``pool``: whether the segment is a
    pool's, whose nights are of several nodes. ``calibrated``: the standard deviation between runs, of log rates, that
    the newest calibration in the segment found; 0 without one. ``unreachable``: why the history could not be
    asked, empty where it was; the rest is then empty, and unknown.
    """

    nights: tuple[Night, ...] = ()
    siblings: tuple[tuple[float, ...], ...] = ()
    unexplained: bool = False
    unreachable: str = ""
    compared: tuple[Compared, ...] = ()
    gained: bool = False
    pool: bool = False
    calibrated: float = 0.0


@dataclass(frozen=True)
class Evidence:
    """Everything a verdict rests on. ``planned_runs`` is the protocol's number of replicates.

    - ``past``: the nights before this one; ``budget``: how many runs the case may take.
    - ``reference_build``: what the reference build at hand is called, None without one; ``why_no_reference`` then
      says why this case has none (empty: none was given). ``reference_id``: its framework, version, commit and digest,
      the same whatever environment it is in.
    - ``suspicion``: why the case is to be confirmed whatever its own runs say (a group of cases that fell together).
    - ``cases_tonight``: the selected cases, over which the error rates hold together.
    - ``why_not_recorded``: why no recorded figure is asked (runs that were read from logs); empty: none is recorded.
    - ``recorded_required``: whether the case passes only with a recorded figure; None: only where no published figure
      that decides here is there to pass.
    - ``seed``: decides which build is first in the first pair; the same when a session is resumed.

    ``overrides`` are the keys of changed settings; ``neutral`` those of them that are known to leave the
    throughput alone, each with the reason.
    """

    case_id: str
    rule: str
    planned_runs: int
    runs: tuple[RunEvidence, ...] = ()
    published: tuple[PublishedReference, ...] = ()
    recorded: RecordedReference | None = None
    overrides: tuple[str, ...] = ()
    neutral: Mapping[str, str] = field(default_factory=dict)
    record_command: str = "pytest perf_tests --update-baselines"
    past: Past = field(default_factory=Past)
    budget: Budget = field(default_factory=Budget)
    reference_build: str | None = None
    reference_id: str = ""
    why_no_reference: str = ""
    suspicion: str = ""
    cases_tonight: int = 1
    seed: str = ""
    why_not_recorded: str = ""
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
