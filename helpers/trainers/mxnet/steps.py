"""One optimizer step in MXNet's Gluon, hybridized, on all cards of the process; and checks that it computes as its case
says."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import mxnet as mx
import numpy
from mxnet import autograd, gluon
from mxnet.contrib import amp
from mxnet.gluon import nn

from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import Refused, Trainer
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.models import CLASSES
from helpers.trainers.mxnet.models import NetworkForm, network_of, trained
from helpers.trainers.mxnet.settings import AMP, CAST, MxnetSettings


class ConvolutionFound(NamedTuple):
    """A convolution in the graph of a hybridized network."""

    # The type of its output.
    dtype: str
    layout: str


def traced(network: Any) -> Tuple[str, Any]:
    """The graph of a hybridized network, after its first forward pass: the name of the input, and the output."""
    (images, *_), output = network._cached_graph
    return images.name, output


def convolutions(output: Any, inputs: Mapping[str, str]) -> List[ConvolutionFound]:
    """The convolutions of the graph up to ``output``; ``inputs`` are the types of its inputs, by name."""
    layers = output.get_internals()
    _, dtypes, _ = layers.infer_type(**inputs)
    of = {name: numpy.dtype(each) for name, each in zip(layers.list_outputs(), dtypes)}
    found = []
    for node in json.loads(output.tojson())["nodes"]:
        if node["op"] == "Convolution":
            dtype = of[f"{node['name']}_output"]
            # MXNet represents bfloat16 by a NumPy structure of that name.
            found.append(ConvolutionFound((dtype.names or (dtype.name,))[0], node["attrs"].get("layout", "NCHW")))
    return found


def check_convolutions(found: Sequence[ConvolutionFound], settings: MxnetSettings, of: int) -> Dict[str, str]:
    """Counts for the header. Raises Refused unless all convolutions of the model have the case's type and layout."""
    wanted = settings.amp_dtype or "float32"
    dtypes, layouts = Counter(each.dtype for each in found), Counter(each.layout for each in found)
    if not of or dtypes != {wanted: of}:
        counted = f"{dtypes[wanted]} of {of} are ({dict(dtypes)})"
        raise Refused(f"MXNet did not compute the model's convolutions in {wanted}: {counted}")
    if layouts != {settings.layout: of}:
        counted = f"{layouts[settings.layout]} of {of} are"
        raise Refused(f"MXNet did not compute the model's convolutions in {settings.layout}: {counted}")
    return {f"{wanted}_convolutions": str(of), f"{settings.layout}_convolutions": str(of)}


def check_weights(network: Any, settings: MxnetSettings) -> None:
    """Raise Refused unless the weights have the case's type: half precision if the network is cast (except batch
    norm's), else float32."""
    half = settings.amp_dtype if settings.amp_through == CAST else "float32"
    for name, each in trained(network).items():
        wanted = "float32" if name.endswith((".gamma", ".beta")) else half
        if numpy.dtype(each.dtype).name != wanted:
            raise Refused(f"the weights {name} are {numpy.dtype(each.dtype).name}, not {wanted}")


def begin_amp(settings: MxnetSettings) -> None:
    """Make MXNet insert casts around its operators, in every network that is traced from now on in this process."""
    if settings.amp_through == AMP:
        amp.init(settings.amp_dtype)


def network_for(spec: JobSpec, settings: MxnetSettings) -> Any:
    """The case's network, hybridized and with the case's types; it has no weights before ``initialize()``."""
    form = NetworkForm(
        settings.layout,
        settings.feed_layout,
        settings.input_channels,
        settings.batch_norm_momentum,
        settings.batch_norm_epsilon,
    )
    network = network_of(spec.case.model.spec, form)
    if settings.amp_through == CAST:
        network.cast(settings.amp_dtype)
    network.hybridize(static_alloc=settings.static_alloc, static_shape=settings.static_shape)
    return network


def build_network(spec: JobSpec, settings: MxnetSettings, contexts: Sequence[Any]) -> Any:
    """The case's network with fresh weights, the same on every card."""
    network = network_for(spec, settings)
    network.initialize(ctx=list(contexts))
    check_weights(network, settings)
    return network


