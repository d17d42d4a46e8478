"""A PyTorch training loop as a user would write it; helpers/session/lockstep.py compares the trainer with it.

``python -m helpers.trainers.pytorch.bare_loop --cores 0 --steps 10`` prints its images/s. The model is the trainer's,
because PyTorch itself has no models; step, optimizer, precision and batch are written out here.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any

from helpers.trainers.contract.blocks import StepBlock, Stopwatch, Train, add_loop_arguments, run_bare_loop


def main() -> int:
    return run_bare_loop(_parser().parse_args(), training)


def training(arguments: argparse.Namespace) -> Train:
    """Returns a function that trains a given number of steps on one batch of noise."""
    import torch
    import torch.nn.functional as F

    from helpers.trainers.contract.models import Model
    from helpers.trainers.pytorch.models import network_of

    device = torch.device(arguments.device)
    on_gpu = device.type == "cuda"
    torch.backends.cudnn.benchmark = arguments.cudnn_benchmark
    if arguments.tf32 is not None:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = arguments.tf32 == "on"
    torch.manual_seed(1234)
    model = network_of(Model.RESNET50.spec).to(device).train()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=arguments.learning_rate, momentum=0.9, weight_decay=1e-4, fused=True
    )
    for weights in model.parameters():
        # The fused step makes its buffer uninitialised, and leaves it so if the first loss overflows.
        optimizer.state[weights]["momentum_buffer"] = torch.zeros_like(weights)
    images = torch.randn(arguments.batch_size, 3, 224, 224, device=device)
    labels = torch.randint(0, 1000, (arguments.batch_size,), device=device)
    scale = arguments.loss_scaling
    scaler = None if scale is None else torch.amp.GradScaler(device.type, init_scale=scale, growth_interval=10**9)

    def autocast() -> Any:
        if arguments.amp_dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(device.type, getattr(torch, arguments.amp_dtype))

    def train(steps: int) -> StepBlock:
        stopwatch = Stopwatch()
        for _ in range(steps):
            with autocast():
                loss = F.cross_entropy(model(images), labels)
            if scaler is None:
                loss.backward()
                optimizer.step()
            else:
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            optimizer.zero_grad(set_to_none=True)
        if on_gpu:
            torch.cuda.synchronize(device)
        return StepBlock(steps, *stopwatch.read())

    return train


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Train ResNet50 v1.5 in a bare PyTorch loop.")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="Train there")
    parser.add_argument("--amp-dtype", choices=("bfloat16", "float16"), help="Train under autocast in this type")
    parser.add_argument("--loss-scaling", type=float, help="Scale the loss by this number, which stays")
    parser.add_argument("--tf32", choices=("on", "off"), help="Force TF32. Default: as the build has it")
    parser.add_argument("--cudnn-benchmark", action="store_true", help="Let cuDNN search for its fastest algorithms")
    add_loop_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
