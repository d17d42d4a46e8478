"""Reads a job's settings strictly. They are written by ``helpers/plan/recipes/recipe.py`` and contain the user's
overrides.

An unknown key, a missing key or a value that contradicts the case is an error. So no override is lost, and none turns a
case into another case. ``Settings`` has the settings of every framework; a framework's subclass adds its own.

``python -m helpers.trainers.common.settings < JOBS.json`` checks whether the trainers accept the settings of jobs. The
input is a JSON list of the texts of job files. The answer on standard output is a JSON list of the same length: null if
a job's settings are complete and right, else a text that says what is wrong. The exit status is 0, or 1 if the input is
not such a list.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Dict, Mapping, Optional, TextIO, Tuple, Type, TypeVar

from helpers.trainers.contract.case import Case, Precision
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.job import START_SETTINGS, JobSpec
from helpers.trainers.contract.records import Reader, Unfit, finite, list_of, number, read_record, record_of

# AMP level and type by precision; None if the precision leaves the type open, or has neither.
AmpLevels = Mapping[Precision, Tuple[Optional[str], Optional[str]]]
BASIC_AMP_LEVELS: AmpLevels = {
    Precision.FP32: (None, None),
    Precision.TF32: (None, None),
    Precision.AMP_O1: ("O1", None),
    Precision.AMP_O2: ("O2", None),
}
S = TypeVar("S", bound="Settings")
# The steps after which the loss scale changes, and the factors; the names are Paddle's.
LOSS_SCALING_RULE = ("incr_every_n_steps", "decr_every_n_nan_or_inf", "incr_ratio", "decr_ratio")


@dataclass(frozen=True)
class Augmentation:
    """Random resized crop and flip."""

    # Smallest and largest area, as a share of the image.
    crop_area: Tuple[float, float]
    # Smallest and largest width / height.
    crop_aspect_ratio: Tuple[float, float]
    flip_probability: float


@dataclass(frozen=True)
class Dali:
    """The settings of DALI's pipeline."""

    # None: as many threads as a card of the rank has cores.
    threads: Optional[int]
    prefetch_queue_depth: int
    seed: int
    # How many crops are drawn until one fits the image; then DALI takes its centre.
    num_attempts: int
    # In bytes; used only for decoding on a GPU.
    device_memory_padding: int
    host_memory_padding: int


@dataclass(frozen=True)
class Native:
    """The settings of the framework's own loader."""

    # Processes for each card of the rank.
    workers: int
    # Batches that each worker prepares ahead.
    prefetch_factor: int
    shared_memory: bool


