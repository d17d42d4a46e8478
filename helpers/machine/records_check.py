"""Checks records (from a file, the history or a worker process) against a JSON Schema. The suite has no other checker
of records.

The schemas are of draft 2020-12 with three additions. A ``number`` must be finite, and neither it nor an ``integer``
may be a truth value. ``numbers`` checks a whole list against bounds at once (``least``, ``most``, ``above``,
``whole``), since a run has thousands of steps. ``depth`` limits the depth of a value without a schema of its own.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from helpers.trainers.contract.job import finite

if TYPE_CHECKING:
    from jsonschema import ValidationError

Schema = Mapping[str, Any]

# What a text, a list and a count may have at most in a record from a file or another process.
_MOST_CHARACTERS, _MOST_ITEMS, _MOST_COUNTED = 100_000, 100_000, 2**31 - 1
TEXT: Schema = {"type": "string", "maxLength": _MOST_CHARACTERS, "description": "a text"}
COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": _MOST_COUNTED, "description": "a whole number"}
FLAG: Schema = {"type": "boolean", "description": "true or false"}


@dataclass(frozen=True)
class Violation:
    """The first thing that is wrong with a record."""

    # The path of the value in the record, such as ``figures[3].rule``.
    field: str
    got: object
    expected: str


class Checker:
    """Checks records against one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    @cached_property
    def _validator(self) -> Any:
        # jsonschema is imported at the first check: collecting tests makes checkers but checks nothing.
        return _validator_class()(self._schema)

    def violation(self, record: object) -> Violation | None:
        """The first thing that is wrong with the record; None if it fits the schema."""
        violations = self._validator.iter_errors(record)
        first = min(violations, key=lambda each: [str(part) for part in each.absolute_path], default=None)
        return None if first is None else _violation_of(first)


def object_of(properties: Schema, words: str) -> Schema:
    """An object in which each of ``properties`` is required, and which has no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        "description": words,
    }


def or_null(schema: Schema, words: str) -> Schema:
    return {"anyOf": [{"type": "null"}, schema], "description": words}


def list_of(items: Schema, words: str, **bounds: int) -> Schema:
    """A list; ``bounds`` are its ``minItems`` and ``maxItems``."""
    return {"type": "array", "items": items, "maxItems": _MOST_ITEMS, **bounds, "description": words}


def one_of(kind: type[enum.Enum], words: str) -> Schema:
    """The value of a member of ``kind``."""
    return {"enum": [each.value for each in kind], "description": words}


TEXTS = list_of(TEXT, "a list of texts")


def _violation_of(first: ValidationError) -> Violation:
    known: Mapping[str, Any] = first.schema if isinstance(first.schema, Mapping) else {}
    field = _field(first.absolute_path)
    # jsonschema's own type allows for an error without a record.
    instance: Any = first.instance
    allowed: Any = first.validator_value
    got: object = "null" if first.instance is None else first.instance
    expected = str(known.get("description") or f"{first.validator} {first.validator_value!r}"[:200])
    if first.validator == "additionalProperties":
        properties = known.get("properties", {})
        name = min(set(instance) - set(properties))
        return Violation(_field([*first.absolute_path, name]), "an unknown key", "one of " + ", ".join(properties))
    if first.validator == "required":
        name = next(name for name in known["required"] if name not in instance)
        return Violation(_field([*first.absolute_path, name]), "nothing", "a value: every key is required")
    if first.validator == "const":
        expected = f"{first.validator_value!r}"
    elif first.validator == "enum":
        expected = "one of " + ", ".join(str(value) for value in allowed)
    return Violation(field, got, expected)


def _field(parts: Any) -> str:
    """The path of a value inside the record, such as ``figures[3].rule``."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text or "the whole file"


def _is_number(_: object, value: object) -> bool:
    return finite(value)


def _is_integer(_: object, value: object) -> bool:
    return isinstance(value, int) and finite(value)


def _numbers(_: object, bounds: Mapping[str, Any], values: object, schema: Schema) -> Iterator[Exception]:
    if not isinstance(values, list):
        return
    least, most, above = bounds.get("least"), bounds.get("most"), bounds.get("above")
    for at, value in enumerate(values):
        wrong = (
            not finite(value)
            or (bounds.get("whole") and not isinstance(value, int))
            or (least is not None and value < least)
            or (most is not None and value > most)
            or (above is not None and value <= above)
        )
        if wrong:
            # The error gets the field's schema, whose description says what is expected.
            yield _error("numbers", path=[at], instance=value, schema=schema)
            return


def _depth(_: object, most: int, value: object, schema: Schema) -> Iterator[Exception]:
    level = [value]
    for _deep in range(most + 1):
        inside = [each for each in level if isinstance(each, (dict, list))]
        if not inside:
            return
        level = [each for one in inside for each in (one.values() if isinstance(one, dict) else one)]
    yield _error("depth", instance=f"more than {most} levels", schema=schema)


def _error(message: str, **values: Any) -> Exception:
    from jsonschema import ValidationError

    return ValidationError(message, **values)


@cache
def _validator_class() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    return extend(  # type: ignore[no-untyped-call] # jsonschema has no types for it
        Draft202012Validator,
        {"numbers": _numbers, "depth": _depth},
        type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many({"number": _is_number, "integer": _is_integer}),
    )
