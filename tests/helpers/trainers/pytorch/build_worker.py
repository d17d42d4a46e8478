"""Builds the program of a GPU job without a GPU. The step, with backward pass and optimizer, is run on PyTorch's
FakeTensor, which has types, shapes and layouts but no numbers. It is the step of one card, without the exchange between
cards.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from helpers.trainers.common.images import Form
from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import DeviceRecord, RankPlace
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.pytorch import steps
from helpers.trainers.pytorch.models import network_of
from helpers.trainers.pytorch.settings import PytorchSettings


class Counter(TorchDispatchMode):
    """Counts the operators of a step."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def build(spec: JobSpec, settings: PytorchSettings) -> dict[str, Any]:
    """Run the step of ``spec`` on FakeTensor."""
    # The CPU, since PyTorch's backward pass would need a driver for a card, even on FakeTensor.
    mode, device = FakeTensorMode(), torch.device("cpu")

    def fake_network(*arguments: Any) -> Any:
        """The network with fake tensors as its weights."""
        network = network_of(*arguments)
        with mode:
            for layer in network.modules():
                for name, weights in list(layer.named_parameters(recurse=False)):
                    layer.register_parameter(name, torch.nn.Parameter(mode.from_tensor(weights).detach()))
                for name, state in list(layer.named_buffers(recurse=False)):
                    layer.register_buffer(name, mode.from_tensor(state))
        # It is on the device already.
        network.to = lambda device: network
        return network

    trainer: Any = SimpleNamespace(spec=spec, device=DeviceRecord(), ranks=RankPlace(0, 0, 1))
    with mock.patch.object(steps, "network_of", fake_network):
        step = steps.TrainingStep(trainer, settings, device)
    form = Form(settings.feed_layout, settings.input_channels, settings.input_dtype)
    batch_size = spec.case.batch_size_per_card
    with mode, Counter() as counter:
        images = torch.empty(form.shape(batch_size), dtype=getattr(torch, form.dtype), device=device)
        labels = torch.zeros([batch_size], dtype=torch.int64, device=device)
        counter.count = 0
        step.step(Batch(images, labels, batch_size))
    parameters = sum(each.numel() for each in step.layers.parameters())
    return {"facts": trainer.device.facts, "operators": counter.count, "parameters": parameters}
