"""How long the cards of a rank computed for a step, by the framework's profiler, in a file beside the step log.

If a framework gives no access to its CUDA streams, its steps are timed by the host's clock. Some more steps are then
profiled after the measured window. The rank writes this file after its step log is complete, so that a failure of the
profiler changes no figure.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Dict, Optional

from helpers.trainers.contract.errors import StepLogError
from helpers.trainers.contract.job import finite

# The phase of a rank's heartbeat while it trains the profiled steps. Its step log is complete by then.
PROFILE = "profile"

# The facts of a result for the profiler's answer, in words and as a number.
DEVICE_TIME_FACT = "device_time"
DEVICE_SECONDS_FACT = "device_seconds_per_step"


@dataclass(frozen=True)
class DeviceTime:
    """The answer of a rank's profiler."""

    # In words, the profiler and what it records.
    method: str
    # How many steps were profiled.
    steps: int
    # The seconds of a step in which the card computed or copied, for the rank's card with the largest value; None if it
    # is unknown.
    seconds_per_step: Optional[float]
    # Why it is unknown.
    reason: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True) + "\n"

    @staticmethod
    def from_json(text: str, about: str) -> DeviceTime:
        """The inverse of ``to_json``. Raises StepLogError on anything else."""
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
        """The facts for a result whose window has steps of ``step_seconds``."""
        if self.seconds_per_step is None:
            return {DEVICE_TIME_FACT: f"unknown: {self.reason} ({self.method})"}
        share, steps = self.seconds_per_step / step_seconds, f"{self.steps} steps after the window"
        return {
            DEVICE_TIME_FACT: f"{self.seconds_per_step:.4g} s a step, {share:.1%} of the window's {step_seconds:.4g} s "
            f"({self.method}, {steps})",
            DEVICE_SECONDS_FACT: repr(self.seconds_per_step),
        }
