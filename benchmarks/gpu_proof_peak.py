"""The measured peak of a card, and a stranger on it: programs beside the suite, in PyTorch's own interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from helpers.devices import Card, Machine
from helpers.errors import LaunchError
from helpers.launch.launcher import ROOT
from helpers.leases import Leases, default_folder
from helpers.nvml import Gpu
from helpers.utilisation import Peak

_PROBE = "helpers.trainers.pytorch_peak"
_PROBE_SECONDS = 120.0
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_BUSY_CPU = "print('ready', flush=True)\nwhile True: pass\n"
_BUSY_GPU = """
import torch
left = torch.randn(4096, 4096, device="cuda")
print("ready", flush=True)
while True:
    left @ left
    torch.cuda.synchronize()
"""


def measure_peak(machine: Machine, device: str, interpreter: str, precision: str) -> Peak:
    """With the card leased, so that nobody else of this suite is on it. Raises LaunchError and ResultError."""
    with Leases(default_folder(machine.host_id)).lease(machine.cards_of(device), 1, f"peak {precision}") as lease:
        (card,) = lease.cards
        argv = [interpreter, "-m", _PROBE, precision, device]
        try:
            done = subprocess.run(
                argv, env=environment_of(card), cwd=ROOT, preexec_fn=_pin(card), capture_output=True, text=True,
                timeout=_PROBE_SECONDS, check=True,
            )  # fmt: skip
            record = json.loads(done.stdout.strip().splitlines()[-1])
        except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
            said = (getattr(error, "stderr", None) or str(error) or repr(error)).strip().splitlines()
            raise LaunchError(f"{_PROBE} {precision} {device}", got=said[-1], expected="a measured peak") from error
    return Peak.from_record(record, f"{_PROBE} {precision} {device}")


def environment_of(card: Card, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Shows the card, a GPU by its UUID, and gives a CPU's cores as many threads."""
    own = {"PYTHONPATH": f"{ROOT}:{inherited['PYTHONPATH']}" if inherited.get("PYTHONPATH") else str(ROOT)}
    if isinstance(card, Gpu):
        own |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": card.uuid}
    else:
        own |= {"CUDA_VISIBLE_DEVICES": "", **dict.fromkeys(_THREADS, str(len(card.cores)))}
    return {**inherited, **own}


@contextmanager
def neighbour(card: Card, interpreter: str) -> Iterator[int]:
    """A process that keeps the card busy, or a CPU card's first core; its id. Raises LaunchError where it ends."""
    on_gpu = isinstance(card, Gpu)
    argv: Sequence[str] = [interpreter, "-c", _BUSY_GPU] if on_gpu else [sys.executable, "-c", _BUSY_CPU]
    process = subprocess.Popen(
        argv, env=environment_of(card), cwd=Path("/"), preexec_fn=_pin(card), stdout=subprocess.PIPE,
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


def _pin(card: Card):  # type: ignore[no-untyped-def] # a function of none to none, or nothing
    return None if isinstance(card, Gpu) else lambda: os.sched_setaffinity(0, card.cores)
