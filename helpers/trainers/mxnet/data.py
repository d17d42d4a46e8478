"""A job's batches for MXNet: synthetic, through DALI, or through Gluon's DataLoader. Each card has a reader."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, Iterator, Sequence, Tuple

import mxnet as mx
import numpy
from mxnet.gluon.data import DataLoader, Dataset

from helpers.trainers.common import readers
from helpers.trainers.common.images import Form, ImageList, Share
from helpers.trainers.common.loop import Batch, Reader
from helpers.trainers.common.process import CardPlace, Refused, Trainer
from helpers.trainers.common.readers import DaliPlan, DaliReader, Feed, KeyedBatches, KeyedImages, Plugin
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.mxnet.settings import MxnetSettings


def open_reader(trainer: Trainer, settings: MxnetSettings, contexts: Sequence[Any]) -> Reader:
    """As ``readers.open_card_readers``, with DALI and Gluon's loader."""

    def loaders(card: CardPlace) -> readers.Loaders:
        context = contexts[card.local]
        feed = feed_to(context)
        return readers.Loaders(
            feed,
            lambda: card.local,
            lambda images, plan: dali_reader(images, plan, context),
            lambda images, share, form: NativeReader(images, share, form, settings, trainer.spec, feed),
            readers.decoding_workers("mxnet.gluon.data.DataLoader"),
        )

    return readers.open_card_readers(trainer, settings, loaders)


def feed_to(context: Any) -> Feed:
    """Copies arrays of a loader (which may overwrite them later), and MXNet's own arrays, onto a card.

    Labels become float32, as usual in MXNet: under AMP its oneDNN does not accept integers.
    """

    def feed(batch: Any) -> Any:
        dtype = "float32" if numpy.dtype(batch.dtype).kind == "i" else batch.dtype
        if isinstance(batch, mx.nd.NDArray):
            return batch.as_in_context(context).astype(dtype, copy=False)
        return mx.nd.array(batch, ctx=context, dtype=dtype)

    return feed


def dali_reader(images: ImageList, plan: DaliPlan, context: Any) -> DaliReader:
    """Reads through DALI without a plug-in, since DALI no longer has one for MXNet: its batches are copied once."""
    feed = feed_to(context)
    if plan.gpu is None:
        return DaliReader(images, plan, feed)
    return DaliReader(images, plan, feed, Plugin(lambda pipeline: copying(pipeline, context), _Done))


def copying(pipeline: Any, context: Any) -> Callable[[], Dict[str, Any]]:
    """Returns a function that returns the pipeline's next batch, in MXNet's memory on the pipeline's device."""

    def batch() -> Dict[str, Any]:
        images, labels = (copied(output.as_tensor(), context) for output in pipeline.run())
        return {"images": images, "labels": labels}

    return batch


def copied(tensor: Any, context: Any) -> Any:
    """A copy of DALI's tensor, which must be on the device of ``context``. It is complete when the function returns."""
    from nvidia.dali.types import to_numpy_type

    array = mx.nd.empty(tuple(tensor.shape()), ctx=context, dtype=to_numpy_type(tensor.dtype))
    array.wait_to_read()
    pointer = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
    tensor.copy_to_external(pointer)
    return array


class _Done:
    """A mark for readers.Lent that is always reached: batches are copied, so nothing is lent."""

    def query(self) -> bool:
        return True


class NativeReader:
    """Reads through Gluon's DataLoader. Its worker processes decode; they are pinned to the cores of their parent."""

    def __init__(
        self, images: ImageList, share: Share, form: Form, settings: MxnetSettings, spec: JobSpec, feed: Feed
    ) -> None:
        native = settings.native
        if native.workers and not native.shared_memory:
            raise Refused("Gluon's loader has its workers' batches in shared memory: native.shared_memory must be true")
        self._samples = share.batch_size
        self._feed = feed
        self._sampler = KeyedBatches(images, share)
        self._loader: Any = DataLoader(
            _Images(KeyedImages(images, form, settings.augmentation, spec.seed)),
            batch_sampler=self._sampler,
            num_workers=native.workers,
            prefetch=native.workers * native.prefetch_factor,
        )

    def epoch(self, number: int) -> Iterator[Batch]:
        self._sampler.epoch = number
        for images, labels in self._loader:
            yield Batch(self._feed(images), self._feed(labels), self._samples)


class _Images(Dataset):
    """A dataset with keys of epoch and image. An image that cannot be read raises an error in the worker, which Gluon
    raises again."""

    def __init__(self, images: KeyedImages) -> None:
        self._images = images

    def __getitem__(self, key: Tuple[int, int]) -> Tuple[Any, Any]:
        return self._images.read(key)

    def __len__(self) -> int:
        return len(self._images)
