"""The verdict on a gate in several jobs, by the results file of each."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers.commands.gate import RESULTS
from helpers.machine.files import read_text_limited
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_SLOWER

# A network file system may show another machine's new file so much later (nfs(5): acdirmax).
PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 1.0
# A gate with one of these exit statuses has written its results.
_JUDGED = (0, EXIT_SLOWER, EXIT_NOT_JUDGED)
# The largest results file that is read.
_MOST_BYTES = 256 * 1024 * 1024


def gate_line(
    outputs: Sequence[Path],
    statuses: Sequence[int],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[str, bool]:
    """The last line of a gate in several jobs, and whether the gate passed. Waits for a results file that is not there
    yet, if its job's exit status says that it was written."""
    passed = cases = quarantined = 0
    failed = []
    deadline = clock() + PATIENCE_SECONDS
    for output, status in zip(outputs, statuses, strict=True):
        while (verdict := _verdict(output)) is None and status in _JUDGED and clock() < deadline:
            sleep(_POLL_SECONDS)
        if verdict is None:
            failed.append(f"{output.name}: no verdict, exit status {status}")
            continue
        passed += int(verdict["passed"])
        cases += int(verdict["cases"])
        quarantined += len(verdict["quarantined"])
        if status or verdict["failed"]:
            failed.append(f"{output.name}: {verdict['line'].removeprefix('GATE ')}")
    if failed:
        return f"GATE FAILED in {len(failed)} of {len(outputs)} jobs: {'; '.join(failed)}", False
    kept = f"; {quarantined} in quarantine" if quarantined else ""
    return f"GATE PASSED: {passed} of {cases} in {len(outputs)} jobs{kept}", True


def _verdict(output: Path) -> Mapping[str, Any] | None:
    """The gate's part of a results file; None if there is none that can be read."""
    try:
        verdict = json.loads(read_text_limited(output / RESULTS, _MOST_BYTES))["gate"]
        return {
            "passed": int(verdict["passed"]),
            "cases": int(verdict["cases"]),
            "quarantined": list(verdict["quarantined"]),
            "failed": list(verdict["failed"]),
            "line": str(verdict["line"]),
        }
    except (OSError, ValueError, KeyError, TypeError):
        return None
