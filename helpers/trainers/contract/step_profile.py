"""Where the time of a rank's step goes, by the framework's profiler, in a file beside the step log.

``perfgate explain`` has some more steps trained under the profiler after the measured window (``explained_steps`` of a
job). The rank writes the file after its step log is complete, so that a failure of the profiler changes no figure. The
file holds a StepProfile, or a NoProfile with the reason why there is none.
"""

from __future__ import annotations

import enum
import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Dict, Mapping, Optional, Tuple, Union

from helpers.trainers.contract.errors import StepLogError
from helpers.trainers.contract.records import (
    Fail,
    Reader,
    Unfit,
    list_of,
    mapping_of,
    number,
    parsed,
    read_record,
    record_of,
)

# 1: first format.
STEP_PROFILE_SCHEMA_VERSION = 1

# The phases divide the time of the profiled steps; their sum may differ from it by this fraction.
_PHASES_SHARE = 0.005

# The operator of a row for what the host does between operators: Python, and the framework's own code around them.
HOST = "host code"


class Phase(enum.Enum):
    """A part of a step. The phases of a step do not overlap, and together they are the step."""

    # The training loop waits for the next batch.
    DATA_WAIT = "data_wait"
    # Batches are copied to the device.
    TRANSFER = "transfer"
    FORWARD = "forward"
    BACKWARD = "backward"
    # Gradients are reduced and nothing is computed meanwhile.
    ALL_REDUCE = "all_reduce"
    # What of the above a rank waits for a slower one. No profile has it: it is known once the ranks are compared.
    RANK_WAIT = "rank_wait"
    OPTIMIZER = "optimizer"
    # Between the other parts: the host runs Python or waits, and the device has no work.
    HOST_GAP = "host_gap"
    # What no other phase has: fetching the loss; and the whole step where the framework does not tell the parts.
    OTHER = "other"


@dataclass(frozen=True)
class OperatorRow:
    """What one operator (and kernel) takes in one layer, per step. Rows of a profile differ in their keys."""

    phase: Phase
    # The layer's name in the model; empty where the framework does not tell it.
    layer: str
    # The framework's name of the operator, without what differs from call to call.
    operator: str
    # The name of the kernel or of the library's primitive; empty where it is not known.
    kernel: str
    # The data types of its inputs, such as ``float32`` or ``float32,bfloat16``; empty where they are not known.
    dtypes: str
    # Where it ran: ``cpu`` or ``cuda``. It has no number of a card, because ranks are compared row by row.
    device: str
    calls_per_step: float
    # Its self time: without the time of what it called. On several streams or threads the rows of a phase may take
    # longer together than the phase.
    seconds_per_step: float

    @property
    def key(self) -> Tuple[str, ...]:
        return self.phase.value, self.layer, self.operator, self.kernel, self.dtypes, self.device


@dataclass(frozen=True)
class StepProfile:
    """Where the time of one rank's steps goes. All times are means over ``steps`` steps, in seconds per step."""

    framework: str
    rank: int
    # How many steps were profiled.
    steps: int
    # While the profiler ran, by the host's clock.
    step_seconds: float
    # In the same process before the profiler was started; None if not measured.
    step_seconds_unprofiled: Optional[float]
    # A phase that is missing has no time.
    phases: Mapping[Phase, float]
    # How long gradients were reduced while the device computed; this is part of the other phases.
    all_reduce_overlapped_seconds: float
    operators: Tuple[OperatorRow, ...]
    # The number of threads that the framework uses for an operator on a CPU, as it tells itself; else the cores of the
    # rank.
    threads: int
    # In words, the profiler and what it records.
    profiler: str
    # What the profiler does not tell of this run, one sentence each.
    notes: Tuple[str, ...] = ()

    @property
    def cost(self) -> Optional[float]:
        """By what fraction the profiler makes a step longer; None if it is not known."""
        before = self.step_seconds_unprofiled
        return None if before is None else self.step_seconds / before - 1

    def to_json(self) -> str:
        """Raises StepLogError if a value is not as ``from_json`` expects it."""
        record = asdict(self)
        record["phases"] = {phase.value: seconds for phase, seconds in self.phases.items()}
        for row in record["operators"]:
            row["phase"] = row["phase"].value
        text = json.dumps({**record, "schema": STEP_PROFILE_SCHEMA_VERSION}, sort_keys=True) + "\n"
        from_json(text, f"profile of rank {self.rank}")
        return text


@dataclass(frozen=True)
class NoProfile:
    """Why a rank has no profile."""

    framework: str
    rank: int
    profiler: str
    reason: str

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "schema": STEP_PROFILE_SCHEMA_VERSION}, sort_keys=True) + "\n"


def from_json(text: str, about: str) -> Union[StepProfile, NoProfile]:
    """The inverse of ``to_json``. Raises StepLogError, which names ``about`` and the field, on anything else."""

    def fail(name: Optional[str], got: Any, expected: str) -> StepLogError:
        return StepLogError(about, field=name, got=got, expected=expected)

    record = parsed(text, fail)
    schema = record.pop("schema", None)
    if schema != STEP_PROFILE_SCHEMA_VERSION or isinstance(schema, bool):
        raise fail("schema", schema, str(STEP_PROFILE_SCHEMA_VERSION))
    if "reason" in record:
        return read_record(NoProfile, record, fail)
    profile = read_record(StepProfile, record, fail, _READERS)
    _check(profile, fail)
    return profile


def _check(profile: StepProfile, fail: Fail) -> None:
    for name in ("steps", "threads"):
        if getattr(profile, name) < 1:
            raise fail(name, getattr(profile, name), "a whole number of at least 1")
    for name in ("step_seconds", "step_seconds_unprofiled"):
        value = getattr(profile, name)
        if value is not None and not value > 0:
            raise fail(name, value, "seconds above 0")
    whole, sum_of_phases = profile.step_seconds, math.fsum(profile.phases.values())
    if abs(sum_of_phases - whole) > _PHASES_SHARE * whole:
        expected = f"phases that add up to step_seconds ({whole:.6g} s) within {_PHASES_SHARE:.1%}"
        raise fail("phases", f"{sum_of_phases:.6g} s", expected)
    if profile.all_reduce_overlapped_seconds > whole:
        seconds = profile.all_reduce_overlapped_seconds
        raise fail("all_reduce_overlapped_seconds", seconds, f"at most step_seconds ({whole:.6g} s)")
    keys = [row.key for row in profile.operators]
    if len(set(keys)) < len(keys):
        twice = next(key for place, key in enumerate(keys) if key in keys[:place])
        raise fail("operators", twice, "rows with different keys")


def _phase(value: Any) -> Phase:
    try:
        return Phase(value)
    except ValueError as error:
        raise Unfit("one of " + ", ".join(each.value for each in Phase), value) from error


def _phases(value: Any) -> Dict[Phase, float]:
    return {_phase(name): seconds for name, seconds in mapping_of(number)(value).items()}


# The readers of the fields' own types.
_READERS: Dict[str, Reader] = {"Phase": _phase, "Mapping[Phase, float]": _phases}
_READERS["Tuple[OperatorRow, ...]"] = list_of(record_of(OperatorRow, _READERS))
