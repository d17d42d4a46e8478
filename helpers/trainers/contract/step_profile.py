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
from helpers.trainers.contract.job import finite

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
    # The number of threads that the framework uses for an operator on a CPU, as it tells itself; of OpenMP's libraries
    # the one with the fewest. The cores of the rank where it does not tell.
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
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StepLogError(about, got=str(error), expected="a JSON object") from error
    if not isinstance(record, dict):
        raise StepLogError(about, got=type(record).__name__, expected="a JSON object")
    schema = record.pop("schema", None)
    if schema != STEP_PROFILE_SCHEMA_VERSION or isinstance(schema, bool):
        raise StepLogError(about, field="schema", got=schema, expected=str(STEP_PROFILE_SCHEMA_VERSION))
    if "reason" in record:
        return _Fields(about, record, NoProfile).made()
    return _Fields(about, record, StepProfile).made()


@dataclass
class _Fields:
    """The checked fields of one record."""

    about: str
    record: Dict[str, Any]
    kind: type
    prefix: str = ""

    def made(self) -> Any:
        wanted, given = self.kind.__dataclass_fields__, self.record  # type: ignore[attr-defined]
        for name in sorted(set(given) - set(wanted)):
            raise self._error(name, given[name], "a known field")
        for name in sorted(set(wanted) - set(given)):
            raise self._error(name, None, "a value")
        values = {name: _READERS[each.type](self, name, given[name]) for name, each in wanted.items()}
        made = self.kind(**values)
        if isinstance(made, StepProfile):
            self._check(made)
        return made

    def _check(self, profile: StepProfile) -> None:
        if profile.steps < 1:
            raise self._error("steps", profile.steps, "a whole number of at least 1")
        if profile.threads < 1:
            raise self._error("threads", profile.threads, "a whole number of at least 1")
        for name in ("step_seconds", "step_seconds_unprofiled"):
            value = getattr(profile, name)
            if value is not None and not value > 0:
                raise self._error(name, value, "seconds above 0")
        whole, sum_of_phases = profile.step_seconds, math.fsum(profile.phases.values())
        if abs(sum_of_phases - whole) > _PHASES_SHARE * whole:
            expected = f"phases that add up to step_seconds ({whole:.6g} s) within {_PHASES_SHARE:.1%}"
            raise self._error("phases", f"{sum_of_phases:.6g} s", expected)
        if profile.all_reduce_overlapped_seconds > whole:
            seconds = profile.all_reduce_overlapped_seconds
            raise self._error("all_reduce_overlapped_seconds", seconds, f"at most step_seconds ({whole:.6g} s)")
        keys = [row.key for row in profile.operators]
        if len(set(keys)) < len(keys):
            twice = next(key for place, key in enumerate(keys) if key in keys[:place])
            raise self._error("operators", twice, "rows with different keys")

    def text(self, name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self._error(name, value, "text")
        return value

    def count(self, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._error(name, value, "a whole number, not negative")
        return value

    def number(self, name: str, value: Any) -> float:
        if not finite(value) or value < 0:
            raise self._error(name, value, "a finite number, not negative")
        return float(value)

    def number_or_none(self, name: str, value: Any) -> Optional[float]:
        return None if value is None else self.number(name, value)

    def phase(self, name: str, value: Any) -> Phase:
        try:
            return Phase(value)
        except ValueError as error:
            raise self._error(name, value, "one of " + ", ".join(each.value for each in Phase)) from error

    def phases(self, name: str, value: Any) -> Dict[Phase, float]:
        if not isinstance(value, dict):
            raise self._error(name, value, "an object")
        return {self.phase(name, key): self.number(f"{name}.{key}", each) for key, each in value.items()}

    def rows(self, name: str, value: Any) -> Tuple[OperatorRow, ...]:
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise self._error(name, value, "a list of objects")
        prefix = f"{self.prefix}{name}"
        return tuple(
            _Fields(self.about, each, OperatorRow, f"{prefix}[{place}].").made() for place, each in enumerate(value)
        )

    def texts(self, name: str, value: Any) -> Tuple[str, ...]:
        if not isinstance(value, list):
            raise self._error(name, value, "a list of texts")
        return tuple(self.text(name, each) for each in value)

    def _error(self, name: str, got: Any, expected: str) -> StepLogError:
        return StepLogError(self.about, field=self.prefix + name, got=got, expected=expected)


# The reader of a field, by its type as it is written above.
_READERS = {
    "str": _Fields.text,
    "int": _Fields.count,
    "float": _Fields.number,
    "Optional[float]": _Fields.number_or_none,
    "Phase": _Fields.phase,
    "Mapping[Phase, float]": _Fields.phases,
    "Tuple[OperatorRow, ...]": _Fields.rows,
    "Tuple[str, ...]": _Fields.texts,
}
