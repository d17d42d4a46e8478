"""One optimizer step in PyTorch (eager, compiled with ``torch.compile``, or as a CUDA graph); and checks that it
computes as its case says."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import Counter
from typing import Any, Callable, ContextManager, Dict, List, Optional

import torch
import torch.nn.functional as F
from torch import nn

from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import Refused, Trainer
from helpers.trainers.common.settings import on
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.pytorch.models import FORMATS, network_of
from helpers.trainers.pytorch.settings import PytorchSettings

# A compiler: takes a captured graph and example inputs, and returns a function.
Backend = Callable[[Any, List[Any]], Any]


class Convolutions:
    """Counts the outputs of a model's convolutions by type and layout.

    In an eager model it listens to the layers during one step. For a compiled model it reads the graphs that the
    compiler gets; their values have the types that they have under the step's autocast.
    """

    def __init__(self) -> None:
        self._types: Counter[str] = Counter()
        self._layouts: Counter[str] = Counter()
        self._hooks: List[Any] = []
        self.graphs = 0

    def listen(self, model: nn.Module) -> None:
        for layer in model.modules():
            if isinstance(layer, nn.Conv2d):
                self._hooks.append(layer.register_forward_hook(lambda layer, given, output: self._count(output)))

    def stop(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def reading(self, backend: Backend) -> Backend:
        """``backend``, extended to count the convolutions of each graph that it compiles."""

        def compile_graph(graph: Any, inputs: List[Any]) -> Any:
            self.graphs += 1
            layers = dict(graph.named_modules())
            for node in graph.graph.nodes:
                layer = isinstance(layers.get(node.target), nn.Conv2d) if node.op == "call_module" else False
                if layer or (node.op == "call_function" and node.target is torch.conv2d):
                    self._count(node.meta["example_value"])
            return backend(graph, inputs)

        return compile_graph

    def _count(self, output: Any) -> None:
        self._types[str(output.dtype).rpartition(".")[2]] += 1
        for name, layout in FORMATS.items():
            self._layouts[name] += output.is_contiguous(memory_format=layout)

    def check(self, settings: PytorchSettings, model: nn.Module) -> Dict[str, str]:
        """Counts for the header. Raises Refused unless all convolutions of the model have the case's type and
        layout."""
        of = sum(isinstance(layer, nn.Conv2d) for layer in model.modules())
        wanted = settings.amp_dtype or "float32"
        cast, laid = self._types[wanted], self._layouts[settings.layout]
        if not of or cast != of or sum(self._types.values()) != of:
            counted = f"{cast} of {of} are ({dict(self._types)})"
            raise Refused(f"PyTorch did not compute the model's convolutions in {wanted}: {counted}")
        if laid != of:
            raise Refused(f"PyTorch did not compute the model's convolutions in {settings.layout}: {laid} of {of} are")
        return {f"{wanted}_convolutions": str(cast), f"{settings.layout}_convolutions": str(laid)}


def check_weights(model: nn.Module, settings: PytorchSettings) -> None:
    """Raise Refused unless the weights have the case's type: half precision at O2 (except batch norm's), else
    float32."""
    half = getattr(torch, str(settings.amp_dtype)) if settings.amp_level == "O2" else torch.float32
    for name, layer in model.named_modules():
        wanted = torch.float32 if isinstance(layer, nn.BatchNorm2d) else half
        for weights in layer.parameters(recurse=False):
            if weights.dtype is not wanted:
                raise Refused(f"the weights of {name} are {weights.dtype}, not {wanted}")


# Eager steps before a capture. They fill the optimizer's state and choose cuDNN's algorithms, which may wait for the
# device.
EAGER_STEPS = 3


def build_model(spec: JobSpec, settings: PytorchSettings, device: Any) -> nn.Module:
    """The case's model in training mode, with fresh weights on the device, at O2 in half precision except batch
    norm."""
    known = spec.case.model.spec
    model = network_of(known, settings.layout, settings.input_channels, settings.feed_layout).to(device)
    if settings.amp_level == "O2":
        half = getattr(torch, str(settings.amp_dtype))
        for layer in model.modules():
            if not isinstance(layer, nn.BatchNorm2d):
                for weights in layer.parameters(recurse=False):
                    weights.data = weights.data.to(half)
    check_weights(model, settings)
    return model.train()


class MasterCopies:
    """Float32 copies of the weights that are in half precision. The optimizer updates the copies."""

    def __init__(self, model: nn.Module) -> None:
        self._halves = [each for each in model.parameters() if each.dtype is not torch.float32]
        self._copies = [each.detach().float() for each in self._halves]
        self._of = dict(zip(map(id, self._halves), self._copies))

    def __len__(self) -> int:
        return len(self._copies)

    def of(self, weights: Any) -> Any:
        """The tensor that the optimizer updates for these weights: their copy, or the weights themselves if they are
        float32."""
        return self._of.get(id(weights), weights)

    def take_gradients(self) -> None:
        for half, copy in zip(self._halves, self._copies):
            copy.grad = half.grad.float()
            half.grad = None

    def give_weights(self) -> None:
        if self._halves:
            with torch.no_grad():
                torch._foreach_copy_(self._halves, self._copies)


def build_optimizer(model: nn.Module, copies: MasterCopies, settings: PytorchSettings) -> Any:
    """SGD as Paddle's Momentum: v = momentum v + (gradient + decay w), w = w - rate v."""
    decayed: List[Any] = []
    spared: List[Any] = []
    for layer in model.modules():
        spare = isinstance(layer, nn.BatchNorm2d) and not settings.decay_norms
        (spared if spare else decayed).extend(copies.of(each) for each in layer.parameters(recurse=False))
    groups = [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": spared, "weight_decay": 0.0}]
    # Fused, it handles loss scale and overflows on the device; otherwise GradScaler waits for the device at every step.
    optimizer = torch.optim.SGD(
        [group for group in groups if group["params"]],
        lr=settings.learning_rate,
        momentum=settings.momentum,
        fused=True,
    )
    for weights in decayed + spared:
        # The first step would make its own buffers uninitialised, and use them as they are if that step overflowed.
        optimizer.state[weights]["momentum_buffer"] = torch.zeros_like(weights)
    return optimizer


def build_scaler(settings: PytorchSettings, device: Any) -> Any:
    """The scaler of the loss; it lowers its scale at each overflow, whatever decr_every_n_nan_or_inf says."""
    if settings.loss_scaling is None:
        return None
    rule = settings.loss_scaling_rule
    return torch.amp.GradScaler(
        device.type,
        init_scale=settings.loss_scaling,
        growth_factor=rule["incr_ratio"],
        backoff_factor=rule["decr_ratio"],
        growth_interval=int(rule["incr_every_n_steps"]),
    )


class TrainingStep:
    """Forward, backward and SGD; several ranks average their gradients through DistributedDataParallel."""

    def __init__(self, trainer: Trainer, settings: PytorchSettings, device: Any) -> None:
        spec, self._facts = trainer.spec, trainer.device.facts
        self._settings = settings
        self._model = build_model(spec, settings, device)
        self._copies = MasterCopies(self._model)
        self._optimizer = build_optimizer(self._model, self._copies, settings)
        self._scaler = build_scaler(settings, device)
        self._proof: Optional[Convolutions] = Convolutions()
        self._forward: Any = self._model
        if settings.amp_level == "O2":
            self._facts["master_copies"] = str(len(self._copies))
        if trainer.ranks.world_size > 1:
            ids = [device.index] if device.type == "cuda" else None
            self._forward = nn.parallel.DistributedDataParallel(self._model, device_ids=ids, **settings.ddp)
        if settings.compile_mode is not None:
            self._forward = torch.compile(self._forward, backend=self._proof.reading(_inductor()))
            # The check reads the graphs that Inductor gets. With this option on, Inductor may compute NCHW as
            # channels_last.
            self._facts["inductor_layout_optimization"] = on(_inductor_lays_out())
        self._autocast: Callable[[], ContextManager[Any]] = contextlib.nullcontext
        if settings.amp_level == "O1":
            dtype = getattr(torch, str(settings.amp_dtype))
            self._autocast = lambda: torch.autocast(device.type, dtype)
        self._cast = getattr(torch, str(settings.amp_dtype)) if settings.amp_level == "O2" else None
        self._run: Callable[[Any, Any], Any] = self.train
        if spec.case.graphs:
            if spec.warmup_steps <= EAGER_STEPS:
                raise Refused(f"CUDA graphs need a warm-up of more than {EAGER_STEPS} steps to be captured in")
            self._run = GraphedStep(self.train)

    @property
    def layers(self) -> Any:
        """The model, if its layers are called one by one in every step; None if it is compiled or replayed as a
        graph."""
        return self._model if self._settings.compile_mode is None and self._run == self.train else None

    def begin_epoch(self, number: int) -> None:
        """Set the learning rate of the epoch."""
        settings = self._settings
        rate = settings.learning_rates[bisect_right(settings.learning_rate_boundaries, number)]
        for group in self._optimizer.param_groups:
            if group["lr"] != rate and isinstance(self._run, GraphedStep):
                # A graph contains the rate as a constant, so a new graph is needed.
                self._run = GraphedStep(self.train)
            group["lr"] = rate

    def step(self, batch: Batch) -> Any:
        if self._proof is None:
            return self._run(batch.images, batch.labels)
        if self._settings.compile_mode is None:
            self._proof.listen(self._model)
        loss = self._run(batch.images, batch.labels)
        self._proof.stop()
        self._facts.update(self._proof.check(self._settings, self._model))
        if self._settings.compile_mode is not None:
            self._facts["compiled_graphs"] = str(self._proof.graphs)
        self._proof = None
        return loss

    def loss(self, handle: Any) -> float:
        return float(handle)

    def train(self, images: Any, labels: Any) -> Any:
        """Train one step without the loop's bookkeeping; returns the loss."""
        loss = self.forward(images, labels)
        self.backward(loss)
        self.optimize()
        return loss.detach()

    def forward(self, images: Any, labels: Any) -> Any:
        """The loss of a batch."""
        with self._autocast():
            logits = self._forward(images if self._cast is None else images.to(self._cast))
        return F.cross_entropy(logits.float(), labels)

    def backward(self, loss: Any) -> None:
        (loss if self._scaler is None else self._scaler.scale(loss)).backward()

    def optimize(self) -> None:
        self._copies.take_gradients()
        if self._scaler is None:
            self._optimizer.step()
        else:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        self._copies.give_weights()
        self._optimizer.zero_grad(set_to_none=True)


class GraphedStep:
    """A step that is captured as one CUDA graph after EAGER_STEPS steps, and then replayed on fixed tensors."""

    def __init__(self, train: Callable[[Any, Any], Any]) -> None:
        self._train = train
        self._steps = 0
        self._graph: Any = None
        self._side: Any = None
        self._fixed: Dict[str, Any] = {}

    def __call__(self, images: Any, labels: Any) -> Any:
        self._steps += 1
        if self._steps <= EAGER_STEPS:
            return self._eager(images, labels)
        if self._graph is None:
            self._capture(images, labels)
        self._fixed["images"].copy_(images)
        self._fixed["labels"].copy_(labels)
        self._graph.replay()
        return self._fixed["loss"]

    def _eager(self, images: Any, labels: Any) -> Any:
        # On a side stream, as capturing requires: memory allocated on the default stream could not be captured. The
        # same side stream for all steps, since streams do not share freed memory.
        stream = self._side = self._side or torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss = self._train(images, labels)
        torch.cuda.current_stream().wait_stream(stream)
        return loss

    def _capture(self, images: Any, labels: Any) -> None:
        self._fixed = {"images": images.clone(), "labels": labels.clone()}
        self._graph = torch.cuda.CUDAGraph()
        # Otherwise calls of a loader's thread to the device would abort the capture.
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._fixed["loss"] = self._train(self._fixed["images"], self._fixed["labels"])


def _inductor() -> Any:
    from torch._dynamo import lookup_backend

    return lookup_backend("inductor")


def _inductor_lays_out() -> bool:
    from torch._inductor import config

    return bool(config.layout_optimization)
