"""Reads TensorFlow's profiler: what the host's threads ran, and what CUPTI recorded on each GPU by the card's clock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import AbstractSet, Any, ContextManager, Dict, Iterable, Iterator, List, Mapping, Sequence

import tensorflow as tf

from helpers.trainers.common.card_times import RECORDED
from helpers.trainers.common.chrome_trace import write_chrome_trace
from helpers.trainers.common.device_time import Operation, ProfileError, Timelines
from helpers.trainers.common.step_profile import Recording, Span, keep_trace
from helpers.trainers.contract.step_profile import Phase
from helpers.trainers.tensorflow.operations import PART, Kernel, recording_of, recording_of_kernels

_GPU_PLANE, _HOST_PLANE = "/device:GPU:", "/host:CPU"
# A card's plane has a line for each stream and one for CUPTI's own overhead. Readers of profiles may add lines with the
# same times by TensorFlow's operations, which must not be counted again.
_STREAM_LINE = "Stream #"
# Of an event there: what launched it.
_OPERATION = "tf_op"


class TensorflowStepProfiler:
    """A StepProfiler of ``common.step_profile``."""

    def __init__(self, layers: AbstractSet[str], devices: Sequence[str]) -> None:
        """``layers`` are the scopes of the network's layers, and ``devices`` are this process's as TensorFlow names
        them. Raises ProfileError for several GPUs: their times are not told apart."""
        self._on_gpu = _on_gpu(devices)
        if self._on_gpu and len(devices) > 1:
            raise ProfileError(f"the suite reads the profile of one GPU a process, and this one has {len(devices)}")
        self.name = "tf.profiler: " + (RECORDED if self._on_gpu else "operations of the graph, by the host's clock")
        self._layers = layers
        self._folder = TemporaryDirectory(prefix="perfgate-profile-")

    def start(self) -> None:
        tf.profiler.experimental.start(self._folder.name, _options(self._on_gpu))

    def part(self, phase: Phase) -> ContextManager[Any]:
        scope: ContextManager[Any] = tf.profiler.experimental.Trace(PART + phase.value)
        return scope

    def stop(self, steps: int, trace: Path) -> Recording:
        planes = planes_of(_stopped(self._folder))
        spans, kernels = spans_of(planes), kernels_of(planes)
        notes = keep_trace(trace, lambda path: write_chrome_trace(path, [*spans, *kernels]))
        if self._on_gpu:
            recording = recording_of_kernels(kernels, spans, self._layers, steps)
        else:
            recording = recording_of(spans, self._layers, steps)
        threads = int(tf.config.threading.get_intra_op_parallelism_threads())
        return replace(recording, notes=(*recording.notes, *notes), threads=threads or None)


def _on_gpu(devices: Sequence[str]) -> bool:
    return any(device.startswith("GPU") for device in devices)


def _options(on_gpu: bool) -> Any:
    """On a GPU as little as possible is recorded of the host: scopes, and no operations."""
    return tf.profiler.experimental.ProfilerOptions(host_tracer_level=1 if on_gpu else 2)


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
        on_gpu = _on_gpu(devices)
        self.cards: Sequence[str] = [f"/device:{device}" for device in devices] if on_gpu else [_HOST_PLANE]
        self.method = "tf.profiler: " + (RECORDED if on_gpu else "what TensorFlow's threads ran")
        self._options = _options(on_gpu)
        self._folder = TemporaryDirectory(prefix="perfgate-profile-")

    def start(self) -> None:
        tf.profiler.experimental.start(self._folder.name, self._options)

    def stop(self) -> Timelines:
        return timelines_of(_stopped(self._folder))


def timelines_of(profile: bytes) -> Timelines:
    """The operations of each card, and of the host's threads, in a serialized XSpace. Raises ProfileError if some are
    missing."""
    planes = planes_of(profile)
    began = _began_ns(planes.values())
    return {name: _operations(plane, began) for name, plane in planes.items()}


def spans_of(planes: Mapping[str, Any]) -> List[Span]:
    """What the host's threads did. Raises ProfileError if nothing is recorded of them."""
    if _HOST_PLANE not in planes:
        raise ProfileError("tf.profiler recorded nothing of the host")
    host = planes[_HOST_PLANE]
    began = _began_ns(planes.values())
    return [
        Span(f"{line.name} {line.id}", each.name, each.start, each.end)
        for line in host.lines
        for each in _events(host, line, began)
    ]


def kernels_of(planes: Mapping[str, Any]) -> List[Kernel]:
    """What the cards did; empty on a CPU."""
    began = _began_ns(planes.values())
    return [
        Kernel(f"{name} {line.name}", each.name, each.start, each.end, operation=_operation_of(plane, event))
        for name, plane in planes.items()
        if name.startswith(_GPU_PLANE)
        for line in plane.lines
        if line.name.startswith(_STREAM_LINE)
        for event, each in zip(line.events, _events(plane, line, began))
    ]


def _operation_of(plane: Any, event: Any) -> str:
    """Texts are references to others of the plane's, or stand in the event."""
    names = plane.stat_metadata
    for stat in event.stats:
        if names[stat.metadata_id].name == _OPERATION:
            return str(names[stat.ref_value].name if stat.WhichOneof("value") == "ref_value" else stat.str_value)
    return ""


def planes_of(profile: bytes) -> Dict[str, Any]:
    """The host's plane and those of the cards, by their names, in a serialized XSpace. Raises ProfileError if something
    is missing."""
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
