"""Opens a job's reader, for any framework: chooses its loader and its images, and adds them to the header's facts."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, Tuple

import numpy

from helpers.trainers.common.dali import DaliPlan, dali_version
from helpers.trainers.common.images import Form, ImageList, Share, decode, opencv, read_train_list, synthetic_batch
from helpers.trainers.common.loop import Batch, Reader
from helpers.trainers.common.process import Refused, Trainer
from helpers.trainers.common.settings import Augmentation, Settings
from helpers.trainers.contract.case import DataSource

# From what a loader gives to what the step takes.
Feed = Callable[[Any], Any]


@dataclass(frozen=True)
class Loaders:
    """What a framework has of its own."""

    feed: Feed
    # The index of the rank's card.
    gpu_index: Callable[[], int]
    dali: Callable[[ImageList, DaliPlan], Reader]
    native: Callable[[ImageList, Share, Form], Reader]
    # The name of the native loader, for the header.
    native_loader: str


def open_reader(trainer: Trainer, settings: Settings, loaders: Loaders) -> Reader:
    """The reader of the job's data source; adds what it does to the header's facts. Raises DatasetError."""
    spec, ranks, facts = trainer.spec, trainer.ranks, trainer.device.facts
    share = Share(ranks.rank, ranks.world_size, spec.case.batch_size_per_card, spec.seed)
    form = Form(settings.feed_layout, settings.input_channels, settings.input_dtype)
    facts["data"] = spec.case.data.value
    if spec.case.data is DataSource.SYNTHETIC:
        return SyntheticReader(share, form, loaders.feed)
    images = read_train_list(spec.data_root)
    facts["images"] = str(len(images.paths))
    facts["steps_per_epoch"] = str(share.steps_per_epoch(len(images.paths)))
    if spec.case.data is DataSource.NATIVE:
        workers = settings.native.workers
        facts["loader"] = f"{loaders.native_loader}, {workers} worker processes, decoding by OpenCV {_opencv_version()}"
        return loaders.native(images, share, form)
    threads = settings.dali.threads or int(facts["threads"])
    decode_gpu = loaders.gpu_index() if spec.device == "gpu" and spec.case.data is DataSource.DALI else None
    where = "CPU" if decode_gpu is None else "GPU (mixed)"
    facts["loader"] = f"DALI {dali_version()}, {threads} threads, decoding on {where}"
    return loaders.dali(images, DaliPlan(share, form, settings.augmentation, settings.dali, threads, decode_gpu))


def _opencv_version() -> str:
    try:
        return str(opencv().__version__)
    except ImportError as error:
        raise Refused(
            f"native images are decoded by OpenCV, which this interpreter does not have ({error}): install "
            "opencv-python-headless as requirements/ pins it, or read through DALI"
        ) from error


class SyntheticReader:
    """One batch again and again: an epoch without end."""

    def __init__(self, share: Share, form: Form, feed: Feed) -> None:
        images, labels = synthetic_batch(share, form)
        self._batch = Batch(feed(images), feed(labels), share.batch_size)

    def epoch(self, number: int) -> Iterator[Batch]:
        return itertools.repeat(self._batch)


class KeyedBatches:
    """Batches of keys (epoch, image) of one rank, so that a worker draws the same crop whatever worker it is.

    ``epoch`` is set before it is iterated.
    """

    def __init__(self, images: ImageList, share: Share) -> None:
        self._images = images
        self._share = share
        self.epoch = 0

    def __iter__(self) -> Iterator[List[Tuple[int, int]]]:
        for batch in self._share.batches(len(self._images.paths), self.epoch):
            yield [(self.epoch, image) for image in batch]

    def __len__(self) -> int:
        return self._share.steps_per_epoch(len(self._images.paths))

    def names(self, done: int, ahead: int) -> List[str]:
        """The images of the batch after ``done`` ones of this epoch and of ``ahead`` more, which workers had begun."""
        batches = self._share.batches(len(self._images.paths), self.epoch)
        begun = itertools.islice(batches, done, done + 1 + ahead)
        return [self._images.paths[image] for batch in begun for image in batch]


@dataclass(frozen=True)
class KeyedImages:
    """Image and label of a key (epoch, image), the same for a seed."""

    images: ImageList
    form: Form
    augmentation: Augmentation
    seed: int

    def read(self, key: Tuple[int, int]) -> Tuple[Any, Any]:
        epoch, index = key
        rng = random.Random(f"{self.seed} {epoch} {index}")
        path = self.images.root / self.images.paths[index]
        return decode(path, rng, self.augmentation, self.form), numpy.int64(self.images.labels[index])

    def __len__(self) -> int:
        return len(self.images.paths)
