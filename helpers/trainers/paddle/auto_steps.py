"""One optimizer step in automatic parallelism, for each ``auto.Way``.

The mesh has one dimension: every card holds all parameters and its own share of each batch, and Paddle derives from
this what must be summed over the cards. At an operator for which it has no rule, it gathers the whole batch on every
card, and from there on all cards do the same work. In 3.3.1 this happens at max pooling. As pooling works on each image
alone, it is applied to the card's own share here (OwnShare). At any other operator the case is refused.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List

import numpy
import paddle.distributed as dist
import paddle.nn.functional as F
from paddle import nn

from helpers.trainers.common.images import Form
from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import Refused, Trainer
from helpers.trainers.paddle.auto import Automatic, Way
from helpers.trainers.paddle.device import apply_options
from helpers.trainers.paddle.program import StaticStep
from helpers.trainers.paddle.settings import PaddleSettings, program_facts
from helpers.trainers.paddle.steps import build_model, build_optimizer, build_schedule, check_casts, loss_of

# Batch, channels, height, width.
_IMAGE_AXES = 4


def automatic_step(automatic: Automatic, trainer: Trainer, settings: PaddleSettings) -> Any:
    """The stepper of the case's way."""
    kinds: Dict[Way, Any] = {Way.SWITCH: StaticStep, Way.MESH: MeshStep, Way.MESH_PROGRAM: MeshProgramStep}
    return kinds[automatic.way](trainer, settings)


class MeshStep:
    """Dynamic execution over a mesh. Its loss is that of this rank's share of the batch."""

    def __init__(self, trainer: Trainer, settings: PaddleSettings) -> None:
        self._mesh = _mesh(trainer)
        self._schedule = build_schedule(settings)
        self._model = _sharded_model(trainer, settings, self._mesh)
        self._watch = _Watch(self._model) if trainer.ranks.world_size > 1 else None
        # Not through dist.shard_optimizer, which supports only AdamW and SGD. Paddle's Momentum does the same on
        # distributed parameters: its velocities are placed like the parameters.
        self._optimizer = build_optimizer(settings, self._schedule, self._model.parameters())

    def begin_epoch(self, number: int) -> None:
        self._schedule.step(number)

    def step(self, batch: Batch) -> Any:
        logits = self._model(self._of_all_ranks(batch.images))
        loss = F.cross_entropy(logits, self._of_all_ranks(batch.labels))
        loss.backward()
        self._optimizer.step()
        self._optimizer.clear_grad()
        if self._watch is not None:
            self._watch.end()
            self._watch = None
        return loss, logits

    def loss(self, handle: Any) -> float:
        loss, logits = (tensor._local_value() for tensor in handle)
        return loss_of(float(loss), float(logits.mean()))

    def _of_all_ranks(self, share: Any) -> Any:
        """The distributed batch of all ranks, of which this rank holds its share. Nothing is copied or sent."""
        return dist.auto_parallel.api.dtensor_from_local(share, self._mesh, _shares())


class MeshProgramStep:
    """Static execution over a mesh: ``dist.to_static`` makes one program of model, loss and optimizer, and partitions
    it."""

    def __init__(self, trainer: Trainer, settings: PaddleSettings) -> None:
        mesh, facts = _mesh(trainer), trainer.device.facts
        dist.auto_parallel.set_mesh(mesh)
        self._schedule = build_schedule(settings)
        model = _sharded_model(trainer, settings, mesh)
        self._program = dist.to_static(
            model,
            None,
            _loss_with_logits if trainer.spec.device == "cpu" else F.cross_entropy,
            build_optimizer(settings, self._schedule, model.parameters()),
            _strategy(settings),
            input_spec=_input_spec(trainer, settings, mesh),
        )
        self._program.train()
        main = self._program.dist_main_program()
        facts.update(program_facts(main, settings))
        check_casts(main, settings)
        refuse_gathered_images(main)
        if settings.amp_level is not None:
            facts["precision"] += " (the suite's choice: today's interface makes none)"

    def begin_epoch(self, number: int) -> None:
        self._schedule.step(number)

    def step(self, batch: Batch) -> Any:
        return self._program(batch.images, batch.labels)

    def loss(self, handle: Any) -> float:
        return float(numpy.asarray(handle).reshape(-1)[0])


