"""Looks at the parts of MXNet's step one by one, in .venv-mxnet: ``step_units.py ONE.json TWO.json``, the jobs of one
and of two cards; prints JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Two cards compute on the cores of one test.
os.environ["OMP_NUM_THREADS"] = "1"

import mxnet as mx
import numpy

from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import DeviceRecord, RankPlace, Refused, cards_of
from helpers.trainers.contract.case import Precision
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.models import MODELS, Model
from helpers.trainers.mxnet.data import copied, feed_to
from helpers.trainers.mxnet.device import contexts_of, pin_workers, refuse_what_cannot_run
from helpers.trainers.mxnet.models import NetworkForm, network_of, trained
from helpers.trainers.mxnet.settings import MxnetSettings
from helpers.trainers.mxnet.steps import (
    SmoothedLoss,
    TrainingStep,
    build_network,
    build_trainer,
    check_convolutions,
    check_weights,
    convolutions,
    traced,
)
from tests.helpers.trainers.small_network import use_small_network


def refusal(act: Any) -> str:
    try:
        act()
    except Refused as refused:
        return str(refused)
    return ""


def proofs(settings: MxnetSettings) -> dict[str, str]:
    """What the proof says where the model computes in another type or layout than the settings, and where not."""
    network = network_of(MODELS[Model.RESNET50], NetworkForm())
    network.initialize()
    network.hybridize()
    network(mx.nd.ones((1, 3, 64, 64)))
    images, output = traced(network)
    found = convolutions(output, {images: "float32"})
    half = dataclasses.replace(settings, amp_level="O2", amp_dtype="float16", amp_through="cast")
    return {
        "right": refusal(lambda: check_convolutions(found, settings, 53)),
        "not_cast": refusal(lambda: check_convolutions(found, half, 53)),
        "one_missing": refusal(lambda: check_convolutions(found[:52], settings, 53)),
        "layout": refusal(lambda: check_convolutions(found, dataclasses.replace(settings, layout="NHWC"), 53)),
        "weights": refusal(lambda: check_weights(network, half)),
    }


def smoothed(settings: MxnetSettings) -> list[float]:
    """The loss of two images with smoothed labels, by MXNet and by its formula."""
    smoothing = dataclasses.replace(settings, label_smoothing=0.1)
    logits = numpy.random.RandomState(3).standard_normal((2, 1000)).astype("float32")
    labels = numpy.array([3, 700])
    losses = SmoothedLoss(smoothing)(mx.nd.array(logits), mx.nd.array(labels)).asnumpy()
    right, other = smoothing.label_targets
    targets = numpy.full((2, 1000), other)
    targets[range(2), labels] = right
    logarithms = logits - numpy.log(numpy.exp(logits.astype("float64")).sum(axis=1, keepdims=True))
    return [float(losses.mean()), float(-(targets * logarithms).sum(axis=1).mean())]


def step_of(spec: JobSpec, settings: MxnetSettings, cards: int) -> tuple[TrainingStep, list[Any]]:
    trainer: Any = SimpleNamespace(spec=spec, device=DeviceRecord())
    mx.random.seed(7)
    contexts = [mx.cpu(1 + card) for card in range(cards)]
    return TrainingStep(trainer, settings, contexts), contexts


def images(cards: list[Any], dtype: str = "float32") -> Batch:
    """The same two images on every card."""
    pixels = mx.nd.array(numpy.random.RandomState(5).standard_normal((2, 3, 64, 64)), dtype=dtype)
    labels = mx.nd.array([3, 700])
    return Batch([pixels.copyto(card) for card in cards], [labels.copyto(card) for card in cards], 2 * len(cards))


def together(one: JobSpec, two: JobSpec) -> dict[str, Any]:
    """Losses of one card and of two cards, each of which has the same images, in float64: batch norm and ReLU would
    turn roundings of float32 into other signs."""
    found: dict[str, Any] = {}
    for name, spec, cards in (("one", one, 1), ("two", two, 2)):
        settings = dataclasses.replace(MxnetSettings.of(spec), learning_rate=0.001)
        step, contexts = step_of(spec, settings, cards)
        step.network.cast("float64")
        # No case is computed in float64, and the proof of its type would refuse it.
        step._proven = True
        batch = images(contexts, "float64")
        step.begin_epoch(0)
        found[name] = [step.loss(step.step(batch)) for _ in range(3)]
    first, second = contexts
    found["weights_differ"] = max(
        float(mx.nd.abs(each.data(first) - each.data(second).as_in_context(first)).max().asscalar())
        for each in step.weights
    )
    return found


def decay(spec: JobSpec) -> dict[str, list[float]]:
    found = {}
    for decay_norms in (True, False):
        settings = dataclasses.replace(MxnetSettings.of(spec), decay_norms=decay_norms)
        network = build_network(spec, settings, [mx.cpu(0)])
        build_trainer(network, settings)
        found[str(decay_norms)] = [
            sum(each.wd_mult == share for each in trained(network).values()) for share in (1.0, 0.0)
        ]
    return found


def rates(spec: JobSpec) -> list[float]:
    """The rate that MXNet's optimizer has after each of some steps that warm up, and in later epochs."""
    settings = dataclasses.replace(MxnetSettings.of(spec), learning_rate=1.0, learning_rate_warmup_steps=2)
    step, contexts = step_of(spec, settings, 1)
    found = []
    for epoch in (0, 0, 0, 30):
        step.begin_epoch(epoch)
        step.step(images(contexts))
        found.append(float(step._trainer.learning_rate))
    return found


