"""Which settings make Paddle faster on this CPU: ``python -m benchmarks.cpu_settings``.

Each candidate against what it would be added to, in pairs of fresh processes that take turns
(``helpers.session.lockstep``). Prints how much faster it is, with the 95% interval over pairs, and whether it
computed the very same losses. What is not tried and why: ``docs/cpu-settings.md``.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.cores import last_core
from helpers.plan.recipes.common import cpu_environment, read_processor
from helpers.report.unforeseen import ended
from helpers.session.lockstep import Arm, Seat, Turns, pair_ratio, ratio_of, take_turns, trainer_arm
from helpers.trainers.contract.blocks import StepBlock
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError

_USUAL = "as it is"
CASE = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"


@dataclass(frozen=True)
class Candidate:
    """Variables and settings to try; ``cores`` is how many cores the card has at least."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    cores: int = 1

    def over(self, other: Candidate) -> Candidate:
        """Both at once; this one's values replace the other's."""
        environment, settings = {**other.environment, **self.environment}, {**other.settings, **self.settings}
        return replace(self, environment=environment, settings=settings)


_KEEP = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}
_GROW = {"MALLOC_TOP_PAD_": str(2**28)}
_HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
CANDIDATES = (
    # The same as what it is compared with: what the method itself shows.
    Candidate("nothing"),
    Candidate("mkl-avx", {"MKL_DEBUG_CPU_TYPE": "4"}),
    Candidate("mkl-avx2", {"MKL_DEBUG_CPU_TYPE": "5"}),
    Candidate("mkl-avx512", {"MKL_DEBUG_CPU_TYPE": "7"}),
    Candidate("mkl-instructions-avx512", {"MKL_ENABLE_INSTRUCTIONS": "AVX512"}),
    Candidate("mkl-cbwr-avx2", {"MKL_CBWR": "AVX2"}),
    Candidate("onednn", {"FLAGS_use_onednn": "1"}),
    Candidate("mkldnn", {"FLAGS_use_mkldnn": "1"}),
    Candidate("onednn-convolutions", {"FLAGS_use_onednn": "1", "FLAGS_tracer_onednn_ops_on": "conv2d"}),
    Candidate("mkldnn-convolutions", {"FLAGS_use_mkldnn": "1", "FLAGS_tracer_mkldnn_ops_on": "conv2d"}),
    Candidate("onednn-isa-avx512", {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}),
    Candidate("nhwc", settings={"layout": "NHWC"}),
    Candidate("malloc-heap", {"MALLOC_MMAP_MAX_": "0"}),
    Candidate("malloc-keep", _KEEP),
    Candidate("malloc-keep-grow", _KEEP | _GROW),
    Candidate("malloc-arenas-1", {"MALLOC_ARENA_MAX": "1"}),
    Candidate("huge-pages", _HUGE),
    Candidate("huge-pages-keep", _HUGE | _KEEP | _GROW),
    # helpers/plan/recipes/common.py's own, whole.
    Candidate("recipe", cpu_environment(read_processor())),
    Candidate("unpinned", {"FLAGS_use_pinned_memory": "0"}),
    Candidate("pool", {"FLAGS_initial_cpu_memory_in_mb": "4000"}),
    Candidate("system-allocator", {"FLAGS_use_system_allocator": "1"}),
    Candidate("naive-best-fit", {"FLAGS_allocator_strategy": "naive_best_fit"}),
    Candidate("delete-late", {"FLAGS_eager_delete_tensor_gb": "2"}),
    Candidate("add-in-place", {"FLAGS_max_inplace_grad_add": "8"}),
    Candidate("no-strides", {"FLAGS_use_stride_kernel": "0"}),
    Candidate("inner-op-2", {"FLAGS_inner_op_parallelism": "2"}, cores=2),
    Candidate("bind-threads", {"OMP_PROC_BIND": "true"}, cores=2),
    Candidate("kmp-compact", {"KMP_AFFINITY": "granularity=fine,compact,1,0"}, cores=2),
    Candidate("block-time-0", {"KMP_BLOCKTIME": "0"}, cores=2),
    Candidate("wait-passive", {"OMP_WAIT_POLICY": "PASSIVE"}, cores=2),
    Candidate("wait-active", {"OMP_WAIT_POLICY": "ACTIVE"}, cores=2),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", default=CASE, help="Train this one-card CPU case")
    parser.add_argument(
        "--only", nargs="*", default=["*"], metavar="PATTERN", help="Try the candidates that match one of these"
    )
    known = {candidate.name: candidate for candidate in CANDIDATES}
    parser.add_argument(
        "--base", nargs="*", default=[], choices=known, metavar="CANDIDATE", help="Give both sides these first"
    )
    parser.add_argument("--cores", type=int, default=1, help="Give the card N cores")
    parser.add_argument("--pairs", type=int, default=4, help="Start N pairs of processes for each candidate")
    parser.add_argument("--rounds", type=int, default=5, help="Give each process N turns of one step")
    parser.add_argument("--warmup", type=int, default=3, help="Train N steps before the first turn")
    parser.add_argument("--together", type=int, default=5, help="Compare N candidates at once; each takes 1.2 GB")
    parser.add_argument("--interpreter", default=sys.executable, help="Train with this Python's Paddle")
    arguments = parser.parse_args()
    case = Case.parse(arguments.case)
    base = functools.reduce(lambda under, name: known[name].over(under), arguments.base, Candidate(""))
    cores = tuple(range(last_core() + 1 - arguments.cores, last_core() + 1))
    print(f"{case.id}, {len(cores)} core(s), on top of: {' '.join(arguments.base) or 'nothing'}")
    wanted = [
        candidate
        for candidate in CANDIDATES
        if any(fnmatch.fnmatch(candidate.name, pattern) for pattern in arguments.only)
        and candidate.cores <= arguments.cores
    ]
    with tempfile.TemporaryDirectory() as folder:

        def arm(candidate: Candidate) -> Arm:
            tried = candidate.over(base)
            return trainer_arm(
                candidate.name, case, Path(folder), Seat(cores, interpreter=arguments.interpreter),
                environment=tried.environment, settings=tried.settings,
            )  # fmt: skip

        trial = Trial(arm, arguments.pairs, Turns(arguments.rounds, warmup_steps=arguments.warmup))
        for start in range(0, len(wanted), arguments.together):
            for line in trial.of(wanted[start : start + arguments.together]):
                print("  " + line, flush=True)
    return 0


@dataclass(frozen=True)
class Trial:
    """Candidates against what both have anyway, in ``pairs`` sets of fresh processes."""

    arm: Callable[[Candidate], Arm]
    pairs: int
    turns: Turns

    def of(self, candidates: Sequence[Candidate]) -> list[str]:
        """A line for each. Where one does not run, each is tried alone, so that it spoils no other."""
        usual = self.arm(Candidate(_USUAL))
        arms = [self.arm(candidate) for candidate in candidates]
        sets = []
        try:
            for number in range(self.pairs):
                order = [usual, *arms] if number % 2 == 0 else [*arms, usual]
                sets.append(take_turns(order, self.turns))
        except LaunchError as error:
            if len(candidates) == 1:
                return [f"{_told(candidates[0])} does not run: {' '.join(str(error).split())[-160:]}"]
            return [line for candidate in candidates for line in self.of([candidate])]
        return [f"{_told(candidate)} {speed_up(sets, candidate.name)}" for candidate in candidates]


def speed_up(sets: Sequence[Mapping[str, Sequence[StepBlock]]], name: str) -> str:
    """How many times as fast a candidate is as the usual way: by the wall clock, and by time on a core."""
    wall, cpu, same = [], [], True
    for blocks in sets:
        usual, tried = blocks[_USUAL], blocks[name]
        wall.append(pair_ratio([each.step_seconds for each in usual], [each.step_seconds for each in tried]))
        cpu.append(pair_ratio([each.step_cpu_seconds for each in usual], [each.step_cpu_seconds for each in tried]))
        same = same and [each.losses for each in usual] == [each.losses for each in tried]
    losses = "same losses" if same else "other losses"
    return f"wall x {ratio_of(wall)}; CPU time x {ratio_of(cpu)}; {losses}"


def _told(candidate: Candidate) -> str:
    given = [f"{name}={value}" for name, value in (*candidate.environment.items(), *candidate.settings.items())]
    return f"{candidate.name + ' [' + ' '.join(given) + ']':60}"


if __name__ == "__main__":
    sys.exit(ended(main, "cpu_settings"))
