"""How the ranks of a static program agree that all are steady: through their hosts, between two runs of the program.

A static program has no place for a question between its runs: its only exchanges are those of the step. Paddle's
processes meet at a key-value store over TCP all the same, which rank 0 serves at ``PADDLE_MASTER``, on one node or on
several; the ranks ask each other through it. An answer takes 80 to 180 ms, in warm-up alone.
"""

from __future__ import annotations

from typing import Any, Optional

import paddle

# Low bits count those that were asked, high bits those that are against: one addition tells both.
_AGAINST = 1 << 32


class HostAgreement:
    """``LoopIO.agree`` of ``world_size`` ranks, which must all ask, and as often as each other."""

    def __init__(self, store: Any, world_size: int) -> None:
        self._store = store
        self._world_size = world_size
        self._asked = 0

    def __call__(self, own: bool) -> bool:
        """Whether every rank says so. Waits for the last of them, as a barrier does; the supervisor ends a wait for a
        rank that is gone."""
        self._asked += 1
        key = f"perfgate/steady/{self._asked}"
        said = int(self._store.add(f"{key}/said", 1 if own else 1 + _AGAINST))
        if said % _AGAINST == self._world_size:
            self._store.set(f"{key}/all", b"yes" if said < _AGAINST else b"no")
        return bool(self._store.get(f"{key}/all") == b"yes")


def host_agreement(world_size: int) -> Optional[HostAgreement]:
    """This rank's side of the agreement; None where this build of Paddle has no such store.

    Every rank must call it, since rank 0 waits for the others.
    """
    meet = getattr(paddle.base.core, "create_or_get_global_tcp_store", None)
    return None if meet is None else HostAgreement(meet(), world_size)