class OwnShare(nn.Layer):
    """A layer that works on each image alone; it is applied to the card's share, so that Paddle needs no rule."""

    def __init__(self, layer: Any, mesh: Any) -> None:
        super().__init__()
        self._mesh = mesh
        self.layer = layer

    def forward(self, images: Any) -> Any:
        api = dist.auto_parallel.api
        share = api.dtensor_to_local(images, self._mesh, _shares())
        return api.dtensor_from_local(self.layer(share), self._mesh, _shares())


class _Watch:
    """Checks the outputs of all layers in one step. Raises Refused if a card would work on the shares of other
    cards."""

    def __init__(self, model: Any) -> None:
        self._hooks = [
            layer.register_forward_post_hook(_refuse_gathered(name))
            for name, layer in model.named_sublayers()
            if not list(layer.children())
        ]

    def end(self) -> None:
        for hook in self._hooks:
            hook.remove()


def _refuse_gathered(name: str) -> Callable[[Any, Any, Any], None]:
    def look(layer: Any, inputs: Any, output: Any) -> None:
        if output.is_dist() and output.placements != _shares():
            raise Refused(
                f"this build of Paddle has no rule for {type(layer).__name__} ({name}) over shares of a batch: every "
                "card would work on the whole batch"
            )

    return look


def refuse_gathered_images(program: Any) -> None:
    """Raise Refused if the partitioned program gathers images or feature maps, so that every card works on the whole
    batch."""
    for op in program.global_block().ops:
        if op.name() == "pd_op.all_gather" and len(op.operand_source(0).shape) == _IMAGE_AXES:
            raise Refused("this build of Paddle gathers feature maps: every card would work on the whole batch")


def _mesh(trainer: Trainer) -> Any:
    return dist.ProcessMesh(list(range(trainer.ranks.world_size)), dim_names=["data"])


def _shares() -> List[Any]:
    return [dist.Shard(0)]


def _sharded_model(trainer: Trainer, settings: PaddleSettings, mesh: Any) -> Any:
    """The case's model, with every parameter on every card of the mesh."""
    for kind in ("build_strategy", "execution_strategy", "fleet"):
        apply_options(None, getattr(settings, kind), kind, trainer.device.facts)
    model = build_model(trainer.spec, settings)
    for parent in model.sublayers(include_self=True):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.MaxPool2D):
                parent.add_sublayer(name, OwnShare(layer, mesh))
    return dist.shard_layer(model, mesh)


def _loss_with_logits(logits: Any, labels: Any) -> Any:
    """Cross entropy that is NaN if the logits are: Paddle's own on a CPU is that of a guess then
    (``steps.loss_of``)."""
    return F.cross_entropy(logits, labels) + 0.0 * logits.mean()


def _strategy(settings: PaddleSettings) -> Any:
    strategy = dist.Strategy()
    # Otherwise each step would wait until its loss is on the host.
    strategy.return_numpy = False
    if settings.amp_level is not None:
        strategy.amp.enable = True
        strategy.amp.level = settings.amp_level
        strategy.amp.dtype = settings.amp_dtype
        strategy.amp.use_dynamic_loss_scaling = settings.loss_scaling is not None
        strategy.amp.init_loss_scaling = settings.loss_scaling or 1.0
        for name, value in settings.loss_scaling_rule.items():
            setattr(strategy.amp, name, value)
    return strategy


def _input_spec(trainer: Trainer, settings: PaddleSettings, mesh: Any) -> List[List[Any]]:
    from paddle.distributed.auto_parallel.static.dist_input_spec import DistributedInputSpec

    batch_size, ranks = trainer.spec.case.batch_size_per_card, trainer.ranks.world_size
    form = Form(settings.feed_layout, settings.input_channels, settings.input_dtype)

    def spec(name: str, dtype: str, shape: List[int]) -> Any:
        return DistributedInputSpec(
            shape=[batch_size * ranks, *shape], dtype=dtype, name=name, stop_gradient=True, mesh=mesh,
            placements=_shares(), local_shape=[batch_size, *shape],
        )  # fmt: skip

    images = spec("images", form.dtype, list(form.shape(batch_size))[1:])
    return [[images], [spec("labels", "int64", [])]]
