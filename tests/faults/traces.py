"""What runs leave behind, as the checks of several rows read it: results, baselines, step logs, leases."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.machine.host import probe_host
from helpers.machine.leases import Leases, default_folder
from helpers.plan.recorded import load_recorded
from helpers.trainers.contract.errors import BaselineError
from tests.faults.workshop import Finished, Workshop

# The text of --update-baselines about a case that others disturbed.
DISTURBED = "contended in"
_LEASABLE = ("cpu0", "cpu1")


# For a row whose trainer must keep its core busy.
KEEPS_BUSY = """
import time

def at_step(spec, rank, phase, number):
    ends = time.monotonic() + 0.04
    while time.monotonic() < ends:
        pass
"""


class _Named:
    def __init__(self, name: str) -> None:
        self.id = name


def one_card(batch: int = 1, nodes: int = 1) -> str:
    """The id of a workshop's case with one card a node."""
    return f"paddle-resnet50v1.5-fp32-bs{batch}-{nodes}x1-synthetic-dynamic"


def with_cases(batches: list[int], runs: int = 1, **more: Any) -> Callable[[dict[str, Any]], None]:
    """A change of perf.yaml: one-card cases of these batch sizes, so many runs each, and other keys."""

    def change(config: dict[str, Any]) -> None:
        config["matrix"]["cpu"][0] |= {"batch_size_per_card": batches, "cards": 1}
        config["short"] = [one_card(batch) for batch in batches]
        config["protocols"]["cpu"] |= {"runs": runs}
        config.update(more)

    return change


def results(workshop: Workshop) -> dict[Path, dict[str, Any]]:
    """Every finished run on disk, by its folder."""
    found = sorted((workshop.folder / "runs").glob("*/*/r*/result.json"))
    return {path.parent: dict(json.loads(path.read_text(encoding="utf-8"))) for path in found}


def uuids(workshop: Workshop) -> dict[Path, str]:
    return {folder: str(result["uuid"]) for folder, result in results(workshop).items()}


def broken_baselines(workshop: Workshop) -> tuple[str, ...]:
    """Why recorded files cannot be read; empty where each is whole and valid."""
    wrong = []
    for path in sorted((workshop.folder / "baselines" / "recorded").glob("*.json")):
        try:
            load_recorded(path, str(json.loads(path.read_text(encoding="utf-8")).get("machine_key")))
        except (BaselineError, ValueError, OSError) as error:
            wrong.append(f"baseline {path.name} is not whole: {error}")
    return tuple(wrong)


def undisturbed(run: Callable[[str], Finished], attempts: int = 6) -> Finished:
    """``run`` of a session of this name, again where somebody had the whole core: of that nothing is recorded."""
    done = run("session0")
    for number in range(1, attempts):
        if DISTURBED not in done.output:
            break
        done = run(f"session{number}")
    return done


def recorded_cases(workshop: Workshop) -> set[str]:
    """The cases with an entry in the files that can be read (broken_baselines names the others)."""
    found: set[str] = set()
    for path in (workshop.folder / "baselines" / "recorded").glob("*.json"):
        with contextlib.suppress(ValueError, KeyError):
            found |= set(json.loads(path.read_text(encoding="utf-8"))["entries"])
    return found


def leases_of(workshop: Workshop) -> tuple[str, ...]:
    """Who holds which card of this machine, as this workshop's suites see it."""
    folder = default_folder(probe_host().host_id, workshop.environment)
    return Leases(folder).held([_Named(name) for name in _LEASABLE])


def steps_of(folder: Path) -> tuple[float, float] | None:
    """When a run's steps began and ended, in monotonic seconds; None where there are no steps."""
    log = folder / "rank0.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    steps = [record for line in lines if "start" in (record := json.loads(line))]
    return (float(steps[0]["start"]), float(steps[-1]["end"])) if steps else None


def overlaps(spans: list[tuple[float, float]]) -> bool:
    ordered = sorted(spans)
    return any(before[1] > after[0] for before, after in itertools.pairwise(ordered))
