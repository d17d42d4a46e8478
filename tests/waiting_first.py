"""The order in which xdist's workers take tests of which some mostly wait."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")


def waiting_first(tests: Sequence[T], waits: Callable[[T], Hashable | None], workers: int) -> list[T]:
    """``tests`` in an order in which half of the workers begin with those that wait, and the others compute meanwhile.

    xdist divides the list into parts of the same length, one for each worker (worksteal). Left to their places, the
    tests that wait may be the last ones of a part, with nothing left to compute beside them. ``waits`` is None for a
    test that does not wait; tests for which it is the same go to one worker if they are not more than its part.
    """
    groups: dict[Hashable, list[T]] = {}
    for each in tests:
        groups.setdefault(waits(each), []).append(each)
    others = groups.pop(None, [])
    heads: list[list[T]] = [[] for _ in range(workers)]
    for group in sorted(groups.values(), key=len, reverse=True):
        min(heads[: max(1, workers // 2)], key=len).extend(group)
    ordered: list[T] = []
    for place, head in enumerate(heads):
        length = (len(tests) - len(ordered)) // (workers - place)
        take = max(0, length - len(head))
        ordered += [*head, *others[:take]]
        others = others[take:]
    return ordered
