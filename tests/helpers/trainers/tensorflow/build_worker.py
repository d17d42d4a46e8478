"""Traces the step of a GPU job without a GPU. It is that of one card: the graph has the exchange between cards only if
there are cards."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from helpers.trainers.common.images import Form
from helpers.trainers.common.process import DeviceRecord
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.tensorflow.settings import TensorflowSettings


def build(spec: JobSpec, settings: TensorflowSettings) -> dict[str, Any]:
    # These flags are for a GPU build; a build that does not know one ends the process when it is loaded.
    os.environ.pop("TF_XLA_FLAGS", None)
    import tensorflow as tf

    from helpers.trainers.tensorflow.device import Card
    from helpers.trainers.tensorflow.steps import TrainingStep

    # Without a card the program can only be placed on the CPU.
    trainer: Any = SimpleNamespace(spec=spec, device=DeviceRecord())
    step = TrainingStep(trainer, settings, Card("CPU:0"))
    batch_size = spec.case.batch_size_per_card
    form = Form(settings.feed_layout, settings.input_channels, settings.input_dtype)
    graph = step.graph(
        tf.TensorSpec(form.shape(batch_size), form.dtype),
        tf.TensorSpec([batch_size], tf.int64),
        tf.TensorSpec([], tf.float32),
    )
    operators = len(graph.node) + sum(len(each.node_def) for each in graph.library.function)
    parameters = sum(each.shape.num_elements() for each in step.network.weights.trained.values())
    return {"facts": trainer.device.facts, "operators": operators, "parameters": parameters}
