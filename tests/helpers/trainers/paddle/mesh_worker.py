"""One of two ranks: trains a small network over the mesh, by DataParallel, and alone on both shares.

``python -m paddle.distributed.launch --nproc_per_node 2 mesh_worker.py FOLDER`` writes FOLDER/rank<k>.npz: the
parameters after STEPS steps of each way, and the losses over the mesh.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import paddle
from paddle import nn

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import DeviceRecord, RankPlace
from helpers.trainers.common.settings import Settings
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.paddle import auto_steps as paddle_auto_steps
from helpers.trainers.paddle import steps as paddle_steps

STEPS = 6
BATCH_SIZE = 2
LEARNING_RATE = 0.1


def network(*ignored: Any) -> nn.Layer:
    """The kinds of layers that VGG16 has, without dropout, whose masks differ between the ways."""
    paddle.seed(5)
    return nn.Sequential(
        nn.Conv2D(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2D(2, stride=2),
        nn.Conv2D(8, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2D(2, stride=2),
        nn.Flatten(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 4),
    )  # fmt: skip


def stepper(kind: Any, ranks: RankPlace) -> Any:
    case = Case.parse("paddle-vgg16-fp32-bs2-1x2-synthetic-dynamic-auto")
    settings = {**settings_for(case, "cpu"), "learning_rate": LEARNING_RATE}
    spec = JobSpec(
        job_id="mesh", case=case, replicate=0, run_folder=".", device="cpu", warmup_steps=0, window_steps=STEPS,
        settings=settings,
    )  # fmt: skip
    return kind(SimpleNamespace(spec=spec, ranks=ranks, device=DeviceRecord()), Settings.of(spec))


def train(step: Any, images: Any, labels: Any) -> list[float]:
    losses = []
    for _ in range(STEPS):
        batch = Batch(paddle.to_tensor(images), paddle.to_tensor(labels), len(labels))
        losses.append(step.loss(step.step(batch)))
    return losses


def parameters(step: Any) -> list[Any]:
    found = step._model.parameters()
    return [(each._local_value() if each.is_dist() else each).numpy() for each in found]


def main(folder: Path) -> None:
    paddle.set_device("cpu")
    paddle.distributed.init_parallel_env()
    rank = paddle.distributed.get_rank()
    paddle_auto_steps.build_model = paddle_steps.build_model = network
    draw = numpy.random.RandomState(0)
    images = draw.rand(2 * BATCH_SIZE, 3, 8, 8).astype("float32")
    labels = draw.randint(0, 4, 2 * BATCH_SIZE).astype("int64")
    own = slice(rank * BATCH_SIZE, (rank + 1) * BATCH_SIZE)
    several, alone = RankPlace(rank, rank, 2), RankPlace(0, 0, 1)
    mesh = stepper(paddle_auto_steps.MeshStep, several)
    losses = train(mesh, images[own], labels[own])
    parallel = stepper(paddle_steps.DynamicStep, several)
    train(parallel, images[own], labels[own])
    single = stepper(paddle_steps.DynamicStep, alone)
    train(single, images, labels)
    arrays = {"losses": numpy.asarray(losses)}
    for name, step in (("mesh", mesh), ("parallel", parallel), ("single", single)):
        arrays.update({f"{name}{index}": array for index, array in enumerate(parameters(step))})
    numpy.savez(folder / f"rank{rank}.npz", **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
