"""Proves that a step computes what its case says, by its weights and by what its convolutions give."""

from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Dict, List

import torch
from torch import nn

from helpers.trainers.common.process import Refused
from helpers.trainers.pytorch.models import FORMATS
from helpers.trainers.pytorch.settings import PytorchSettings

# A compiler's way from a captured graph and example inputs to what runs.
Backend = Callable[[Any, List[Any]], Any]


class Convolutions:
    """Counts the outputs of a model's convolutions by their type and layout, while they are watched.

    Eagerly it listens at the layers, during one step; of a compiled model it reads the graphs that the compiler was
    given, whose values bear the types that they have under the step's autocast.
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
        """``backend``, with a look at each graph that it is to compile."""

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
        """Counts for the header; Refused unless all of the model's convolutions are of the case's type and layout."""
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
    """Refused unless the weights are of the case's type: half at O2, but for batch norm's; else float32."""
    half = getattr(torch, str(settings.amp_dtype)) if settings.amp_level == "O2" else torch.float32
    for name, layer in model.named_modules():
        wanted = torch.float32 if isinstance(layer, nn.BatchNorm2d) else half
        for weights in layer.parameters(recurse=False):
            if weights.dtype is not wanted:
                raise Refused(f"the weights of {name} are {weights.dtype}, not {wanted}")
