"""One optimizer step in TensorFlow, traced once as a graph; and checks that it computes as its case says."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Dict, List, Optional, Tuple

import tensorflow as tf

from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import Refused, Trainer
from helpers.trainers.contract.models import CLASSES
from helpers.trainers.tensorflow.device import Card
from helpers.trainers.tensorflow.models import NetworkForm, network_of
from helpers.trainers.tensorflow.settings import WHOLE_STEP, TensorflowSettings

_TRANSPOSED = {("NHWC", "NCHW"): [0, 3, 1, 2], ("NCHW", "NHWC"): [0, 2, 3, 1]}


def form_of(settings: TensorflowSettings, seed: int) -> NetworkForm:
    return NetworkForm(
        settings.layout, settings.input_channels, seed, settings.batch_norm_momentum, settings.batch_norm_epsilon
    )


class TrainingStep:
    """Forward, backward and SGD with momentum: v = momentum v + (gradient + decay w), w = w - rate v.

    Several cards average their gradients. If XLA compiles whole steps, it compiles the complete step of a single card,
    but only forward and backward of several cards, since XLA has no operation for their exchange.
    """

    def __init__(self, trainer: Trainer, settings: TensorflowSettings, card: Card) -> None:
        spec = trainer.spec
        form = form_of(settings, spec.seed)
        self._settings, self._card, self._facts = settings, card, trainer.device.facts
        self._compute = tf.as_dtype(settings.amp_dtype or form.dtype)
        with card.scope():
            self.network = network_of(spec.case.model.spec, form)
            trained = self.network.weights.trained
            # Each weight with its momentum and its decay.
            self._moved = [
                (weights, tf.Variable(tf.zeros_like(weights), trainable=False), self._decay(name))
                for name, weights in trained.items()
            ]
        whole = settings.xla_mode == WHOLE_STEP
        self._gradients: Any = self.gradients
        if whole and card.strategy is not None:
            self._gradients = tf.function(self.gradients, jit_compile=True, autograph=False)
        compiled = whole and card.strategy is None
        self._run: Any = tf.function(self.train, jit_compile=compiled or None, autograph=False)
        self._proven = False
        self._steps, self._epoch = 0, 0
        self._rate: Tuple[Optional[float], Any] = (None, None)

    def begin_epoch(self, number: int) -> None:
        self._epoch = number

    def step(self, batch: Batch) -> Any:
        """Train on the batch. Returns the loss of this process's card."""
        arguments = batch.images, batch.labels, self._learning_rate()
        if not self._proven:
            self.graph(*arguments)
            self._proven = True
        self._steps += 1
        try:
            return self._run(*arguments)
        except tf.errors.OpError as error:
            raise plain_error(error, self._card.device) from error

    def graph(self, *arguments: Any) -> Any:
        """The GraphDef of a step with the given images, labels and rate (tensors or their TensorSpec). Nothing is run.

        The convolutions in it are added to the facts. Raises Refused if they do not have the case's type and layout.
        """
        graph = self._run.get_concrete_function(*arguments).graph.as_graph_def()
        wanted = self._compute, self._settings.layout, self.network.convolutions
        self._facts.update(check_convolutions(graph, *wanted))
        return graph

    def loss(self, handle: Any) -> float:
        try:
            return float(handle)
        except tf.errors.OpError as error:
            raise plain_error(error, self._card.device) from error

    def train(self, images: Any, labels: Any, rate: Any) -> Any:
        """The graph of a step."""
        strategy = self._card.strategy
        if strategy is None:
            return self._of_one_card(images, labels, rate)
        return strategy.experimental_local_results(strategy.run(self._of_one_card, (images, labels, rate)))[0]

    def gradients(self, images: Any, labels: Any) -> Tuple[Any, List[Any]]:
        """The loss of one card's batch and the gradients of the weights, multiplied by the loss scale."""
        settings = self._settings
        order = _TRANSPOSED.get((settings.feed_layout, settings.layout))
        if order is not None:
            images = tf.transpose(images, order)
        with tf.GradientTape() as tape:
            logits = tf.cast(self.network(tf.cast(images, self._compute)), tf.float32)
            loss = cross_entropy(logits, labels, settings)
            scaled = loss * settings.loss_scaling if settings.loss_scaling else loss
        return loss, tape.gradient(scaled, [weights for weights, _, _ in self._moved])

    def _of_one_card(self, images: Any, labels: Any, rate: Any) -> Any:
        loss, gradients = self._gradients(images, labels)
        if self._card.strategy is None:
            for (weights, speed, decay), gradient in zip(self._moved, gradients):
                self._move(weights, speed, gradient, rate, decay)
        else:
            context = tf.distribute.get_replica_context()
            context.merge_call(self._move_all, (context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients), rate))
        return loss

    def _move_all(self, strategy: Any, gradients: List[Any], rate: Any) -> None:
        for (weights, speed, decay), gradient in zip(self._moved, gradients):
            strategy.extended.update(weights, self._move, (speed, gradient, rate, decay))

    def _move(self, weights: Any, speed: Any, gradient: Any, rate: Any, decay: float) -> None:
        if self._settings.loss_scaling:
            gradient = gradient * (1.0 / self._settings.loss_scaling)
        if decay:
            gradient = gradient + decay * weights
        tf.raw_ops.ResourceApplyMomentum(
            var=weights.handle, accum=speed.handle, lr=rate, grad=gradient, momentum=self._settings.momentum
        )

    def _decay(self, name: str) -> float:
        spared = name in self.network.weights.norms and not self._settings.decay_norms
        return 0.0 if spared else self._settings.weight_decay

    def _learning_rate(self) -> Any:
        rate = self._settings.rate(self._steps, self._epoch)
        if self._rate[0] != rate:
            self._rate = rate, tf.constant(rate, self._moved[0][0].dtype)
        return self._rate[1]


