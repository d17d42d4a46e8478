"""One optimizer step in TensorFlow, traced once as a graph, on one card or mirrored over several; and checks that it
computes as its case says."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple

import tensorflow as tf

from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import Refused, Trainer
from helpers.trainers.contract.models import CLASSES
from helpers.trainers.tensorflow.device import Cards
from helpers.trainers.tensorflow.models import NetworkForm, network_of
from helpers.trainers.tensorflow.operations import OPTIMIZER
from helpers.trainers.tensorflow.settings import WHOLE_STEP, TensorflowSettings

# With so many steps in its rule, the loss scale never changes.
_NEVER_STEPS = 10**9
_TRANSPOSED = {("NHWC", "NCHW"): [0, 3, 1, 2], ("NCHW", "NHWC"): [0, 2, 3, 1]}


def form_of(settings: TensorflowSettings, seed: int) -> NetworkForm:
    return NetworkForm(
        settings.layout, settings.input_channels, seed, settings.batch_norm_momentum, settings.batch_norm_epsilon
    )


class LossScale:
    """The loss scale and the steps since it changed, on the device.

    If the rule never changes it, gradients are not checked. Otherwise a step with a gradient that is not finite changes
    no weight.
    """

    def __init__(self, settings: TensorflowSettings) -> None:
        first, self._rule = settings.loss_scaling, settings.loss_scaling_rule
        steps = [self._rule[name] for name in ("incr_every_n_steps", "decr_every_n_nan_or_inf")] if first else []
        self.moves = bool(steps) and min(steps) < _NEVER_STEPS
        self.value: Any = 1.0 if first is None else first
        if self.moves:
            self.value, self._good, self._bad = (
                tf.Variable(value, trainable=False) for value in (float(self.value), 0.0, 0.0)
            )

    def move(self, update: Callable[..., Any], finite: Any) -> None:
        """Update the scale after a step. ``update`` is called with a variable, a function, and the other arguments of
        that function."""
        update(self.value, self._moved, (self._good, self._bad, finite))

    def _moved(self, scale: Any, good: Any, bad: Any, finite: Any) -> None:
        rule = self._rule
        goods = tf.where(finite, good + 1.0, 0.0)
        bads = tf.where(finite, 0.0, bad + 1.0)
        rises, falls = goods >= rule["incr_every_n_steps"], bads >= rule["decr_every_n_nan_or_inf"]
        fallen = tf.where(falls, tf.maximum(scale * rule["decr_ratio"], 1.0), scale)
        scale.assign(tf.where(rises, scale * rule["incr_ratio"], fallen))
        good.assign(tf.where(rises, 0.0, goods))
        bad.assign(tf.where(falls, 0.0, bads))


class TrainingStep:
    """Forward, backward and SGD with momentum: v = momentum v + (gradient + decay w), w = w - rate v.

    Several cards average their gradients. If XLA compiles whole steps, it compiles the complete step of a single card,
    but only forward and backward of several cards, since XLA has no operation for their exchange.
    """

    def __init__(
        self, trainer: Trainer, settings: TensorflowSettings, cards: Cards, form: Optional[NetworkForm] = None
    ) -> None:
        """``form`` is by default that of the settings."""
        spec = trainer.spec
        form = form or form_of(settings, spec.seed)
        self._settings, self._cards, self._facts = settings, cards, trainer.device.facts
        self._compute = tf.as_dtype(settings.amp_dtype or form.dtype)
        with cards.scope():
            self.network = network_of(spec.case.model.spec, form)
            trained = self.network.weights.trained
            # Each weight with its momentum and its decay.
            self._moved = [
                (weights, tf.Variable(tf.zeros_like(weights), trainable=False), self._decay(name))
                for name, weights in trained.items()
            ]
            self._scale = LossScale(settings)
        whole = settings.xla_mode == WHOLE_STEP
        self._gradients: Any = self.gradients
        if whole and cards.strategy is not None:
            self._gradients = tf.function(self.gradients, jit_compile=True, autograph=False)
        compiled = whole and cards.strategy is None
        self._run: Any = tf.function(self.train, jit_compile=compiled or None, autograph=False)
        self._proven = False
        self._steps, self._epoch = 0, 0
        self._rate: Tuple[Optional[float], Any] = (None, None)

    @property
    def layers(self) -> Set[str]:
        """The names of the layers that have weights, and of those that hold them."""
        names = [name.rpartition(".")[0] for name in self.network.weights.trained]
        return {".".join(name.split(".")[:depth]) for name in names for depth in range(1, name.count(".") + 2)}

    def begin_epoch(self, number: int) -> None:
        self._epoch = number

    def step(self, batch: Batch) -> Any:
        """Train on the batch, a list with each card's part. Returns the mean loss over this process's cards."""
        arguments = self._cards.each(batch.images), self._cards.each(batch.labels), self._learning_rate()
        if not self._proven:
            self.graph(*arguments)
            self._proven = True
        self._steps += 1
        try:
            return self._run(*arguments)
        except tf.errors.OpError as error:
            raise plain_error(error, self._cards.devices[0]) from error

    def graph(self, *arguments: Any) -> Any:
        """The GraphDef of a step with the given images, labels and rate (tensors or their TensorSpec). Nothing is run.

        The convolutions in it are added to the facts. Raises Refused if they do not have the case's type and layout.
        """
        graph = self._run.get_concrete_function(*arguments).graph.as_graph_def()
        expected = self.network.convolutions * len(self._cards)
        self._facts.update(check_convolutions(graph, self._compute, self._settings.layout, expected))
        return graph

    def loss(self, handle: Any) -> float:
        try:
            return float(handle)
        except tf.errors.OpError as error:
            raise plain_error(error, self._cards.devices[0]) from error

    def train(self, images: Any, labels: Any, rate: Any) -> Any:
        """The graph of a step."""
        strategy = self._cards.strategy
        if strategy is None:
            return self._of_one_card(images, labels, rate)
        losses = strategy.experimental_local_results(strategy.run(self._of_one_card, (images, labels, rate)))
        return tf.add_n(losses) / len(losses)

    def gradients(self, images: Any, labels: Any) -> Tuple[Any, List[Any]]:
        """The loss of one card's batch and the gradients of the weights, multiplied by the loss scale."""
        settings = self._settings
        order = _TRANSPOSED.get((settings.feed_layout, settings.layout))
        if order is not None:
            images = tf.transpose(images, order)
        with tf.GradientTape() as tape:
            logits = tf.cast(self.network(tf.cast(images, self._compute)), tf.float32)
            loss = cross_entropy(logits, labels, settings)
            scaled = loss * self._scale.value if settings.loss_scaling else loss
        return loss, tape.gradient(scaled, [weights for weights, _, _ in self._moved])

    def _of_one_card(self, images: Any, labels: Any, rate: Any) -> Any:
        loss, gradients = self._gradients(images, labels)
        if self._cards.strategy is None:
            self._move(_update, gradients, rate, self._finite(gradients))
        else:
            context = tf.distribute.get_replica_context()
            gradients = context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
            context.merge_call(self._move_all, (gradients, rate, self._finite(gradients)))
        return loss

    def _move_all(self, strategy: Any, gradients: List[Any], rate: Any, finite: Any) -> None:
        def update(variable: Any, move: Callable[..., Any], given: Tuple[Any, ...]) -> None:
            strategy.extended.update(variable, move, given)

        self._move(update, gradients, rate, finite)

    def _move(self, update: Callable[..., Any], gradients: Sequence[Any], rate: Any, finite: Any) -> None:
        with tf.name_scope(OPTIMIZER):
            self._move_each(update, gradients, rate, finite)

    def _move_each(self, update: Callable[..., Any], gradients: Sequence[Any], rate: Any, finite: Any) -> None:
        scale, momentum = self._scale, self._settings.momentum
        for (weights, speed, decay), gradient in zip(self._moved, gradients):
            factor = scale.value if self._settings.loss_scaling else None
            given = {"speed": speed, "gradient": gradient, "rate": rate, "scale": factor, "finite": finite}
            present = {name: value for name, value in given.items() if value is not None}

            def move(weights: Any, *values: Any, names: Any = tuple(present), decay: float = decay) -> None:
                _momentum_step(weights, dict(zip(names, values)), decay, momentum)

            update(weights, move, tuple(present.values()))
        if scale.moves:
            scale.move(update, finite)

    def _finite(self, gradients: Sequence[Any]) -> Any:
        """Whether all gradients of a card are finite (they are equal on all cards); None if the loss scale never
        changes."""
        if not self._scale.moves:
            return None
        return tf.reduce_all([tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients])

    def _decay(self, name: str) -> float:
        spared = name in self.network.weights.norms and not self._settings.decay_norms
        return 0.0 if spared else self._settings.weight_decay

    def _learning_rate(self) -> Any:
        rate = self._settings.rate(self._steps, self._epoch)
        if self._rate[0] != rate:
            self._rate = rate, tf.constant(rate, self._moved[0][0].dtype)
        return self._rate[1]


def _update(variable: Any, move: Callable[..., Any], given: Tuple[Any, ...]) -> None:
    move(variable, *given)


def _momentum_step(weights: Any, given: Mapping[str, Any], decay: float, momentum: float) -> None:
    gradient, rate, finite = given["gradient"], given["rate"], given.get("finite")
    share: Any = momentum
    if "scale" in given:
        gradient = gradient * (1.0 / given["scale"])
    if decay:
        gradient = gradient + decay * weights
    if finite is not None:
        # If it is not finite, neither the weight nor its momentum changes.
        gradient = tf.where(finite, gradient, 0.0)
        rate, share = tf.where(finite, rate, 0.0), tf.where(finite, momentum, 1.0)
    tf.raw_ops.ResourceApplyMomentum(
        var=weights.handle, accum=given["speed"].handle, lr=rate, grad=gradient, momentum=tf.cast(share, weights.dtype)
    )


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
