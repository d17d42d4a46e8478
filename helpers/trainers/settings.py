"""A job's settings, read strictly: what ``helpers/recipe.py`` writes, with the user's overrides in it.

An unknown key, a missing one or a value that contradicts the case is an error, so that no override is
lost and none turns a case into another one. What every framework has stands in ``Settings``, what one has
of its own in its subclass.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Dict, Mapping, Optional, Tuple, Type, TypeVar

from helpers.case import Case, Execution, Framework, Precision
from helpers.errors import ConfigError
from helpers.job import JobSpec, finite

# Level and type of what a precision says, None where it leaves them open.
AmpLevels = Mapping[Precision, Tuple[Optional[str], Optional[str]]]
_AMP_LEVELS: AmpLevels = {
    Precision.FP32: (None, None),
    Precision.TF32: (None, None),
    Precision.AMP_O1: ("O1", None),
    Precision.AMP_O2: ("O2", None),
}
S = TypeVar("S", bound="Settings")
# Steps until the loss scale moves, and by what factor; the names are Paddle's.
LOSS_SCALING_RULE = ("incr_every_n_steps", "decr_every_n_nan_or_inf", "incr_ratio", "decr_ratio")


@dataclass(frozen=True)
class Augmentation:
    """Random resized crop and flip. ``crop_area`` is a share of the image, ``crop_aspect_ratio`` width/height."""

    crop_area: Tuple[float, float]
    crop_aspect_ratio: Tuple[float, float]
    flip_probability: float


@dataclass(frozen=True)
class Dali:
    """``threads`` None: as many as the rank has cores. Paddings in bytes, for GPU decoding alone."""

    threads: Optional[int]
    prefetch_queue_depth: int
    seed: int
    device_memory_padding: int
    host_memory_padding: int


@dataclass(frozen=True)
class Native:
    """The framework's own loader: worker processes a rank, batches each prepares ahead."""

    workers: int
    prefetch_factor: int
    shared_memory: bool


@dataclass(frozen=True)
class Settings:
    """A training configuration; ``environment`` holds variables that are set before the framework's import.

    Images arrive in ``feed_layout`` and the model works in ``layout``. ``amp_level`` is None, O1 or O2;
    ``loss_scaling`` the first loss scale, None without one, and ``loss_scaling_rule`` how it moves.
    The learning rate is multiplied by ``learning_rate_decay`` at each of ``learning_rate_boundaries``
    (epochs).
    """

    AMP_LEVELS: ClassVar[AmpLevels] = _AMP_LEVELS

    optimizer: str
    learning_rate: float
    learning_rate_boundaries: Tuple[int, ...]
    learning_rate_decay: float
    momentum: float
    weight_decay: float
    layout: str
    feed_layout: str
    input_channels: int
    input_dtype: str
    amp_level: Optional[str]
    amp_dtype: Optional[str]
    loss_scaling: Optional[float]
    loss_scaling_rule: Mapping[str, Any]
    environment: Mapping[str, str]
    augmentation: Augmentation
    dali: Dali
    native: Native

    @classmethod
    def of(cls: Type[S], spec: JobSpec) -> S:
        """The settings of a job, those of its framework; ConfigError names the key."""
        kind = _KINDS.get(spec.case.framework)
        if kind is None or not issubclass(kind, cls):
            known = ", ".join(framework.value for framework in _KINDS if issubclass(_KINDS[framework], cls))
            raise ConfigError(f"job {spec.job_id}", field="framework", got=spec.case.framework.value, expected=known)
        settings: S = _build(kind, dict(spec.settings), "settings")
        settings._check(spec)
        return settings

    @property
    def learning_rates(self) -> Tuple[float, ...]:
        """The learning rate of each stretch of epochs, one more than there are boundaries."""
        return tuple(
            self.learning_rate * self.learning_rate_decay**passed
            for passed in range(len(self.learning_rate_boundaries) + 1)
        )

    def _check(self, spec: JobSpec) -> None:
        _one_of("optimizer", self.optimizer, ("momentum",))
        for name in ("layout", "feed_layout"):
            _one_of(name, getattr(self, name), ("NCHW", "NHWC"))
        _one_of("input_channels", self.input_channels, (3, 4))
        _one_of("input_dtype", self.input_dtype, ("float32", "float16"))
        _one_of("amp_dtype", self.amp_dtype, (None, "float16", "bfloat16"))
        for name in ("learning_rate", "learning_rate_decay", "momentum", "weight_decay"):
            value = getattr(self, name)
            if not finite(value) or value < 0:
                raise _error(name, value, "a finite number of at least 0")
        if self.loss_scaling is not None and (not finite(self.loss_scaling) or self.loss_scaling <= 0):
            raise _error("loss_scaling", self.loss_scaling, "a positive number or null")
        self._check_loss_scaling_rule()
        for name, least in (("workers", 0), ("prefetch_factor", 1)):
            _at_least(f"native.{name}", getattr(self.native, name), least)
        _at_least("dali.prefetch_queue_depth", self.dali.prefetch_queue_depth, 1)
        if self.dali.threads is not None:
            _at_least("dali.threads", self.dali.threads, 1)
        self._check_precision(spec.case)

    def _check_loss_scaling_rule(self) -> None:
        wanted = LOSS_SCALING_RULE if self.loss_scaling is not None else ()
        rule: Any = self.loss_scaling_rule
        if not isinstance(rule, Mapping) or set(rule) != set(wanted):
            raise _error("loss_scaling_rule", rule, ", ".join(wanted) or "nothing without loss_scaling")
        for name, value in rule.items():
            if not finite(value) or value <= 0:
                raise _error(f"loss_scaling_rule.{name}", value, "a positive number")

    def _check_precision(self, case: Case) -> None:
        if case.precision in self.AMP_LEVELS:
            level, dtype = self.AMP_LEVELS[case.precision]
            if self.amp_level != level:
                raise _error("amp_level", self.amp_level, f"{level}, as {case.precision.value} of the case says")
            if (level is None) != (self.amp_dtype is None) or (dtype is not None and self.amp_dtype != dtype):
                raise _error("amp_dtype", self.amp_dtype, f"what {case.precision.value} of the case says")


