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
import json
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from helpers.report.unforeseen import ended
from tests.fuzz.growth import Growth, growths
from tests.fuzz.patterns import Slow, patterns, slow
from tests.fuzz.targets import targets

ROOT = Path(__file__).resolve().parents[2]
MEMORY = Path("/dev/shm")
# 1: first format; 2: growth; 3: slow_patterns; 4: lines of atheris alone, without "engine".
JSON_VERSION = 4
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
    # libFuzzer's numbers; None where its report has none.
    edges: int | None = None
    features: int | None = None
    corpus: int | None = None
    # The files with the inputs.
    findings: tuple[str, ...] = ()
    # Why atheris did not come to its end, where it has no finding.
    trouble: str = ""

    @property
    def executions_per_s(self) -> float:
        return self.executions / self.seconds if self.seconds else 0.0


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.reproduce:
        return reproduce(options.reproduce[0], Path(options.reproduce[1]))
    if not options.python.exists():
        print(f"fuzz: {options.python} is missing: run 'make env-fuzz' (atheris, a download of 36 MB)", file=sys.stderr)
        return 2
    start = options.seed if options.seed is not None else random.randrange(1, 2**31)
    print(f"seed {start}, {options.seconds} s of atheris a target")
    grown = list(growing(options.targets))
    hostile = list(hostile_lines()) if LOGS in options.targets else []
    lines: list[Line] = []
    for line in run(options, start):
        lines.append(line)
        print(f"  {line.target}: {line.executions} executions, {len(line.findings)} findings", flush=True)
    print(table(lines))
    for line in lines:
        for finding in line.findings:
            print(f"finding: {finding}; again: python -m tests.fuzz --reproduce {line.target} {finding}")
        if line.trouble:
            print(f"trouble: {line.target}: {line.trouble}")
    if options.json:
        record = {"version": JSON_VERSION, "seed": start, "lines": [asdict(line) for line in lines]}
        record["growth"] = [asdict(each) for each in grown]
        record["slow_patterns"] = [str(each) for each in hostile]
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    too_slow = hostile or any(each.too_fast for each in grown)
    return 1 if too_slow or any(line.findings or line.trouble for line in lines) else 0


def growing(names: Sequence[str]) -> Iterator[Growth]:
    """Each family of growing inputs, printed as it is timed."""
    with tempfile.TemporaryDirectory(prefix="perfgate-fuzz-") as scratch:
        readers = targets(Path(scratch))
        for growth in growths({name: readers[name] for name in names}):
            print(f"  {growth}", flush=True)
            yield growth


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
    numbers = read_report(report)
    trouble = ""
    if found:
        print(report[-2500:], file=sys.stderr)
    elif failed or not numbers["executions"]:
        trouble = f"it {status}: {' '.join(report[-600:].split())}"
    executions = numbers.pop("executions") or 0
    return Line(name, executions, seconds, findings=found, trouble=trouble, **numbers)


def read_report(report: str) -> dict[str, int | None]:
    """Executions, edges, features and corpus of libFuzzer's report; None for what it does not say."""
    executions = re.findall(r"^stat::number_of_executed_units:\s+(\d+)", report, re.MULTILINE)
    states = re.findall(r"^#\d+\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)", report, re.MULTILINE)
    edges, features, corpus = (int(word) for word in states[-1]) if states else (None, None, None)
    return {
        "executions": int(executions[-1]) if executions else None,
        "edges": edges,
        "features": features,
        "corpus": corpus,
    }


def table(lines: Sequence[Line]) -> str:
    """One line for each target, and the sum."""
    rows = [("target", "executions", "per s", "edges", "features", "corpus", "findings")]
    for line in lines:
        shown = ["-" if value is None else str(value) for value in (line.edges, line.features, line.corpus)]
        found = str(len(line.findings)) if not line.trouble else "?"
        rows.append(
            (line.target, str(line.executions), f"{line.executions_per_s:.0f}", *shown, found)  # type: ignore[arg-type]
        )
    total = sum(line.executions for line in lines), sum(len(line.findings) for line in lines)
    rows.append(("all", str(total[0]), "", "", "", "", str(total[1])))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


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
    parser.add_argument("--json", type=Path, help="write the table to this file too")
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