def fed() -> list[Any]:
    """What the step has of a loader's arrays that are filled anew afterwards, and their types."""
    feed = feed_to(mx.cpu(0))
    pixels, labels = numpy.ones(2, dtype="float16"), numpy.array([5, 700])
    given = [feed(pixels), feed(labels), feed(mx.nd.array(labels, dtype="int64"))]
    pixels[:], labels[:] = 7.0, 7
    return [[each.asnumpy().tolist(), numpy.dtype(each.dtype).name] for each in given]


def from_dali() -> list[Any]:
    """A batch of DALI's, copied as one on a card is, which DALI then fills anew."""
    from nvidia.dali import fn, types
    from nvidia.dali.pipeline import Pipeline

    pipeline = Pipeline(batch_size=2, num_threads=1, device_id=None, prefetch_queue_depth=1)
    with pipeline:
        numbers = fn.external_source(
            source=lambda info: numpy.array([info.iteration, info.idx_in_batch], dtype="float32"), batch=False
        )
        pipeline.set_outputs(fn.cast(numbers, dtype=types.FLOAT16), fn.cast(numbers, dtype=types.INT64))
    pipeline.build()
    half, whole = (copied(each.as_tensor(), mx.cpu(0)) for each in pipeline.run())
    for _ in range(3):
        pipeline.run()
    return [[each.asnumpy().tolist(), numpy.dtype(each.dtype).name] for each in (half, whole)]


def pinned(spec: JobSpec) -> list[list[int]]:
    """The cores of the threads that a card's first work started, for each card."""
    before = os.sched_getaffinity(0)
    cards = cards_of(spec, RankPlace(0, 0, 1))
    contexts = contexts_of(spec, cards)
    pin_workers(cards, contexts)
    assert os.sched_getaffinity(0) == before
    threads = [sorted(os.sched_getaffinity(int(each.name))) for each in Path("/proc/self/task").iterdir()]
    return [each for each in threads if len(each) == 1]


def refused(spec: JobSpec) -> str:
    """What is said of a case that a CPU cannot run."""
    case = dataclasses.replace(spec.case, precision=Precision.TF32)
    return refusal(lambda: refuse_what_cannot_run(dataclasses.replace(spec, case=case)))


def main(one: JobSpec, two: JobSpec) -> dict[str, Any]:
    settings = MxnetSettings.of(one)
    told = {
        # First of all: threads that stand keep their cores.
        "pinned": pinned(two),
        "proofs": proofs(settings),
        "smoothed": smoothed(settings),
        "decay": decay(one),
        "fed": fed(),
        "dali": from_dali(),
        "refused": refused(one),
    }
    use_small_network()
    return {**told, "together": together(one, two), "rates": rates(one)}


if __name__ == "__main__":
    print(json.dumps(main(*(JobSpec.from_json(Path(each).read_text(encoding="utf-8")) for each in sys.argv[1:]))))
