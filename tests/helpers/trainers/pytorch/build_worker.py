"""Builds the program of a GPU job without a GPU: ``python -m tests.helpers.trainers.pytorch.build_worker SPEC.json``.

The answer is described in helpers/trainers/common/building.py. The step, with backward pass and optimizer, is run on
PyTorch's FakeTensor, which has types, shapes and layouts but no numbers. It is the step of one card, without the
exchange between cards.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from helpers.trainers.common.building import BuildAnswer, run_build
from helpers.trainers.common.images import Form
from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import DeviceRecord, RankPlace, Refused, not_imported, set_environment
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.pytorch.settings import PytorchSettings


def build(spec: JobSpec, answer: BuildAnswer, environment: MutableMapping[str, str]) -> None:
    """Run the step of ``spec`` on FakeTensor, and fill in ``answer``. Raises Refused if this build of PyTorch
    cannot."""
    settings = PytorchSettings.of(spec)
    environment.update(spec.environment)
    set_environment(spec, settings, environment)
    try:
        import torch
    except ImportError as error:
        raise not_imported("PyTorch", "torch", error) from error
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    from helpers.trainers.pytorch.steps import TrainingStep

    class Counter(TorchDispatchMode):
        """Counts the operators of a step."""

        count = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.count += 1
            return func(*args, **(kwargs or {}))

    answer.facts["framework_version"] = str(torch.__version__)
    if spec.case.cards > 1:
        answer.facts["all_reduce"] = "not in the step without cards"
    if settings.compile_mode is not None:
        raise Refused(
            "torch.compile makes the program of a card with its first step there, so it cannot be built alone"
        )
    if spec.case.graphs:
        answer.facts["graphs"] = "on: the step that is built here is captured on the card alone"
        spec = replace(spec, case=replace(spec.case, graphs=False))
    # The CPU, since PyTorch's backward pass would need a driver for a card, even on FakeTensor.
    mode, device = FakeTensorMode(), torch.device("cpu")

    def place(network: Any) -> Any:
        """Replace the network's weights by fake tensors."""
        with mode:
            for layer in network.modules():
                for name, weights in list(layer.named_parameters(recurse=False)):
                    layer.register_parameter(name, torch.nn.Parameter(mode.from_tensor(weights).detach()))
                for name, state in list(layer.named_buffers(recurse=False)):
                    layer.register_buffer(name, mode.from_tensor(state))
        return network

    trainer: Any = SimpleNamespace(spec=spec, device=DeviceRecord(facts=answer.facts), ranks=RankPlace(0, 0, 1))
    step = TrainingStep(trainer, settings, device, place)
    answer.parameters = step.parameters
    form = Form(settings.feed_layout, settings.input_channels, settings.input_dtype)
    batch_size = spec.case.batch_size_per_card
    with mode, Counter() as counter:
        images = torch.empty(form.shape(batch_size), dtype=getattr(torch, form.dtype), device=device)
        labels = torch.zeros([batch_size], dtype=torch.int64, device=device)
        counter.count = 0
        step.step(Batch(images, labels, batch_size))
    answer.operators = counter.count


if __name__ == "__main__":
    sys.exit(run_build(sys.argv[1:], build))
