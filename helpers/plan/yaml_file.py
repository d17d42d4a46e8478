"""Reads a YAML file within limits, and turns what it says into dataclasses as ``helpers.common.records`` does."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Hashable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml

from helpers.common.files import named_by_user, read_text_limited
from helpers.common.records import WrongRecord, matching, read_as
from helpers.trainers.contract.errors import ConfigError

_Kind = TypeVar("_Kind")

Text = Annotated[str, matching(r"^[^\0]*[^\s\0][^\0]*$", "text")]
# A name that the user chose.
Name = Annotated[
    str, matching(r"^[A-Za-z0-9_.][A-Za-z0-9_.-]{0,99}$(?!\n)", "a name of letters, digits, '_', '.' and '-'")
]
# A shell-style pattern over case ids or host names.
Pattern = Annotated[
    str, matching(r"^[A-Za-z0-9_.*?!\[\]-]+$(?!\n)", "a pattern of letters, digits and . _ - * ? [ ] !")
]

# The shipped file has 8 KiB. PyYAML reads some 100 KiB a second, and a number of base 60 in quadratic time.
_MOST_BYTES = 1 << 17
# The shipped file has 870 values, 6 deep. What an alias stands for counts each time, since a few lines of aliases of
# aliases would fill any memory ("billion laughs"), and so does every piece of a long text.
_MOST_VALUES = 10_000
_PIECE_CHARACTERS = 100
_DEEPEST = 50
# Besides its own errors the loader lets through those of int(), of dates, of deep nesting, and of a tag on a text of
# another form ("!!bool x").
_NOT_YAML = (yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class BoundedLoader(yaml.SafeLoader):
    """PyYAML's safe loader with limits. The original keeps the last of two equal keys and writes out any alias."""

    _values = _depth = 0

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        # How many values each anchor stands for, as soon as it is whole.
        self._of_anchor: dict[str, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        before, is_alias = self._values, self.check_event(yaml.AliasEvent)
        anchor: str | None = self.peek_event().anchor  # type: ignore[no-untyped-call]
        if is_alias and anchor in self.anchors and anchor not in self._of_anchor:
            raise yaml.composer.ComposerError(None, None, "an alias inside of its own value", self.get_mark())
        if self._values > _MOST_VALUES or self._depth >= _DEEPEST:
            problem = f"more than {_MOST_VALUES} values, or more than {_DEEPEST} within each other"
            raise yaml.composer.ComposerError(None, None, problem, self.get_mark())
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(node, yaml.ScalarNode):
            # Half a surrogate pair can be shown and written nowhere: a UnicodeEncodeError.
            node.value.encode()
        if is_alias:
            self._values += self._of_anchor[str(anchor)]
        else:
            self._values += 1 + (len(node.value) // _PIECE_CHARACTERS if isinstance(node, yaml.ScalarNode) else 0)
        if anchor is not None and not is_alias:
            self._of_anchor[anchor] = self._values - before
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    problem = f"key {key.value} occurs twice"
                    raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path) -> Any:
    """The file's whole content. Raises ConfigError if it cannot be read or is not YAML."""
    about = str(path)
    try:
        text = read_text_limited(named_by_user(path), _MOST_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(about, got=str(error), expected="a readable file in UTF-8") from error
    try:
        return copy.deepcopy(_parsed(text))
    except _NOT_YAML as error:
        mark = getattr(error, "problem_mark", None)
        raise ConfigError(
            f"{about}, line {mark.line + 1}" if mark else about,
            got=getattr(error, "problem", None) or f"{type(error).__name__}: {error}",
            expected="valid YAML with every key once",
            remedy="Put what begins with *, [, ! or { in quotes",
        ) from error


# PyYAML takes a fifth of a second for the shipped file, which is read beside every other.
@lru_cache(maxsize=8)
def _parsed(text: str) -> object:
    """The content of a YAML text, which the caller must not change."""
    value: object = yaml.load(text, Loader=BoundedLoader)
    return value


def read_section(value: object, kind: type[_Kind], about: str, place: str = "") -> _Kind:
    """The value at ``place`` of the file ``about`` as the dataclass ``kind``. Raises ConfigError."""
    try:
        return read_as(value, kind, place, defaults=True)
    except WrongRecord as wrong:
        got = "nothing" if wrong.got is None else wrong.got
        raise ConfigError(about, field=wrong.field, got=got, expected=wrong.expected) from wrong


def close_to(word: str, known: Sequence[str]) -> str | None:
    """``Did you mean ...?`` if one of the known words resembles this one; else empty."""
    close = difflib.get_close_matches(word, known, n=1)
    return f"Did you mean {close[0]!r}?" if close else None