@dataclass(frozen=True)
class Settings:
    """A training configuration."""

    AMP_LEVELS: ClassVar[AmpLevels] = BASIC_AMP_LEVELS

    optimizer: str
    learning_rate: float
    # At each of these epochs the learning rate is multiplied by ``learning_rate_decay``.
    learning_rate_boundaries: Tuple[int, ...]
    learning_rate_decay: float
    momentum: float
    weight_decay: float
    # NCHW or NHWC: the model's layout, and the layout in which images arrive.
    layout: str
    feed_layout: str
    input_channels: int
    input_dtype: str
    # None, O1 or O2.
    amp_level: Optional[str]
    amp_dtype: Optional[str]
    # The first loss scale (None: no loss scaling), and the rule by which it changes.
    loss_scaling: Optional[float]
    loss_scaling_rule: Mapping[str, Any]
    # Variables that are set before the framework is imported.
    environment: Mapping[str, str]
    augmentation: Augmentation
    dali: Dali
    native: Native

    @classmethod
    def of(cls: Type[S], spec: JobSpec) -> S:
        """The settings of a job, in the class of its framework. Raises ConfigError, which names the key."""
        kind = import_module(f"helpers.trainers.{spec.case.framework.value}.settings").SETTINGS
        # Settings of how ranks are started do not belong to the training.
        given = {name: value for name, value in spec.settings.items() if name not in START_SETTINGS}
        settings: S = read_record(kind, given, refused, _READERS)
        settings._check(spec)
        return settings

    @property
    def learning_rates(self) -> Tuple[float, ...]:
        """The learning rate before, between and after the boundaries."""
        return tuple(
            self.learning_rate * self.learning_rate_decay**passed
            for passed in range(len(self.learning_rate_boundaries) + 1)
        )

    def _check(self, spec: JobSpec) -> None:
        """Check what the fields' types leave open."""
        one_of("optimizer", self.optimizer, ("momentum",))
        for name in ("layout", "feed_layout"):
            one_of(name, getattr(self, name), ("NCHW", "NHWC"))
        one_of("input_channels", self.input_channels, (3, 4))
        one_of("input_dtype", self.input_dtype, ("float32", "float16"))
        one_of("amp_dtype", self.amp_dtype, (None, "float16", "bfloat16"))
        if self.loss_scaling == 0:
            raise refused("loss_scaling", self.loss_scaling, "a positive number or null")
        self._check_loss_scaling_rule()
        at_least("native.prefetch_factor", self.native.prefetch_factor, 1)
        for name in ("prefetch_queue_depth", "num_attempts", "threads"):
            at_least(f"dali.{name}", getattr(self.dali, name), 1)
        self._check_precision(spec.case)

    def _check_loss_scaling_rule(self) -> None:
        wanted = LOSS_SCALING_RULE if self.loss_scaling is not None else ()
        if set(self.loss_scaling_rule) != set(wanted):
            expected = ", ".join(wanted) or "nothing without loss_scaling"
            raise refused("loss_scaling_rule", self.loss_scaling_rule, expected)
        for name, value in self.loss_scaling_rule.items():
            if not finite(value) or value <= 0:
                raise refused(f"loss_scaling_rule.{name}", value, "a positive number")

    def _check_precision(self, case: Case) -> None:
        if case.precision in self.AMP_LEVELS:
            level, dtype = self.AMP_LEVELS[case.precision]
            if self.amp_level != level:
                raise refused("amp_level", self.amp_level, f"{level}, as {case.precision.value} of the case says")
            if (level is None) != (self.amp_dtype is None) or (dtype is not None and self.amp_dtype != dtype):
                raise refused("amp_dtype", self.amp_dtype, f"what {case.precision.value} of the case says")


def _pair(value: Any) -> Tuple[float, ...]:
    pair: Tuple[float, ...] = list_of(number)(value)
    if len(pair) != 2:
        raise Unfit("two numbers", value)
    return pair


# The readers of the fields' own types.
_READERS: Dict[str, Reader] = {"Tuple[float, float]": _pair}
_READERS.update({kind.__name__: record_of(kind, _READERS) for kind in (Augmentation, Dali, Native)})


def one_of(name: str, value: object, known: Tuple[object, ...]) -> None:
    if value not in known:
        raise refused(name, value, "one of " + ", ".join(map(str, known)))


def at_least(name: str, value: Optional[int], least: int) -> None:
    """Nothing is asked of None, which a field takes only if its type says so."""
    if value is not None and value < least:
        raise refused(name, value, f"a whole number of at least {least}")


def refused(name: Optional[str], got: object, expected: str) -> ConfigError:
    return ConfigError(
        "training settings",
        field=name,
        got="nothing" if got is None else got,
        expected=expected,
        remedy="See helpers/plan/recipes/recipe.py for the settings of a case",
    )


def on(state: bool) -> str:
    return "on" if state else "off"


def problem(text: str) -> Optional[str]:
    try:
        Settings.of(JobSpec.from_json(text))
    except ConfigError as error:
        return str(error)
    return None


def main(given: TextIO, out: TextIO, errors: TextIO) -> int:
    try:
        texts = json.load(given)
    except ValueError as error:
        print(f"the jobs are not JSON: {error}", file=errors)
        return 1
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        print("expected a JSON list of job files' texts", file=errors)
        return 1
    json.dump([problem(text) for text in texts], out)
    return 0


if __name__ == "__main__":
    # Imported by its name, since the frameworks' classes derive from the Settings of that module, not of __main__.
    sys.exit(import_module("helpers.trainers.common.settings").main(sys.stdin, sys.stdout, sys.stderr))
