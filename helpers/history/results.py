"""The result of one run: everything that its throughput depends on, and its JSON.

A verdict is computed from these values.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from msgspec import Meta

from helpers.common.records import MOST, Count, NotNegative, Number, WrongRecord, one_of, read_as
from helpers.judging.case.evidence import Build, RunEvidence, Stage
from helpers.judging.rules.own import MEDIAN_STEP
from helpers.trainers.contract.errors import ResultError
from helpers.trainers.contract.program import PROGRAM_FACT
from helpers.trainers.contract.records import finite

# 1: first format.
RESULT_SCHEMA_VERSION = 1

# The origin of a result: a run of a session, or a log that was stored in the history.
MEASURED, IMPORTED = "measured", "imported"

# Why a run is no reference for others.
CONTENDED = "contended"
MACHINE_SHARED = "machine shared"
SLOWED = "slowed down for a test"

# The fact with the indexes of a run's cards on its node, in the order of their other facts.
CARD_INDEX_FACT = "card_index"
# The fact of a failed run: "yes" if another attempt may end differently.
RETRIABLE_FACT = "retriable"

# Facts of a run that was read from a log: the log in one line, and what is doubtful about it.
LOG_FACT, LOG_WARNINGS_FACT = "log", "log warnings"
# What is to be known of the images, if the suite has made them for a published comparison.
IMAGES_FACT = "images made"

# No hardware trains slower or faster.
LEAST_SAMPLES_PER_S, MOST_SAMPLES_PER_S = 1e-4, 1e9
# images/s by a rule, or why there are none.
RuleFigure = Annotated[float, Meta(ge=LEAST_SAMPLES_PER_S, le=MOST_SAMPLES_PER_S)] | str
# Settings are no deeper than lists of numbers.
_MOST_LEVELS = 8


@dataclass(frozen=True)
class RunResult:
    """One run of one case."""

    uuid: str
    session: str
    case_id: str
    target: str
    replicate: Count
    created: str
    # MEASURED or IMPORTED. Only a measured run is a reference for others.
    origin: Annotated[str, one_of(MEASURED, IMPORTED)] = MEASURED
    # The values of evidence.Build and evidence.Stage.
    role: Annotated[str, one_of(*(each.value for each in Build))] = Build.CANDIDATE.value
    stage: Annotated[str, one_of(*(each.value for each in Stage))] = Stage.SCREEN.value
    build: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Count] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    # The environment tables of the machine (system_report), by section.
    system: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # The samples/s by each rule, or the reason why it does not apply.
    figures: Mapping[str, RuleFigure] = field(default_factory=dict)
    # The steps of the window: seconds (the maximum over ranks), and the samples of all ranks.
    step_seconds: tuple[Annotated[float, Meta(gt=0, le=MOST)], ...] = ()
    samples_per_step: tuple[Count, ...] = ()
    # Rank 0's losses in the window, if they were fetched.
    losses: tuple[Number, ...] = ()
    # The whole run, from the start of its processes to their end.
    wall_seconds: NotNegative = 0.0
    start_up_seconds: NotNegative = 0.0
    # Warm-up and window.
    training_seconds: NotNegative = 0.0
    window_seconds: NotNegative = 0.0
    reader_share: NotNegative | None = None
    # The part of the leased cores' time in the window that others used; None if it is unknown.
    foreign_share: NotNegative | None = None
    # That share in words, with who used the cores.
    contention: str = ""
    peak_host_bytes: Count = 0
    peak_device_bytes: Count = 0
    # Why the run is no reference for others: CONTENDED, MACHINE_SHARED, SLOWED.
    marks: tuple[str, ...] = ()
    # These three are explained at RunEvidence.
    failure: str | None = None
    invalid: str | None = None
    refusal: str | None = None
    log_tail: str = ""
    # The status and the reason of the case; None until there is a verdict.
    verdict: Mapping[str, str] | None = None

    @property
    def measured(self) -> bool:
        """Whether the run holds a throughput that may be used."""
        return self.failure is None and self.invalid is None and self.refusal is None

    @property
    def is_screening(self) -> bool:
        """Whether it is a run of the build under test alone."""
        return (self.role, self.stage) == (Build.CANDIDATE.value, Stage.SCREEN.value)

    @property
    def is_confirming(self) -> bool:
        """Whether it is a run of either build in a pair."""
        return self.stage == Stage.CONFIRM.value

    @property
    def evidence(self) -> RunEvidence:
        return RunEvidence(
            self.figures,
            build=Build(self.role),
            stage=Stage(self.stage),
            log_rate=self.log_rate,
            stall_share=self.stall_share,
            loss=statistics.median(self.losses) if self.losses else None,
            failure=self.failure,
            invalid=self.invalid,
            refusal=self.refusal,
            retriable=self.failure is not None and self.facts.get(RETRIABLE_FACT) == "yes",
            program=self.facts.get(PROGRAM_FACT, ""),
        )

    @property
    def log_rate(self) -> float | None:
        """The natural logarithm of the samples/s by the median step; None without such a figure."""
        figure = self.figures.get(MEDIAN_STEP)
        return math.log(figure) if isinstance(figure, float) and finite(figure) and figure > 0 else None

    @property
    def stall_share(self) -> float | None:
        """Mean over median of the step seconds, minus 1: the stalls that the median hides. None without steps."""
        if not self.step_seconds:
            return None
        return statistics.fmean(self.step_seconds) / statistics.median(self.step_seconds) - 1

    def to_record(self) -> dict[str, Any]:
        """Every field by its name, and the version of this format."""
        return {
            **{item.name: getattr(self, item.name) for item in fields(self)},
            "schema_version": RESULT_SCHEMA_VERSION,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_record(), indent=1, sort_keys=True, allow_nan=False, default=dict) + "\n"


def interleaved_pairs(runs: Iterable[RunResult]) -> list[tuple[RunResult, RunResult]]:
    """The pairs of a confirmation as they are judged: the k-th usable runs of the reference build and of the build
    under test."""
    usable = [run for run in runs if run.is_confirming and run.measured and run.log_rate is not None]
    good, new = ([run for run in usable if run.role == build.value] for build in (Build.REFERENCE, Build.CANDIDATE))
    return list(zip(good, new, strict=False))


def result_of_record(record: Any, about: str) -> RunResult:
    """The inverse of ``RunResult.to_record``; on anything else ResultError names ``about`` and the key."""
    if not isinstance(record, dict):
        raise ResultError(about, got=type(record).__name__, expected="a JSON object")
    values = dict(record)
    if (version := values.pop("schema_version", None)) != RESULT_SCHEMA_VERSION or isinstance(version, bool):
        raise ResultError(
            about,
            field="schema_version",
            got=version,
            expected=str(RESULT_SCHEMA_VERSION),
            remedy="Another version of the suite wrote it: measure again",
        )
    try:
        result = read_as(values, RunResult)
    except WrongRecord as wrong:
        raise ResultError(about, field=wrong.field, got=wrong.got, expected=wrong.expected) from wrong
    for name in ("settings", "overrides"):
        if _levels(values[name]) > _MOST_LEVELS:
            expected = f"plain values of at most {_MOST_LEVELS} levels"
            raise ResultError(about, field=name, got=f"more than {_MOST_LEVELS} levels", expected=expected)
    return result


def _levels(value: object) -> int:
    """How many objects and lists stand inside each other, up to one more than a result may have."""
    level = 0
    inside: list[Any] = [value]
    while level <= _MOST_LEVELS:
        inside = [each for each in inside if isinstance(each, (dict, list))]
        if not inside:
            break
        inside = [each for one in inside for each in (one.values() if isinstance(one, dict) else one)]
        level += 1
    return level
