"""Changes to JSON-like documents that keep them documents: what bytes at random seldom hit.

``mutated`` is pure: the same document and random numbers give the same change.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from random import Random
from typing import Any

import yaml

from helpers.plan.yaml_file import BoundedLoader

_DEEP: Any = "deep"
for _ in range(60):
    _DEEP = [_DEEP]

# Values at and beyond what a reader may take; texts that would forge a report or leave a folder.
HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 2**53, 2**53 + 1, 10**30, 10**400, -0.0, 5e-324, 1e-300, 1e-9, 0.5, 1.5, 1e9, 1e12,
    1e308, math.nan, math.inf, -math.inf, "", " ", "x" * 3000, "\ud800", "\x00", "\n", "\x1b[31m", "\u202e", "../..",
    "$(id)", "0", "null", [], {}, [[]], {"": {}}, _DEEP,
)  # fmt: skip
# Keys of perf.yaml under which the user names things: any key may stand there.
_NAMED = ("protocols", "machines", "environment")
# What a target's ``mutate`` raises on input that cannot be read as a document. Any other error is a mistake in here.
NOT_A_DOCUMENT = (ValueError, RecursionError, yaml.YAMLError)


def mutated(document: Any, random: Random) -> Any:
    """A copy of the document with one to three changes."""
    changed = copy.deepcopy(document)
    for _ in range(random.randint(1, 3)):
        holders: list[Any] = []
        _gather(changed, holders)
        filled = [holder for holder in holders if holder]
        if not filled:
            return random.choice(HOSTILE)
        _change(random.choice(filled), holders, random)
    return changed


def json_lines(data: bytes, random: Random) -> bytes:
    """A step log with its records changed, dropped, repeated or put in another order."""
    records = [json.loads(line) for line in data.splitlines()]
    return b"".join(json.dumps(record).encode() + b"\n" for record in as_list(mutated(records, random)))


def json_document(data: bytes, random: Random) -> bytes:
    return json.dumps(mutated(json.loads(data), random)).encode()


def yaml_document(data: bytes, random: Random) -> bytes:
    """JSON is YAML, but for the numbers that JSON has not; without the bounds, aliases would catch this loader too."""
    try:
        document = yaml.load(data, Loader=BoundedLoader)
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        raise ValueError("a tag that its text does not fit") from error
    text = json.dumps(mutated(document, random), default=str)
    return text.replace("-Infinity", "-.inf").replace("Infinity", ".inf").replace("NaN", ".nan").encode()


def closed_mappings(document: Any, named: bool = False) -> Iterator[dict[str, Any]]:
    """Every mapping of perf.yaml whose keys are the suite's own."""
    if isinstance(document, dict):
        if not named:
            yield document
        for key, value in list(document.items()):
            yield from closed_mappings(value, named=not named and key in _NAMED)
    elif isinstance(document, list):
        for value in document:
            yield from closed_mappings(value)


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _gather(value: Any, holders: list[Any]) -> None:
    if isinstance(value, (dict, list)):
        holders.append(value)
        for each in value.values() if isinstance(value, dict) else value:
            _gather(each, holders)


def _change(holder: Any, holders: list[Any], random: Random) -> None:
    """One change within a mapping or a list that is not empty."""
    places = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
    place = random.choice(places)
    kind = random.randrange(6)
    if kind == 0:
        del holder[place]
    elif kind == 1:
        holder[place] = copy.deepcopy(random.choice(HOSTILE))
    elif kind == 2:
        holder[place] = _near(holder[place], random)
    elif kind == 3:
        # What stands elsewhere in the document, in this place.
        other = random.choice([each for each in holders if each])
        values = list(other.values()) if isinstance(other, dict) else other
        holder[place] = copy.deepcopy(random.choice(values))
    elif isinstance(holder, dict):
        name = random.choice(["no_such_key", "", "\x1b", "x" * 3000, f"{place}2"])
        holder[name] = holder.pop(place) if kind == 4 else copy.deepcopy(holder[place])
    elif kind == 4:
        holder.insert(random.randrange(len(holder) + 1), copy.deepcopy(holder[place]))
    else:
        random.shuffle(holder)


def _near(value: Any, random: Random) -> Any:
    """A number just beside this one or of another size; a text with something put in."""
    if isinstance(value, bool) or value is None or isinstance(value, (dict, list)):
        return [value]
    if isinstance(value, str):
        at = random.randrange(len(value) + 1)
        return value[:at] + random.choice(["-", " ", "\n", "\x1b", "é", "0", "*"]) + value[at:]
    try:
        return random.choice([value + 1, value - 1, -value, value * 10, value / 3, value * 1e-300, str(value)])
    except OverflowError:
        return 0
