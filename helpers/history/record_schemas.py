"""What a night's record has to be: a verdict rests on it, and so do the nights after it."""

from __future__ import annotations

import math
from typing import Any

from helpers.history.results_check import LEAST_IMAGES_PER_S, MOST_IMAGES_PER_S
from helpers.judging.verdict import Status
from helpers.machine.records_check import Checker

LEAST_LOG_RATE, MOST_LOG_RATE = math.log(LEAST_IMAGES_PER_S), math.log(MOST_IMAGES_PER_S)
# docs/verdicts.md, "Judge": the clip of what is carried on (helpers.judging.screen).
LEAST_EVIDENCE, MOST_EVIDENCE = 0.2, 1e6
_MOST_COUNT = 2**31 - 1
_MOST_CHARACTERS = 20_000
_MOST_ITEMS = 10_000


def _text() -> dict[str, Any]:
    return {"type": "string", "maxLength": _MOST_CHARACTERS, "description": f"text of at most {_MOST_CHARACTERS}"}


def _texts() -> dict[str, Any]:
    return {
        "type": "object",
        "maxProperties": _MOST_ITEMS,
        "additionalProperties": _text(),
        "description": "an object of texts",
    }


def _number(least: float, most: float, *, or_null: bool = False) -> dict[str, Any]:
    words = f"a number from {least:.6g} to {most:.6g}" + (", or null" if or_null else "")
    kinds = ["number", "null"] if or_null else ["number"]
    return {"type": kinds, "minimum": least, "maximum": most, "description": words}


def _count() -> dict[str, Any]:
    return {"type": "integer", "minimum": 0, "maximum": _MOST_COUNT, "description": "a whole number, not negative"}


def _flag() -> dict[str, Any]:
    return {"type": "boolean", "description": "true or false"}


def _log_rates() -> dict[str, Any]:
    return {
        "type": "array",
        "maxItems": _MOST_ITEMS,
        "numbers": {"least": LEAST_LOG_RATE, "most": MOST_LOG_RATE},
        "description": f"logarithms of {LEAST_IMAGES_PER_S:g} to {MOST_IMAGES_PER_S:g} images/s",
    }


def _log_rate() -> dict[str, Any]:
    words = f"the logarithm of {LEAST_IMAGES_PER_S:g} to {MOST_IMAGES_PER_S:g} images/s"
    return {"type": "number", "minimum": LEAST_LOG_RATE, "maximum": MOST_LOG_RATE, "description": words}


# An e-value is a likelihood ratio: above 0, and as large as a night makes it.
_E_VALUE = {"type": ["number", "null"], "minimum": 0, "description": "a number, not negative"}
# Of an effect as a fraction: -1 is a standstill.
_EFFECT = _number(-1.0, 1e300, or_null=True)
_SCATTER = {"type": ["number", "null"], "minimum": 0, "maximum": 1e3, "description": "a standard deviation"}

STALL_SHARE = _number(-1.0, 1e9, or_null=True)

STANDING_FIELDS: dict[str, Any] = {
    "log_rate": _log_rate(),
    "e_drop": {**_E_VALUE, "type": "number"},
    "evidence": _number(LEAST_EVIDENCE, MOST_EVIDENCE),
    "accepted": _flag(),
    "sigma": {**_SCATTER, "type": "number"},
    "tau": {**_SCATTER, "type": "number"},
    "nights": _count(),
    "runs": _count(),
    "effect": _EFFECT,
    "low": _EFFECT,
    "high": _EFFECT,
    "pairs": _count(),
    "e_confirm": _E_VALUE,
    "smallest_drop": _number(0.0, 1e3, or_null=True),
    "machine_slow": _flag(),
    "new_segment": _flag(),
    "segment_reason": _text(),
    "shift": _EFFECT,
    "unexplained": _flag(),
    "level": _EFFECT,
    "level_error": _SCATTER,
    "good_shift": _EFFECT,
    "teaches_level": _flag(),
    "teaches_good": _flag(),
}
COMPARED_FIELDS: dict[str, Any] = {
    "good": _text(),
    "new": _log_rates(),
    "reference": _log_rates(),
    "teaches_level": _flag(),
    "teaches_good": _flag(),
}
NIGHT_FIELDS: dict[str, Any] = {
    "session": _text(),
    "case_id": _text(),
    "target": _text(),
    "created": _text(),
    "segment": _texts(),
    "status": {"enum": [each.value for each in Status]},
    "code": _text(),
    "reason": _text(),
    "cards": _count(),
    "log_rates": _log_rates(),
    "stall_share": STALL_SHARE,
    "run_uuids": {"type": "array", "maxItems": _MOST_ITEMS, "items": _text(), "description": "a list of texts"},
    "standing": {"anyOf": [{"type": "null"}, {"type": "object"}], "description": "an object or null"},
    "build": _texts(),
    "properties": _texts(),
    "host": _text(),
    "compared": {"anyOf": [{"type": "null"}, {"type": "object"}], "description": "an object or null"},
}


def _record(properties: dict[str, Any], required: list[str]) -> Checker:
    return Checker(
        {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
            "required": required,
            "description": "a JSON object",
        }
    )


# Required is what the first suite wrote; what came later has a value where a record is silent.
_NIGHT = (
    "session", "case_id", "target", "created", "segment", "status", "code", "reason", "cards", "log_rates",
    "run_uuids", "standing",
)  # fmt: skip
_STANDING = ("log_rate", "e_drop", "evidence", "accepted", "sigma", "tau", "nights", "runs")
NIGHT = _record(NIGHT_FIELDS, list(_NIGHT))
STANDING = _record(STANDING_FIELDS, list(_STANDING))
# What later nights learn from a night, as the history keeps it beside the record.
LEARNED_FIELDS = {
    "log_rates": _log_rates(),
    "evidence": STANDING_FIELDS["evidence"],
    "stall_share": STALL_SHARE,
}
LEARNED = _record(LEARNED_FIELDS, list(LEARNED_FIELDS))
LOG_RATE = Checker(_log_rate())
COMPARED = _record(COMPARED_FIELDS, ["good", "new", "reference"])
