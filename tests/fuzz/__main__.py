"""Fuzzing the readers with atheris: ``python -m tests.fuzz --seconds 60``.

The readers are those of tests/fuzz/targets.py. atheris runs in a process and an environment of its own (``make
env-fuzz``), and is guided by the lines that an input reaches; Hypothesis draws documents for the same readers under
pytest (tests/fuzz/test_fuzz.py). Before that, families of growing inputs show whether a reader's time grows in
proportion, and lines made of patterns' own beginnings whether a pattern's does. Exits with 1 on a finding, whose input
is kept, and on a reader or a pattern whose time grows faster.
"""

from __future__ import annotations

import argparse
import functools
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.report.unforeseen import ended
from tests.fuzz.growth import Growth, growths
from tests.fuzz.patterns import Slow, patterns, slow
from tests.fuzz.targets import targets

ROOT = Path(__file__).resolve().parents[2]
MEMORY = Path("/dev/shm")
# The reader that goes with patterns over lines.
LOGS = "training-log"
# Beyond the seconds asked for: imports, and the seeds, which are run before the clock is looked at.
SPARE_SECONDS = 120


@dataclass(frozen=True)
class Line:
    """What atheris did with one target."""

    target: str
    executions: int
    seconds: float
    # The files with the inputs.
    findings: tuple[str, ...] = ()
    # Why atheris did not come to its end, where it has no finding.
    trouble: str = ""

    def __str__(self) -> str:
        rate = self.executions / self.seconds
        lines = [f"  {self.target}: {self.executions} executions, {rate:.0f} per s, {len(self.findings)} findings"]
        again = f"again: python -m tests.fuzz --reproduce {self.target}"
        lines += [f"finding: {finding}; {again} {finding}" for finding in self.findings]
        return "\n".join([*lines, *([f"trouble: {self.target}: {self.trouble}"] if self.trouble else [])])


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.reproduce:
        return reproduce(options.reproduce[0], Path(options.reproduce[1]))
    if not options.python.exists():
        print(f"fuzz: {options.python} is missing: run 'make env-fuzz' (atheris, a download of 36 MB)", file=sys.stderr)
        return 2
    start = options.seed if options.seed is not None else random.randrange(1, 2**31)
    print(f"seed {start}, {options.seconds} s of atheris a target")
    wrong = bool(list(growing(options.targets)))
    wrong |= LOGS in options.targets and bool(list(hostile_lines()))
    for line in run(options, start):
        print(line, flush=True)
        wrong |= bool(line.findings or line.trouble)
    return int(wrong)


def growing(names: Sequence[str]) -> Iterator[Growth]:
    """The families of growing inputs for which a reader's time grows too fast, printed as they are found."""
    count = wrong = 0
    with tempfile.TemporaryDirectory(prefix="perfgate-fuzz-") as scratch:
        readers = targets(Path(scratch))
        for growth in growths({name: readers[name] for name in names}):
            count += 1
            if growth.too_fast:
                wrong += 1
                print(f"  TOO FAST: {growth}", flush=True)
                yield growth
    print(f"  {count} families of growing inputs: the time of {wrong} grows too fast", flush=True)


def hostile_lines() -> Iterator[Slow]:
    """The patterns that a line of their own beginnings keeps busy, printed as they are found."""
    every = patterns()
    count = 0
    for found in slow(every, every_piece=True):
        count += 1
        print(f"  TOO SLOW: {found}", flush=True)
        yield found
    print(f"  {len(every)} patterns on lines of their own beginnings: {count} too slow", flush=True)


def run(options: argparse.Namespace, start: int) -> Iterator[Line]:
    """Every target that was asked for."""
    # In memory where there is such a folder: every input is a file, and a disk would be most of its time.
    memory = MEMORY if MEMORY.is_dir() else None
    for name in options.targets:
        kept = options.corpus / name
        for folder in ("corpus", "findings"):
            (kept / folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="perfgate-fuzz-", dir=memory) as scratch:
            yield by_atheris(name, options, start, kept, Path(scratch))


def by_atheris(name: str, options: argparse.Namespace, start: int, kept: Path, scratch: Path) -> Line:
    """One process of atheris; it ends itself at its first finding or after ``options.seconds``."""
    before = set((kept / "findings").iterdir())
    command = [
        str(options.python), "-m", "tests.fuzz.atheris_engine", name, "--seconds", str(options.seconds),
        "--corpus", str(kept / "corpus"), "--artifacts", str(kept / "findings"),
        "--scratch", str(scratch), "--seed", str(start),
    ]  # fmt: skip
    begin = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, timeout=options.seconds + SPARE_SECONDS, check=False
        )
        status, report = f"ended with {done.returncode}", done.stderr.decode("utf-8", "replace")
        failed = done.returncode != 0
    except subprocess.TimeoutExpired as error:
        status, report, failed = "did not end in time", (error.stderr or b"").decode("utf-8", "replace"), True
    seconds = time.monotonic() - begin
    found = tuple(sorted(str(path) for path in set((kept / "findings").iterdir()) - before))
    counts = re.findall(r"^stat::number_of_executed_units:\s+(\d+)", report, re.MULTILINE)
    executions, trouble = int(counts[-1]) if counts else 0, ""
    if found:
        print(report[-2500:], file=sys.stderr)
    elif failed or not executions:
        trouble = f"it {status}: {' '.join(report[-600:].split())}"
    return Line(name, executions, seconds, found, trouble)


def reproduce(name: str, path: Path) -> int:
    """Run one input as atheris did, and show what it raises."""
    with tempfile.TemporaryDirectory(prefix="perfgate-fuzz-") as scratch:
        try:
            targets(Path(scratch))[name].check(path.read_bytes())
        # The point is to see it, whatever it is.
        except Exception:  # noqa: BLE001
            traceback.print_exc()
            return 1
    print(f"{name}: {path} is no finding")
    return 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    with tempfile.TemporaryDirectory() as folder:
        names = list(targets(Path(folder)))
    parser = argparse.ArgumentParser(
        allow_abbrev=False, prog="python -m tests.fuzz", description="Fuzz the suite's readers."
    )
    parser.add_argument("--seconds", type=int, default=60, help="run atheris for so long on each target")
    parser.add_argument("--targets", nargs="+", choices=names, default=names, help="fuzz only these readers")
    parser.add_argument("--seed", type=int, help="repeat the run that printed this number")
    parser.add_argument("--corpus", type=Path, default=ROOT / ".cache" / "fuzz", help="keep inputs and findings here")
    parser.add_argument(
        "--python", type=Path, default=ROOT / ".venv-fuzz" / "bin" / "python", help="run atheris in this Python"
    )
    parser.add_argument("--reproduce", nargs=2, metavar=("TARGET", "FILE"), help="run one kept input, nothing else")
    options = parser.parse_args(arguments)
    options.corpus = options.corpus.absolute()
    return options


if __name__ == "__main__":
    sys.exit(ended(functools.partial(main, sys.argv[1:]), "fuzz"))
