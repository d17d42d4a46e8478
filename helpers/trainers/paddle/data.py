"""A job's batches for Paddle: synthetic, through DALI, or through Paddle's DataLoader."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import numpy
import paddle

from helpers.trainers.common import readers
from helpers.trainers.common.images import Form, ImageList, Share, reading_error
from helpers.trainers.common.loop import Batch, Reader
from helpers.trainers.common.process import Trainer
from helpers.trainers.common.readers import Feed, KeyedBatches, KeyedImages, Plugin
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.paddle.device import card_events, gpu_index
from helpers.trainers.paddle.settings import PaddleSettings


def program_feed(place: Any) -> Feed:
    """The feed of programs on ``place``: arrays are copied there, tensors of a loader are taken as they are.

    The executor would copy an array at every step, within the step's time; for a batch that never changes this would be
    wasted time.
    """

    def feed(batch: Any) -> Any:
        if not isinstance(batch, numpy.ndarray):
            return batch
        tensor = paddle.base.core.LoDTensor()
        tensor.set(batch, place)
        return tensor

    return feed


def open_reader(trainer: Trainer, settings: PaddleSettings, feed: Feed) -> Reader:
    """As ``readers.open_reader``, with DALI and Paddle's loader."""
    return readers.open_reader(
        trainer,
        settings,
        readers.Loaders(
            feed,
            gpu_index,
            plugin,
            lambda images, share, form: NativeReader(images, share, form, settings, trainer.spec),
            readers.decoding_workers("paddle.io.DataLoader"),
        ),
        trainer.cards[0],
    )


def plugin() -> Plugin:
    """DALI's plugin for Paddle."""
    return Plugin(_plugin_runner, card_events())


def _plugin_runner(pipeline: Any) -> Callable[[], Any]:
    from nvidia.dali.plugin.paddle import DALIGenericIterator

    # The first batch is read like all others, so that an error names a broken image in it.
    iterator = DALIGenericIterator([pipeline], ["images", "labels"], prepare_first_batch=False)
    return lambda: next(iterator)[0]


class NativeReader:
    """Reads through Paddle's DataLoader. Its worker processes decode; they are pinned to the cores of their rank."""

    def __init__(self, images: ImageList, share: Share, form: Form, settings: PaddleSettings, spec: JobSpec) -> None:
        native = settings.native
        self._images = images
        self._samples = share.batch_size
        self._ahead = native.workers * native.prefetch_factor
        self._sampler = _Sampler(images, share)
        workers: Dict[str, Any] = {}
        if native.workers:
            workers = {"prefetch_factor": native.prefetch_factor, "persistent_workers": True}
        self._dataset = _Images(KeyedImages(images, form, settings.augmentation, spec.seed), not native.workers)
        self._loader = paddle.io.DataLoader(
            self._dataset,
            batch_sampler=self._sampler,
            num_workers=native.workers,
            use_shared_memory=native.shared_memory and native.workers > 0,
            **workers,
        )

    def epoch(self, number: int) -> Iterator[Batch]:
        self._sampler.epoch = number
        batches = iter(self._loader)
        for done in itertools.count():
            try:
                images, labels = next(batches)
            except StopIteration:
                if self._dataset.failure is not None:
                    raise self._dataset.failure from None
                return
            # A worker's error stays in the loader's thread; here it shows as the error of a killed queue.
            except (SystemError, RuntimeError) as error:
                raise reading_error(self._images, str(error), self._sampler.names(done, self._ahead)) from error
            yield Batch(images, labels, self._samples)


class _Sampler(KeyedBatches, paddle.io.BatchSampler):
    """KeyedBatches for Paddle's loader. Paddle's constructor is not called, since it needs a dataset to draw from."""


class _Images(paddle.io.Dataset):
    def __init__(self, images: KeyedImages, in_process: bool) -> None:
        super().__init__()
        self._images = images
        self._in_process = in_process
        self.failure: Optional[Exception] = None

    def __getitem__(self, key: Tuple[int, int]) -> Tuple[Any, Any]:
        if not self._in_process:
            return self._images.read(key)
        try:
            return self._images.read(key)
        except Exception as error:  # kept, or let through
            # Without workers, an error would end Paddle's loader thread, and the step would wait for it for ever; so it
            # is kept.
            self.failure = error
            raise StopIteration from error

    def __len__(self) -> int:
        return len(self._images)
