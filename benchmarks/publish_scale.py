"""How long ``perfgate publish`` takes over a large history, the first time and after one night more: ``make bench``.

Fills a new SQLite history as history_scale does (a million results: 200 cases of one machine, two runs a night), and
calls the command as a user does, in a process of its own. Prints seconds, of the clock and of a processor, files, the
largest page, and how busy the machine was; exit status 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.history_scale import CASES, RESULTS, fill, made_night, made_run
from helpers.history import default_url, open_history
from helpers.report.unforeseen import ended
from helpers.trainers.contract import ROOT

FIRST_GOAL_SECONDS = 120.0
NIGHT_GOAL_SECONDS = 5.0
PAGE_GOAL_BYTES = 500_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=int, default=RESULTS, help="Fill the history with N results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs, site = Path(folder) / "runs", Path(folder) / "site"
        runs.mkdir()
        last = fill(runs, arguments.results)
        print(f"{arguments.results} results of {CASES} cases in {last} nights")
        first = _published(runs, site)
        reached = [_tell("the first time", first, FIRST_GOAL_SECONDS)]
        _add_night(runs, last + 1)
        night = _published(runs, site)
        reached.append(_tell("one night more", night, NIGHT_GOAL_SECONDS))
        _tell("nothing new", _published(runs, site), NIGHT_GOAL_SECONDS)
        pages = list(site.rglob("*.html"))
        largest = max(pages, key=lambda path: path.stat().st_size)
        files = [path for path in site.rglob("*") if path.is_file()]
        total = sum(path.stat().st_size for path in files) / 1e6
        reached.append(largest.stat().st_size < PAGE_GOAL_BYTES)
        print(
            f"{len(files)} files, {len(pages)} of them pages, {total:.0f} MB; the largest page has "
            f"{largest.stat().st_size / 1000:.0f} kB ({largest.relative_to(site)}); goal under "
            f"{PAGE_GOAL_BYTES / 1000:.0f} kB{'' if reached[-1] else ': MISSED'}"
        )
    print(f"a night takes 1/{first / night:.0f} of the first time")
    return 0 if all(reached) else 1


def _published(runs: Path, site: Path) -> float:
    """How many seconds the command took."""
    before, load = resource.getrusage(resource.RUSAGE_CHILDREN), os.getloadavg()[0]
    began = time.perf_counter()
    command = [sys.executable, "-m", "helpers.commands", "publish", str(site), "--runs-dir", str(runs)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"publish_scale: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(
        f"  {done.stdout.splitlines()[0]}; {used:.1f} s of a processor, {after.ru_maxrss / 1024:.0f} MiB; "
        f"the load before was {load:.1f} on {os.cpu_count()} cores"
    )
    return seconds


def _tell(what: str, seconds: float, goal: float) -> bool:
    reached = seconds < goal
    print(f"{what}: {seconds:.1f} s; goal under {goal:.0f} s{'' if reached else ': MISSED'}")
    return reached


def _add_night(runs: Path, day: int) -> None:
    rng = random.Random(day)
    with open_history(default_url(runs)) as history:
        for number in range(CASES):
            run = made_run(number, day, rng)
            history.add_result(run)
            history.add_night(made_night(number, day, (run.log_rate or 0.0,), (run.uuid,)))


if __name__ == "__main__":
    sys.exit(ended(main, "publish_scale"))
