"""A job's batches for Paddle: synthetic, through DALI, or through Paddle's own DataLoader."""

from __future__ import annotations

import itertools
import random
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy
import paddle

from helpers.case import DataSource
from helpers.job import JobSpec
from helpers.trainers.dali_data import DaliPlan, DaliSource, dali_version
from helpers.trainers.data import (
    Form,
    ImageList,
    Share,
    decode,
    read_train_list,
    reading_error,
    synthetic_batch,
)
from helpers.trainers.loop import Batch, Reader
from helpers.trainers.paddle_device import gpu_index
from helpers.trainers.process import Trainer
from helpers.trainers.settings import Settings

# From what a loader gives to what the step takes.
Feed = Callable[[Any], Any]


def program_feed(place: Any) -> Feed:
    """The feed of programs on ``place``: arrays are copied there, what a loader has put into tensors is taken.

    An array fed as it stands would be copied by the executor, at every step and in the step's time, which a
    batch that never changes must not cost.
    """

    def feed(batch: Any) -> Any:
        if not isinstance(batch, numpy.ndarray):
            return batch
        tensor = paddle.base.core.LoDTensor()
        tensor.set(batch, place)
        return tensor

    return feed


def open_reader(trainer: Trainer, settings: Settings, feed: Feed) -> Reader:
    """The reader of the job's data source; adds what it does to the header's facts. Raises DatasetError."""
    spec, ranks, facts = trainer.spec, trainer.ranks, trainer.device.facts
    share = Share(ranks.rank, ranks.world_size, spec.case.batch_size_per_card, spec.seed)
    form = Form(settings.feed_layout, settings.input_channels, settings.input_dtype)
    facts["data"] = spec.case.data.value
    if spec.case.data is DataSource.SYNTHETIC:
        return SyntheticReader(share, form, feed)
    images = read_train_list(spec.data_root)
    facts["images"] = str(len(images.paths))
    facts["steps_per_epoch"] = str(share.steps_per_epoch(len(images.paths)))
    if spec.case.data is DataSource.NATIVE:
        facts["loader"] = f"paddle.io.DataLoader, {settings.native.workers} worker processes, decoding by Pillow"
        return NativeReader(images, share, form, settings, spec)
    threads = settings.dali.threads or int(facts["threads"])
    decode_gpu = gpu_index() if spec.device == "gpu" and spec.case.data is DataSource.DALI else None
    where = "CPU" if decode_gpu is None else "GPU (mixed)"
    facts["loader"] = f"DALI {dali_version()}, {threads} threads, decoding on {where}"
    plan = DaliPlan(share, form, settings.augmentation, settings.dali, threads, decode_gpu)
    return DaliReader(images, plan, feed)


class SyntheticReader:
    """One batch, for ever: an epoch without end."""

    def __init__(self, share: Share, form: Form, feed: Feed) -> None:
        images, labels = synthetic_batch(share, form)
        self._batch = Batch(feed(images), feed(labels), share.batch_size)

    def epoch(self, number: int) -> Iterator[Batch]:
        return itertools.repeat(self._batch)


class DaliReader:
    """DALI on the CPU hands out host arrays, which are copied; on a GPU its Paddle plugin fills device tensors."""

    def __init__(self, images: ImageList, plan: DaliPlan, feed: Feed) -> None:
        self._samples = plan.share.batch_size
        if plan.gpu is None:
            self._source = DaliSource(images, plan)
            self._convert: Callable[[Any], Tuple[Any, Any]] = lambda outputs: tuple(
                feed(numpy.asarray(output.as_tensor())) for output in outputs
            )
        else:
            self._source = DaliSource(images, plan, _plugin_runner)
            self._convert = lambda outputs: (feed(outputs["images"]), feed(outputs["labels"]))

    def epoch(self, number: int) -> Iterator[Batch]:
        for outputs in self._source.epoch():
            images, labels = self._convert(outputs)
            yield Batch(images, labels, self._samples)


def _plugin_runner(pipeline: Any) -> Callable[[], Any]:
    from nvidia.dali.plugin.paddle import DALIGenericIterator

    # The first batch is read as all others are: so an image that is broken in it is named.
    iterator = DALIGenericIterator([pipeline], ["images", "labels"], prepare_first_batch=False)
    return lambda: next(iterator)[0]


class NativeReader:
    """Worker processes decode; they are pinned with their rank, whose cores they share."""

    def __init__(self, images: ImageList, share: Share, form: Form, settings: Settings, spec: JobSpec) -> None:
        native = settings.native
        self._images = images
        self._samples = share.batch_size
        self._share = share
        self._ahead = native.workers * native.prefetch_factor
        self._sampler = _Sampler(share, len(images.paths))
        workers: Dict[str, Any] = {}
        if native.workers:
            workers = {"prefetch_factor": native.prefetch_factor, "persistent_workers": True}
        self._dataset = _Images(images, form, settings, spec.seed)
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
            # A worker's own error stays in the loader's thread; here it is a queue that was killed.
            except (SystemError, RuntimeError) as error:
                raise reading_error(self._images, str(error), self._names(number, done)) from error
            yield Batch(images, labels, self._samples)

    def _names(self, epoch: int, done: int) -> List[str]:
        """The images of the batch after ``done`` ones and of those that the workers had begun ahead."""
        batches = self._share.batches(len(self._images.paths), epoch)
        begun = itertools.islice(batches, done, done + 1 + self._ahead)
        return [self._images.paths[image] for batch in begun for image in batch]


class _Sampler(paddle.io.BatchSampler):
    """Keys (epoch, image) of this rank, so that a worker draws the same crop whatever worker it is."""

    def __init__(self, share: Share, images: int) -> None:
        # Paddle's own constructor wants a dataset or a sampler to draw from; this one draws itself.
        self._share = share
        self._images = images
        self.epoch = 0

    def __iter__(self) -> Iterator[List[Tuple[int, int]]]:
        for batch in self._share.batches(self._images, self.epoch):
            yield [(self.epoch, image) for image in batch]

    def __len__(self) -> int:
        return self._share.steps_per_epoch(self._images)


class _Images(paddle.io.Dataset):
    def __init__(self, images: ImageList, form: Form, settings: Settings, seed: int) -> None:
        super().__init__()
        self._images = images
        self._form = form
        self._augmentation = settings.augmentation
        self._seed = seed
        self._in_process = settings.native.workers == 0
        self.failure: Optional[Exception] = None

    def __getitem__(self, key: Tuple[int, int]) -> Tuple[Any, Any]:
        try:
            return self._read(key)
        except Exception as error:  # kept, or let through
            if not self._in_process:
                raise
            # Without workers, Paddle's loader thread dies of an error and the step waits for it for ever; this ends it.
            self.failure = error
            raise StopIteration from error

    def _read(self, key: Tuple[int, int]) -> Tuple[Any, Any]:
        epoch, index = key
        rng = random.Random(f"{self._seed} {epoch} {index}")
        path = self._images.root / self._images.paths[index]
        return decode(path, rng, self._augmentation, self._form), numpy.int64(self._images.labels[index])

    def __len__(self) -> int:
        return len(self._images.paths)
