"""Writes spans as a trace that viewers read (Chrome's format), for profilers that have a format of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Sequence

from helpers.trainers.common.step_profile import Span


def write_chrome_trace(path: Path, spans: Sequence[Span]) -> None:
    """Raises OSError if it cannot be written."""
    lanes = {lane: number for number, lane in enumerate(dict.fromkeys(span.lane for span in spans), start=1)}
    events = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": number, "args": {"name": lane}}
        for lane, number in lanes.items()
    ]
    events += [
        # Microseconds.
        {
            "ph": "X", "name": span.name, "cat": span.kind, "pid": 1, "tid": lanes[span.lane],
            "ts": span.start * 1e6, "dur": (span.end - span.start) * 1e6,
        }
        for span in spans
    ]  # fmt: skip
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}), encoding="utf-8")
