"""An MXNet training loop as a user would write it with Gluon; helpers/session/lockstep.py compares the trainer with it.

``python -m helpers.trainers.mxnet.bare_loop --cores 0 --steps 10`` prints its images/s. The model is the trainer's,
because MXNet's own ResNet50 is not v1.5; step, optimizer, precision and batch are written out here.
"""

from __future__ import annotations

import argparse
import sys

from helpers.trainers.contract.blocks import StepBlock, Stopwatch, Train, add_loop_arguments, run_bare_loop


def main() -> int:
    return run_bare_loop(_parser().parse_args(), training)


def training(arguments: argparse.Namespace) -> Train:
    """Returns a function that trains a given number of steps on one batch of noise."""
    import mxnet as mx
    from mxnet import autograd, gluon
    from mxnet.contrib import amp

    from helpers.trainers.contract.models import Model
    from helpers.trainers.mxnet.models import NetworkForm, network_of

    if arguments.bf16:
        amp.init("bfloat16")
    context = mx.cpu(0)
    mx.random.seed(1234)
    network = network_of(Model.RESNET50.spec, NetworkForm())
    network.initialize(ctx=context)
    network.hybridize(static_alloc=True, static_shape=True)
    entropy = gluon.loss.SoftmaxCrossEntropyLoss()
    entropy.hybridize(static_alloc=True, static_shape=True)
    options = {"learning_rate": arguments.learning_rate, "momentum": 0.9, "wd": 1e-4}
    trainer = gluon.Trainer(network.collect_params(), "sgd", options, kvstore=None)
    images = mx.nd.random.normal(shape=(arguments.batch_size, 3, 224, 224), ctx=context)
    labels = mx.nd.random.randint(0, 1000, shape=(arguments.batch_size,), ctx=context).astype("float32")

    def train(steps: int) -> StepBlock:
        stopwatch = Stopwatch()
        for _ in range(steps):
            with autograd.record():
                loss = entropy(network(images).astype("float32", copy=False), labels)
            loss.backward()
            trainer.step(arguments.batch_size)
        mx.nd.waitall()
        return StepBlock(steps, *stopwatch.read())

    return train


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Train ResNet50 v1.5 in a bare MXNet loop on a CPU.")
    parser.add_argument("--bf16", action="store_true", help="Train under mxnet.contrib.amp in bfloat16")
    add_loop_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