@dataclass(frozen=True)
class PaddleSettings(Settings):
    """``amp_through`` is what casts: ``auto_cast``, and for static programs on a GPU ``decorate`` or ``fleet``.

    ``accuracy_top_k`` lists the accuracies that a static program computes at every step.
    """

    AMP_LEVELS: ClassVar[AmpLevels] = {**_AMP_LEVELS, Precision.BF16: ("O2", "bfloat16")}

    accuracy_top_k: Tuple[int, ...]
    amp_through: Optional[str]
    build_strategy: Mapping[str, Any]
    execution_strategy: Mapping[str, Any]
    fleet: Mapping[str, Any]

    def _check(self, spec: JobSpec) -> None:
        super()._check(spec)
        if not isinstance(self.accuracy_top_k, tuple):
            raise _error("accuracy_top_k", self.accuracy_top_k, "a list of whole numbers")
        for k in self.accuracy_top_k:
            _at_least("accuracy_top_k", k, 1)
        self._check_amp_through(spec)

    def _check_amp_through(self, spec: JobSpec) -> None:
        known: Tuple[Optional[str], ...] = (None,)
        if self.amp_level is not None:
            on_gpu = spec.device == "gpu" and spec.case.execution is Execution.STATIC
            known = ("decorate", "fleet") if on_gpu else ("auto_cast",)
        _one_of("amp_through", self.amp_through, known)


@dataclass(frozen=True)
class PytorchSettings(Settings):
    """``decay_norms``: weight decay on batch norm's parameters too. ``compile_mode`` is torch.compile's, None without.

    ``ddp`` holds DistributedDataParallel's arguments, and nothing for one card.
    """

    AMP_LEVELS: ClassVar[AmpLevels] = {
        **_AMP_LEVELS,
        Precision.BF16: ("O1", "bfloat16"),
        Precision.AMP: ("O1", None),
    }
    DDP: ClassVar[Tuple[str, ...]] = ("gradient_as_bucket_view", "bucket_cap_mb", "static_graph")

    decay_norms: bool
    cudnn_benchmark: bool
    compile_mode: Optional[str]
    ddp: Mapping[str, Any]

    def _check(self, spec: JobSpec) -> None:
        super()._check(spec)
        case = spec.case
        for name in ("decay_norms", "cudnn_benchmark"):
            _switch(name, getattr(self, name))
        _one_of("compile_mode", self.compile_mode, ("default",) if case.compile else (None,))
        wanted = self.DDP if case.cards > 1 else ()
        ddp: Any = self.ddp
        if not isinstance(ddp, Mapping) or set(ddp) != set(wanted):
            raise _error("ddp", ddp, ", ".join(wanted) or "nothing for one card")
        for name, value in ddp.items():
            if name != "bucket_cap_mb":
                _switch(f"ddp.{name}", value)
            elif not finite(value) or value <= 0:
                raise _error(f"ddp.{name}", value, "a positive number of MiB")


_KINDS: Dict[Framework, Type[Settings]] = {
    Framework.PADDLE: PaddleSettings,
    Framework.PYTORCH: PytorchSettings,
}


def _build(kind: Any, record: Any, about: str) -> Any:
    if not isinstance(record, Mapping):
        raise _error(about, record, "a mapping")
    names = [item.name for item in fields(kind)]
    for name in record:
        if name not in names:
            raise _error(f"{about}.{name}", record[name], "one of " + ", ".join(names))
    for name in names:
        if name not in record:
            raise _error(f"{about}.{name}", None, "a value")
    nested = {"augmentation": Augmentation, "dali": Dali, "native": Native}
    values = {
        name: _build(nested[name], value, name) if name in nested else _frozen(value) for name, value in record.items()
    }
    return kind(**values)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _one_of(name: str, value: object, known: Tuple[object, ...]) -> None:
    if value not in known:
        raise _error(name, value, "one of " + ", ".join(map(str, known)))


def _switch(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise _error(name, value, "true or false")


def _at_least(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _error(name, value, f"a whole number of at least {least}")


def _error(name: str, got: object, expected: str) -> ConfigError:
    return ConfigError(
        "training settings",
        field=name,
        got="nothing" if got is None else got,
        expected=expected,
        remedy="See helpers/recipe.py for the settings of a case",
    )
