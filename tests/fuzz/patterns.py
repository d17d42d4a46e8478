"""Every regular expression of the suite on lines made of its own beginnings, which cost a backtracking engine most.

A line of a megabyte is harmless to a pattern that reads it once. To one that starts anew at each of its own beginnings
and reads to the end each time, 16 KB are seconds. So each pattern is taken apart, every prefix of it becomes a text
that it matches, and lines are filled with that text, or end in one piece of it repeated.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import math
import pkgutil
import re
import string
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

import fixtures
import helpers

# The longest line that a log's reader looks at.
LINE_BYTES = 2**16
# For a line of that size. Reading it takes a pattern up to a tenth of it; a quadratic one takes two seconds and more.
MOST_SECONDS = 0.25
_ROUNDS = 3
# A round that takes so many times what it may was not disturbed: the clock is the processor's time of this process.
_HOPELESS = 8
# What any line may take: less is the clock's.
_LEAST_SECONDS = 0.05
# Choices between alternatives, and whether what may be missing is there.
_VARIANTS = 4
# Programs of other interpreters, whose frameworks are not here.
_NOT_IMPORTED = ("helpers.trainers.", "helpers.history.migrations.")
_WHOLE = ("fullmatch", "match")
# Of re, what looks at nothing: a pattern that is made has a name, or stands in a table.
_NO_LOOK = ("escape", "compile")


@dataclass(frozen=True)
class Used:
    """A pattern, where it stands, and how the suite looks with it."""

    where: str
    pattern: re.Pattern[Any]
    method: str = "finditer"

    def look(self, line: str) -> None:
        subject = line.encode() if isinstance(self.pattern.pattern, bytes) else line
        if self.method in _WHOLE:
            getattr(self.pattern, self.method)(subject)
            return
        for _ in self.pattern.finditer(subject):
            pass


@dataclass(frozen=True)
class Slow:
    """A line that took a pattern longer than it may."""

    used: Used
    line: str
    seconds: float

    def __str__(self) -> str:
        shown = self.line if len(self.line) <= 100 else f"{self.line[:60]}...{self.line[-37:]}"
        return f"{self.used.where}: {self.seconds:.2f} s for {len(self.line)} characters: {shown!r}"


# ---- which patterns there are


def patterns() -> list[Used]:
    """Of helpers and fixtures: those that modules hold, also within their tables, and those in calls of ``re``."""
    found: dict[tuple[object, int, str], Used] = {}
    for module in _modules():
        tree = ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8"))
        methods = _methods_of(tree)
        for name, value in vars(module).items():
            for pattern in _held(value):
                method = _hardest(methods.get(name, set()))
                each = Used(f"{module.__name__}.{name}", pattern, method)
                found.setdefault((pattern.pattern, pattern.flags, method), each)
        for each in _in_calls(module.__name__, tree):
            found.setdefault((each.pattern.pattern, each.pattern.flags, each.method), each)
    return sorted(found.values(), key=lambda each: each.where)


def _hardest(methods: set[str]) -> str:
    """Of the ways in which a pattern is used, the one that looks at most of a line."""
    if methods == {"fullmatch"}:
        return "fullmatch"
    return "match" if methods and methods <= set(_WHOLE) else "finditer"


def _modules() -> Iterator[ModuleType]:
    for package in (helpers, fixtures):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not info.name.startswith(_NOT_IMPORTED) and not info.name.endswith(("_worker", "__main__")):
                yield importlib.import_module(info.name)


def _held(value: object, depth: int = 4) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, Mapping):
        for each in value.values():
            yield from _held(each, depth - 1)
    elif depth and isinstance(value, (tuple, list, frozenset, set)):
        for each in value:
            yield from _held(each, depth - 1)
    elif depth and dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _held(getattr(value, field.name), depth - 1)


def _methods_of(tree: ast.AST) -> dict[str, set[str]]:
    """Of each name, the methods that are called on it; what else is done with it may be anything."""
    found: dict[str, set[str]] = {}
    called: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found.setdefault(node.value.id, set()).add(node.attr)
            called.add(id(node.value))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in called:
            found.setdefault(node.id, set()).add("")
    return found


def _in_calls(module: str, tree: ast.AST) -> Iterator[Used]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re") or node.func.attr in _NO_LOOK:
            continue
        pattern = _written(node.args[0])
        if pattern is not None:
            flags = re.MULTILINE if any("MULTILINE" in ast.dump(each) for each in (*node.args, *node.keywords)) else 0
            method = node.func.attr if node.func.attr in _WHOLE else "finditer"
            yield Used(f"{module}:{node.lineno}", re.compile(pattern, flags), method)


def _written(node: ast.expr) -> Any:
    """A pattern as it is written, with a word for each value that is put in; None where it comes from elsewhere."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (str(each.value) if isinstance(each, ast.Constant) else "word" for each in node.values)
        return "".join(parts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
        word = b"word" if isinstance(node.left.value, bytes) else "word"
        return node.left.value % word  # type: ignore[operator]
    return None


# ---- which lines they are tried with


def lines(pattern: re.Pattern[Any], size: int, every_piece: bool = False) -> Iterator[str]:
    """Lines of about ``size`` characters out of a pattern's prefixes: each prefix repeated, and each followed by its
    last piece repeated; with ``every_piece`` also by every longer end of it."""
    told: set[str] = set()
    for variant in range(_VARIANTS):
        pieces = list(_pieces(pattern, variant))
        for end in range(1, len(pieces) + 1):
            starts: Iterable[int] = range(end) if every_piece else {0, end - 1}
            for start in starts:
                head, part = "".join(pieces[:start]), "".join(pieces[start:end])
                key = f"{head}\0{part}"
                if part and key not in told:
                    told.add(key)
                    yield head + part * max(1, (size - len(head)) // len(part))


def _pieces(pattern: re.Pattern[Any], variant: int) -> Iterator[str]:
    source = pattern.pattern
    parsed = _parser.parse(source if isinstance(source, str) else source.decode("latin-1"), pattern.flags & ~re.UNICODE)
    word = ""
    for kind, text in _walked(parsed, variant):
        if kind == "literal":
            word += text
            continue
        if word:
            yield word
        word = ""
        if text:
            yield text
    if word:
        yield word


def _walked(parsed: Any, variant: int) -> Iterator[tuple[str, str]]:
    """Texts that a parsed pattern matches, piece by piece; a line's end is none of them."""
    for at, (op, value) in enumerate(parsed):
        if op is _constants.LITERAL:
            yield "literal", _inside(chr(value))
        elif op is _constants.BRANCH:
            choices = value[1]
            yield from _walked(choices[variant % len(choices)], variant)
        elif op is _constants.SUBPATTERN:
            yield from _walked(value[-1], variant)
        elif op in (_constants.MAX_REPEAT, _constants.MIN_REPEAT):
            least, _, inside = value
            for _ in range(least if variant == _VARIANTS - 1 else max(least, 1)):
                yield from _walked(inside, variant)
            yield "piece", ""
        elif op is _constants.ASSERT and value[0] > 0:
            yield from _walked(value[1], variant)
        elif op is _constants.IN and value[0][0] is not _constants.NEGATE:
            yield "piece", _inside(_member(*value[variant % len(value)]))
        elif op in (_constants.IN, _constants.ANY, _constants.NOT_LITERAL):
            one = _compiler.compile(parsed[at : at + 1])
            characters = [each for each in string.printable if one.fullmatch(each)]
            yield "piece", _inside(characters[variant % len(characters)])


def _member(op: Any, value: Any) -> str:
    """A character of one member of a set, so that the variants go over all members."""
    if op is _constants.CATEGORY:
        return {_constants.CATEGORY_DIGIT: "1", _constants.CATEGORY_SPACE: " "}.get(value, "x")
    return chr(value if op is _constants.LITERAL else value[0])


def _inside(character: str) -> str:
    return "" if character in "\n\r" else character


# ---- how long they take


def slow(
    used: Iterable[Used],
    size: int = LINE_BYTES,
    every_piece: bool = False,
    clock: Callable[[], float] = time.process_time,
) -> Iterator[Slow]:
    """The lines that take a pattern longer than MOST_SECONDS, one a pattern; the least of some rounds counts."""
    for each in used:
        for line in lines(each.pattern, size, every_piece):
            if (found := _slow(each, line, clock)) is not None:
                yield found
                break


def _slow(used: Used, line: str, clock: Callable[[], float]) -> Slow | None:
    # Shorter ones first: what grows with the third power of its line must not be waited for.
    for share in (32, 4, 1):
        part, seconds = line[: len(line) // share], math.inf
        most = max(MOST_SECONDS * len(part) / LINE_BYTES, _LEAST_SECONDS)
        for _ in range(_ROUNDS):
            begin = clock()
            used.look(part)
            seconds = min(seconds, clock() - begin)
            if seconds <= most:
                break
            if seconds > _HOPELESS * most:
                return Slow(used, part, seconds)
        else:
            return Slow(used, part, seconds)
    return None
