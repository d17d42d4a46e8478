"""Reads JSON strictly, and turns what was read into frozen dataclasses by their types.

Every number is finite. A key occurs once, every field has its key, and no key is unknown. Types say the rest:
``Annotated[float, msgspec.Meta(ge=0)]`` is a number from 0.
"""

from __future__ import annotations

import collections.abc
import json
import math
import re
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

MOST = sys.float_info.max
Number = Annotated[float, Meta(ge=-MOST, le=MOST)]
NotNegative = Annotated[float, Meta(ge=0, le=MOST)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]

_Kind = TypeVar("_Kind")
_AT = " - at "
_ONE_OF = re.compile(r"str matching regex '\^\((.*)\)\$'")
_PART = re.compile(r"\[(\d+)\]|\.?([^.\[]+)")


class WrongRecord(Exception):
    """The first thing that is wrong with a record. ``field`` is the path of the value, such as ``figures[3].rule``."""

    def __init__(self, field: str, got: object, expected: str) -> None:
        super().__init__(f"{field}: got {got!r}, expected {expected}")
        self.field, self.got, self.expected = field, got, expected


def one_of(*texts: str) -> Meta:
    """The type of a text that is one of these."""
    return Meta(pattern=f"^({'|'.join(map(re.escape, texts))})$")


def parse(text: str) -> Any:
    """The value of a JSON text. Raises ValueError and RecursionError for a text that is no strict JSON, and WrongRecord
    for a key that occurs twice."""
    if text.startswith("\ufeff"):
        raise json.JSONDecodeError("a byte order mark (BOM)", text, 0)
    return _DECODER.decode(text)


def read_as(record: object, kind: type[_Kind], path: str = "") -> _Kind:
    """The dataclass ``kind`` of a value that ``parse`` read. Raises WrongRecord; ``path`` stands before its field."""
    _check_keys(record, kind, path)
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError as error:
        words, _, at = str(error).rpartition(_AT) if _AT in str(error) else (str(error), "", "")
        # Of a mapping msgspec does not say which key it is.
        place = at.removeprefix("`key` in ").strip("`").removeprefix("$").removeprefix(".").partition("[...]")[0]
        field = ".".join(filter(None, (path, place))) or "the whole file"
        expected = words.partition(", got `")[0].removeprefix("Expected ").replace("`", "")
        if texts := _ONE_OF.fullmatch(expected):
            expected = "one of " + texts[1].replace("\\", "").replace("|", ", ")
        raise WrongRecord(field, _at(record, place), expected) from error


def _check_keys(record: object, kind: Any, path: str) -> None:
    """Raises WrongRecord for a missing or an unknown key of a dataclass, or of one inside it."""
    if not isinstance(record, dict):
        return
    parts = _parts(kind)
    for name in record:
        if name not in parts:
            raise WrongRecord(_joined(path, name), "an unknown key", "one of " + ", ".join(parts))
    for name, inside in parts.items():
        if name not in record:
            raise WrongRecord(_joined(path, name), "nothing", "a value: every key is required")
        value = record[name]
        if inside is None:
            continue
        place = _joined(path, name)
        if isinstance(value, list):
            for at, each in enumerate(value):
                _check_keys(each, inside.kind, f"{place}[{at}]")
        elif inside.by_name and isinstance(value, dict):
            for key, each in value.items():
                _check_keys(each, inside.kind, f"{place}.{key}")
        else:
            _check_keys(value, inside.kind, place)


@dataclass(frozen=True)
class _Inside:
    """The dataclass that a field's value is or lists, or holds by names."""

    kind: Any
    by_name: bool = False


@cache
def _parts(kind: Any) -> Mapping[str, _Inside | None]:
    hints = typing.get_type_hints(kind)
    return {each.name: _inside(hints[each.name]) for each in fields(kind)}


def _inside(hint: Any) -> _Inside | None:
    if isinstance(hint, type) and is_dataclass(hint):
        return _Inside(hint)
    origin = typing.get_origin(hint)
    found = next(filter(None, map(_inside, typing.get_args(hint))), None)
    if origin is collections.abc.Mapping:
        return found and _Inside(found.kind, by_name=True)
    return found if isinstance(hint, types.UnionType) or origin in (tuple, typing.Union) else None


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _at(record: Any, place: str) -> object:
    """The value at a place of a record."""
    for part in _PART.finditer(place):
        record = record[int(part[1])] if part[1] else record[part[2]]
    return record


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise WrongRecord(twice, "the same key twice", "each key once")
    return table


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is not a finite number")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


# Kept, because making one takes as long as reading a night.
_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_no_constant)
