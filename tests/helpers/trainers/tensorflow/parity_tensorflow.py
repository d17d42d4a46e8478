"""Trains some steps of a job with TensorFlow's own step::

    parity_tensorflow.py SPEC.json WEIGHTS.npz GRADIENTS.npz float64|float32

Runs in .venv-tensorflow. Begins with the weights that ``parity_paddle.py`` wrote and prints what that prints, and how
far the first step's gradients are from those that it wrote.
TensorFlow has no fused batch norm in float64, so it is written out here; test_steps.py holds the two against each
other.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import tensorflow as tf

from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import DeviceRecord, RankPlace
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.tensorflow import models, steps
from helpers.trainers.tensorflow.device import Card
from helpers.trainers.tensorflow.settings import TensorflowSettings
from tests.helpers.trainers.parity_batch import answer, parity_batch, read_arrays, relative_errors
from tests.helpers.trainers.small_network import use_small_network


def main(spec: JobSpec, weights: Path, gradients: Path, dtype: str) -> dict[str, Any]:
    use_small_network()
    settings = TensorflowSettings.of(spec)
    trainer: Any = SimpleNamespace(spec=spec, ranks=RankPlace(0, 0, 1), device=DeviceRecord())
    if dtype == "float64":
        fused: Any = models
        fused.normalised = normalised
    form = replace(steps.form_of(settings, spec.seed), dtype=tf.as_dtype(dtype))
    with mock.patch.object(steps, "form_of", lambda settings, seed: form):
        step = steps.TrainingStep(trainer, settings, Card("CPU:0"))
    trained = step.network.weights.trained
    for name, value in read_arrays(weights, trained, turned).items():
        trained[name].assign(value)
    images, labels, samples = parity_batch(spec, settings, dtype)
    batch = Batch(tf.constant(images), tf.constant(labels), samples)
    step.begin_epoch(0)
    begun = {name: each.numpy() for name, each in trained.items()}
    losses = [step.loss(step.step(batch))]
    # The momentum began as zero, so the first step left the gradient and the weight's decay in it.
    found = {
        name: speed.numpy() - decay * begun[name] for name, (_, speed, decay) in zip(trained, step._moved, strict=True)
    }
    losses += [step.loss(step.step(batch)) for _ in range(spec.window_steps - 1)]
    errors = relative_errors(found, read_arrays(gradients, found, turned))
    parameters = sum(int(tf.size(each)) for each in trained.values())
    return {"losses": losses, "parameters": parameters, "gradient_errors": errors}


def normalised(images: Any, scale: Any, offset: Any, mean: Any, variance: Any, form: Any) -> Any:
    """As ``models.normalised``, in float64."""
    found, spread = tf.nn.moments(images, [0, 1, 2])
    normed = tf.nn.batch_normalization(images, found, spread, offset, scale, form.norm_epsilon)
    moved = form.norm_momentum
    return normed, moved * mean + (1 - moved) * found, moved * variance + (1 - moved) * spread


def turned(value: Any) -> Any:
    """From Paddle's order into TensorFlow's."""
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    answer(main)
