"""A job's readers, for any framework: through DALI (the numbers are those of docs/measuring-rules.md), through the
framework's own loader, or synthetic; ``open_reader`` chooses, and adds what it chose to the header's facts."""

from __future__ import annotations

import itertools
import random
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, Deque, Iterator, List, Mapping, Optional, Protocol, Sequence, Tuple

import numpy

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
from helpers.trainers.common.process import CardPlace, Refused, Trainer
from helpers.trainers.common.settings import Augmentation, Dali, Settings
from helpers.trainers.contract.case import DataSource
from helpers.trainers.contract.models import IMAGE_SIZE


@dataclass(frozen=True)
class DaliPlan:
    """What a rank's pipeline reads, and how."""

    share: Share
    form: Form
    augmentation: Augmentation
    options: Dali
    threads: int
    # The index of the decoding card; None for a pipeline wholly on the CPU.
    gpu: Optional[int]


class DaliSource:
    """DALI's pipeline over a list: ``epoch()`` runs through one epoch and hands out each run's outputs."""

    def __init__(
        self, images: ImageList, plan: DaliPlan, runner: Callable[[Any], Callable[[], Any]] = lambda p: p.run
    ) -> None:
        """``runner`` makes of the built pipeline the function that gives the next outputs."""
        self.steps_per_epoch = plan.share.steps_per_epoch(len(images.paths))
        # The reader pads every shard to the longest one; the runs that hold padding are skipped.
        longest = -(-len(images.paths) // plan.share.world_size)
        self._skipped_per_epoch = -(-longest // plan.share.batch_size) - self.steps_per_epoch
        self._images = images
        self._plan = plan
        self._runs = 0
        self._next = runner(dali_pipeline(images, plan))

    def epoch(self) -> Iterator[Any]:
        """The outputs (images, labels) of each full batch; valid until the next one is asked for."""
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


class Mark(Protocol):
    """A mark behind work that was issued to a card."""

    def query(self) -> bool:
        """Whether the card has reached it; does not wait."""


class Lent:
    """Keeps tensors in a loader's own memory until the card has done the work that was issued on them.

    With the dynamic executor (DALI 2's default) DALI's plugins copy nothing, and DALI takes a tensor back as soon as
    nobody holds it. It does not know of the framework's stream, and the host is several steps ahead of the card.
    """

    def __init__(self, mark: Callable[[], Mark]) -> None:
        """``mark`` gives a mark behind all that was issued so far."""
        self._mark = mark
        self._held: Deque[Tuple[Mark, Any]] = deque()

    def keep(self, tensors: Any) -> None:
        self._held.append((self._mark(), tensors))
        while self._held and self._held[0][0].query():
            self._held.popleft()


@dataclass(frozen=True)
class Plugin:
    """What a framework has for DALI on a card."""

    # Makes of a pipeline a function that gives the next batch: the framework's tensors, by the names images and labels.
    runner: Callable[[Any], Callable[[], Mapping[str, Any]]]
    # Lent's.
    mark: Callable[[], Mark]


class DaliReader:
    """DALI on the CPU hands out host arrays, which ``feed`` copies; on a GPU the plugin lends device tensors."""

    def __init__(
        self, images: ImageList, plan: DaliPlan, feed: Callable[[Any], Any], plugin: Optional[Plugin] = None
    ) -> None:
        """``plugin`` None: for a pipeline wholly on the CPU."""
        self._samples = plan.share.batch_size
        self._feed = feed
        self._lent = None if plugin is None else Lent(plugin.mark)
        self._source = DaliSource(images, plan) if plugin is None else DaliSource(images, plan, plugin.runner)

    def epoch(self, number: int) -> Iterator[Batch]:
        for outputs in self._source.epoch():
            images, labels = self._tensors(outputs)
            yield Batch(images, labels, self._samples)
            # Whoever asks for the next batch has issued the work on this one.
            if self._lent is not None:
                self._lent.keep((outputs, images, labels))

    def _tensors(self, outputs: Any) -> Tuple[Any, Any]:
        if self._lent is not None:
            return self._feed(outputs["images"]), self._feed(outputs["labels"])
        images, labels = (self._feed(numpy.asarray(output.as_tensor())) for output in outputs)
        return images, labels


def dali_names(images: ImageList, plan: DaliPlan, run: int) -> List[str]:
    """The images of DALI's run number ``run`` and of the runs that it had begun ahead.

    They are found by reading again, without decoding, in the reader's own order. The list ends after SEARCH_SECONDS,
    and where the reader itself fails.
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
    """DALI's version; Refused where it is not installed."""
    try:
        import nvidia.dali as dali
    except ImportError as error:
        raise Refused(f"data source dali needs NVIDIA DALI, which this interpreter lacks ({error})") from error
    return str(dali.__version__)


def dali_pipeline(images: ImageList, plan: DaliPlan) -> Any:
    """The built pipeline: read by shard, random crop while decoding, resize, flip and normalise."""
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
        # A label is a vector of one element; the step wants a number.
        label = fn.squeeze(fn.cast(labels.gpu() if on_gpu else labels, dtype=types.INT64), axes=[0])
        pipeline.set_outputs(normalised, label)
    pipeline.build()
    return pipeline


def _dali_seed(plan: DaliPlan) -> int:
    return plan.options.seed + plan.share.rank


def _dali_reader(images: ImageList, share: Share) -> Any:
    """Encoded images and labels of a rank's shard; the first operator of its pipeline, whose seed it takes."""
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


# From what a loader gives to what the step takes.
Feed = Callable[[Any], Any]


@dataclass(frozen=True)
class Loaders:
    """What a framework has of its own."""

    feed: Feed
    # The index of the card that decodes, the rank's own.
    gpu_index: Callable[[], int]
    dali: Callable[[ImageList, DaliPlan], Reader]
    native: Callable[[ImageList, Share, Form], Reader]
    # What the header says of the native loader, by its number of workers; Refused where it lacks something.
    native_loader: Callable[[int], str]


def share_of(trainer: Trainer) -> Share:
    """The share of this process, in batches for all of its cards."""
    spec, ranks = trainer.spec, trainer.ranks
    batch_size = spec.case.batch_size_per_card * spec.cards_per_process
    return Share(ranks.rank, ranks.world_size, batch_size, spec.seed)


def card_shares(trainer: Trainer) -> Tuple[Share, ...]:
    """The share of each card of this process: what one process a card would read."""
    spec = trainer.spec
    return tuple(
        Share(card.number, spec.case.cards, spec.case.batch_size_per_card, spec.seed) for card in trainer.cards
    )


def open_reader(trainer: Trainer, settings: Settings, loaders: Loaders) -> Reader:
    """The reader of the job's data source, whose batches are for all cards of the process; adds what it does to the
    header's facts. Raises DatasetError."""
    return _open(trainer, settings, loaders, share_of(trainer))


def open_card_readers(trainer: Trainer, settings: Settings, loaders: Callable[[CardPlace], Loaders]) -> Reader:
    """As ``open_reader``, with a reader for each card of the process, which reads what one process a card would read.

    A batch's images and its labels are lists with an entry for each card.
    """
    shares = zip(trainer.cards, card_shares(trainer))
    return CardReaders([_open(trainer, settings, loaders(card), share) for card, share in shares])


def _open(trainer: Trainer, settings: Settings, loaders: Loaders, share: Share) -> Reader:
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
        facts["loader"] = loaders.native_loader(settings.native.workers)
        return loaders.native(images, share, form)
    threads = settings.dali.threads or int(facts["threads"])
    decode_gpu = loaders.gpu_index() if spec.device == "gpu" and source is DataSource.DALI else None
    where = "CPU" if decode_gpu is None else "GPU (mixed)"
    facts["loader"] = f"DALI {dali_version()}, {threads} threads, decoding on {where}"
    return loaders.dali(images, DaliPlan(share, form, settings.augmentation, settings.dali, threads, decode_gpu))


def decoding_workers(name: str) -> Callable[[int], str]:
    """``Loaders.native_loader`` of a loader whose worker processes decode by ``images.decode``."""
    return lambda workers: f"{name}, {workers} worker processes, decoding by OpenCV {_opencv_version()}"


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


class CardReaders:
    """The batches of several cards' readers, joined."""

    def __init__(self, readers: Sequence[Reader]) -> None:
        self._readers = list(readers)

    def epoch(self, number: int) -> Iterator[Batch]:
        epochs = [reader.epoch(number) for reader in self._readers]
        while True:
            # Not zip(), which asks no other reader once the first one has ended: what a reader does at an epoch's end
            # (DaliSource) would be left undone.
            batches = [batch for batch in [next(epoch, None) for epoch in epochs] if batch is not None]
            if len(batches) < len(epochs):
                return
            samples = sum(batch.samples for batch in batches)
            yield Batch([batch.images for batch in batches], [batch.labels for batch in batches], samples)


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
