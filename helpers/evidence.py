"""What a verdict rests on: the runs of a case and the references it is held against. Plain values."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from helpers.errors import SuiteError
from helpers.job import finite


class Build(enum.Enum):
    CANDIDATE = "candidate"
    REFERENCE = "reference"


@dataclass(frozen=True)
class RunEvidence:
    """One run as judge() sees it.

    ``figures`` maps each rule to images/s, or to the reason why it does not apply. ``failure`` is
    why there is no throughput (crash, hang, lost log), ``invalid`` why it must not be used
    (contended, throttled), ``refusal`` why this device or build does not run the case.
    """

    figures: Mapping[str, float | str] = field(default_factory=dict)
    build: Build = Build.CANDIDATE
    failure: str | None = None
    invalid: str | None = None
    refusal: str | None = None


@dataclass(frozen=True)
class PublishedReference:
    """A published figure that this device can be held against; ``gates`` only for rows marked so."""

    images_per_s: float
    rule: str
    label: str
    gates: bool
    tolerance: float

    def __post_init__(self) -> None:
        _check_reference(self)


@dataclass(frozen=True)
class RecordedReference:
    """What this machine recorded; ``differences`` names in what tonight's segment differs from it."""

    images_per_s: float
    rule: str
    label: str
    tolerance: float
    gates: bool = True
    differences: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_reference(self)


@dataclass(frozen=True)
class Evidence:
    """Everything a verdict rests on. ``planned_runs`` is the protocol's number of replicates.

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


def _check_reference(reference: PublishedReference | RecordedReference) -> None:
    """NaN compares false with everything, so a reference that holds one would pass every case."""
    if not finite(reference.images_per_s) or reference.images_per_s <= 0:
        raise SuiteError(
            f"reference {reference.label}",
            field="images_per_s",
            got=reference.images_per_s,
            expected="images/s, finite and above 0",
        )
    if not finite(reference.tolerance) or not 0 <= reference.tolerance <= 1:
        raise SuiteError(
            f"reference {reference.label}", field="tolerance", got=reference.tolerance, expected="a share from 0 to 1"
        )
