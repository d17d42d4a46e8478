"""Reads MXNet's profiler: the operators that its engine ran on each card, with their times.

An operator on a card is recorded from its start in a thread of MXNet's engine until the engine knows that the card has
done it. So the host's part counts too, and the time may be too long but not too short. MXNet does not record single
kernels.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, List, Sequence, Tuple

import mxnet as mx

from helpers.trainers.common.device_time import Operation, ProfileError, Timelines

# The category of operators that the engine ran on a device. The trace also has the same operators as tasks.
_OPERATOR = "operator"


class MxnetProfiler:
    """A Profiler of ``common.device_time``."""

    method = "mx.profiler: operators from their launch in MXNet's engine until the card has done them"

    def __init__(self, contexts: Sequence[Any]) -> None:
        self.cards: Sequence[str] = [card_name(context) for context in contexts]
        self._folder = TemporaryDirectory(prefix="perfgate-profile-")
        self._trace = Path(self._folder.name) / "trace.json"

    def start(self) -> None:
        # Without statistics, since with them the engine would run each operator of a group separately.
        mx.profiler.set_config(
            profile_symbolic=True, profile_imperative=True, aggregate_stats=False, filename=str(self._trace)
        )
        mx.profiler.set_state("run")

    def stop(self) -> Timelines:
        mx.profiler.set_state("stop")
        mx.profiler.dump()
        with self._folder:
            if not self._trace.exists():
                raise ProfileError("mx.profiler wrote no trace")
            return timelines_of(self._trace.read_text(encoding="utf-8", errors="replace"))


def card_name(context: Any) -> str:
    """The profiler's name of a device."""
    return f"{context.device_type}/{context.device_id}"


def timelines_of(trace: str) -> Timelines:
    """The operators of each device in a trace that MXNet wrote, in Chrome's format. Raises ProfileError if it is not in
    that format."""
    try:
        events = json.loads(trace)["traceEvents"]
        devices = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
        timelines: Dict[str, List[Operation]] = {}
        begun: Dict[Tuple[Any, ...], List[float]] = {}
        for event in events:
            if event["ph"] not in ("B", "E") or event["cat"] != _OPERATOR:
                continue
            key = event["pid"], event["tid"], event["name"]
            # Microseconds.
            at = event["ts"] * 1e-6
            if event["ph"] == "B":
                begun.setdefault(key, []).append(at)
            else:
                operation = Operation(event["name"], begun[key].pop(), at)
                timelines.setdefault(devices[event["pid"]], []).append(operation)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ProfileError(f"mx.profiler's trace is not in its format ({type(error).__name__}: {error})") from error
    return timelines
