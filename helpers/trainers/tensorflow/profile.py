"""Reads TensorFlow's profiler: the kernels and copies of each GPU as recorded by CUPTI, by the card's own clock."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Dict, List, Sequence

import tensorflow as tf

from helpers.trainers.common.device_time import Operation, ProfileError, Timelines

_GPU_PLANE, _HOST_PLANE = "/device:GPU:", "/host:CPU"
# A card's plane has a line for each stream and one for CUPTI's own overhead. Readers of profiles may add lines with the
# same times by TensorFlow's operations, which must not be counted again.
_STREAM_LINE = "Stream #"


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
        tf.profiler.experimental.stop()
        with self._folder:
            files = sorted(Path(self._folder.name).rglob("*.xplane.pb"))
            if len(files) != 1:
                raise ProfileError(f"tf.profiler wrote {len(files)} profiles, not 1")
            return timelines_of(files[0].read_bytes())


def timelines_of(profile: bytes) -> Timelines:
    """The operations of each card, and of the host's threads, in a serialized XSpace. Raises ProfileError if some are
    missing."""
    # TensorFlow's public interface has no name for it.
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(profile)
    # The only warning is that CUPTI's buffers were full and events were dropped.
    missing = [*space.errors, *space.warnings]
    if missing:
        raise ProfileError("the profile is not whole: " + "; ".join(missing))
    planes = {
        plane.name: plane for plane in space.planes if plane.name.startswith(_GPU_PLANE) or plane.name == _HOST_PLANE
    }
    began = min((line.timestamp_ns for plane in planes.values() for line in plane.lines), default=0)
    return {name: _operations(plane, began) for name, plane in planes.items()}


def _operations(plane: Any, began_ns: int) -> List[Operation]:
    names: Dict[int, str] = {key: each.name for key, each in plane.event_metadata.items()}
    on_gpu = plane.name.startswith(_GPU_PLANE)
    found = []
    for line in plane.lines:
        if on_gpu and not line.name.startswith(_STREAM_LINE):
            continue
        for event in line.events:
            # In whole picoseconds from the profile's begin: a float holds a date to a quarter of a microsecond.
            start = (line.timestamp_ns - began_ns) * 1000 + event.offset_ps
            name = names.get(event.metadata_id, "unknown")
            found.append(Operation(name, start * 1e-12, (start + event.duration_ps) * 1e-12))
    return found
