"""The steps of ``perfgate prove-gpu`` as data; ``plan.py`` chooses them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from helpers.judging.case.evidence import Budget
from helpers.plan.matrix import MeasuringProtocol
from helpers.trainers.contract.case import Case

# The part of the first steps.
PROBES = "the probes of Paddle"


class StepKind(enum.Enum):
    """The kinds of steps: what is done with a step's case."""

    PROBE = "a probe of Paddle in a process of its own"
    PROGRAMS = "programs of the published rows"
    TRAINS = "a few steps of training"
    REFUSED = "a case that this card cannot compute"
    MEASURE = "measured and recorded"
    REPEAT = "one more night of the same build"
    SLOWED = "a build slowed down on purpose"
    TOO_LARGE = "a batch that cannot fit"
    NEIGHBOUR = "another process on the card"
    EXPLAIN = "profiles of one build beside itself"


@dataclass(frozen=True)
class ProofStep:
    """One step of the proof; it is completed or not done."""

    # Its name on disk.
    key: str
    # The part of the proof to which it belongs; a heading of the summary.
    part: str
    kind: StepKind
    case: Case | None = None
    protocol: MeasuringProtocol | None = None
    budget: Budget = field(default_factory=Budget)
    # After so many seconds a probe is ended; None: the limits of perf.yaml.
    most_seconds: float | None = None
    # For PROGRAMS: the targets whose published rows are built.
    targets: tuple[str, ...] = ()
    # For SLOWED: the fraction by which each training step is longer.
    slowdown: float = 0.0
    # Whether the step is also right if the batch does not fit into the card's memory.
    may_not_fit: bool = False


@dataclass(frozen=True)
class Proof:
    """The steps on one device in their order."""

    device: str
    steps: tuple[ProofStep, ...]
    # What is not run here whatever is installed, each with the reason.
    left_out: tuple[str, ...] = ()

    @property
    def cases(self) -> tuple[tuple[Case, MeasuringProtocol], ...]:
        """Each case that is measured, once."""
        found = {step.case.id: (step.case, step.protocol) for step in self.steps if step.case and step.protocol}
        return tuple((case, protocol) for case, protocol in found.values() if protocol is not None)
