"""Makes every fault of the table for real and runs the suite against it: ``python -m tests.faults``.

It prints a line for each fault (status and exit code, seconds from when the fault was seen to the end of
the job's last process, processes left, results lost) and the sums. It exits with 1 where a fault was not handled. A
double of the trainer stands in for the framework, behind the real launchers and the whole suite.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from helpers.report.unforeseen import ended
from tests.faults.fault import MOST_SECONDS, Fault, Seen
from tests.faults.table import QUICK, faults
from tests.faults.workshop import Workshop


def meet(fault: Fault) -> Seen | str:
    """Make one fault in a workshop of its own. A text says why this machine cannot. A row that breaks is a finding."""
    if why := fault.needs():
        return why
    with tempfile.TemporaryDirectory(prefix="fault-") as folder, Workshop(Path(folder) / "shop") as shop:
        try:
            return fault.make(shop)
        except Exception as error:  # noqa: BLE001 - the table goes on, and this row is not handled
            traceback.print_exc()
            return Seen("no answer", None, "", wrong=(f"{type(error).__name__}: {error}",))


def line(fault: Fault, seen: Seen | str, seconds: float) -> str:
    """One fault's line of the table."""
    head = f"{fault.row:>2}  {fault.name:<44.44}"
    if isinstance(seen, str):
        return f"{head} not made here: {seen}"
    ended = "-" if seen.seconds is None else f"{seen.seconds:.1f} s"
    exit_code = "-" if seen.exit_code is None else seen.exit_code
    text = f"{head} {seen.status:<14.14} {exit_code:>4} {ended:>7} {seen.left:>5} {seen.lost:>5} {seconds:>6.1f} s"
    wrong = [f"\n      WRONG: {problem}" for problem in seen.problems]
    return "".join([text, *([f"\n      {fault.what}"] if wrong else []), *wrong])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="python -m tests.faults",
        description="Make every fault of the table and run the suite against it.",
    )
    parser.add_argument("--only", metavar="PATTERN", default="*", help="faults whose name, or row, matches")
    parser.add_argument("--quick", action="store_true", help="leave out what takes long")
    given = parser.parse_args(arguments)
    print(
        "row fault                                        status         exit   ended  left  lost     took", flush=True
    )
    met = []
    for fault in faults():
        if not (fnmatchcase(fault.name, given.only) or str(fault.row) == given.only) or (
            given.quick and fault.name not in QUICK
        ):
            continue
        began = time.monotonic()
        met.append(meet(fault))
        print(line(fault, met[-1], time.monotonic() - began), flush=True)
    made = [seen for seen in met if isinstance(seen, Seen)]
    wrong = sum(bool(seen.problems) for seen in made)
    print(
        f"{len(made)} faults made, {len(met) - len(made)} not made here; {wrong} not handled, "
        f"{sum(seen.left for seen in made)} processes left, {sum(seen.lost for seen in made)} results lost, "
        f"slowest end {max((seen.seconds or 0.0 for seen in made), default=0.0):.1f} s (at most {MOST_SECONDS:g})"
    )
    return 1 if wrong or not met else 0


if __name__ == "__main__":
    sys.exit(ended(main, "faults"))
