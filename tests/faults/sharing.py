"""Row 11: several suites, and several workers, want the same cards."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from tests.faults.fault import Fault, Seen, expect
from tests.faults.traces import overlaps, results, steps_of, with_cases
from tests.faults.workshop import Workshop


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


FAULTS = [
    Fault(11, "two suites at once", "two suites want the same cards", _two_suites),
]
