"""Reads the records that trainers and suite leave for each other, strictly: a record has every key of its dataclass and
no other, and each value has its field's type as it is written there. The caller makes the error of its file."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import fields
from functools import lru_cache
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Type, TypeVar

# Larger than any memory size, batch or number of steps.
MOST_COUNT = 2**53

T = TypeVar("T")
# Takes field, value and what is expected; returns the error.
Fail = Callable[[Optional[str], Any, str], Exception]
# Takes a value and returns it as the field has it. Raises Unfit.
Reader = Callable[[Any], Any]


class Unfit(Exception):
    """A value is not of its field's type. ``expected`` says what is; ``inside`` is the path within the value."""

    def __init__(self, expected: str, got: Any, inside: str = "") -> None:
        super().__init__(expected)
        self.expected, self.got, self.inside = expected, got, inside


def parsed(text: str, fail: Fail, constant: Callable[[str], Any] = float) -> Dict[str, Any]:
    """The JSON object of a text. NaN and infinity become what ``constant`` makes of them: numbers, so that the check of
    their field can name it."""
    try:
        record = json.loads(text, parse_constant=constant, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise fail(None, text.strip()[:80], f"a JSON object ({error})") from error
    if not isinstance(record, dict):
        raise fail(None, type(record).__name__, "a JSON object")
    return record


def _once(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"the key {twice[:40]!r} twice")
    return record


def read_record(
    kind: Type[T], record: Mapping[str, Any], fail: Fail, readers: Optional[Mapping[str, Reader]] = None
) -> T:
    """The record as a ``kind``. ``readers`` are those of types that only this kind has, by the type's text."""
    known: Any = kind
    wanted = _types_of(known)
    for name in sorted(set(record) - set(wanted)):
        raise fail(name, record[name], f"a known key of a {kind.__name__}")
    values = {}
    for name, text in wanted.items():
        if name not in record:
            raise fail(name, None, "a value")
        reader = (readers or {}).get(text) or READERS[text]
        try:
            values[name] = reader(record[name])
        except Unfit as error:
            raise fail(f"{name}{error.inside}", error.got, error.expected) from error
    return kind(**values)


def record_of(kind: Any, readers: Optional[Mapping[str, Reader]] = None) -> Reader:
    """A reader of a record within a record; ``readers`` as in ``read_record``."""

    def fail(name: Optional[str], got: Any, expected: str) -> Unfit:
        return Unfit(expected, got, f".{name}")

    return lambda value: read_record(kind, mapping(value), fail, readers)


@lru_cache(maxsize=None)
def _types_of(kind: Any) -> Dict[str, str]:
    return {each.name: str(each.type) for each in fields(kind)}


def finite(value: object) -> bool:
    """Whether ``value`` is an int or float that is neither NaN nor infinite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        # An int above the largest float, which no clock and no count gives.
        return False


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise Unfit("text", value)
    return value


def flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Unfit("true or false", value)
    return value


def count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_COUNT:
        raise Unfit("a whole number, not negative", value)
    return value


def number(value: Any) -> float:
    if not finite(value) or value < 0:
        raise Unfit("a finite number, not negative", value)
    return float(value)


def or_null(reader: Reader) -> Reader:
    return lambda value: None if value is None else reader(value)


def list_of(reader: Reader) -> Reader:
    def read(value: Any) -> Tuple[Any, ...]:
        if not isinstance(value, list):
            raise Unfit("a list", value)
        return tuple(_within(reader, each, f"[{place}]") for place, each in enumerate(value))

    return read


def mapping(value: Any) -> Dict[str, Any]:
    if not isinstance(value, dict):
        raise Unfit("a JSON object", value)
    return value


def mapping_of(reader: Reader) -> Reader:
    return lambda value: {name: _within(reader, each, f".{name}") for name, each in mapping(value).items()}


def _within(reader: Reader, value: Any, place: str) -> Any:
    try:
        return reader(value)
    except Unfit as error:
        raise Unfit(error.expected, error.got, place + error.inside) from error


# By the type's text in the dataclass.
READERS: Mapping[str, Reader] = {
    "str": text,
    "str | None": or_null(text),
    "Optional[str]": or_null(text),
    "bool": flag,
    "int": count,
    "Optional[int]": or_null(count),
    "float": number,
    "Optional[float]": or_null(number),
    "Tuple[str, ...]": list_of(text),
    "Tuple[int, ...]": list_of(count),
    "tuple[str, ...]": list_of(text),
    "tuple[tuple[int, ...], ...]": list_of(list_of(count)),
    "Mapping[str, Any]": mapping,
    "Mapping[str, str]": mapping_of(text),
    "Dict[str, str]": mapping_of(text),
}
