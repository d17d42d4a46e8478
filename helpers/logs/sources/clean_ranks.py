"""mpirun's and Horovod's prefixes: which rank wrote which part of which line.

``[1,0]<stdout>:``, with a date in front (``Wed Jun  1 12:20:31 2022[1,0]<stdout>:``), ``[job@1,0]<stderr>: `` and
``[1,0][host:pid]<stdout>: `` (Open MPI 5), ``[0]<stdout>:`` (horovodrun with gloo). ``--tag-output`` promises one at a
line's start; in truth one stands before every piece that a rank wrote, so in the middle of lines too.
Other launchers' prefixes (``[0] ``, ``0: ``) are left: such text is a part of ordinary lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

_DATE_BYTES = 24
# Among so many prefixes one of rank 0 is looked for.
_LOOKED_AT = 64
# The date is looked for backwards from the bracket: so the pattern begins with a literal, which is found fast.
_PREFIX = re.compile(
    rb"\[(?:(?<=([A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\[))?"
    rb"(?:[^\[\]\s,]{1,100},)?(\d{1,7})\](?:\[[^\[\]\s]{1,100}\])?<std(?:out|err|diag)>:"
)


@dataclass(frozen=True)
class Ranks:
    """Lines by who wrote them: ``rank_0`` has as many lines as there were, with what no prefix claims for another rank;
    ``others`` the text of the ranks above 0, in lines, and ``others_at`` where each of them began; ``at`` in which line
    each of their prefixes stands, and the rank. Lines count from 0."""

    rank_0: bytes
    others: bytes
    ranks: frozenset[int]
    at: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    others_at: tuple[int, ...] = field(default=(), compare=False)


def by_rank(lines: bytes) -> Ranks | None:
    """Whole lines, divided by their prefixes; None where there is none."""
    # The first of the two is found far faster, and most logs have none of it.
    if b"<" not in lines or b"]<std" not in lines:
        return None
    lines, first = _without_first_ranks(lines)
    parts = _PREFIX.split(lines)
    if len(parts) == 1:
        return Ranks(lines, b"", first) if first else None
    texts, named = parts[0::3], parts[2::3]
    _strip_dates(texts, parts[1::3])
    _strip_spaces(texts)
    numbers = {rank: int(rank) for rank in set(named)}
    zeros = {rank for rank, number in numbers.items() if number == 0}
    places = [(index, numbers[rank]) for index, rank in enumerate(named, 1) if rank not in zeros]
    others, at, others_at = _taken(texts, places)
    return Ranks(b"".join(texts), others, first.union(numbers.values()), at, others_at)


def _without_first_ranks(lines: bytes) -> tuple[bytes, frozenset[int]]:
    """The lines without rank 0's prefix at their starts, where most have the same one without a date; and the ranks it
    names. Any other prefix is left, also rank 0's within a line."""
    found = next((each for each in islice(_PREFIX.finditer(lines), _LOOKED_AT) if not int(each[2])), None)
    if found is None or found[1]:
        return lines, frozenset()
    prefix = found[0]
    rest = (b"\n" + lines).replace(b"\n" + prefix, b"\n")[1:]
    # The space behind a prefix goes with it, which is looked at piece by piece.
    if prefix + b" " in lines:
        return lines, frozenset()
    return rest, frozenset((0,))


def _strip_dates(texts: list[bytes], dates: Sequence[bytes | None]) -> None:
    """Each date is the end of the text before its prefix."""
    if any(dates):
        for index, date in enumerate(dates):
            if date is not None:
                texts[index] = texts[index][:-_DATE_BYTES]


def _strip_spaces(texts: list[bytes]) -> None:
    """Open MPI 5 sets a space behind a prefix. Only at a line's start, since a piece may begin with its own."""
    for index, text in enumerate(islice(texts, 1, None), 1):
        if text[:1] == b" " and texts[index - 1][-1:] in (b"\n", b""):
            texts[index] = text[1:]


def _taken(
    texts: list[bytes], places: Sequence[tuple[int, int]]
) -> tuple[bytes, tuple[tuple[int, int], ...], tuple[int, ...]]:
    """The pieces of the ranks above 0, taken out of ``texts``, with ``at`` and ``others_at`` of Ranks.

    Up to the line's end a piece is its rank's; lines without a prefix that follow are the launcher's.
    """
    others: list[bytes] = []
    at: list[tuple[int, int]] = []
    others_at: list[int] = []
    # The piece before this one, where it has not come to its line's end.
    begun: tuple[int, int] | None = None
    line, counted = 0, 0
    for index, rank in places:
        # Every line end stays where it is, whatever was taken.
        line += b"".join(texts[counted:index]).count(b"\n")
        counted = index
        at.append((line, rank))
        if begun != (index - 1, rank):
            if begun is not None:
                others.append(b"\n")
            others_at.append(line)
        text = texts[index]
        end = text.find(b"\n")
        begun = (index, rank) if end < 0 else None
        others.append(text if end < 0 else text[: end + 1])
        texts[index] = b"" if end < 0 else text[end:]
    if begun is not None:
        others.append(b"\n")
    return b"".join(others), tuple(at), tuple(others_at)
