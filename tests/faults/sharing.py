"""Row 11: several suites, and several workers, want the same cards; and a holder of them is killed."""

from __future__ import annotations

import json
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tests.faults.fault import Fault, Seen, expect
from tests.faults.traces import overlaps, results, steps_of, with_cases
from tests.faults.workshop import Finished, Running, Workshop

# The kernel frees a lease's lock when its holder is gone; who waits for it looks five times a second.
_FREE_SECONDS = 1.0
_HANGS = """
import time

def at_step(spec, rank, phase, number):
    if phase == "window":
        mark()
        time.sleep(600)
"""


def _spans(*workshops: Workshop) -> list[tuple[float, float]]:
    found = (steps_of(folder) for workshop in workshops for folder in results(workshop))
    return [span for span in found if span is not None]


def _named_pids(workshop: Workshop) -> set[str]:
    """The ids of the processes that the workshop's results name as disturbers."""
    parts_of_runs = (str(result["contention"]).split("(pid ")[1:] for result in results(workshop).values())
    return {part.partition(",")[0] for parts in parts_of_runs for part in parts}


def _pids(workshop: Workshop) -> set[str]:
    logs = (folder / "rank0.jsonl" for folder in results(workshop))
    return {str(json.loads(log.read_text(encoding="utf-8").splitlines()[0])["pid"]) for log in logs}


def _two_suites(workshop: Workshop) -> Seen:
    """Expects that both suites are measured, one after the other."""
    cache = {"XDG_CACHE_HOME": str(workshop.folder / "common")}
    with (
        Workshop(workshop.folder / "one") as one,
        Workshop(workshop.folder / "other") as other,
        ThreadPoolExecutor(2) as pool,
    ):
        both = (one, other)
        for each in both:
            each.configure(with_cases([1], runs=2))
        first, second = pool.map(lambda each: each.run(environment=cache), both)
        spans = _spans(*both)
        wrong = expect(
            (first.status == second.status == "NO_BASELINE", f"{first.status} and {second.status}"),
            (first.exit_code == second.exit_code == 0, f"exit codes {first.exit_code} and {second.exit_code}"),
            (len(spans) == 4, f"{len(spans)} of 4 runs"),
            (not overlaps(spans), f"two runs at once: {sorted(spans)}"),
            (not _named_pids(one) & _pids(other), "one names the other's trainer as a disturber"),
            (not _named_pids(other) & _pids(one), "the other names the one's trainer as a disturber"),
        )
        left, lost = len(first.left) + len(second.left), one.lost() + other.lost()
    return Seen(first.status, first.exit_code, "took turns", None, left, lost, wrong)


def _holder(folder: Path) -> int | None:
    """The process that holds the machine, by the lock's text; None where nobody ever held it."""
    try:
        (lock,) = folder.glob("perfgate/leases/*/machine.lock")
        return int(lock.read_text(encoding="utf-8").split()[0])
    except (ValueError, IndexError):
        return None


def _killed_holder(workshop: Workshop) -> Seen:
    """One suite has the cards and hangs, and another waits; then the first is killed."""
    cache = workshop.folder / "common"
    environment = {"XDG_CACHE_HOME": str(cache)}
    waiting: list[Future[Finished]] = []
    seconds: list[float] = []
    with (
        Workshop(workshop.folder / "one") as one,
        Workshop(workshop.folder / "other") as other,
        ThreadPoolExecutor(1) as pool,
    ):
        # The one is killed before it gives its case up.
        one.configure(lambda config: config["limits"].update(no_progress_seconds=100))

        def during(running: Running) -> None:
            running.wait_for((one.folder / "marks.jsonl").exists)
            waiting.append(pool.submit(other.run, environment=environment))
            running.wait_for(lambda: any(lock.read_text() for lock in cache.glob("perfgate/leases/*/queue.lock")))
            before = _holder(cache)
            at = time.monotonic()
            running.process.kill()
            while _holder(cache) in (before, None) and time.monotonic() - at < 30.0:
                time.sleep(0.01)
            seconds.append(time.monotonic() - at)

        killed = one.run(fault=_HANGS, environment=environment, during=during)
        done = waiting[0].result()
        wrong = expect(
            (killed.exit_code == -9, f"the holder's exit code {killed.exit_code}"),
            (seconds[0] <= _FREE_SECONDS, f"the other one had the cards after {seconds[0]:.1f} s"),
            (done.status == "NO_BASELINE", f"status {done.status}: {done.reason}"),
            (done.exit_code == 0, f"exit code {done.exit_code}"),
        )
        left, lost = len(killed.left) + len(done.left), one.lost() + other.lost()
    return Seen(done.status, done.exit_code, "went on with the freed cards", seconds[0], left, lost, wrong)


FAULTS = [
    Fault(11, "two suites at once", "two suites want the same cards", _two_suites),
    Fault(11, "holder of the cards killed", "a suite gets SIGKILL while another waits for its cards", _killed_holder),
]  # fmt: skip
