"""A job's batches for TensorFlow: synthetic, through DALI, or through tf.data from image files or TFRecord."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Iterator, Mapping, Tuple

import numpy
import tensorflow as tf

from helpers.trainers.common import readers
from helpers.trainers.common.images import MEAN, STD, Form, ImageList, Share, reading_error
from helpers.trainers.common.loop import Batch, Reader
from helpers.trainers.common.process import Trainer
from helpers.trainers.common.readers import Feed, KeyedBatches, Plugin
from helpers.trainers.common.settings import Augmentation
from helpers.trainers.contract.models import IMAGE_SIZE
from helpers.trainers.tensorflow.records import FOLDER, LABEL, PIXELS, shards_of
from helpers.trainers.tensorflow.settings import TensorflowSettings

# As in NVIDIA's script: how many files are read at the same time, and how many crops are tried before the whole image
# is taken.
_FILES_AT_A_TIME = 10
_CROP_ATTEMPTS = 100
_SOURCES = {"jpeg": "from the folder's files", "tfrecord": f"from TFRecord in {FOLDER}/"}
_JPEG = b"\xff\xd8"


def open_reader(trainer: Trainer, settings: TensorflowSettings, device: str) -> Reader:
    """As ``readers.open_reader``, with DALI and tf.data."""
    feed = feed_to(device)
    loaders = readers.Loaders(
        feed,
        lambda: 0,
        lambda: PLUGIN,
        lambda images, share, form: NativeReader(images, share, form, settings, trainer.spec.seed, device),
        lambda workers: f"tf.data, {workers} threads, {_SOURCES[settings.native_source]}, decoding by TensorFlow",
    )
    return readers.open_reader(trainer, settings, loaders, trainer.cards[0])


def feed_to(device: str) -> Feed:
    """Copies a loader's arrays to the device."""

    def feed(batch: Any) -> Any:
        if not isinstance(batch, numpy.ndarray):
            return batch
        with tf.device(device):
            return tf.constant(batch)

    return feed


def _lending_runner(pipeline: Any) -> Callable[[], Mapping[str, Any]]:
    def following() -> Mapping[str, Any]:
        # Called without a stream, it returns when the card has made them.
        lent = [tf.experimental.dlpack.from_dlpack(each.as_tensor().__dlpack__()) for each in pipeline.run()]
        return dict(zip(("images", "labels"), lent))

    return following


# On a GPU DALI's tensors are lent through DLPack, since DALI's plug-in for TensorFlow would have to be compiled. A step
# is waited for (``device.timer_of``) before DALI fills them anew.
PLUGIN = Plugin(_lending_runner)


class NativeReader:
    """Reads through tf.data. Its threads decode; they are pinned to the cores of their rank."""

    def __init__(
        self, images: ImageList, share: Share, form: Form, settings: TensorflowSettings, seed: int, device: str
    ) -> None:
        native = settings.native
        self._images, self._share = images, share
        self._batches = KeyedBatches(images, share)
        self._ahead = native.prefetch_factor + native.workers
        self._steps = share.steps_per_epoch(len(images.paths))
        draw = _Drawing(settings.augmentation, form, seed)
        parallel = {"num_parallel_calls": native.workers, "deterministic": True} if native.workers else {}

        def start(epoch: int) -> Any:
            if settings.native_source == "jpeg":
                samples = _files(images, share, epoch)
            else:
                samples = _records(images, share, epoch, settings.shuffle_buffer)
            batches = samples.map(draw, **parallel).batch(share.batch_size, drop_remainder=True)
            if device.startswith("GPU:"):
                ready = batches.apply(tf.data.experimental.prefetch_to_device(device, native.prefetch_factor))
            else:
                ready = batches.prefetch(native.prefetch_factor)
            return iter(ready.with_options(_options(native.workers)))

        self._start = start
        self._epoch = -1
        self._stream: Any = None

    def epoch(self, number: int) -> Iterator[Batch]:
        """Continues where the previous epoch ended, since the loader has already read images of this one."""
        if number != self._epoch + 1 or self._stream is None:
            self._stream = self._start(number)
        self._epoch = self._batches.epoch = number
        for step in range(self._steps):
            try:
                images, labels = next(self._stream)
            except tf.errors.OpError as error:
                raise reading_error(self._images, str(error), self._batches.names(step, self._ahead)) from error
            yield Batch(images, labels, self._share.batch_size)


def _options(workers: int) -> Any:
    options = tf.data.Options()
    options.threading.private_threadpool_size = max(1, workers)
    options.threading.max_intra_op_parallelism = 1
    # Autotuning would change the numbers of the settings.
    options.autotune.enabled = False
    return options


