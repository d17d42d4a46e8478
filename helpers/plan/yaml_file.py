"""Reads one YAML file strictly: every value is requested by type and range, and knows its place in the file."""

from __future__ import annotations

import copy
import datetime
import difflib
import enum
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import yaml

from helpers.common.files import named_by_user, open_regular
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.records import finite

E = TypeVar("E", bound=enum.Enum)

_NAME = re.compile(r"[A-Za-z0-9_.]+(?:-[A-Za-z0-9_.]+)*", re.ASCII)
_LONGEST_NAME = 100
# A value without quotes that begins as a pattern may, with a sign that means something else in YAML.
_UNQUOTED = re.compile(r"""(?:[:\[,-]\s+|[\[{,]|^\s*)([*?!][^\s"',{}\[\]]+|\[[^\s"',{}\[\]]+\][^\s"',{}\[\]]+)""")
_PATTERN = re.compile(r"[A-Za-z0-9_.*?!\[\]-]+", re.ASCII)
# The shipped file has 8 KiB. PyYAML reads some 100 KiB a second, and a number of base 60 in quadratic time.
_MOST_BYTES = 1 << 17
# The most characters of the file with every alias written out: a few lines of aliases of aliases would fill any memory
# ("billion laughs").
_MOST_CHARACTERS = 1 << 20
# The shipped file has 870 values, 6 deep. For 60,000 values of two characters each PyYAML would take more than a
# second.
_MOST_VALUES = 10_000
_DEEPEST = 50
# Besides its own errors the loader lets through those of int(), of dates, of deep nesting, and of a tag on a text of
# another form ("!!bool x").
_NOT_YAML = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class BoundedLoader(yaml.SafeLoader):
    """PyYAML's safe loader with limits. The original keeps the last of two equal keys and writes out any alias."""

    _values = _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._values += 1
        self._depth += 1
        if self._values > _MOST_VALUES or self._depth > _DEEPEST:
            problem = f"more than {_MOST_VALUES} values, or more than {_DEEPEST} within each other"
            raise yaml.composer.ComposerError(None, None, problem, self.get_mark())
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            _characters(node, {})
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[str, int] = {}
        for key, _ in node.value:
            if key.value in seen and isinstance(key, yaml.ScalarNode):
                problem = f"key {key.value} occurs twice, first in line {seen[key.value]}"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            if isinstance(key, yaml.ScalarNode):
                seen[key.value] = key.start_mark.line + 1
        return super().construct_mapping(node, deep)


