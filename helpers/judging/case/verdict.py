"""The results of judging: statuses, the answers to its two questions, a verdict, or a request for runs."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from helpers.judging.case.evidence import Build, Evidence, PublishedReference, RecordedReference, Stage
from helpers.judging.finding import Code, Finding, found
from helpers.judging.statistics import EffectSize, Summary

# The largest drop of which it is known whether tonight would have found it, as a fraction.
LARGEST_REPORTED = 0.5


class Status(enum.Enum):
    """A case's status, worst first (docs/reference.md, "Statuses"); NOT_RUN has no place in the order."""

    INFRA_ERROR = "INFRA_ERROR"
    INVALID = "INVALID"
    REGRESSION = "REGRESSION"
    SLOWER = "SLOWER"
    BELOW_PUBLISHED = "BELOW_PUBLISHED"
    INCOMPARABLE = "INCOMPARABLE"
    INCONCLUSIVE = "INCONCLUSIVE"
    NO_BASELINE = "NO_BASELINE"
    IMPROVEMENT = "IMPROVEMENT"
    PASS = "PASS"
    NOT_RUN = "not run"

    @property
    def badness(self) -> int:
        """0 is the worst."""
        return list(Status).index(self)


@dataclass(frozen=True)
class Reason:
    """Why a verdict is as it is. helpers/report/reasons.py makes its sentences."""

    code: str
    # A sentence from elsewhere: an error, a refusal.
    text: str = ""
    findings: tuple[Finding, ...] = ()

    @staticmethod
    def of(first: Finding, *more: Finding | None, code: str = "") -> Reason:
        """The reason for ``first``, with further findings; its code is that of ``first`` if no other is given."""
        return Reason(code or first.code.value, findings=(first, *(each for each in more if each is not None)))


@dataclass(frozen=True)
class SubVerdict:
    """The answer to one of the two questions: whether the machine delivers what a document prints, and whether the
    build is slower than before."""

    status: Status
    reason: Reason
    # The measuring rule of the two figures below.
    rule: str = ""
    # Both in samples/s.
    measured: float | None = None
    reference: float | None = None
    # The smallest change that counts, as a fraction.
    tolerance: float | None = None
    # The name of the reference in a message.
    label: str = ""
    # False for what is only shown (reference and disputed rows, a program that is not the published one).
    sets_status: bool = True

    @property
    def ratio(self) -> float | None:
        if self.measured is None or self.reference is None:
            return None
        return self.measured / self.reference


@dataclass(frozen=True)
class PairStanding:
    """What a night's interleaved pairs leave to later nights."""

    count: int
    # Their e-value for the likelier direction.
    evidence: float
    # The level of the accepted nights against the reference build, with which the pairs were compared, and its standard
    # error in the logarithm; None if it was not known.
    level: float | None = None
    level_error: float | None = None
    # The effect of the reference build tonight against its own earlier figures; None if those are not known.
    good_shift: float | None = None
    # Whether both builds were slower tonight than their own earlier figures, by about as much.
    machine_slow: bool = False
    # What later nights learn from the pairs (evidence.Compared).
    teaches_level: bool = False
    teaches_good: bool = False


@dataclass(frozen=True)
class Standing:
    """What a night leaves to later nights: one case's numbers in the sequential test.

    docs/verdicts.md, "One case, one night". Log rates are natural logarithms of samples/s by the median step. Effects
    and shifts are fractions of samples/s: -0.02 is 2% slower.
    """

    # The log rate of tonight's first run.
    log_rate: float
    # The screening runs' own e-value for a drop.
    e_drop: float
    # The evidence that the next night goes on from: clip(e_drop x the carried evidence, 0.2, 1e6); after pairs, the
    # pairs' own e-value, or 1 if they settled the suspicion.
    evidence: float
    # Whether the next nights are compared with the first run too.
    accepted: bool
    # The standard deviations of log rates between runs and between nights, learned from ``nights`` accepted nights.
    sigma: float
    tau: float
    nights: int
    # How many screening runs were made.
    runs: int
    # The effect of the new build against its reference, with the 95% interval: from the interleaved pairs if there are
    # any, else from tonight's runs against the accepted nights.
    effect: EffectSize | None = None
    # The effect of tonight's screening runs against the accepted nights, also if there are pairs.
    shift: float | None = None
    pairs: PairStanding | None = None
    # The smallest drop that tonight would have found with 80% power, as a fraction.
    smallest_drop: float | None = None
    # Whether the next night begins a new segment, so that the nights before it no longer count: an improvement was
    # confirmed.
    new_segment: bool = False

    @property
    def pair_count(self) -> int:
        return 0 if self.pairs is None else self.pairs.count


@dataclass(frozen=True)
class Verdict:
    """A case's status with its reason and the answers to both questions."""

    status: Status
    reason: Reason
    # None if no run gave a figure.
    measured: Summary | None = None
    published: tuple[SubVerdict, ...] = ()
    recorded: SubVerdict | None = None
    # None if the recorded question was not asked: no usable run, changed settings.
    standing: Standing | None = None


@dataclass(frozen=True)
class NeedRuns:
    """The answer is open: make more runs for ``stage``, of the builds in ``order``."""

    order: tuple[Build, ...]
    why: Finding
    stage: Stage = Stage.SCREEN


def no_baseline(what: Finding, evidence: Evidence) -> SubVerdict:
    """The answer if no recorded figure decides; ``what`` says so, and a further finding how one is recorded."""
    how = to_record(evidence)
    if evidence.overrides:
        how = found(Code.RECORD_WITHOUT_SET, settings=", ".join(evidence.overrides), options=evidence.record_options)
    return SubVerdict(Status.NO_BASELINE, Reason(Code.NO_BASELINE.value, findings=(what, how)))


def to_record(evidence: Evidence) -> Finding:
    """How tonight's figure is recorded."""
    return found(Code.SESSION_RECORDS) if evidence.to_record else found(Code.RECORD, options=evidence.record_options)


def answer_about(
    reference: PublishedReference | RecordedReference, status: Status, reason: Reason, measured: float | None = None
) -> SubVerdict:
    """The answer to the question of this reference; ``measured`` is in samples/s by the reference's rule."""
    return SubVerdict(
        status,
        reason,
        reference.rule,
        measured,
        reference.samples_per_s,
        reference.tolerance,
        reference.label,
        reference.gates,
    )
