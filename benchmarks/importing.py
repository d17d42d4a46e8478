"""How fast a log is imported, and in how much memory: ``python -m benchmarks.importing``.

A log of 1 GB and one of 16 MB are made for each of three formats by repeating records. Each is imported in fresh
processes, in turn with two yardsticks on the same file: cleaning its lines alone, and its hash. Exits with 1 below
GOAL_MB_PER_S, or where the large log needs MOST_MORE_BYTES more memory than the small one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.importing_logs import SAMPLES, Sample, Written, write_log
from helpers.report.unforeseen import ended
from helpers.trainers.contract import ROOT

LARGE_MB, SMALL_MB, ROUNDS = 1000, 16, 3
GOAL_MB_PER_S = 100.0
MOST_MORE_BYTES = 32 * 2**20
IMPORT, SMALL, CLEAN, HASH = "import", "small", "clean", "sha256"
_MIB = 2**20


@dataclass(frozen=True)
class Taken:
    """What one process took for one log."""

    size_bytes: int
    seconds: float
    processor_seconds: float
    peak_bytes: int

    @property
    def mb_per_s(self) -> float:
        return self.size_bytes / self.seconds / 1e6

    @property
    def mb_per_processor_s(self) -> float:
        return self.size_bytes / self.processor_seconds / 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=LARGE_MB, help="Make the large logs of N million bytes")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="Read each log N times")
    names = [sample.format for sample in SAMPLES]
    parser.add_argument("--formats", nargs="+", choices=names, default=names, help="Make only logs of these formats")
    options = parser.parse_args(arguments)
    wrong: list[str] = []
    for sample in SAMPLES:
        if sample.format not in options.formats:
            continue
        with tempfile.TemporaryDirectory(prefix="perfgate-importing-") as folder:
            large, small = Path(folder) / "large.log", Path(folder) / "small.log"
            written = write_log(large, sample, options.megabytes * 10**6)
            of_small = write_log(small, sample, SMALL_MB * 10**6)
            taken = measured(sample, {large: written, small: of_small}, options.rounds)
        lines, missed = report(sample.format, written, taken)
        print("\n".join(lines), flush=True)
        wrong += missed
    for line in wrong:
        print(f"MISSED: {line}")
    return 1 if wrong else 0


def measured(sample: Sample, logs: Mapping[Path, Written], rounds: int) -> dict[str, list[Taken]]:
    """What each way of reading took, in turn."""
    large, small = logs
    ways = {IMPORT: ("import", large), SMALL: ("import", small), CLEAN: ("clean", large), HASH: ("sha256", large)}
    taken: dict[str, list[Taken]] = {way: [] for way in ways}
    for number in range(rounds):
        for way, (what, path) in list(ways.items())[:: 1 if number % 2 == 0 else -1]:
            taken[way].append(_taken(sample, what, path, logs[path]))
    return taken


def report(name: str, written: Written, taken: Mapping[str, Sequence[Taken]]) -> tuple[list[str], list[str]]:
    """The lines to print of a format, and the goals that it missed."""
    rate = statistics.median(each.mb_per_s for each in taken[IMPORT])
    more = max(each.peak_bytes for each in taken[IMPORT]) - max(each.peak_bytes for each in taken[SMALL])
    lines = [
        f"{name}: {written.size_bytes / 1e6:.0f} MB, {written.lines} lines, {written.records} records",
        f"  {_rates('imported', taken[IMPORT])}",
        f"  {_rates(f'{taken[SMALL][0].size_bytes / 1e6:.0f} MB of the same', taken[SMALL])}",
        f"  {_rates('cleaned alone', taken[CLEAN])}; {_rates('sha256 alone', taken[HASH])}",
        f"  importing takes {_ratio(taken[IMPORT], taken[HASH]):.1f} times as long as sha256; "
        f"a byte of the large log {_ratio(taken[IMPORT], taken[SMALL]):.2f} times as long as one of the small; "
        f"{more / _MIB:+.1f} MiB at the peak",
    ]
    missed = []
    if rate < GOAL_MB_PER_S:
        missed.append(f"{name}: {rate:.0f} MB/s, at least {GOAL_MB_PER_S:.0f}")
    if more > MOST_MORE_BYTES:
        missed.append(f"{name}: {more / _MIB:.1f} MiB more than the small log, at most {MOST_MORE_BYTES / _MIB:.0f}")
    return lines, missed


def _rates(what: str, taken: Sequence[Taken]) -> str:
    rates = [each.mb_per_s for each in taken]
    processor = statistics.median(each.mb_per_processor_s for each in taken)
    peak = max(each.peak_bytes for each in taken) / _MIB
    return (
        f"{what}: {statistics.median(rates):.0f} MB/s ({min(rates):.0f} to {max(rates):.0f}, n={len(rates)}; "
        f"{processor:.0f} by processor time), {peak:.0f} MiB"
    )


def _ratio(taken: Sequence[Taken], yardstick: Sequence[Taken]) -> float:
    """The median over rounds of the seconds a byte, ``taken`` over ``yardstick``."""
    return statistics.median(b.mb_per_s / a.mb_per_s for a, b in zip(taken, yardstick, strict=True))


def _taken(sample: Sample, what: str, path: Path, written: Written) -> Taken:
    command = [sys.executable, "-m", "benchmarks.importing_worker", what, str(path)]
    done = subprocess.run(
        [*command, sample.framework, str(sample.cards)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    for name, expected in (("lines", written.lines), ("format", sample.format)):
        if found.get(name, expected) != expected:
            raise SystemExit(f"importing: {sample.format}: {name} {found[name]}, expected {expected}")
    return Taken(written.size_bytes, found["seconds"], found["processor_seconds"], found["peak_bytes"])


if __name__ == "__main__":
    sys.exit(ended(main, "importing"))
