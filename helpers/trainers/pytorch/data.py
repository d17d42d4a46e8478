"""A job's batches for PyTorch: synthetic, through DALI, or through PyTorch's DataLoader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Tuple, Union

import numpy
import torch
from torch.utils.data import DataLoader, Dataset, default_collate

from helpers.trainers.common import readers
from helpers.trainers.common.images import Form, ImageList, Share
from helpers.trainers.common.loop import Batch, Reader
from helpers.trainers.common.process import Trainer
from helpers.trainers.common.readers import Feed, KeyedBatches, KeyedImages, Plugin
from helpers.trainers.contract.errors import DatasetError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.pytorch.device import card_events
from helpers.trainers.pytorch.settings import PytorchSettings


def feed_to(device: Any) -> Feed:
    """Copies arrays of a loader (which may overwrite them later) and tensors to the rank's device."""

    def feed(batch: Any) -> Any:
        if not isinstance(batch, torch.Tensor):
            lent = torch.as_tensor(batch)
            # For pageable memory the host would wait, at every step, until the card has done all previous steps.
            batch = torch.empty_like(lent, pin_memory=device.type == "cuda").copy_(lent)
        return batch.to(device, non_blocking=True)

    return feed


def open_reader(trainer: Trainer, settings: PytorchSettings, device: Any) -> Reader:
    """As ``readers.open_reader``, with DALI and PyTorch's loader."""
    feed = feed_to(device)
    return readers.open_reader(
        trainer,
        settings,
        readers.Loaders(
            feed,
            lambda: int(device.index),
            lambda: plugin(device),
            lambda images, share, form: NativeReader(images, share, form, settings, trainer.spec, feed),
            readers.decoding_workers("torch.utils.data.DataLoader"),
        ),
        trainer.cards[0],
    )


def plugin(device: Any) -> Plugin:
    """DALI's plugin for PyTorch."""
    return Plugin(_plugin_runner, card_events(device))


def _plugin_runner(pipeline: Any) -> Callable[[], Any]:
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    # The first batch is read like all others, so that an error names a broken image in it.
    iterator = DALIGenericIterator([pipeline], ["images", "labels"], prepare_first_batch=False)
    return lambda: next(iterator)[0]


class NativeReader:
    """Reads through PyTorch's DataLoader. Its worker processes decode; they are pinned to the cores of their rank."""

    def __init__(
        self, images: ImageList, share: Share, form: Form, settings: PytorchSettings, spec: JobSpec, feed: Feed
    ) -> None:
        native = settings.native
        self._samples = share.batch_size
        self._feed = feed
        self._sampler = KeyedBatches(images, share)
        workers: Dict[str, Any] = {}
        if native.workers:
            workers = {"prefetch_factor": native.prefetch_factor, "persistent_workers": True}
        self._loader: Any = DataLoader(
            _Images(KeyedImages(images, form, settings.augmentation, spec.seed)),
            batch_sampler=self._sampler,
            num_workers=native.workers,
            collate_fn=_Collate(native.shared_memory),
            pin_memory=spec.device == "gpu",
            **workers,
        )

    def epoch(self, number: int) -> Iterator[Batch]:
        self._sampler.epoch = number
        for batch in self._loader:
            if isinstance(batch, _Broken):
                raise DatasetError(batch.words)
            images, labels = batch
            yield Batch(self._feed(images), self._feed(labels), self._samples)


@dataclass(frozen=True)
class _Broken:
    """The message about an image that a worker cannot read. If it were raised in the worker, it would arrive inside a
    traceback."""

    words: str


class _Images(Dataset):
    def __init__(self, images: KeyedImages) -> None:
        self._images = images

    def __getitem__(self, key: Tuple[int, int]) -> Union[Tuple[Any, Any], _Broken]:
        try:
            return self._images.read(key)
        except DatasetError as error:
            return _Broken(str(error))

    def __len__(self) -> int:
        return len(self._images)


@dataclass(frozen=True)
class _Collate:
    """Makes a batch of samples: tensors in shared memory, else arrays, which are sent through a pipe."""

    shared_memory: bool

    def __call__(self, samples: List[Any]) -> Any:
        broken = next((sample for sample in samples if isinstance(sample, _Broken)), None)
        if broken is not None:
            return broken
        if self.shared_memory:
            return default_collate(samples)
        images, labels = zip(*samples)
        return numpy.stack(images), numpy.stack(labels)
