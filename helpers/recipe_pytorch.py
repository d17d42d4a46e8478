"""The training configuration of a PyTorch case.

A case that the published tables have (the published script's own AMP, or a published row's data source)
is trained as NVIDIA's script was: METHODS.md, "Peers' configurations", PyTorch. Every other case has the
optimizer, input and loss of the Paddle trainer for the same case, so that the two can be compared.

Where this departs from the sources:

- The published script's learning rate schedule, augmentation and loader threads are not stated: those of the
  Paddle cases.
- "bf16" is autocast to bfloat16, which is what PyTorch's users call so; Paddle's is its level O2. The step log's
  facts say which.
- torch.amp.GradScaler lowers its scale at each step that overflows; Paddle does so at the second in a row.
"""

from __future__ import annotations

from typing import Any

from helpers.case import Case, DataSource, Model, Precision
from helpers.errors import ConfigError
from helpers.recipe_common import common_settings, dynamic_loss_scaling
from helpers.recipe_cpu import Processor, heap_environment

# METHODS.md, PyTorch: a loss scale that stays where it is, in the terms of a dynamic one.
STATIC_LOSS_SCALING = 256.0
_STATIC_RULE = {"incr_every_n_steps": 10**9, "decr_every_n_nan_or_inf": 1, "incr_ratio": 2.0, "decr_ratio": 0.5}
# torch.nn.parallel.DistributedDataParallel's own default, in MiB.
_BUCKET_CAP_MB = 25


def is_published_configuration(case: Case) -> bool:
    """Whether the case is one of the published rows' kind, which no other framework's case is like."""
    return case.precision is Precision.AMP or case.data in (DataSource.DALI_CPU, DataSource.UNSTATED)


def pytorch_settings(case: Case, on_gpu: bool, processor: Processor | None = None) -> dict[str, Any]:
    """The settings of ``case``, whatever the ``processor``. Raises ConfigError on what PyTorch has nothing for."""
    _refuse(case)
    as_published = is_published_configuration(case)
    return {
        **common_settings(case, on_gpu),
        **_precision(case, on_gpu),
        "decay_norms": not as_published,
        "cudnn_benchmark": on_gpu,
        "compile_mode": "default" if case.compile else None,
        "ddp": _ddp(as_published) if case.cards > 1 else {},
        "environment": {} if on_gpu else heap_environment(),
    }


def _refuse(case: Case) -> None:
    for name in ("auto", "xla"):
        if getattr(case, name):
            raise ConfigError(
                f"case {case.id}", field=name, got="true", expected="false: PyTorch's trainer has none",
                remedy="compile and graphs are PyTorch's switches",
            )  # fmt: skip
    if case.execution is not None:
        raise ConfigError(
            f"case {case.id}", field="execution", got=case.execution.value, expected="none in a case of PyTorch",
            remedy="Leave it out; compile switches torch.compile on",
        )  # fmt: skip
    if case.precision is Precision.UNSTATED:
        raise ConfigError(
            f"case {case.id}", field="precision", got=case.precision.value, expected="a precision",
            remedy="Every published row of PyTorch states one",
        )  # fmt: skip


def _precision(case: Case, on_gpu: bool) -> dict[str, Any]:
    """Mixed precision is float16 with a scaled loss on a GPU, and bfloat16 on a CPU; pure half of ResNet50 is
    channels_last with 4 channels, as in the Paddle case."""
    settings: dict[str, Any] = {"amp_level": None, "amp_dtype": None, "loss_scaling": None, "loss_scaling_rule": {}}
    if case.precision in (Precision.FP32, Precision.TF32):
        return settings
    settings["amp_level"] = "O2" if case.precision is Precision.AMP_O2 else "O1"
    settings["amp_dtype"] = "bfloat16"
    pure_resnet50 = case.precision is Precision.AMP_O2 and case.model is Model.RESNET50
    if pure_resnet50:
        settings.update(layout="NHWC", input_channels=4)
    if case.precision is Precision.BF16 or not on_gpu:
        return settings
    settings["amp_dtype"] = "float16"
    if pure_resnet50:
        settings["input_dtype"] = "float16"
    if case.precision is Precision.AMP:
        return {**settings, "loss_scaling": STATIC_LOSS_SCALING, "loss_scaling_rule": dict(_STATIC_RULE)}
    return {**settings, **dynamic_loss_scaling(case)}


def _ddp(as_published: bool) -> dict[str, Any]:
    """DDP's defaults, as the published script has it; else gradients live in the buckets, which saves a copy."""
    return {
        "gradient_as_bucket_view": not as_published,
        "bucket_cap_mb": _BUCKET_CAP_MB,
        "static_graph": False,
    }
