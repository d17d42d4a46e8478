"""What a case's row has to be when it comes from another process: the controller judges the session by it."""

from __future__ import annotations

from typing import Any

from helpers.history.nights import STANDING_FIELDS
from helpers.history.results import LEAST_SAMPLES_PER_S, MOST_SAMPLES_PER_S
from helpers.judging.verdict import Status
from helpers.machine.records_check import Checker
from helpers.session.policy import Effect

_MOST_CHARACTERS = 100_000
_MOST_ITEMS = 100_000

_TEXT: dict[str, Any] = {"type": "string", "maxLength": _MOST_CHARACTERS, "description": "a text"}
_TEXTS: dict[str, Any] = {"type": "array", "maxItems": _MOST_ITEMS, "items": _TEXT, "description": "a list of texts"}
_OBJECT: dict[str, Any] = {"type": "object", "additionalProperties": _TEXT, "description": "an object of texts"}
_RATE: dict[str, Any] = {
    "type": ["number", "null"],
    "minimum": LEAST_SAMPLES_PER_S,
    "maximum": MOST_SAMPLES_PER_S,
    "description": f"images/s from {LEAST_SAMPLES_PER_S:g} to {MOST_SAMPLES_PER_S:g}, or null",
}
# Of an interval about a mean: a handful of runs has one that reaches below 0.
_BOUND: dict[str, Any] = {"type": ["number", "null"], "description": "a finite number or null"}
_SHARE: dict[str, Any] = {"type": ["number", "null"], "minimum": 0, "description": "a share, not negative, or null"}
_SECONDS: dict[str, Any] = {"type": "number", "minimum": 0, "description": "seconds, not negative"}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1, "description": "a whole number"}
_STATUS: dict[str, Any] = {"enum": [each.value for each in Status], "description": "a known status"}
_STANDING: dict[str, Any] = {
    "anyOf": [
        {"type": "null"},
        {
            "type": "object",
            "properties": STANDING_FIELDS,
            "required": list(STANDING_FIELDS),
            "additionalProperties": False,
        },
    ],
    "description": "null, or a standing with finite numbers in their ranges",
}
_COMPARISON: dict[str, Any] = {
    "type": ["object", "null"],
    "properties": {"status": _STATUS, "measured_images_per_s": _RATE, "reference_images_per_s": _RATE, "reason": _TEXT},
    "description": "a comparison",
}

# The other fields are what a report shows: the row's own reader knows them.
ROW = Checker(
    {
        "type": "object",
        "description": "a JSON object",
        "properties": {
            "case_id": _TEXT,
            "target": _TEXT,
            "status": _STATUS,
            "effect": {"enum": [each.value for each in Effect], "description": "a known effect"},
            "code": _TEXT,
            "reason": _TEXT,
            "judged": {"type": "boolean", "description": "true or false"},
            "rule": _TEXT,
            "images_per_s": _RATE,
            "invalid_images_per_s": _RATE,
            "spread": _SHARE,
            "low": _BOUND,
            "high": _BOUND,
            "runs": _COUNT,
            "resumed": _COUNT,
            "run_images_per_s": {
                "type": "array",
                "maxItems": _MOST_ITEMS,
                "numbers": {"least": LEAST_SAMPLES_PER_S, "most": MOST_SAMPLES_PER_S},
                "description": _RATE["description"],
            },
            "published": {"type": "array", "maxItems": _MOST_ITEMS, "items": _COMPARISON, "description": "comparisons"},
            "recorded": _COMPARISON,
            "wall_seconds": _SECONDS,
            "training_seconds": _SECONDS,
            "reader_share": _SHARE,
            "foreign_share": _SHARE,
            "framework": _OBJECT,
            "segment": _OBJECT,
            "standing": _STANDING,
            "overrides": _TEXTS,
            "marks": _TEXTS,
            "warnings": _TEXTS,
            "run_folders": _TEXTS,
            "set_aside": _TEXTS,
            "attempts": _TEXTS,
            "sources": _TEXTS,
        },
    }
)
