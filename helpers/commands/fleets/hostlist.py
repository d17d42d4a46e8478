"""Names of nodes as Slurm writes a list of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)")


def hostlist(names: Iterable[str]) -> str:
    """Names as Slurm writes them: ``n[01-03,07],login``."""
    groups: dict[tuple[str, int, str], list[int]] = {}
    plain = []
    for name in sorted(set(names)):
        if found := _NUMBERED.fullmatch(name):
            groups.setdefault((found[1], len(found[2]), found[3]), []).append(int(found[2]))
        else:
            plain.append(name)
    parts = []
    for (before, digits, after), numbers in groups.items():
        spans = [
            f"{low:0{digits}}" if low == high else f"{low:0{digits}}-{high:0{digits}}" for low, high in _spans(numbers)
        ]
        inside = spans[0] if len(numbers) == 1 else f"[{','.join(spans)}]"
        parts.append(f"{before}{inside}{after}")
    return ",".join([*parts, *plain])


def _spans(numbers: Sequence[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found
