"""DALI's Paddle plugin, as on a GPU, but over a pipeline on the CPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from PIL import Image

paddle: Any = pytest.importorskip("paddle")
pytest.importorskip("nvidia.dali")

from helpers.plan.recipes.recipe import settings_for  # noqa: E402
from helpers.trainers.common import readers as dali_data  # noqa: E402
from helpers.trainers.common.images import Form, ImageList, Share  # noqa: E402
from helpers.trainers.common.process import DeviceRecord, RankPlace, cards_of  # noqa: E402
from helpers.trainers.common.readers import (  # noqa: E402
    DaliPlan,
    DaliReader,
)
from helpers.trainers.common.settings import Augmentation, Dali, Settings  # noqa: E402
from helpers.trainers.contract.case import Case  # noqa: E402
from helpers.trainers.contract.errors import DatasetError  # noqa: E402
from helpers.trainers.contract.job import JobSpec  # noqa: E402
from helpers.trainers.paddle import data as paddle_data  # noqa: E402

LABELS = (7, 400, 999)
AUGMENTATION = Augmentation((0.08, 1.0), (0.75, 4 / 3), 0.5)


@pytest.fixture
def card() -> SimpleNamespace:
    """A card that has done whatever was issued to it; ``marks`` that it gave are released."""
    told = SimpleNamespace(marks=0)

    def record() -> str:
        told.marks += 1
        return "event"

    told.record, told.reached = record, lambda event: event == "event"
    told.release = lambda event: setattr(told, "marks", told.marks - 1)
    return told


@pytest.fixture
def reader_with_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: SimpleNamespace) -> Any:
    """Makes the reader of a GPU's rank; the feed is given."""
    for label in LABELS:
        Image.new("RGB", (40, 30), (label % 256, 100, 50)).save(tmp_path / f"{label}.jpeg")
    images = ImageList(tmp_path, tuple(f"{label}.jpeg" for label in LABELS), LABELS)
    # Of a pipeline on the CPU.
    plan = DaliPlan(Share(0, 1, 3, 1), Form("NHWC", 4, "float16"), AUGMENTATION, Dali(1, 2, 42, 100, 0, 0), 1, gpu=None)
    monkeypatch.setattr(paddle_data, "card_events", lambda: card)
    monkeypatch.setattr(paddle, "CUDAPlace", lambda index: paddle.CPUPlace())
    monkeypatch.setattr(paddle.device.cuda, "current_stream", lambda index: SimpleNamespace(cuda_stream=None))
    return lambda feed: DaliReader(images, plan, feed, paddle_data.plugin())


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


@pytest.mark.parametrize(
    ("data", "device", "decoding", "card"),
    [("dali", "gpu", "GPU (mixed)", 3), ("dali_cpu", "gpu", "CPU", None), ("dali", "cpu", "CPU", None)],
)
def test_dali_decodes_on_the_rank_s_card_or_where_the_case_says_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, device: str, decoding: str, card: int | None
) -> None:
    listed = _numbered(tmp_path, 4)
    lines = (f"{name} {label}\n" for name, label in zip(listed.paths, listed.labels, strict=True))
    (tmp_path / "train_list.txt").write_text("".join(lines), encoding="utf-8")
    plans: list[Any] = []
    monkeypatch.setattr(dali_data, "DaliReader", lambda images, plan, feed, plugin: plans.append((plan, plugin)))
    monkeypatch.setattr(paddle_data, "gpu_index", lambda: 3)
    monkeypatch.setattr(paddle_data, "card_events", lambda: None)
    case = Case.parse(f"paddle-resnet50v1.5-amp_o2-bs2-1x2-{data}-to_static")
    spec = JobSpec("j", case, 0, "r", device, 0, 1, data_root=str(tmp_path), settings=settings_for(case, device))
    cards = cards_of(spec, RankPlace(1, 1, 2))
    trainer = SimpleNamespace(spec=spec, cards=cards, device=DeviceRecord(facts={"threads": "5"}))
    paddle_data.open_reader(trainer, Settings.of(spec), paddle.to_tensor)  # type: ignore[arg-type]
    ((plan, plugin),) = plans
    assert (plan.gpu, plan.share.rank, plan.threads) == (card, 1, 4 if device == "gpu" else 5)
    assert (plugin is None) is (card is None)
    assert trainer.device.facts["loader"].endswith(f"decoding on {decoding}")


def test_a_program_is_fed_a_copy_of_an_array_and_a_loader_s_tensor_itself() -> None:
    feed = paddle_data.program_feed(paddle.CPUPlace())
    array = numpy.arange(6, dtype="float16").reshape(2, 3)
    fed = feed(array)
    assert isinstance(fed, paddle.base.core.LoDTensor)
    array[:] = 0
    assert numpy.asarray(fed).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert feed(fed) is fed


def _numbered(folder: Path, images: int) -> ImageList:
    for number in range(images):
        Image.new("RGB", (40, 30), (10 * number, 60, 60)).save(folder / f"{number}.jpeg", quality=100)
    return ImageList(folder, tuple(f"{number}.jpeg" for number in range(images)), tuple(range(images)))


def _epoch(reader: Any, number: int) -> list[int]:
    return [int(label) for batch in reader.epoch(number) for label in batch.labels.numpy()]


def test_the_plugin_reads_every_image_once_an_epoch_and_each_batch_is_kept_until_the_card_is_done(
    reader_with_plugin: Any, card: SimpleNamespace
) -> None:
    done, card.reached = card.reached, lambda event: False
    reader = reader_with_plugin(paddle.to_tensor)
    for number in range(3):
        assert sorted(_epoch(reader, number)) == list(LABELS)
        assert card.marks == number + 1
    card.reached = done
    _epoch(reader, 3)
    assert card.marks == 0, "every event is given back"
