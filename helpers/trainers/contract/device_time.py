"""How long the cards of a rank computed for a step, where the framework's profiler says so: a file beside the step log.

A framework that gives no way to its CUDA streams has its steps timed by the host's clock. Some more steps are then
profiled after the measured window. The rank writes this file when its step log has its footer, so that whatever
becomes of the profiler changes no figure.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Dict, Optional

from helpers.trainers.contract.errors import StepLogError
from helpers.trainers.contract.job import finite

# The phase of a rank's heartbeat while it trains the profiled steps. Its step log is complete by then.
PROFILE = "profile"

# The facts of a result: what the profiler said, in words and as a number.
DEVICE_TIME_FACT = "device_time"
DEVICE_SECONDS_FACT = "device_seconds_per_step"


@dataclass(frozen=True)
class DeviceTime:
    """What a rank's profiler says of some steps."""

    # What said it.
    method: str
    # So many were profiled.
    steps: int
    # The seconds of a step in which the card computed or copied, of the rank's card on which they are most; None if
    # that is unknown.
    seconds_per_step: Optional[float]
    # Why it is unknown.
    reason: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True) + "\n"

    @staticmethod
    def from_json(text: str, about: str) -> DeviceTime:
        """The inverse of ``to_json``; StepLogError on anything else."""
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise StepLogError(about, got=str(error), expected="a JSON object") from error
        names = [item.name for item in fields(DeviceTime)]
        if not isinstance(record, dict) or sorted(record) != sorted(names):
            raise StepLogError(about, got=record, expected=f"an object with {', '.join(names)}")
        seconds, steps = record["seconds_per_step"], record["steps"]
        if seconds is not None and not (finite(seconds) and seconds > 0):
            raise StepLogError(about, field="seconds_per_step", got=seconds, expected="seconds above 0, or null")
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise StepLogError(about, field="steps", got=steps, expected="a whole number of at least 1")
        for name in ("method", "reason"):
            if not isinstance(record[name], str):
                raise StepLogError(about, field=name, got=record[name], expected="text")
        return DeviceTime(**record)

    def facts(self, step_seconds: float) -> Dict[str, str]:
        """The facts of a result whose window has steps of so many seconds."""
        if self.seconds_per_step is None:
            return {DEVICE_TIME_FACT: f"unknown: {self.reason} ({self.method})"}
        share, steps = self.seconds_per_step / step_seconds, f"{self.steps} steps after the window"
        return {
            DEVICE_TIME_FACT: f"{self.seconds_per_step:.4g} s a step, {share:.1%} of the window's {step_seconds:.4g} s "
            f"({self.method}, {steps})",
            DEVICE_SECONDS_FACT: repr(self.seconds_per_step),
        }