class SmoothedLoss(nn.HybridBlock):
    """Softmax cross-entropy of each image with smoothed labels: a share of each label is spread over all classes.
    Computed in float32, or in float64 if the logits are float64."""

    def __init__(self, settings: MxnetSettings) -> None:
        super().__init__()
        self._right, self._other = settings.label_targets
        self._from_half = settings.amp_level is not None
        self._entropy = gluon.loss.SoftmaxCrossEntropyLoss(sparse_label=not settings.label_smoothing)

    def hybrid_forward(self, F: Any, logits: Any, labels: Any) -> Any:
        if self._from_half:
            logits = F.cast(logits, dtype="float32")
        if self._other:
            labels = F.one_hot(labels, CLASSES, on_value=self._right, off_value=self._other)
        return self._entropy(logits, labels)


def build_trainer(network: Any, settings: MxnetSettings) -> Any:
    """MXNet's SGD: v = momentum v - rate (gradient + decay w), w = w + v. With a constant rate this equals Paddle's
    Momentum. When the rate changes, it takes full effect at once in Paddle, and gradually here."""
    for name, each in trained(network).items():
        if not settings.decay_norms and name.endswith((".gamma", ".beta")):
            each.wd_mult = 0.0
    options = {
        "learning_rate": settings.learning_rate,
        "momentum": settings.momentum,
        "wd": settings.weight_decay,
        "multi_precision": settings.amp_through == CAST,
    }
    return gluon.Trainer(network.collect_params(), "sgd", options, kvstore=settings.kvstore, update_on_kvstore=False)


class TrainingStep:
    """Forward and backward on each card of the process, the sum of their gradients, and SGD on each card."""

    def __init__(self, trainer: Trainer, settings: MxnetSettings, contexts: Sequence[Any]) -> None:
        self._facts = trainer.device.facts
        self._settings = settings
        self._on_gpu = trainer.spec.device == "gpu"
        begin_amp(settings)
        self.network = build_network(trainer.spec, settings, contexts)
        self._loss = SmoothedLoss(settings)
        self._loss.hybridize(static_alloc=settings.static_alloc, static_shape=settings.static_shape)
        self.weights = list(trained(self.network).values())
        self._trainer = build_trainer(self.network, settings)
        self._epoch = 0
        self._steps = 0
        self._proven = False
        self._losses: List[Any] = []

    def begin_epoch(self, number: int) -> None:
        """Set the learning rate of the epoch."""
        self._epoch = number

    def step(self, batch: Batch) -> Any:
        """Train on the batch, which has images and labels for each card, in the order of the process's cards."""
        if self._on_gpu:
            # As in the published script: the host may be at most one step ahead, or the cards' memory would fill with
            # batches.
            for loss in self._losses:
                loss.wait_to_read()
        self._trainer.set_learning_rate(self._settings.rate(self._steps, self._epoch))
        with autograd.record():
            self._losses = [
                self._loss(self.network(images), labels) for images, labels in zip(batch.images, batch.labels)
            ]
        autograd.backward(self._losses)
        if not self._proven:
            self._prove(batch)
        self._trainer.step(batch.samples)
        self._steps += 1
        if not self._on_gpu:
            # MXNet computes asynchronously on a CPU too; a step ends when all of it is done.
            mx.nd.waitall()
        return self._losses

    def loss(self, handle: Any) -> float:
        """The mean loss over the images of all cards; waits for the whole step."""
        mx.nd.waitall()
        return float(numpy.mean([numpy.mean(each.asnumpy(), dtype="float64") for each in handle]))

    def _prove(self, batch: Batch) -> None:
        """Check what the first step computed."""
        images, output = traced(self.network)
        found = convolutions(output, {images: numpy.dtype(batch.images[0].dtype).name})
        self._facts.update(check_convolutions(found, self._settings, number_of_convolutions(self.network)))
        self._proven = True


def number_of_convolutions(network: Any) -> int:
    return sum(isinstance(each, nn.Conv2D) for each in blocks_of(network))


def blocks_of(block: Any) -> List[Any]:
    """A block and all blocks within it."""
    return [block, *(each for child in block._children.values() for each in blocks_of(child))]
