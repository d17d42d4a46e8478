"""What watching costs: ``python -m benchmarks.watching``; ten minutes on idle cores, with real training.

One session of the suite measures a one-card CPU case, and every process of it that is not the job's is watched from
outside: CPU seconds of pytest, its supervisor and the job's guard within the measured window. The trainer's own part,
its records and life signs, is timed inside it. Their sum over the window's core seconds may be 0.5%; exit status 1
where it is more.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.suite_overhead import RECORDING_LIMIT as WATCHING_LIMIT
from benchmarks.watching_session import Observed, observe
from helpers.report.unforeseen import ended
from helpers.trainers.contract.case import Case
from tests.faults.workshop import Workshop

CASE = "paddle-resnet50v1.5-fp32-bs8-1x1-synthetic-dynamic"


@dataclass(frozen=True)
class Cost:
    """Shares of the window's core seconds."""

    observed: Observed

    @property
    def core_seconds(self) -> float:
        return self.observed.window_seconds * self.observed.cores

    @property
    def supervising(self) -> float:
        return sum(self.observed.cpu_seconds.values()) / self.core_seconds

    @property
    def recording(self) -> float:
        return self.observed.in_loop_seconds / self.core_seconds

    @property
    def share(self) -> float:
        return self.supervising + self.recording

    @property
    def accepted(self) -> bool:
        # Written so that NaN fails.
        return bool(self.share <= WATCHING_LIMIT)

    def lines(self) -> list[str]:
        seen = self.observed
        parts = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in sorted(seen.cpu_seconds.items()))
        return [
            f"window: {seen.window_seconds:.1f} s, {seen.window_steps} steps, on {seen.cores} leased core(s)",
            f"supervising: {self.supervising:.3%} ({parts}; CPU time)",
            f"in the loop: {self.recording:.3%} ({seen.in_loop_seconds:.4f} s in {seen.in_loop_calls} writings)",
            f"watching: {self.share:.3%} of the window's core seconds; at most {WATCHING_LIMIT:.1%} is accepted",
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Measure what watching a case costs.")
    parser.add_argument("--case", default=CASE, metavar="ID", help="Train this one-card CPU case on synthetic data")
    parser.add_argument("--window-steps", type=int, default=24, metavar="N", help="Watch over N steps. Default: 24")
    given = parser.parse_args(arguments)
    case = Case.parse(given.case)
    with tempfile.TemporaryDirectory(prefix="watching-") as folder:
        with Workshop(Path(folder) / "shop", real=True) as workshop:
            cost = Cost(observe(workshop, case, given.window_steps))
        print(f"{case.id}: what watching costs")
        print("\n".join(f"  {line}" for line in cost.lines()), flush=True)
    if not cost.accepted:
        print(f"watching takes {cost.share:.3%}; at most {WATCHING_LIMIT:.1%} is accepted", file=sys.stderr)
    return 0 if cost.accepted else 1


if __name__ == "__main__":
    sys.exit(ended(main, "watching"))
