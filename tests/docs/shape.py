"""Whether an output has the shape that a page shows: the same words, and a number for a number, a date for a date.

How wide a column is, where a line breaks and how many numbers stand in a row is left out. In a page's output ``…``
stands for anything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_ANY, _NUMBER = "\x00ANY\x00", "\x00NUMBER\x00"
# The first that matches counts.
_KINDS = (
    ("ANY", r"…"),
    ("SESSION", r"\b20\d{6}-\d{6}-[0-9a-f]{4}\b"),
    ("DATE", r"\b20\d\d-\d\d-\d\d\b"),
    ("TIME", r"\b\d?\d:\d\d(?::\d\d)?\b"),
    ("HASH", r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b"),
    ("NUMBER", r"(?<![\w.])[<+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w])"),
)
_KIND = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in _KINDS))
_RULE = re.compile(r"[-=]{4,}")
# A rule of dashes, a mark, or a word with its marks apart.
_TOKEN = re.compile(r"\x00\w+\x00|[\w.*?'\[\]-]+|[^\s\w]")


def tokens(text: str) -> list[str]:
    """The words, marks and kinds of a text."""
    plain = _RULE.sub(" ---- ", text)
    found = _TOKEN.findall(_KIND.sub(lambda found: f" \x00{found.lastgroup}\x00 ", plain))
    # However many numbers follow each other: one for each pair, for example.
    return [token for token, before in zip(found, ["", *found], strict=False) if (token, before) != (_NUMBER, _NUMBER)]


def difference(shown: str, printed: str) -> str:
    """Where ``printed`` has another shape than the page shows; empty where nowhere."""
    wanted, got = tokens(shown), tokens(printed)
    text = _text(got)
    if re.fullmatch(_pattern(wanted), text):
        return ""
    same = max(length for length in range(len(wanted) + 1) if re.match(_pattern(wanted[:length]), text))
    found = re.match(_pattern(wanted[:same]), text)
    assert found is not None
    before, expected, rest = wanted[max(0, same - 4) : same], wanted[same : same + 8], text[found.end() :].split()[:8]
    return f"after '{_words(before)}' the page has '{_words(expected)}', the output '{_words(rest)}'"


def _text(found: Sequence[str]) -> str:
    return "".join(f"{token}\n" for token in found)


def _pattern(wanted: Sequence[str]) -> re.Pattern[str]:
    return re.compile("".join("(?:.*\n)*?" if token == _ANY else re.escape(f"{token}\n") for token in wanted))


def _words(found: Sequence[str]) -> str:
    return " ".join(found).replace("\x00", "")
