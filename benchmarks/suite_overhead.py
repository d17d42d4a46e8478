"""What the suite itself costs, as ratios measured in one run: ``make bench``.

Prints, with their spread over repeats: the user time of listing the matrix, in seconds and against starting pytest on
an empty folder; writing one step record against the shortest step of the published figures; and, for the newest
session in the run folder, the share of a case's wall time that is not training. Exit status 1 when the
record takes more than 0.5% of that step.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from helpers.history.run_folders import read_result, sessions
from helpers.report.unforeseen import ended
from helpers.trainers.contract.errors import ResultError
from helpers.trainers.contract.steplog import COMPLETE, WINDOW, Footer, Header, Heartbeat, Step, StepLogWriter

REPEATS = 5
STEPS = 2000
# 256 images a card at the highest published rate of one card: 3046.4 images/s (MXNet, A100, AMP).
SHORTEST_STEP_SECONDS = 256 / 3046.4
# The largest share of a step that recording it may take.
RECORDING_LIMIT = 0.005


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False, description=__doc__.splitlines()[0])
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), help="Take the newest session of FOLDER")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as empty:
        pairs = [
            (_pytest_seconds("perf_tests", Path.cwd()), _pytest_seconds(".", Path(empty))) for _ in range(REPEATS + 1)
        ][1:]
    _tell("listing the matrix, user time in seconds", [matrix for matrix, _ in pairs])
    _tell("listing the matrix / pytest on an empty folder", [matrix / nothing for matrix, nothing in pairs])
    shares = [_recording_seconds() / SHORTEST_STEP_SECONDS for _ in range(REPEATS)]
    _tell("recording a step / the shortest published step", shares)
    _tell_session(arguments.runs_dir)
    return 0 if statistics.median(shares) <= RECORDING_LIMIT else 1


def _pytest_seconds(target: str, folder: Path) -> float:
    """The user time of pytest's process; what else the machine does changes it little."""
    # Hypothesis imports itself at the end of a session without tests, which only the empty folder has.
    argv = [sys.executable, "-m", "pytest", target, "--collect-only", "-q", "-p", "no:hypothesispytest"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    # 5 is pytest's "nothing collected".
    if done.returncode not in (0, 5):
        raise SystemExit(f"{' '.join(argv)} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return seconds


def _recording_seconds() -> float:
    """Seconds to write one step and one life sign, as a trainer does after each step on a CPU."""
    with tempfile.TemporaryDirectory() as folder:
        header = Header("job", "case", 0, 0, 1, "host", 1, "paddle", "0", "", "cpu")
        log = StepLogWriter(Path(folder) / "rank0.jsonl", header)
        heartbeat = Heartbeat(Path(folder) / "rank0.heartbeat")
        started = time.perf_counter()
        for number in range(STEPS):
            log.step(Step(0, number + 1, WINDOW, number, number + 0.5, 256, 0.001, 6.9))
            heartbeat.beat(WINDOW, number + 1, float(number))
        seconds = (time.perf_counter() - started) / STEPS
        log.footer(Footer(COMPLETE))
        return seconds


def _tell(what: str, ratios: list[float]) -> None:
    print(f"{what}: {statistics.median(ratios):.4f} ({min(ratios):.4f} to {max(ratios):.4f}, n={len(ratios)})")


def _tell_session(runs_folder: Path) -> None:
    newest = sessions(runs_folder)[-1:]
    if not newest:
        print(f"no session in {runs_folder}: 'make perf' makes one", file=sys.stderr)
    try:
        results = [
            read_result(path) for each in newest for path in sorted((runs_folder / each).glob("*/r*/result.json"))
        ]
    except ResultError as error:
        print(f"not training: not known, as the newest session cannot be read: {error}")
        return
    for result in results:
        if result.measured:
            share = 1 - result.training_seconds / result.wall_seconds
            print(f"not training, {result.case_id} run {result.replicate}: {share:.1%} of its wall time")


if __name__ == "__main__":
    sys.exit(ended(main, "suite_overhead"))