def _files(images: ImageList, share: Share, first_epoch: int) -> Any:
    """(encoded image, label, key) of the rank's files in the suite's own order, in an endless series of epochs."""
    paths = tf.constant([str(images.root / path) for path in images.paths])
    labels = tf.constant(images.labels, tf.int64)

    def keys() -> Iterator[Any]:
        for epoch in itertools.count(first_epoch):
            for batch in share.batches(len(images.paths), epoch):
                yield numpy.array([[epoch, image] for image in batch], numpy.int64)

    signature = tf.TensorSpec([share.batch_size, 2], tf.int64)
    drawn = tf.data.Dataset.from_generator(keys, output_signature=signature).unbatch()
    return drawn.map(lambda key: (tf.io.read_file(paths[key[1]]), labels[key[1]], key))


def _records(images: ImageList, share: Share, first_epoch: int, buffer: int) -> Any:
    """As ``_files``, from the folder's records: whole files for each rank, or every n-th record if there are fewer
    files than ranks."""
    shards = shards_of(images)
    files = tf.data.Dataset.from_tensor_slices([str(each) for each in shards])
    by_file = len(shards) >= share.world_size
    files = files.shard(share.world_size, share.rank) if by_file else files
    records = files.interleave(tf.data.TFRecordDataset, cycle_length=min(_FILES_AT_A_TIME, len(shards)))
    records = records if by_file else records.shard(share.world_size, share.rank)
    shuffled = records.shuffle(buffer, seed=share.seed + first_epoch, reshuffle_each_iteration=True).repeat()
    wanted = {PIXELS: tf.io.FixedLenFeature([], tf.string), LABEL: tf.io.FixedLenFeature([], tf.int64)}

    def parsed(number: Any, record: Any) -> Tuple[Any, Any, Any]:
        found = tf.io.parse_single_example(record, wanted)
        # Labels in records count from 1.
        return found[PIXELS], found[LABEL] - 1, tf.stack([tf.constant(first_epoch, tf.int64), number])

    return shuffled.enumerate().map(parsed)


class _Drawing:
    """Decodes one image, crops it randomly, resizes, flips and normalises it. Key and seed determine the result."""

    def __init__(self, augmentation: Augmentation, form: Form, seed: int) -> None:
        self._augmentation, self._form, self._seed = augmentation, form, seed

    def __call__(self, encoded: Any, label: Any, key: Any) -> Tuple[Any, Any]:
        # The factor is larger than the number of epochs and images of a run, so that each image has its own seeds for
        # crop and flip.
        crop_seed = tf.stack([key[0] + self._seed * 100_003, 2 * key[1]])
        flip_seed = tf.stack([key[0] + self._seed * 100_003, 2 * key[1] + 1])
        is_jpeg = tf.equal(tf.strings.substr(encoded, 0, 2), _JPEG)
        cropped = tf.cond(
            is_jpeg, lambda: self._cropped_jpeg(encoded, crop_seed), lambda: self._cropped(encoded, crop_seed)
        )
        pixels = tf.image.resize(cropped, [IMAGE_SIZE, IMAGE_SIZE])
        flips = tf.random.stateless_uniform([], flip_seed) < self._augmentation.flip_probability
        pixels = tf.cond(flips, lambda: tf.reverse(pixels, [1]), lambda: pixels)
        normalised = (pixels - tf.constant(MEAN, tf.float32)) / tf.constant(STD, tf.float32)
        if self._form.channels == 4:
            normalised = tf.pad(normalised, [[0, 0], [0, 0], [0, 1]])
        if self._form.layout == "NCHW":
            normalised = tf.transpose(normalised, [2, 0, 1])
        normalised = tf.ensure_shape(normalised, self._form.shape(1)[1:])
        return tf.cast(normalised, self._form.dtype), label

    def _cropped_jpeg(self, encoded: Any, seed: Any) -> Any:
        begin, size = self._box(tf.io.extract_jpeg_shape(encoded), seed)
        window = tf.concat([begin[:2], size[:2]], 0)
        return tf.io.decode_and_crop_jpeg(encoded, window, channels=3)

    def _cropped(self, encoded: Any, seed: Any) -> Any:
        pixels = tf.io.decode_image(encoded, channels=3, expand_animations=False)
        begin, size = self._box(tf.shape(pixels), seed)
        return tf.slice(pixels, begin, size)

    def _box(self, shape: Any, seed: Any) -> Tuple[Any, Any]:
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            shape,
            bounding_boxes=tf.constant([[[0.0, 0.0, 1.0, 1.0]]]),
            seed=seed,
            min_object_covered=0.0,
            aspect_ratio_range=self._augmentation.crop_aspect_ratio,
            area_range=self._augmentation.crop_area,
            max_attempts=_CROP_ATTEMPTS,
        )
        return begin, size
