"""An explanation of a slower step as plain values, and read back from them: for programs, and for the report on a gate
that is split among several jobs."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from helpers.judging.call_counts import CallCount
from helpers.judging.explanation import Explanation
from helpers.judging.kinds import Kind
from helpers.judging.profile_differences import Difference
from helpers.judging.profile_parts import Amount, Level, Part
from helpers.judging.run_facts import Clock, ReducedBeside
from helpers.judging.statistics import Interval
from helpers.machine.records_check import COUNT, TEXT, TEXTS, Checker, Schema, list_of, object_of, one_of, or_null
from helpers.session.explain import CaseExplanation
from helpers.trainers.contract.errors import ResultError
from helpers.trainers.contract.step_profile import Phase

_ABOUT = "explanation"
_LISTS = ("named", "unnamed", "phases", "ranks", "largest_inside")


def explanation_record(found: CaseExplanation) -> dict[str, Any]:
    """The explanation as plain values."""
    return dict(_plain(asdict(found)))


def explanation_of(record: object) -> CaseExplanation:
    """The explanation of a record that ``explanation_record`` made and that JSON has carried. Raises ResultError on
    anything else, with the field."""
    if (wrong := _CASE.violation(record)) is not None:
        raise ResultError(_ABOUT, field=wrong.field, got=wrong.got, expected=wrong.expected)
    assert isinstance(record, dict)
    explanation = record["explanation"]
    return CaseExplanation(
        **{
            **record,
            "explanation": None if explanation is None else _explanation(explanation),
            "notes": tuple(record["notes"]),
            "traces": tuple(map(Path, record["traces"])),
        }
    )


def _explanation(record: Mapping[str, Any]) -> Explanation:
    lists = {name: tuple(map(_difference, record[name])) for name in _LISTS}
    old, new = record["cost"]
    return Explanation(
        **{
            **record,
            **lists,
            "drop": Interval(**record["drop"]),
            "cost": (old, new),
            "facts": tuple((name, reference, candidate) for name, reference, candidate in record["facts"]),
            "shared_speeds": tuple(record["shared_speeds"]),
            "clocks": tuple(Clock(**each) for each in record["clocks"]),
            "reduced_beside": _reduced_beside(record["reduced_beside"]),
            "calls": tuple(map(_call_count, record["calls"])),
        }
    )


def _reduced_beside(record: Mapping[str, Any] | None) -> ReducedBeside | None:
    return None if record is None else ReducedBeside(**{**record, "difference": Interval(**record["difference"])})


def _part(record: Mapping[str, Any]) -> Part:
    lists = {
        **{name: tuple(record[name]) for name in ("layers", "gone", "came")},
        **{name: tuple((old, new) for old, new in record[name]) for name in ("kernels", "data_types", "devices")},
    }
    return Part(**{**record, **lists, "level": Level(record["level"]), "phase": Phase(record["phase"])})


def _call_count(record: Mapping[str, Any]) -> CallCount:
    return CallCount(_part(record["part"]), Amount(**record["reference"]), Amount(**record["candidate"]))


def _difference(record: Mapping[str, Any]) -> Difference:
    return Difference(
        _part(record["part"]),
        Kind(record["kind"]),
        Amount(**record["reference"]),
        Amount(**record["candidate"]),
        Interval(**record["seconds"]),
        record["p_value"],
    )


def _plain(value: Any) -> Any:
    """The value without the types that JSON lacks."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


_RANK: Schema = {"type": "integer", "minimum": -1, "maximum": 2**31 - 1, "description": "a rank, or -1"}
_NUMBER: Schema = {"type": "number", "description": "a finite number"}
_ABOVE_0: Schema = {"type": "number", "exclusiveMinimum": 0, "description": "a finite number above 0"}
_INTERVAL = object_of({"mean": _NUMBER, "low": _NUMBER, "high": _NUMBER}, "a mean with its interval")
_AMOUNT = object_of({"seconds": _NUMBER, "calls": _NUMBER}, "seconds and calls")
_EXCHANGES = list_of(list_of(TEXT, "two texts", minItems=2, maxItems=2), "a list of two texts each")
_PART = object_of(
    {
        "level": one_of(Level, "a known level"),
        "phase": one_of(Phase, "a known phase"),
        **dict.fromkeys(("layer", "operator", "kernel", "dtypes", "device"), TEXT),
        "rank": _RANK,
        **dict.fromkeys(("layers", "gone", "came"), TEXTS),
        **dict.fromkeys(("kernels", "data_types", "devices"), _EXCHANGES),
    },
    "a part of a step",
)
_DIFFERENCES = list_of(
    object_of(
        {
            "part": _PART,
            "kind": one_of(Kind, "a known way to differ"),
            "reference": _AMOUNT,
            "candidate": _AMOUNT,
            "seconds": _INTERVAL,
            "p_value": _NUMBER,
        },
        "a part that was tested",
    ),
    "a list of parts",
)
_CLOCK = object_of({"name": TEXT, "reference_mhz": _ABOVE_0, "candidate_mhz": _ABOVE_0, "p_value": _NUMBER}, "a clock")
_CALLS = list_of(
    object_of({"part": _PART, "reference": _AMOUNT, "candidate": _AMOUNT}, "an operator with its calls"),
    "a list of operators",
)
_REDUCED_BESIDE = object_of(
    {"reference_seconds": _NUMBER, "candidate_seconds": _NUMBER, "difference": _INTERVAL}, "what is beside computation"
)
_EXPLANATION = object_of(
    {
        "pairs": COUNT,
        "step_seconds": _ABOVE_0,
        "drop": _INTERVAL,
        "named": _DIFFERENCES,
        "unnamed": _DIFFERENCES,
        "tested": COUNT,
        "cost": list_of(or_null(_NUMBER, "a finite number or null"), "two costs", minItems=2, maxItems=2),
        "phases": _DIFFERENCES,
        "facts": list_of(list_of(TEXT, "three texts", minItems=3, maxItems=3), "a list of facts"),
        "shared_speeds": list_of(_NUMBER, "a list of numbers"),
        "clocks": list_of(_CLOCK, "a list of clocks"),
        "ranks": _DIFFERENCES,
        "largest_inside": _DIFFERENCES,
        "calls": _CALLS,
        "reduced_beside": or_null(_REDUCED_BESIDE, "null, or what is beside computation"),
    },
    "an explanation",
)
_CASE = Checker(
    object_of(
        {
            **dict.fromkeys(("case_id", "target", "reference", "candidate"), TEXT),
            "explanation": or_null(_EXPLANATION, "null, or an explanation"),
            "why_not": TEXT,
            "runs": COUNT,
            "steps": COUNT,
            "profiler": TEXT,
            "notes": TEXTS,
            "traces": TEXTS,
        },
        "a JSON object",
    )
)
