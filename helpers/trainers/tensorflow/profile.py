"""Reads TensorFlow's profiler: the kernels and copies of each GPU as recorded by CUPTI, by the card's own clock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import AbstractSet, Any, ContextManager, Dict, Iterable, Iterator, List, Sequence

import tensorflow as tf

from helpers.trainers.common.chrome_trace import write_chrome_trace
from helpers.trainers.common.device_time import Operation, ProfileError, Timelines
from helpers.trainers.common.step_profile import Recording, Span, keep_trace
from helpers.trainers.contract.step_profile import Phase
from helpers.trainers.tensorflow.operations import PART, recording_of

_GPU_PLANE, _HOST_PLANE = "/device:GPU:", "/host:CPU"
# A card's plane has a line for each stream and one for CUPTI's own overhead. Readers of profiles may add lines with the
# same times by TensorFlow's operations, which must not be counted again.
_STREAM_LINE = "Stream #"


class TensorflowStepProfiler:
    """A StepProfiler of ``common.step_profile``, for CPUs."""

    name = "tf.profiler: operations of the graph, by the host's clock"

    def __init__(self, layers: AbstractSet[str], on_gpu: bool) -> None:
        """``layers`` are the scopes of the network's layers. Raises ProfileError on a GPU."""
        if on_gpu:
            raise ProfileError("the suite reads the parts of TensorFlow's profile on CPUs only so far")
        self._layers = layers
        self._folder = TemporaryDirectory(prefix="perfgate-profile-")

    def start(self) -> None:
        tf.profiler.experimental.start(self._folder.name, tf.profiler.experimental.ProfilerOptions(host_tracer_level=2))

    def part(self, phase: Phase) -> ContextManager[Any]:
        scope: ContextManager[Any] = tf.profiler.experimental.Trace(PART + phase.value)
        return scope

    def stop(self, steps: int, trace: Path) -> Recording:
        spans = spans_of(_stopped(self._folder))
        notes = keep_trace(trace, lambda path: write_chrome_trace(path, spans))
        recording = recording_of(spans, self._layers, steps)
        threads = int(tf.config.threading.get_intra_op_parallelism_threads())
        return replace(recording, notes=(*recording.notes, *notes), threads=threads or None)


def _stopped(folder: Any) -> bytes:
    """The profile, as TensorFlow wrote it into the temporary folder, which is then removed."""
    tf.profiler.experimental.stop()
    with folder:
        files = sorted(Path(folder.name).rglob("*.xplane.pb"))
        if len(files) != 1:
            raise ProfileError(f"tf.profiler wrote {len(files)} profiles, not 1")
        return files[0].read_bytes()


class TensorflowProfiler:
    """A Profiler of ``common.device_time``."""

    def __init__(self, devices: Sequence[str]) -> None:
        """``devices`` as TensorFlow names them: ``GPU:0``. All CPUs of a process are one."""
        on_gpu = any(device.startswith("GPU") for device in devices)
        self.cards: Sequence[str] = [f"/device:{device}" for device in devices] if on_gpu else [_HOST_PLANE]
        self.method = "tf.profiler: " + (
            "kernels and copies as CUPTI recorded them on the card" if on_gpu else "what TensorFlow's threads ran"
        )
        # On a GPU as little as possible is recorded of the host.
        self._options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=1 if on_gpu else 2)
        self._folder = TemporaryDirectory(prefix="perfgate-profile-")

    def start(self) -> None:
        tf.profiler.experimental.start(self._folder.name, self._options)

    def stop(self) -> Timelines:
        return timelines_of(_stopped(self._folder))


def timelines_of(profile: bytes) -> Timelines:
    """The operations of each card, and of the host's threads, in a serialized XSpace. Raises ProfileError if some are
    missing."""
    planes = _planes(profile)
    began = _began_ns(planes.values())
    return {name: _operations(plane, began) for name, plane in planes.items()}


def spans_of(profile: bytes) -> List[Span]:
    """What the host's threads did, in a serialized XSpace. Raises ProfileError if something is missing."""
    planes = _planes(profile)
    if _HOST_PLANE not in planes:
        raise ProfileError("tf.profiler recorded nothing of the host")
    host = planes[_HOST_PLANE]
    began = _began_ns([host])
    return [
        Span(f"{line.name} {line.id}", each.name, each.start, each.end)
        for line in host.lines
        for each in _events(host, line, began)
    ]


def _planes(profile: bytes) -> Dict[str, Any]:
    """The host's plane and those of the cards, by their names."""
    # TensorFlow's public interface has no name for it.
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(profile)
    # The only warning is that CUPTI's buffers were full and events were dropped.
    missing = [*space.errors, *space.warnings]
    if missing:
        raise ProfileError("the profile is not whole: " + "; ".join(missing))
    return {
        plane.name: plane for plane in space.planes if plane.name.startswith(_GPU_PLANE) or plane.name == _HOST_PLANE
    }


def _began_ns(planes: Iterable[Any]) -> int:
    return min((int(line.timestamp_ns) for plane in planes for line in plane.lines), default=0)


def _operations(plane: Any, began_ns: int) -> List[Operation]:
    on_gpu = plane.name.startswith(_GPU_PLANE)
    return [
        event
        for line in plane.lines
        if not on_gpu or line.name.startswith(_STREAM_LINE)
        for event in _events(plane, line, began_ns)
    ]


def _events(plane: Any, line: Any, began_ns: int) -> Iterator[Operation]:
    for event in line.events:
        # In whole picoseconds from the profile's begin: a float holds a date to a quarter of a microsecond.
        start = (line.timestamp_ns - began_ns) * 1000 + event.offset_ps
        metadata = plane.event_metadata
        name = metadata[event.metadata_id].name if event.metadata_id in metadata else "unknown"
        yield Operation(name, start * 1e-12, (start + event.duration_ps) * 1e-12)