def cross_entropy(logits: Any, labels: Any, settings: TensorflowSettings) -> Any:
    """The mean cross entropy over a batch, with labels smoothed as in the settings."""
    if not settings.label_smoothing:
        each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    else:
        right, others = settings.label_targets
        each = tf.nn.softmax_cross_entropy_with_logits(tf.one_hot(labels, CLASSES, right, others), logits)
    return tf.reduce_mean(each)


# Lines of a graph's error that only give the place of an operation in the source.
_WHERE = re.compile(r"Graph execution error|Detected at node|\s*File \"|\s*\[\[|Hint:|\s*$")


def plain_error(error: Any, device: str) -> Exception:
    """An operation's error, reduced to what went wrong. For a lack of memory it names the device, which XLA's error
    does not.

    In TensorFlow's error, many lines about the operation's place in the source come before the message.
    """
    lines = [line.strip() for line in str(error.message).splitlines() if not _WHERE.match(line)]
    text = f"{type(error).__name__}: {' '.join(lines)}"
    if not isinstance(error, tf.errors.ResourceExhaustedError):
        return RuntimeError(text)
    if device.startswith("CPU"):
        return MemoryError(text)
    return RuntimeError(f"out of memory error on GPU: {text}")


def check_convolutions(graph: Any, dtype: Any, layout: str, expected: int) -> Dict[str, str]:
    """Counts for the header. Raises Refused unless all convolutions of the graph have the case's type and layout.

    ``graph`` is the GraphDef of a step, as it is given to TensorFlow; the layout optimizer may choose another layout on
    a card.
    """
    found = convolutions_in(graph)
    wanted = (tf.as_dtype(dtype).name, layout)
    if found != {wanted: expected}:
        counted = ", ".join(f"{count} in {' '.join(kind)}" for kind, count in sorted(found.items())) or "none"
        raise Refused(
            f"TensorFlow did not compute the model's {expected} convolutions in {' '.join(wanted)}: it has {counted}"
        )
    return {f"{wanted[0]}_convolutions": str(expected), f"{layout}_convolutions": str(expected)}


def convolutions_in(graph: Any) -> Dict[Tuple[str, str], int]:
    """The numbers of forward convolutions in a graph, by type and layout. Those of functions count at each call."""
    functions = {each.signature.name: each.node_def for each in graph.library.function}
    counted: Dict[str, Counter[Tuple[str, str]]] = {}

    def count(nodes: Any) -> Counter[Tuple[str, str]]:
        found: Counter[Tuple[str, str]] = Counter()
        for node in nodes:
            if node.op == "Conv2D":
                found[tf.as_dtype(node.attr["T"].type).name, node.attr["data_format"].s.decode()] += 1
            elif node.attr["f"].func.name in functions:
                name = node.attr["f"].func.name
                if name not in counted:
                    counted[name] = count(functions[name])
                found.update(counted[name])
        return found

    return dict(count(graph.node))
