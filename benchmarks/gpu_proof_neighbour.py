"""A stranger on a card: a process beside the suite, in PyTorch's own interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from helpers.launch.peaks import card_environment
from helpers.machine.devices import Card
from helpers.machine.nvml import Gpu
from helpers.trainers.contract.errors import LaunchError

_BUSY_CPU = "print('ready', flush=True)\nwhile True: pass\n"
_BUSY_GPU = """
import torch
left = torch.randn(4096, 4096, device="cuda")
print("ready", flush=True)
while True:
    left @ left
    torch.cuda.synchronize()
"""


@contextmanager
def neighbour(card: Card, interpreter: str) -> Iterator[int]:
    """A process that keeps the card busy, or a CPU card's first core; its id. Raises LaunchError where it ends."""
    on_gpu = isinstance(card, Gpu)
    argv: Sequence[str] = [interpreter, "-c", _BUSY_GPU] if on_gpu else [sys.executable, "-c", _BUSY_CPU]
    process = subprocess.Popen(
        argv, env=card_environment(card), cwd=Path("/"), preexec_fn=_pin(card), stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            if process.stdout is None or process.stdout.readline().strip() != "ready":
                process.kill()
                said = (process.communicate()[1] or "no word").strip().splitlines()
                raise LaunchError("a process beside the job", got=said[-1], expected="one that keeps the card busy")
            yield process.pid
        finally:
            process.kill()


def _pin(card: Card) -> Callable[[], None] | None:
    return None if isinstance(card, Gpu) else lambda: os.sched_setaffinity(0, card.cores)
