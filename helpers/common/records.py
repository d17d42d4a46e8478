"""Reads JSON strictly, and turns what was read into frozen dataclasses by their types.

Every number is finite. A key occurs once, every field has its key, and no key is unknown. Types say the rest:
``Annotated[float, msgspec.Meta(ge=0)]`` is a number from 0.
"""

from __future__ import annotations

import collections.abc
import enum
import json
import math
import re
import sys
import types
import typing
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
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
_PART = re.compile(r"\[(\d+|\.\.\.)\]|\.([^.\[`]+)")
# What msgspec says of a text that a pattern does not match, and what the suite says.
_WORDS: dict[str, str] = {}


class WrongRecord(Exception):
    """The first thing that is wrong with a record. ``field`` is the path of the value, such as ``figures[3].rule``."""

    def __init__(self, field: str, got: object, expected: str) -> None:
        super().__init__(f"{field}: expected {expected}")
        self.field, self.got, self.expected = field, got, expected


def matching(pattern: str, words: str) -> Meta:
    """The type of a text that ``pattern`` matches; ``words`` tell the reader of an error what such a text is."""
    _WORDS[f"str matching regex {pattern!r}"] = words
    return Meta(pattern=pattern)


def one_of(*texts: str) -> Meta:
    """The type of a text that is one of these."""
    return matching(f"^({'|'.join(map(re.escape, texts))})$(?!\n)", "one of " + ", ".join(texts))


def member_of(kind: type[enum.Enum]) -> Meta:
    """The type of a text that is the value of a member of ``kind``."""
    return one_of(*(each.value for each in kind))


def parse(text: str) -> Any:
    """The value of a JSON text. Raises ValueError and RecursionError for a text that is no strict JSON, and WrongRecord
    for a key that occurs twice."""
    if text.startswith("\ufeff"):
        raise json.JSONDecodeError("a byte order mark (BOM)", text, 0)
    return _DECODER.decode(text)


def read_as(record: object, kind: type[_Kind], path: str = "", *, defaults: bool = False) -> _Kind:
    """The dataclass ``kind`` of a value that ``parse`` read. Raises WrongRecord; ``path`` stands before its field.

    With ``defaults`` a key may be missing if its field has a default.
    """
    _check_keys(record, kind, path, defaults)
    try:
        return msgspec.convert(record, kind)
    except msgspec.ValidationError as error:
        words, _, at = str(error).rpartition(_AT) if _AT in str(error) else (str(error), "", "")
        parts = _way(record, kind, at)
        is_key, got = at.startswith("`key`"), _at(record, parts)
        if is_key:
            *parts, got = parts
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
        expected = words.partition(", got `")[0].removeprefix("Expected ").replace("`", "")
        where = f"{path}{field}".removeprefix(".") or "the whole file"
        # msgspec repeats the value, however long it is.
        expected = "a known value" if expected.startswith("Invalid enum value") else expected
        raise WrongRecord(where, got, _WORDS.get(expected, expected)) from error
    except UnicodeEncodeError as error:
        raise WrongRecord(path or "the whole file", str(error), "texts without half a surrogate pair") from error


def _check_keys(record: Any, kind: Any, path: str, defaults: bool) -> None:
    """Raises WrongRecord for a missing or an unknown key of a dataclass, or of one inside it."""
    parts = _parts(kind) if isinstance(record, dict) else {}
    if not parts:
        return
    for name in record:
        if name not in parts:
            raise WrongRecord(_joined(path, str(name)), "an unknown key", "one of " + ", ".join(parts))
    for name, inside in parts.items():
        if name not in record:
            if defaults and name in _defaults(kind):
                continue
            raise WrongRecord(_joined(path, name), "nothing", "a value")
        value = record[name]
        if inside is None:
            continue
        kind_inside, by_name = inside
        place = _joined(path, name)
        if isinstance(value, list):
            for at, each in enumerate(value):
                _check_keys(each, kind_inside, f"{place}[{at}]", defaults)
        elif by_name and isinstance(value, dict):
            for key, each in value.items():
                _check_keys(each, kind_inside, f"{place}.{key}", defaults)
        else:
            _check_keys(value, kind_inside, place, defaults)


@cache
def _parts(kind: Any) -> Mapping[str, tuple[Any, bool] | None]:
    """Of each field of a dataclass the dataclass that it is or lists, and whether it holds it by names; empty for
    another type."""
    if not is_dataclass(kind):
        return {}
    hints = typing.get_type_hints(kind)
    return {each.name: _inside(hints[each.name]) for each in fields(kind)}


@cache
def _defaults(kind: Any) -> frozenset[str]:
    return frozenset(
        each.name for each in fields(kind) if each.default is not MISSING or each.default_factory is not MISSING
    )


def _inside(hint: Any) -> tuple[Any, bool] | None:
    if isinstance(hint, type) and is_dataclass(hint):
        return hint, False
    origin = typing.get_origin(hint)
    found = next(filter(None, map(_inside, typing.get_args(hint))), None)
    if origin is collections.abc.Mapping:
        return found and (found[0], True)
    return found if isinstance(hint, types.UnionType) or origin in (tuple, typing.Union) else None


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _way(record: Any, kind: Any, at: str) -> list[Any]:
    """The keys and numbers that lead to the wrong value. msgspec does not name the key of an entry of a mapping."""
    found: list[Any] = []
    whole: list[tuple[dict[Any, Any], dict[Any, Any]]] = []

    def wrong_key() -> object:
        table = _at(record, found)
        whole.append((table, dict(table)))
        return _cut_at_wrong_key(record, kind, table, at)

    try:
        for number, name in _PART.findall(at):
            found.append(wrong_key() if number == "..." else int(number) if number else name)
        if at.startswith("`key`"):
            found.append(wrong_key())
    finally:
        for table, entries in whole:
            table.update(entries)
    return found


def _cut_at_wrong_key(record: object, kind: Any, table: dict[Any, Any], at: str) -> object:
    """The key of the first wrong entry of ``table``, a part of the record, which then ends with it: without it the
    record has no error at that place, or another one."""
    entries = list(table.items())

    def is_wrong(first: int) -> bool:
        table.clear()
        table.update(entries[:first])
        try:
            msgspec.convert(record, kind)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            return str(error).endswith(at)
        return False

    first = bisect_left(range(1, len(entries)), True, key=is_wrong) + 1
    table.clear()
    table.update(entries[:first])
    return entries[first - 1][0]


def _at(record: Any, parts: Sequence[Any]) -> Any:
    for part in parts:
        record = record[part]
    return record


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
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
