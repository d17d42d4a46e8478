"""What a plugin of DALI lends is kept until the card has done the work on it; without DALI, framework or card."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.trainers.common import readers as dali_data
from helpers.trainers.common.images import Form, ImageList, Share
from helpers.trainers.common.loop import Batch
from helpers.trainers.common.process import CardPlace, RankPlace, Refused, Trainer
from helpers.trainers.common.readers import (
    CardReaders,
    DaliPlan,
    DaliReader,
    Lent,
    Loaders,
    Plugin,
    open_reader,
    share_of,
)
from helpers.trainers.common.settings import Augmentation, Dali
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec

pytestmark = pytest.mark.slow

STEPS = 4
IMAGES = ImageList(Path("images"), tuple(f"{number}.jpeg" for number in range(2 * STEPS)), (0,) * 2 * STEPS)


class Tensor:
    """Something that DALI lends, or that a feed makes of it."""


class Card:
    """Marks behind what was issued; the first ``done`` of them are reached."""

    def __init__(self) -> None:
        self.done = self.issued = self.released = 0

    def record(self) -> int:
        self.issued += 1
        return self.issued

    def reached(self, mark: int) -> bool:
        return mark <= self.done

    def release(self, mark: int) -> None:
        self.released += 1


def _plan(gpu: int | None) -> DaliPlan:
    augmentation = Augmentation((0.08, 1.0), (0.75, 4 / 3), 0.5)
    return DaliPlan(Share(0, 1, 2, 1), Form("NCHW", 3, "float32"), augmentation, Dali(1, 2, 42, 100, 0, 0), 1, gpu)


def _alive(batches: list[Any]) -> list[int]:
    gc.collect()
    return [number for number, each in enumerate(batches) if each() is not None]


def test_lent_tensors_are_kept_in_order_until_their_mark_is_reached() -> None:
    """Alive after each of four, while the card has done none, none, the first two, and all."""
    card, batches, alive = Card(), [], []
    lent = Lent(card)  # type: ignore[arg-type]
    for card.done in (0, 0, 2, 4):
        batch = Tensor()
        batches.append(weakref.ref(batch))
        lent.keep((batch,))
        del batch
        alive.append(_alive(batches))
    assert alive == [[0], [0, 1], [2], []]
    assert card.released == 4, "every event is given back"


@pytest.mark.parametrize("feed", [lambda tensor: tensor, lambda tensor: Tensor()], ids=["itself", "a copy"])
def test_a_readers_batches_are_kept_while_the_card_is_behind(
    monkeypatch: pytest.MonkeyPatch, feed: Callable[[Any], Any]
) -> None:
    """The lender's own tensors too: what the feed makes of them may be a copy that the card has not made yet."""
    card, lent = Card(), []

    def runner(pipeline: Any) -> Callable[[], dict[str, Any]]:
        def outputs() -> dict[str, Any]:
            given = {"images": Tensor(), "labels": Tensor()}
            lent.append(weakref.ref(given["images"]))
            return given

        return outputs

    monkeypatch.setattr(dali_data, "dali_pipeline", lambda images, plan: None)
    reader = DaliReader(IMAGES, _plan(0), feed, Plugin(runner, card))
    issued, alive = [], []
    for batch in reader.epoch(0):
        # The step issues its work on the batch, and asks for the next one.
        issued.append(card.issued)
        del batch
        alive.append(_alive(lent))
        card.done = max(0, len(lent) - 2)
    assert issued == [0, 1, 2, 3], "a mark stands behind the work of its batch"
    # One that was marked is let go when the mark after it finds it reached.
    assert alive == [[0], [0, 1], [0, 1, 2], [1, 2, 3]]


def _trainer(folder: Path, each: int, rank: int = 0) -> Trainer:
    case = Case.parse("mxnet-resnet50v1.5-fp32-bs2-2x4-synthetic")
    spec = JobSpec("j", case, 0, str(folder), "cpu", 0, 1, settings={"cards_per_process": each})
    return Trainer(spec, RankPlace(rank, rank % spec.ranks_per_node, spec.ranks))


def test_the_cards_of_a_process_read_what_one_process_a_card_would_read(tmp_path: Path) -> None:
    def shares(each: int) -> list[Share]:
        trainers = [_trainer(tmp_path, each, rank) for rank in range(8 // each)]
        return [share_of(trainer, card) for trainer in trainers for card in trainer.cards]

    assert shares(4) == shares(1) == [Share(number, 8, 2, 1234) for number in range(8)]


def test_a_batch_of_several_cards_has_an_entry_for_each_and_counts_all_samples(tmp_path: Path) -> None:
    trainer, settings = (
        _trainer(tmp_path, 4),
        SimpleNamespace(feed_layout="NCHW", input_channels=3, input_dtype="float32"),
    )
    fed: list[int] = []

    def of_card(card: CardPlace) -> Any:
        def feed(array: Any) -> Any:
            fed.append(card.number)
            return array

        loaders = Loaders(feed, lambda: card.local, None)  # type: ignore[arg-type]
        return open_reader(trainer, settings, loaders, card)  # type: ignore[arg-type]

    batch = next(CardReaders([of_card(card) for card in trainer.cards]).epoch(0))
    assert (batch.samples, len(batch.images), [len(labels) for labels in batch.labels]) == (8, 4, [2] * 4)
    assert fed == [0, 0, 1, 1, 2, 2, 3, 3]
    # Each card has the noise of its own rank.
    assert len({images.tobytes() for images in batch.images}) == 4


def test_an_epoch_of_several_cards_ends_with_the_first_card_that_has_no_batch_and_all_come_to_its_end() -> None:
    ended = []

    def reader(name: str, batches: int) -> Any:
        def epoch(number: int) -> Any:
            yield from [Batch(name, 0, 2)] * batches
            # As DaliSource skips the runs that hold padding.
            ended.append((name, number))

        return SimpleNamespace(epoch=epoch)

    cards = CardReaders([reader("first", 1), reader("second", 1)])
    for number in range(2):
        assert [(batch.images, batch.samples) for batch in cards.epoch(number)] == [(["first", "second"], 4)]
    assert ended == [("first", 0), ("second", 0), ("first", 1), ("second", 1)]
    assert len(list(CardReaders([reader("first", 3), reader("second", 2)]).epoch(0))) == 2


def test_a_package_that_is_not_there_differs_from_one_that_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(Refused, match="is not installed in this interpreter"):
        dali_data._opencv_version()
    (tmp_path / "cv2.py").write_text("raise ImportError('libGL.so.1: cannot open shared object file')")
    monkeypatch.delitem(sys.modules, "cv2")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Refused, match=r"is installed .*libGL\.so\.1"):
        dali_data._opencv_version()
