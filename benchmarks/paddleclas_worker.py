"""PaddleClas's own static training as a worker: ``python -m benchmarks.paddleclas_worker FOLDER --data ROOT``.

``ppcls/static/train.py`` runs as it stands, from its configuration to its printed lines; only what it takes its
batches from is wrapped, so that its loop stops where a block of steps ends. FOLDER is a copy of PaddleClas, ROOT a
folder with ``train_list.txt``. It runs in an interpreter that has Paddle and what PaddleClas needs.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from helpers.trainers.contract.blocks import StepBlock, Stopwatch, reply, requests

CONFIGURATION = "ppcls/configs/ImageNet/ResNet/ResNet50.yaml"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="Train with this copy of PaddleClas")
    parser.add_argument("--data", required=True, metavar="ROOT", help="Train on this folder with train_list.txt")
    parser.add_argument("--batch-size", type=int, default=8, help="Train on N images a step")
    parser.add_argument("--learning-rate", type=float, required=True, help="Take RATE, as it stands")
    parser.add_argument("--cores", type=int, nargs="+", required=True, help="Pin the process to these cores")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, arguments.cores)
    threads = str(len(arguments.cores))
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads))
    sys.path.insert(0, arguments.folder)
    with tempfile.TemporaryDirectory() as output:
        train(arguments, output)
    return 0


def train(arguments: argparse.Namespace, output: str) -> None:
    import paddle

    paddle.enable_static()
    program: Any = importlib.import_module("ppcls.static.train")
    build = program.build_dataloader
    facts = {"framework_version": str(paddle.__version__), "threads": os.environ["OMP_NUM_THREADS"]}
    program.build_dataloader = lambda *args, **named: _Turns(build(*args, **named), facts)
    program.main(
        argparse.Namespace(
            config=str(Path(arguments.folder) / CONFIGURATION),
            override=[f"{name}={value}" for name, value in overrides(arguments, output).items()],
            profiler_options=None,
        )
    )


def overrides(arguments: argparse.Namespace, output: str) -> Mapping[str, object]:
    """What PaddleClas's configuration leaves to the place it runs in."""
    rates = [arguments.learning_rate * 0.1**passed for passed in range(4)]
    return {
        "Global.device": "cpu",
        "Global.output_dir": output,
        "Global.eval_during_train": False,
        "Optimizer.lr.learning_rate": rates[0],
        "Optimizer.lr.values": rates,
        "DataLoader.Train.dataset.image_root": arguments.data,
        "DataLoader.Train.dataset.cls_label_path": str(Path(arguments.data) / "train_list.txt"),
        "DataLoader.Train.sampler.batch_size": arguments.batch_size,
        "DataLoader.Train.sampler.drop_last": True,
        # It reads in a thread, as it does on a CPU.
        "DataLoader.Train.loader.num_workers": 0,
        "DataLoader.Train.loader.use_shared_memory": False,
    }


class _Turns:
    """PaddleClas's loader, epoch after epoch, as one that has no end before the last block has."""

    def __init__(self, loader: Any, facts: Mapping[str, str]) -> None:
        self._loader = loader
        self._facts = facts

    def __len__(self) -> int:
        return len(self._loader)

    def __call__(self) -> Iterator[Any]:
        batches = self._batches()
        for asked in requests(self._facts):
            stopwatch = Stopwatch()
            reader_seconds = 0.0
            for _ in range(asked.steps):
                started = time.perf_counter()
                batch = next(batches)
                reader_seconds += time.perf_counter() - started
                # The step, and all that PaddleClas does around it, until it wants the next batch.
                yield batch
            reply(StepBlock(asked.steps, *stopwatch.read(), 0.0, reader_seconds))
        # Nothing is left to be printed or saved for.
        sys.exit(0)

    def _batches(self) -> Iterator[Any]:
        while True:
            yield from self._loader()


if __name__ == "__main__":
    sys.exit(main())
