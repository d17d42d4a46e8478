"""The result of one run: everything that its throughput depends on, and the schema of its JSON.

A verdict is computed from these values.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from helpers.judging.evidence import Build, RunEvidence, Stage
from helpers.judging.failure_class import FAILURE_FACT, FailureClass
from helpers.judging.rules import MEDIAN_STEP
from helpers.machine.records_check import Checker, Schema
from helpers.trainers.contract.errors import ResultError
from helpers.trainers.contract.job import finite
from helpers.trainers.contract.program import PROGRAM_FACT

# 1: first format.
# 2: the machine's environment tables (system).
# 3: which build of an interleaved comparison (role, stage), the window's losses.
RESULT_SCHEMA_VERSION = 3

# The origin of a result: a run of a session; logs that were judged again; a log that was stored in the history.
MEASURED, REPLAYED, IMPORTED = "measured", "replayed", "imported"

# Why a run is no reference for others.
CONTENDED = "contended"
MACHINE_SHARED = "machine shared"
SLOWED = "slowed down for a test"

# The fact with the indexes of a run's cards on its node, in the order of their other facts.
CARD_INDEX_FACT = "card_index"

# Facts of a run that was read from a log: the log in one line, and what is doubtful about it.
LOG_FACT, LOG_WARNINGS_FACT = "log", "log warnings"

# No hardware trains slower or faster.
LEAST_SAMPLES_PER_S, MOST_SAMPLES_PER_S = 1e-4, 1e9
# Settings are no deeper than lists of numbers.
_MOST_LEVELS = 8


@dataclass(frozen=True)
class RunResult:
    """One run of one case."""

    uuid: str
    session: str
    case_id: str
    target: str
    replicate: int
    created: str
    # MEASURED, REPLAYED or IMPORTED. Only a measured run is a reference for others.
    origin: str = MEASURED
    # The values of evidence.Build and evidence.Stage.
    role: str = Build.CANDIDATE.value
    stage: str = Stage.SCREEN.value
    build: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    # The environment tables of the machine (system_report), by section.
    system: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    # The samples/s by each rule, or the reason why it does not apply.
    figures: Mapping[str, float | str] = field(default_factory=dict)
    # The steps of the window: seconds (the maximum over ranks), and the samples of all ranks.
    step_seconds: tuple[float, ...] = ()
    samples_per_step: tuple[int, ...] = ()
    # Rank 0's losses in the window, if they were fetched.
    losses: tuple[float, ...] = ()
    # The whole run, from the start of its processes to their end.
    wall_seconds: float = 0.0
    start_up_seconds: float = 0.0
    # Warm-up and window.
    training_seconds: float = 0.0
    window_seconds: float = 0.0
    reader_share: float | None = None
    # The part of the leased cores' time in the window that others used; None if it is unknown.
    foreign_share: float | None = None
    # That share in words, with who used the cores.
    contention: str = ""
    peak_host_bytes: int = 0
    peak_device_bytes: int = 0
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
            retriable=self.failure_class is not None and self.failure_class.retriable,
            program=self.facts.get(PROGRAM_FACT, ""),
        )

    @property
    def failure_class(self) -> FailureClass | None:
        """Which fault ended the run; None for a run without a failure, and for a class of another version of the
        suite."""
        named = self.facts.get(FAILURE_FACT) if self.failure is not None else None
        return next((each for each in FailureClass if each.value == named), None)

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
    """The pairs of a confirmation as they are judged: the k-th usable runs of the good build and of the build under
    test."""
    usable = [run for run in runs if run.is_confirming and run.measured and run.log_rate is not None]
    good, new = ([run for run in usable if run.role == build.value] for build in (Build.REFERENCE, Build.CANDIDATE))
    return list(zip(good, new, strict=False))


def result_of_record(record: Any, about: str) -> RunResult:
    """The inverse of ``RunResult.to_record``; on anything else ResultError names ``about`` and the key."""
    if not isinstance(record, dict):
        raise ResultError(about, got=type(record).__name__, expected="a JSON object")
    version = record.get("schema_version")
    if version != RESULT_SCHEMA_VERSION:
        older = isinstance(version, int) and version < RESULT_SCHEMA_VERSION
        raise ResultError(
            about,
            field="schema_version",
            got=version,
            expected=str(RESULT_SCHEMA_VERSION),
            remedy="An older suite wrote it: measure again" if older else "Update the suite",
        )
    values = {name: value for name, value in record.items() if name != "schema_version"}
    if (wrong := _RESULT.violation(values)) is not None:
        raise ResultError(about, field=wrong.field, got=wrong.got, expected=wrong.expected)
    for name in ("step_seconds", "samples_per_step", "losses", "marks"):
        values[name] = tuple(values[name])
    return RunResult(**values)


# ---- what a result's JSON has to be


def _either(words: str, *kinds: Schema) -> Schema:
    return {"anyOf": list(kinds), "description": words}


def _maps_to(schema: Schema, words: str) -> Schema:
    return {"type": "object", "additionalProperties": schema, "description": words}


def _numbers(words: str, **bounds: object) -> Schema:
    return {"type": "array", "numbers": bounds, "description": words}


_NULL: Schema = {"type": "null"}
_TEXT: Schema = {"type": "string", "description": "text"}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"], "description": "text or null"}
_TEXTS = _maps_to(_TEXT, "an object of texts")
_COUNT: Schema = {"type": "integer", "minimum": 0, "description": "a whole number, not negative"}
_SECONDS: Schema = {"type": "number", "minimum": 0, "description": "seconds, finite and not negative"}
_SHARE: Schema = {"type": ["number", "null"], "minimum": 0, "description": "a share, not negative, or null"}
_PLAIN: Schema = {"type": "object", "depth": _MOST_LEVELS, "description": "an object of plain values"}
_FIGURE = _either(
    f"images/s from {LEAST_SAMPLES_PER_S:g} to {MOST_SAMPLES_PER_S:g} or a reason, by rule",
    _TEXT,
    {"type": "number", "minimum": LEAST_SAMPLES_PER_S, "maximum": MOST_SAMPLES_PER_S},
)
_FIELDS: Mapping[str, Schema] = {
    **dict.fromkeys(("uuid", "session", "case_id", "target", "created", "contention", "log_tail"), _TEXT),
    **dict.fromkeys(("failure", "invalid", "refusal"), _TEXT_OR_NULL),
    "origin": {"enum": [MEASURED, REPLAYED, IMPORTED]},
    **dict.fromkeys(("build", "environment", "facts"), _TEXTS),
    "system": _maps_to(_TEXTS, "an object of objects of texts"),
    "verdict": _either("an object of texts or null", _NULL, _TEXTS),
    **dict.fromkeys(("settings", "overrides"), _PLAIN),
    "protocol": _maps_to(_COUNT, "an object of whole numbers"),
    "figures": _maps_to(_FIGURE, "an object of images/s or a reason, by rule"),
    **dict.fromkeys(("replicate", "peak_host_bytes", "peak_device_bytes"), _COUNT),
    **dict.fromkeys(("wall_seconds", "start_up_seconds", "training_seconds", "window_seconds"), _SECONDS),
    **dict.fromkeys(("reader_share", "foreign_share"), _SHARE),
    "step_seconds": _numbers("a list of seconds above 0", above=0),
    "samples_per_step": _numbers("a list of whole numbers", least=0, whole=True),
    "losses": _numbers("a list of finite numbers"),
    "role": {"enum": [each.value for each in Build]},
    "stage": {"enum": [each.value for each in Stage]},
    "marks": {"type": "array", "items": _TEXT, "description": "a list of texts"},
}
_RESULT = Checker(
    {
        "type": "object",
        # In the order of the dataclass, in which an unknown key's message lists them.
        "properties": {item.name: _FIELDS[item.name] for item in fields(RunResult)},
        "required": [item.name for item in fields(RunResult)],
        "additionalProperties": False,
    }
)
