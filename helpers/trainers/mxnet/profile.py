"""Reads MXNet's profiler: the operators that its engine ran on each card, with their times.

An operator on a card is recorded from its start in a thread of MXNet's engine until the engine knows that the card has
done it. So the host's part counts too, and the time may be too long but not too short. MXNet does not record single
kernels.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import mxnet as mx

from helpers.trainers.common.device_time import Operation, ProfileError, Timelines
from helpers.trainers.common.step_profile import Recording, computing_threads, keep_trace
from helpers.trainers.contract.step_profile import Phase
from helpers.trainers.mxnet.operations import recording_of

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
        return timelines_of(self.trace_text())

    def trace_text(self) -> str:
        """Stop, and return the trace that MXNet wrote."""
        mx.profiler.set_state("stop")
        mx.profiler.dump()
        with self._folder:
            if not self._trace.exists():
                raise ProfileError("mx.profiler wrote no trace")
            return self._trace.read_text(encoding="utf-8", errors="replace")


class MxnetStepProfiler:
    """A StepProfiler of ``common.step_profile``, for CPUs."""

    name = "mx.profiler: operators, by the engine's clock"

    def __init__(self, contexts: Sequence[Any], on_gpu: bool) -> None:
        """Raises ProfileError on a GPU."""
        if on_gpu:
            raise ProfileError("the suite reads the parts of MXNet's profile on CPUs only so far")
        self._profiler = MxnetProfiler(contexts)
        self._waited_seconds = 0.0

    def start(self) -> None:
        # Operators outside of a hybridized network would run in groups too.
        mx.engine.set_bulk_size(0)
        self._profiler.start()

    @contextmanager
    def part(self, phase: Phase) -> Iterator[None]:
        began = time.monotonic()
        yield
        if phase is Phase.DATA_WAIT:
            self._waited_seconds += time.monotonic() - began

    def stop(self, steps: int, trace: Path) -> Recording:
        written = self._profiler.trace_text()
        notes = keep_trace(trace, lambda path: _write(path, written))
        recording = recording_of(timelines_of(written), self._waited_seconds, steps)
        return replace(recording, notes=(*recording.notes, *notes), threads=computing_threads())


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


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
