"""The part of a static program that all its kinds share: its inputs, its loss, and what is fetched."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Tuple

import paddle
import paddle.nn.functional as F

from helpers.trainers.common.images import Form
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.paddle.settings import PaddleSettings


@dataclass(frozen=True)
class StaticProgram:
    """The programs of one rank, with their optimizer and the values to fetch."""

    main: Any
    startup: Any
    schedule: Any
    optimizer: Any
    # The values that are fetched at each step.
    loss: Any
    mean_logit: Any
    # For a CompiledProgram; None if fleet has applied it, or for a PIR program, which takes none.
    build_strategy: Any = None
    # Whether the optimizer makes its float16 copies of the weights when they are there (amp_init).
    casts_weights: bool = False


def in_pir() -> bool:
    return bool(getattr(paddle.framework, "in_pir_mode", lambda: False)())


def inputs_of(spec: JobSpec, settings: PaddleSettings) -> Tuple[Any, Any]:
    """Images and labels, in the present program."""
    batch_size = spec.case.batch_size_per_card
    form = Form(settings.feed_layout, settings.input_channels, settings.input_dtype)
    images = paddle.static.data("images", list(form.shape(batch_size)), form.dtype)
    return images, paddle.static.data("labels", [batch_size], "int64")


def loss_with_mean_logit(logits: Any, labels: Any, settings: PaddleSettings) -> Tuple[Any, Any]:
    """The loss and the mean logit, which tells a NaN; with the accuracies of the settings computed beside."""
    column = labels.reshape([-1, 1])
    loss = F.cross_entropy(logits, column)
    for k in settings.accuracy_top_k:
        paddle.metric.accuracy(logits, column, k=k)
    return loss, logits.astype("float32").mean()


def parameters_of(main: Any) -> int:
    """How many parameters the program's optimizer trains."""
    holder = main.global_block() if hasattr(main.global_block(), "all_parameters") else main
    return sum(math.prod(map(int, each.shape)) for each in holder.all_parameters() if each.trainable)
