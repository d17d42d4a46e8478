"""DALI's Paddle plugin, as on a GPU, but over a pipeline on the CPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from PIL import Image

paddle: Any = pytest.importorskip("paddle")
pytest.importorskip("nvidia.dali")

from helpers.errors import DatasetError  # noqa: E402
from helpers.trainers import paddle_data  # noqa: E402
from helpers.trainers.data import DaliPlan, DaliSource, Form, ImageList, Share  # noqa: E402
from helpers.trainers.settings import Augmentation, Dali  # noqa: E402

LABELS = (7, 400, 999)


@pytest.fixture
def reader_with_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the reader of a GPU's rank; the feed is given."""
    for label in LABELS:
        Image.new("RGB", (40, 30), (label % 256, 100, 50)).save(tmp_path / f"{label}.jpeg")
    images = ImageList(tmp_path, tuple(f"{label}.jpeg" for label in LABELS), LABELS)
    augmentation = Augmentation((0.08, 1.0), (0.75, 4 / 3), 0.5)
    plan = DaliPlan(Share(0, 1, 3, 1), Form("NHWC", 4, "float16"), augmentation, Dali(1, 2, 42, 0, 0), 1, gpu=0)

    def on_cpu(images: ImageList, plan: DaliPlan, runner: Any) -> DaliSource:
        return DaliSource(images, dataclasses.replace(plan, gpu=None), runner)

    monkeypatch.setattr(paddle_data, "DaliSource", on_cpu)
    monkeypatch.setattr(paddle, "CUDAPlace", lambda index: paddle.CPUPlace())
    monkeypatch.setattr(paddle.device.cuda, "current_stream", lambda index: SimpleNamespace(cuda_stream=None))
    return lambda feed: paddle_data.DaliReader(images, plan, feed)


def test_dynamic_execution_gets_tensors(reader_with_plugin: Any) -> None:
    batch = next(iter(reader_with_plugin(paddle.to_tensor).epoch(0)))
    assert isinstance(batch.images, paddle.Tensor)
    assert (list(batch.images.shape), batch.images.dtype) == ([3, 224, 224, 4], paddle.float16)
    assert sorted(batch.labels.numpy().tolist()) == list(LABELS)


def test_static_execution_gets_what_the_plugin_filled_in_the_program_s_shapes(reader_with_plugin: Any) -> None:
    # paddle.to_tensor would be an error there, and the plugin's own tensors cannot be reshaped.
    batch = next(iter(reader_with_plugin(lambda filled: filled).epoch(0)))
    assert isinstance(batch.images, paddle.framework.core.LoDTensor)
    assert batch.images.shape() == [3, 224, 224, 4]
    assert batch.labels.shape() == [3]
    assert sorted(numpy.asarray(batch.labels).tolist()) == list(LABELS)


def test_an_image_broken_in_the_first_batch_is_named(reader_with_plugin: Any, tmp_path: Path) -> None:
    image = tmp_path / "400.jpeg"
    image.write_bytes(image.read_bytes()[:200])
    with pytest.raises(DatasetError, match=r"400\.jpeg"):
        next(iter(reader_with_plugin(paddle.to_tensor).epoch(0)))
