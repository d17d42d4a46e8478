"""What a card did in profiled steps: its kernels and copies as calls of operators, and the time of each phase there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Iterable, List, Sequence

from helpers.trainers.common.phase_times import Claim, divided
from helpers.trainers.common.step_profiler import ProfileError, Recording, call_of, rows_of
from helpers.trainers.contract.step_profile import OperatorRow, Phase

# A rank has one card. Its number is left out, or the ranks of a job would have no row in common.
CARD = "cuda"
UNKNOWN_OPERATOR = "(not told)"
# What a profiler records on a GPU.
RECORDED = "kernels and copies as CUPTI recorded them on the card"
# The note of a framework whose reader no GPU has tried.
NOT_TRIED = "the suite's reader of a card's kernels has been tried on a trace written by hand, not on a GPU"
_NCCL_KERNEL = re.compile(r"^nccl", re.IGNORECASE)


@dataclass(frozen=True)
class CardWork:
    """A kernel, a copy or a fill, from ``start`` to ``end`` (seconds), with the operator that launched it."""

    name: str
    start: float
    end: float
    phase: Phase
    layer: str = ""
    operator: str = UNKNOWN_OPERATOR
    # From the host's memory.
    is_copy_to_card: bool = False

    @property
    def reduces(self) -> bool:
        return self.phase is Phase.ALL_REDUCE or _NCCL_KERNEL.match(self.name) is not None


def recording_on_card(works: Sequence[CardWork], parts: Iterable[Claim[Phase]], steps: int, profiler: str) -> Recording:
    """What ``steps`` steps say by the card's own times. ``parts`` are those of the steps by the host's clock: where the
    card did nothing, the wait for data counts. Raises ProfileError, which names the ``profiler``, if there is no
    work."""
    if not works:
        raise ProfileError(f"{profiler} recorded no kernel: does CUPTI work here, and may this user profile the GPU?")
    calls: List[OperatorRow] = []
    computing: List[Claim[Phase]] = []
    reducing: List[Claim[Phase]] = []
    copying: List[Claim[Phase]] = []
    for each in works:
        group, phase = computing, each.phase
        if each.reduces:
            group, phase = reducing, Phase.ALL_REDUCE
        elif each.is_copy_to_card:
            group, phase = copying, Phase.TRANSFER
        group.append(Claim(phase, each.start, each.end))
        seconds = each.end - each.start
        calls.append(call_of(phase, each.layer, each.operator, seconds, kernel=each.name, device=CARD))
    by_phase = divided([computing, reducing, copying, [part for part in parts if part.what is Phase.DATA_WAIT]])
    overlapped = divided([reducing]).get(Phase.ALL_REDUCE, 0.0) - by_phase.get(Phase.ALL_REDUCE, 0.0)
    phases = {phase: each / steps for phase, each in by_phase.items()}
    return Recording(rows_of(calls, steps), phases, max(0.0, overlapped) / steps)
