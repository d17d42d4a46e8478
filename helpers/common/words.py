"""Words that texts of every folder need."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, one: str, more: str = "") -> str:
    """``1 log``, ``2 logs``; ``more`` is the plural where it is not made with an s."""
    return f"{count} {one if count == 1 else more or f'{one}s'}"


def first_few(texts: Sequence[str], shown: int = 5) -> str:
    left = len(texts) - shown
    return "; ".join(texts[:shown]) + (f"; and {left} more" if left > 0 else "")
