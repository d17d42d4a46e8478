"""What judging answers: statuses, answers to the two questions, a verdict, or a request for runs.

The recorded question's answer, and the one where nothing is recorded."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from helpers.judging.evidence import Build, Evidence, RecordedReference, Stage
from helpers.judging.statistics import Summary


class Status(enum.Enum):
    """Worst first (docs/reference.md, "Statuses"); NOT_RUN stands outside the order."""

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


class Question(enum.Enum):
    PUBLISHED = "published"
    RECORDED = "recorded"


@dataclass(frozen=True)
class Reason:
    """Why: a short code for programs, a sentence with the numbers for people."""

    code: str
    message: str


@dataclass(frozen=True)
class SubVerdict:
    """The answer to one question. ``measured`` and ``reference`` in samples/s by ``rule``; ``sets_status``
    is False for rows that are only shown (reference, disputed)."""

    question: Question
    status: Status
    reason: Reason
    rule: str = ""
    measured: float | None = None
    reference: float | None = None
    tolerance: float | None = None
    label: str = ""
    sets_status: bool = True

    @property
    def ratio(self) -> float | None:
        if self.measured is None or self.reference is None:
            return None
        return self.measured / self.reference


@dataclass(frozen=True)
class Standing:
    """What a night leaves to the nights after it: one case's numbers in the sequential test.

    docs/verdicts.md, "Judge".

    - ``log_rate``: of tonight's first run, the natural logarithm of its samples/s by the median step.
    - ``e_drop``: the screening runs' own e-value for a drop; ``evidence``: what the next night goes on from,
      clip(e_drop x carried, 0.2, 1e6); after pairs theirs, 1 where they settled the suspicion.
    - ``accepted``: whether the first run joins what the next nights are held against.
    - ``new_segment``: whether the nights before are left behind from the next night on, and ``segment_reason`` why.
    - ``effect``: of the new build against its reference as a fraction (-0.02 is 2% slower), ``low`` and ``high``
      its 95% interval, from ``pairs`` interleaved pairs where there are any, else from tonight's runs against
      the accepted nights.
    - ``shift``: of tonight's screening runs against the accepted nights as a fraction, also where there are pairs.
    - ``sigma``, ``tau``: standard deviations of log rates between runs and between nights, as learned;
      ``nights`` how many accepted nights they rest on.
    - ``smallest_drop``: the smallest drop that tonight would have found with 80% power, as a fraction.
    - ``unexplained``: whether the segment began, or the next one does, because nights stood apart and nothing has
      shown why: no pairs have settled it, and the case was not recorded anew.
    - ``machine_slow``: the good build ran below its own earlier figures tonight, and the new one as far below its.
    - ``level``: of the accepted nights against the good build as a fraction, as the pairs were held against it, and
      ``level_error`` its standard error in the logarithm; None where it was unknown.
    - ``good_shift``: of the good build tonight against its own earlier figures as a fraction, None where unknown.
    - ``teaches_level``, ``teaches_good``: what later nights learn from tonight's pairs (evidence.Compared).
    """

    log_rate: float
    e_drop: float
    evidence: float
    accepted: bool
    sigma: float
    tau: float
    nights: int
    runs: int
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    e_confirm: float | None = None
    smallest_drop: float | None = None
    machine_slow: bool = False
    new_segment: bool = False
    segment_reason: str = ""
    shift: float | None = None
    unexplained: bool = False
    level: float | None = None
    level_error: float | None = None
    good_shift: float | None = None
    teaches_level: bool = False
    teaches_good: bool = False


@dataclass(frozen=True)
class Verdict:
    """A case's status with its reason and both answers; ``measured`` is None when nothing was.

    ``standing`` is None where the recorded question was not asked: no usable run, changed settings.
    """

    status: Status
    reason: Reason
    measured: Summary | None = None
    published: tuple[SubVerdict, ...] = ()
    recorded: SubVerdict | None = None
    standing: Standing | None = None


@dataclass(frozen=True)
class NeedRuns:
    """The answer is open: run ``count`` more replicates for ``stage``, builds in ``order``.

    ``build`` is the first of ``order``.
    """

    build: Build
    order: tuple[Build, ...]
    count: int
    why: str
    stage: Stage = Stage.SCREEN


@dataclass(frozen=True)
class Answer:
    """The recorded question's answer, and what it leaves to later nights; None where it was not asked."""

    told: SubVerdict
    standing: Standing | None = None


@dataclass(frozen=True)
class Beside:
    """What the interleaved runs of a night say beside their differences.

    - ``below``: whether the new build's own runs of the pairs still lie below where it is held to stand.
    - ``good_shift``: the good build tonight less its own earlier figures, in the logarithm; None where nobody knows.
    - ``good_below``: whether that is a fall as far as the new build's.
    """

    below: bool
    good_shift: float | None
    good_below: bool


@dataclass(frozen=True)
class Found:
    """A status with its reason, before the standing is drawn from it. ``settled``: the suspicion is dealt with;
    ``beside`` is None without pairs."""

    status: Status
    code: str
    message: str
    settled: bool = False
    beside: Beside | None = None


def no_baseline(what: str, evidence: Evidence) -> SubVerdict:
    if evidence.why_not_recorded:
        return SubVerdict(
            Question.RECORDED, Status.NO_BASELINE, Reason("no-baseline", f"recorded: {evidence.why_not_recorded}")
        )
    remedy = f"record it: {evidence.record_command}"
    if evidence.overrides:
        remedy = f"settings changed ({', '.join(evidence.overrides)}), so this is not recorded; without --set, {remedy}"
    return SubVerdict(Question.RECORDED, Status.NO_BASELINE, Reason("no-baseline", f"{what}; {remedy}"))


def recorded_answer(
    recorded: RecordedReference, status: Status, code: str, message: str, measured: float | None = None
) -> SubVerdict:
    """The recorded question's answer; ``measured`` in samples/s by the entry's rule."""
    return SubVerdict(
        Question.RECORDED,
        status,
        Reason(code, message),
        recorded.rule,
        measured,
        recorded.samples_per_s,
        recorded.tolerance,
        recorded.label,
        recorded.gates,
    )
