"""Traces the step of a GPU job without a GPU: ``python -m tests.helpers.trainers.tensorflow.build_worker SPEC.json``.

The answer is described in helpers/trainers/common/building.py. The step is that of one card: the graph has the exchange
between cards only if there are cards.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from types import SimpleNamespace
from typing import Any

from helpers.trainers.common.building import BuildAnswer, run_build
from helpers.trainers.common.images import Form
from helpers.trainers.common.process import DeviceRecord, not_imported, set_environment
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.tensorflow.settings import TensorflowSettings


def build(spec: JobSpec, answer: BuildAnswer, environment: MutableMapping[str, str]) -> None:
    """Trace the step of ``spec``, and fill in ``answer``. Raises Refused if this build of TensorFlow cannot."""
    settings = TensorflowSettings.of(spec)
    environment.update(spec.environment)
    set_environment(spec, settings, environment)
    # These flags are for a GPU build; a build that does not know one ends the process.
    environment.pop("TF_XLA_FLAGS", None)
    try:
        import tensorflow as tf
    except ImportError as error:
        raise not_imported("TensorFlow", "tensorflow", error) from error
    from helpers.trainers.tensorflow.device import Card
    from helpers.trainers.tensorflow.steps import TrainingStep

    answer.facts["framework_version"] = str(tf.__version__)
    if spec.case.cards > 1:
        answer.facts["all_reduce"] = "not in the graph without cards"
    # Without a card the program can only be placed on the CPU.
    trainer: Any = SimpleNamespace(spec=spec, device=DeviceRecord(facts=answer.facts))
    step = TrainingStep(trainer, settings, Card("CPU:0"))
    trained = step.network.weights.trained.values()
    answer.parameters = sum(each.shape.num_elements() for each in trained)
    batch_size = spec.case.batch_size_per_card
    form = Form(settings.feed_layout, settings.input_channels, settings.input_dtype)
    graph = step.graph(
        tf.TensorSpec(form.shape(batch_size), form.dtype),
        tf.TensorSpec([batch_size], tf.int64),
        tf.TensorSpec([], tf.float32),
    )
    answer.operators = len(graph.node) + sum(len(each.node_def) for each in graph.library.function)


if __name__ == "__main__":
    sys.exit(run_build(sys.argv[1:], build))
