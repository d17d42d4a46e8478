"""What a stored result's values have to be: a verdict rests on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from helpers.judging.evidence import Build, Stage
from helpers.machine.records_check import Checker, Schema
from helpers.trainers.contract.errors import ResultError

# Where a result comes from: a run of this suite's session; logs that were judged again; a log that history took in.
MEASURED, REPLAYED, IMPORTED = "measured", "replayed", "imported"
ORIGINS = (MEASURED, REPLAYED, IMPORTED)
# No hardware trains slower or faster.
LEAST_IMAGES_PER_S, MOST_IMAGES_PER_S = 1e-4, 1e9
# Settings hold lists of numbers at the most.
_MOST_LEVELS = 8


def check_record(record: Mapping[str, Any], known: Sequence[str], about: str) -> None:
    """ResultError on a key that is not ``known``, one that is missing and a value of the wrong kind."""
    schema = {
        "type": "object",
        "properties": {name: _FIELDS.get(name, {}) for name in known},
        "required": list(known),
        "additionalProperties": False,
    }
    if (wrong := Checker(schema).violation(record)) is not None:
        raise ResultError(about, field=wrong.field, got=wrong.got, expected=wrong.expected)


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
    f"images/s from {LEAST_IMAGES_PER_S:g} to {MOST_IMAGES_PER_S:g} or a reason, by rule",
    _TEXT,
    {"type": "number", "minimum": LEAST_IMAGES_PER_S, "maximum": MOST_IMAGES_PER_S},
)
_FIELDS: Mapping[str, Schema] = {
    **dict.fromkeys(("uuid", "session", "case_id", "target", "created", "contention", "log_tail"), _TEXT),
    **dict.fromkeys(("failure", "invalid", "refusal"), _TEXT_OR_NULL),
    "origin": {"enum": list(ORIGINS)},
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