@dataclass(frozen=True)
class YamlValue:
    """A value of the file ``about`` at ``place``, a dotted path such as ``matrix.cpu[0].cards``."""

    about: str
    place: str
    value: object
    # The shipped value of the same place, whose keys hold where this mapping has none of that name.
    under: YamlValue | None = None

    def refuse(self, expected: str, remedy: str | None = None, got: object | None = None) -> ConfigError:
        """The error to raise for this value. An empty value is called empty."""
        seen = self.value if got is None else got
        shown = "nothing" if seen is None else seen
        return ConfigError(self.about, field=self.place or None, got=shown, expected=expected, remedy=remedy)

    def mapping(self, required: Iterable[str] = (), optional: Iterable[str] = ()) -> dict[str, YamlValue]:
        """The fields under exactly these keys, without optional ones that are absent."""
        needed, known = list(required), [*required, *optional]
        fields = self.named()
        for name, field in fields.items():
            if name not in known:
                raise field.refuse("one of the keys " + ", ".join(known), close_to(name, known), got=name)
        for name in needed:
            if name not in fields:
                raise self._below(name, None).refuse("a value")
        return fields

    def named(self) -> dict[str, YamlValue]:
        """The fields of a mapping whose keys are names that the user chose."""
        if not isinstance(self.value, dict):
            raise self.refuse("a mapping (KEY: VALUE lines)")
        for key in self.value:
            # YAML 1.1 reads an unquoted on, no or 12 as something other than a name.
            if not isinstance(key, str) or len(key) > _LONGEST_NAME or not _NAME.fullmatch(key):
                got = "an empty key" if key is None else key
                expected = f"keys of letters, digits, '_', '.' and '-', {_LONGEST_NAME} at most"
                raise self.refuse(expected, "Quote the key", got=got)
        own = {key: self._below(key, value) for key, value in self.value.items()}
        return {**self.under.named(), **own} if self.under else own

    def sequence(self, least: int = 0) -> list[YamlValue]:
        """The items of a list of at least ``least``."""
        if not isinstance(self.value, list):
            raise self.refuse("a list")
        if len(self.value) < least:
            raise self.refuse(f"a list of at least {least}", got="an empty list")
        return [YamlValue(self.about, f"{self.place}[{index}]", value) for index, value in enumerate(self.value)]

    def one_or_many(self) -> list[YamlValue]:
        """The items of a list, or the value itself as the only item."""
        return self.sequence(least=1) if isinstance(self.value, list) else [self]

    def text(self) -> str:
        if not isinstance(self.value, str) or not self.value.strip() or "\0" in self.value:
            raise self.refuse("text")
        return self.value

    def pattern(self) -> str:
        """A shell-style pattern over case ids or host names."""
        text = self.text()
        if not _PATTERN.fullmatch(text):
            raise self.refuse("a pattern of letters, digits and . _ - * ? [ ] !")
        return text

    def whole(self, least: int, most: int) -> int:
        value = self.value
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.refuse(f"a whole number from {least} to {most}")
        return value

    def number(self, above: float, below: float) -> float:
        """A finite number strictly between the two."""
        value = self.value
        if not finite(value) or not above < value < below:  # type: ignore[operator]
            raise self.refuse(f"a number above {above:g} and below {below:g}")
        return float(value)  # type: ignore[arg-type]

    def date(self) -> datetime.date:
        """A day, ``2026-12-24``, with or without quotes."""
        value = self.value
        try:
            found = datetime.date.fromisoformat(value) if isinstance(value, str) and len(value) == 10 else value
        except ValueError:
            found = None
        if not isinstance(found, datetime.date) or isinstance(found, datetime.datetime):
            raise self.refuse("a day, as 2026-12-24")
        return found

    def truth(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.refuse("true or false")
        return self.value

    def member(self, kind: type[E]) -> E:
        """The member of ``kind`` with this value."""
        return kind(self.one_of([str(item.value) for item in kind]))

    def one_of(self, known: Sequence[str]) -> str:
        if not isinstance(self.value, str) or self.value not in known:
            raise self.refuse("one of " + (", ".join(known) or "none"), close_to(self.value, known))
        return self.value

    def path(self, folder: Path) -> str:
        """An absolute path; a relative one starts at ``folder``, ``~`` is the user's home."""
        try:
            return str(folder / Path(self.text()).expanduser())
        except RuntimeError as error:
            raise self.refuse("a path", str(error)) from error

    def _below(self, name: str, value: object) -> YamlValue:
        return YamlValue(self.about, f"{self.place}.{name}" if self.place else name, value)


def read_yaml(path: Path) -> YamlValue:
    """The file's whole content. Raises ConfigError if it cannot be read or is not YAML."""
    about = str(path)
    try:
        with open_regular(named_by_user(path)) as file:
            content = file.read(_MOST_BYTES + 1)
        text = content.decode("utf-8")
    except FileNotFoundError as error:
        raise ConfigError(about, got="no such file", expected="the suite's configuration") from error
    except OSError as error:
        raise ConfigError(about, got=str(error), expected="a readable file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(about, got=str(error), expected="UTF-8 text") from error
    if len(content) > _MOST_BYTES:
        raise ConfigError(about, got=f"more than {_MOST_BYTES} bytes", expected="a configuration of up to that size")
    try:
        value = copy.deepcopy(_parsed(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{about}, line {mark.line + 1}" if mark else about
        expected = "valid YAML with every key once"
        raise ConfigError(where, got=error.problem, expected=expected, remedy=_to_quote(text, mark)) from error
    except _NOT_YAML as error:
        raise ConfigError(about, got=f"{type(error).__name__}: {error}", expected="valid YAML") from error
    return YamlValue(about, "", value)


def _to_quote(text: str, mark: yaml.Mark | None) -> str | None:
    """What to do about a pattern that YAML takes for signs of its own because it is not quoted."""
    found = None if mark is None else _UNQUOTED.search("".join(text.splitlines()[mark.line : mark.line + 1]))
    return f'Quote it: "{found.group(1)}"' if found else None


# A search for the first bad build reads the same file before each of its builds.
@lru_cache(maxsize=8)
def _parsed(text: str) -> object:
    """The content of a YAML text, which the caller must not change."""
    value: object = yaml.load(text, Loader=BoundedLoader)
    return value


def _characters(node: yaml.Node, known: dict[int, int | None]) -> int:
    """The characters below ``node`` with every alias written out. ``known`` has them by id; None while a node is being
    counted."""
    if id(node) in known:
        counted = known[id(node)]
        if counted is None:
            raise yaml.constructor.ConstructorError(None, None, "an alias inside of its own value", node.start_mark)
        return counted
    known[id(node)] = None
    total = 1
    if isinstance(node, yaml.ScalarNode):
        total += len(node.value)
    elif isinstance(node, yaml.SequenceNode):
        total += sum(_characters(item, known) for item in node.value)
    elif isinstance(node, yaml.MappingNode):
        total += sum(_characters(key, known) + _characters(value, known) for key, value in node.value)
    if total > _MOST_CHARACTERS:
        problem = f"aliases that stand for more than {_MOST_CHARACTERS} characters"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    known[id(node)] = total
    return total


def close_to(word: object, known: Sequence[str]) -> str | None:
    """``Did you mean ...?`` if one of the known words resembles this one; else empty."""
    close = difflib.get_close_matches(str(word), known, n=1)
    return f"Did you mean {close[0]!r}?" if close else None
