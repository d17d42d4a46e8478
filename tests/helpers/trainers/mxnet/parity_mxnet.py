"""Trains some steps of a job with MXNet's own step::

    parity_mxnet.py SPEC.json WEIGHTS.npz GRADIENTS.npz float64|float32

Runs in .venv-mxnet. Begins with the weights that ``parity_paddle.py`` wrote and prints what that prints, and how far
the first step's gradients are from those that it wrote.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mxnet as mx

from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import DeviceRecord
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.mxnet.models import trained
from helpers.trainers.mxnet.settings import MxnetSettings
from helpers.trainers.mxnet.steps import TrainingStep
from tests.helpers.trainers.parity_batch import (
    answer,
    parity_batch,
    read_arrays,
    relative_errors,
    transposed,
)
from tests.helpers.trainers.small_network import use_small_network


def main(spec: JobSpec, weights: Path, gradients: Path, dtype: str) -> dict[str, Any]:
    use_small_network()
    settings = MxnetSettings.of(spec)
    contexts = [mx.cpu(0)]
    trainer: Any = SimpleNamespace(spec=spec, device=DeviceRecord())
    step = TrainingStep(trainer, settings, contexts)
    network: Any = step.network
    if dtype == "float64":
        network.cast(dtype)
        # No case is computed in float64, and the proof of its type would refuse it.
        step._proven = True
    own = paddle_names(network)
    for name, value in read_arrays(weights, own, transposed).items():
        own[name].set_data(mx.nd.array(value, dtype=value.dtype))
    images, labels, samples = parity_batch(spec, settings, dtype)
    batch = Batch([mx.nd.array(images, dtype=dtype)], [mx.nd.array(labels, dtype="float32")], samples)
    step.begin_epoch(0)
    losses = [step.loss(step.step(batch))]
    # MXNet adds up the gradients of the batch's images and takes their mean in the update.
    found = {name: each.grad().asnumpy() / samples for name, each in paddle_names(network).items()}
    losses += [step.loss(step.step(batch)) for _ in range(spec.window_steps - 1)]
    errors = relative_errors(found, read_arrays(gradients, found, transposed))
    parameters = sum(each.data().size for each in trained(network).values())
    return {"losses": losses, "parameters": parameters, "gradient_errors": errors}


def paddle_names(network: Any) -> dict[str, Any]:
    """The trained weights by the names that Paddle has for them."""
    return {
        name.replace(".gamma", ".weight").replace(".beta", ".bias"): each for name, each in trained(network).items()
    }


if __name__ == "__main__":
    answer(main)
