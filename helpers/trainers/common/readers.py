"""The readers of a job's images, for any framework: through DALI (with the numbers of docs/published.md), through
the framework's own loader, or synthetic. ``open_reader`` chooses one, and adds it to the header's facts."""

from __future__ import annotations

import itertools
import random
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, Deque, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy

from helpers.trainers.common.cuda import CudaEvents
from helpers.trainers.common.images import (
    MEAN,
    SEARCH_SECONDS,
    STD,
    Form,
    ImageList,
    Share,
    decode,
    opencv,
    read_train_list,
    reading_error,
    synthetic_batch,
)
from helpers.trainers.common.loop import Batch, Reader
from helpers.trainers.common.process import CardPlace, Refused, Trainer, not_imported
from helpers.trainers.common.settings import Augmentation, Dali, Settings
from helpers.trainers.contract.case import DataSource
from helpers.trainers.contract.models import IMAGE_SIZE


@dataclass(frozen=True)
class DaliPlan:
    """The plan of a rank's DALI pipeline."""

    share: Share
    form: Form
    augmentation: Augmentation
    options: Dali
    threads: int
    # The index of the decoding card; None for a pipeline wholly on the CPU.
    gpu: Optional[int]


class DaliSource:
    """A DALI pipeline over a list of images."""

    def __init__(
        self, images: ImageList, plan: DaliPlan, runner: Callable[[Any], Callable[[], Any]] = lambda p: p.run
    ) -> None:
        """``runner`` takes the built pipeline and returns a function that returns the next outputs."""
        self.steps_per_epoch = plan.share.steps_per_epoch(len(images.paths))
        # The reader pads every shard to the length of the longest; runs that contain padding are skipped.
        longest = -(-len(images.paths) // plan.share.world_size)
        self._skipped_per_epoch = -(-longest // plan.share.batch_size) - self.steps_per_epoch
        self._images = images
        self._plan = plan
        self._runs = 0
        self._next = runner(dali_pipeline(images, plan))

    def epoch(self) -> Iterator[Any]:
        """The outputs (images, labels) of each full batch of one epoch; each is valid until the next one is
        requested."""
        for _ in range(self.steps_per_epoch):
            yield self._run()
        for _ in range(self._skipped_per_epoch):
            self._run()

    def _run(self) -> Any:
        try:
            outputs = self._next()
        except RuntimeError as error:
            words = str(error).rpartition("encountered:")[2]
            raise reading_error(self._images, words, dali_names(self._images, self._plan, self._runs)) from error
        self._runs += 1
        return outputs


class Lent:
    """Holds tensors that are in a loader's memory until the card has done the work that was issued on them.

    With the dynamic executor (DALI 2's default) DALI's plugins do not copy, and DALI reuses a tensor's memory as soon
    as no object holds it. It does not know the framework's stream, and the host is several steps ahead of the card.
    """

    def __init__(self, events: CudaEvents) -> None:
        """``events`` are on the framework's stream."""
        self._events = events
        self._held: Deque[Tuple[Any, Any]] = deque()

    def keep(self, tensors: Any) -> None:
        self._held.append((self._events.record(), tensors))
        while self._held and self._events.reached(self._held[0][0]):
            self._events.release(self._held.popleft()[0])


@dataclass(frozen=True)
class Plugin:
    """A framework's functions for DALI on a card."""

    # Takes a pipeline and returns a function that returns the next batch: the framework's tensors ``images`` and
    # ``labels``.
    runner: Callable[[Any], Callable[[], Mapping[str, Any]]]
    # The argument of Lent; None if nothing is lent, or if a step ends before the next batch is requested.
    events: Optional[CudaEvents] = None


class DaliReader:
    """Reads through DALI. On the CPU it gives host arrays, which ``feed`` copies; on a GPU the plugin lends device
    tensors."""

    def __init__(
        self, images: ImageList, plan: DaliPlan, feed: Callable[[Any], Any], plugin: Optional[Plugin] = None
    ) -> None:
        """``plugin`` is None for a pipeline that is completely on the CPU."""
        self._samples = plan.share.batch_size
        self._feed = feed
        self._lent = Lent(plugin.events) if plugin is not None and plugin.events is not None else None
        self._by_plugin = plugin is not None
        self._source = DaliSource(images, plan) if plugin is None else DaliSource(images, plan, plugin.runner)

    def epoch(self, number: int) -> Iterator[Batch]:
        for outputs in self._source.epoch():
            images, labels = self._tensors(outputs)
            yield Batch(images, labels, self._samples)
            # When the next batch is requested, the work on this one has been issued.
            if self._lent is not None:
                self._lent.keep((outputs, images, labels))

    def _tensors(self, outputs: Any) -> Tuple[Any, Any]:
        if self._by_plugin:
            return self._feed(outputs["images"]), self._feed(outputs["labels"])
        images, labels = (self._feed(numpy.asarray(output.as_tensor())) for output in outputs)
        return images, labels


def dali_names(images: ImageList, plan: DaliPlan, run: int) -> List[str]:
    """The images of DALI's run number ``run`` and of the later runs that it had already begun.

    They are found by reading again in the same order, without decoding. The list ends after SEARCH_SECONDS, or when the
    reader fails.
    """
    from nvidia.dali.pipeline import Pipeline

    pipeline = Pipeline(
        batch_size=plan.share.batch_size, num_threads=1, device_id=None, seed=_dali_seed(plan), prefetch_queue_depth=1
    )
    with pipeline:
        pipeline.set_outputs(_dali_reader(images, plan.share)[0])
    names: List[str] = []
    give_up = time.monotonic() + SEARCH_SECONDS
    try:
        pipeline.build()
        for number in range(run + 1 + plan.options.prefetch_queue_depth):
            (encoded,) = pipeline.run()
            if number >= run:
                names += [encoded[index].source_info() for index in range(len(encoded))]
            if time.monotonic() > give_up:
                break
    except RuntimeError:
        return names
    return names


def dali_version() -> str:
    """DALI's version. Raises Refused if it is not installed."""
    try:
        import nvidia.dali as dali
    except ImportError as error:
        raise not_imported("NVIDIA DALI, which data source dali needs,", "nvidia.dali", error) from error
    return str(dali.__version__)


def dali_pipeline(images: ImageList, plan: DaliPlan) -> Any:
    """The built pipeline: reads a shard, decodes with a random crop, resizes, flips and normalises."""
    dali_version()
    from nvidia.dali import fn, types
    from nvidia.dali.pipeline import Pipeline

    share, form, options = plan.share, plan.form, plan.options
    on_gpu = plan.gpu is not None
    padding = {}
    if on_gpu:
        padding = {
            "device_memory_padding": options.device_memory_padding,
            "host_memory_padding": options.host_memory_padding,
        }
    pipeline = Pipeline(
        batch_size=share.batch_size,
        num_threads=plan.threads,
        device_id=plan.gpu,
        seed=_dali_seed(plan),
        prefetch_queue_depth=options.prefetch_queue_depth,
    )
    with pipeline:
        encoded, labels = _dali_reader(images, share)
        decoded = fn.decoders.image_random_crop(
            encoded,
            device="mixed" if on_gpu else "cpu",
            output_type=types.RGB,
            random_area=list(plan.augmentation.crop_area),
            random_aspect_ratio=list(plan.augmentation.crop_aspect_ratio),
            num_attempts=options.num_attempts,
            **padding,
        )
        resized = fn.resize(decoded, resize_x=IMAGE_SIZE, resize_y=IMAGE_SIZE, interp_type=types.INTERP_LINEAR)
        normalised = fn.crop_mirror_normalize(
            resized,
            dtype=types.FLOAT16 if form.dtype == "float16" else types.FLOAT,
            output_layout="HWC" if form.layout == "NHWC" else "CHW",
            crop=(IMAGE_SIZE, IMAGE_SIZE),
            mean=MEAN,
            std=STD,
            pad_output=form.channels == 4,
            mirror=fn.random.coin_flip(probability=plan.augmentation.flip_probability),
        )
        # A label is a vector of one element; the step takes a number.
        label = fn.squeeze(fn.cast(labels.gpu() if on_gpu else labels, dtype=types.INT64), axes=[0])
        pipeline.set_outputs(normalised, label)
    pipeline.build()
    return pipeline


def _dali_seed(plan: DaliPlan) -> int:
    return plan.options.seed + plan.share.rank


def _dali_reader(images: ImageList, share: Share) -> Any:
    """The reader of encoded images and labels of a rank's shard. It is the first operator of the pipeline and takes its
    seed."""
    from nvidia.dali import fn

    return fn.readers.file(
        name="reader",
        file_root=str(images.root),
        files=list(images.paths),
        labels=list(images.labels),
        shard_id=share.rank,
        num_shards=share.world_size,
        random_shuffle=True,
        pad_last_batch=True,
    )


# Converts a loader's batch to the form that the step takes.
Feed = Callable[[Any], Any]


@dataclass(frozen=True)
class Loaders:
    """A framework's own functions for reading."""

    feed: Feed
    # Returns the index of the decoding card, which is the rank's own.
    gpu_index: Callable[[], int]
    # Returns the functions for DALI on that card.
    plugin: Callable[[], Plugin]
    # None if the trainer has no native loader.
    native: Optional[Callable[[ImageList, Share, Form], Reader]] = None
    # Takes the number of workers and returns the header's text on the native loader. Raises Refused if that lacks a
    # part.
    native_loader: Callable[[int], str] = str


def share_of(trainer: Trainer, card: CardPlace) -> Share:
    """The share of a card: the same whether or not it has a process of its own."""
    spec = trainer.spec
    return Share(card.number, spec.case.cards, spec.case.batch_size_per_card, spec.seed)


def open_reader(trainer: Trainer, settings: Settings, loaders: Loaders, card: CardPlace) -> Reader:
    """The reader of the job's data source, for one of the process's cards. It is added to the header's facts. Raises
    DatasetError."""
    share = share_of(trainer, card)
    spec, facts = trainer.spec, trainer.device.facts
    form = Form(settings.feed_layout, settings.input_channels, settings.input_dtype)
    source = spec.case.read_from
    facts["data"] = source.value
    if source is DataSource.SYNTHETIC:
        return SyntheticReader(share, form, loaders.feed)
    images = read_train_list(spec.data_root)
    facts["images"] = str(len(images.paths))
    facts["steps_per_epoch"] = str(share.steps_per_epoch(len(images.paths)))
    if source is DataSource.NATIVE:
        if loaders.native is None:
            raise Refused("data source native: this framework's trainer reads through DALI alone")
        facts["loader"] = loaders.native_loader(settings.native.workers)
        return loaders.native(images, share, form)
    threads = settings.dali.threads or int(facts["threads"])
    decode_gpu = loaders.gpu_index() if spec.device == "gpu" and source is DataSource.DALI else None
    where = "CPU" if decode_gpu is None else "GPU (mixed)"
    facts["loader"] = f"DALI {dali_version()}, {threads} threads, decoding on {where}"
    plan = DaliPlan(share, form, settings.augmentation, settings.dali, threads, decode_gpu)
    return DaliReader(images, plan, loaders.feed, None if decode_gpu is None else loaders.plugin())


def decoding_workers(name: str) -> Callable[[int], str]:
    """A ``Loaders.native_loader`` for a loader whose worker processes decode with ``images.decode``."""
    return lambda workers: f"{name}, {workers} worker processes, decoding by OpenCV {_opencv_version()}"


def _opencv_version() -> str:
    try:
        return str(opencv().__version__)
    except ImportError as error:
        raise not_imported("OpenCV, which decodes native images,", "cv2", error) from error


class SyntheticReader:
    """Returns the same batch again and again, in one endless epoch."""

    def __init__(self, share: Share, form: Form, feed: Feed) -> None:
        images, labels = synthetic_batch(share, form)
        self._batch = Batch(feed(images), feed(labels), share.batch_size)

    def epoch(self, number: int) -> Iterator[Batch]:
        return itertools.repeat(self._batch)


class CardReaders:
    """Joins the batches of the readers of several cards: the images and the labels of a batch are lists with an entry
    for each card."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers = list(readers)

    def epoch(self, number: int) -> Iterator[Batch]:
        epochs = [reader.epoch(number) for reader in self._readers]
        while True:
            # Not zip(): when the first reader ends, it would not ask the others, and these would miss their work at the
            # end of an epoch (DaliSource).
            batches = [batch for batch in [next(epoch, None) for epoch in epochs] if batch is not None]
            if len(batches) < len(epochs):
                return
            samples = sum(batch.samples for batch in batches)
            yield Batch([batch.images for batch in batches], [batch.labels for batch in batches], samples)


class KeyedBatches:
    """Batches of keys (epoch, image) of one rank. The random crop depends on the key, so it is the same in any worker.

    ``epoch`` must be set before each iteration.
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
        """The images of the batch after ``done`` batches of this epoch, and of ``ahead`` more batches that workers had
        begun."""
        batches = self._share.batches(len(self._images.paths), self.epoch)
        begun = itertools.islice(batches, done, done + 1 + ahead)
        return [self._images.paths[image] for batch in begun for image in batch]


@dataclass(frozen=True)
class KeyedImages:
    """Reads the image and label of a key (epoch, image); the result depends only on key and seed."""

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
