"""Trains some steps of a job with MXNet's own step: ``parity_mxnet.py SPEC.json WEIGHTS.npz``.

Runs in .venv-mxnet. Begins with the weights that ``parity_paddle.py`` wrote and prints what that prints.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mxnet as mx
import numpy

from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import DeviceRecord
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.mxnet.models import trained
from helpers.trainers.mxnet.settings import MxnetSettings
from helpers.trainers.mxnet.steps import TrainingStep, blocks_of
from tests.helpers.trainers.pytorch.parity_batch import parity_batch, shrink_images


def main(spec: JobSpec, weights: Path) -> dict[str, Any]:
    shrink_images()
    settings = MxnetSettings.of(spec)
    contexts = [mx.cpu(0)]
    trainer: Any = SimpleNamespace(spec=spec, device=DeviceRecord())
    step = TrainingStep(trainer, settings, contexts)
    network: Any = step.network
    network.cast("float64")
    with numpy.load(weights) as given:
        load(network, {name: given[name] for name in given.files})
    images, labels, samples = parity_batch(spec, settings)
    # No case is computed in float64, and the proof of its type would refuse it.
    step._proven = True
    batch = Batch([mx.nd.array(images, dtype="float64")], [mx.nd.array(labels, dtype="float32")], samples)
    step.begin_epoch(0)
    losses = [step.loss(step.step(batch)) for _ in range(spec.window_steps)]
    return {"losses": losses, "parameters": sum(each.data().size for each in trained(network).values())}


def load(network: Any, given: dict[str, Any]) -> None:
    """Every weight by its name, and no other; Paddle's matrices lie the other way round."""
    own = {name.replace(".gamma", ".weight").replace(".beta", ".bias"): each for name, each in trained(network).items()}
    if set(own) != set(given):
        raise SystemExit(f"other weights: {sorted(set(own) ^ set(given))}")
    for name, weights in own.items():
        value = given[name].T if len(weights.shape) == 2 else given[name]
        if value.shape != tuple(weights.shape):
            raise SystemExit(f"{name}: {value.shape}, expected {tuple(weights.shape)}")
        weights.set_data(mx.nd.array(value, dtype="float64"))
    for block in blocks_of(network):
        if isinstance(block, mx.gluon.nn.Dropout):
            block._rate = 0.0


if __name__ == "__main__":
    told = main(JobSpec.from_json(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2]))
    print(json.dumps(told))
