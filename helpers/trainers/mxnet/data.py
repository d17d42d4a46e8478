"""A job's batches for MXNet: synthetic or through DALI, as the published rows were read. Each card has a reader."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, Dict, Sequence

import mxnet as mx
import numpy

from helpers.trainers.common import readers
from helpers.trainers.common.loop import Reader
from helpers.trainers.common.process import CardPlace, Trainer
from helpers.trainers.common.readers import Feed, Plugin
from helpers.trainers.mxnet.settings import MxnetSettings


def open_reader(trainer: Trainer, settings: MxnetSettings, contexts: Sequence[Any]) -> Reader:
    """A ``readers.open_reader`` for each card, with DALI."""

    def of_card(card: CardPlace) -> Reader:
        context = contexts[card.local]
        loaders = readers.Loaders(feed_to(context), lambda: card.local, lambda: plugin(context))
        return readers.open_reader(trainer, settings, loaders, card)

    return readers.CardReaders([of_card(card) for card in trainer.cards])


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


def plugin(context: Any) -> Plugin:
    """DALI no longer has a plug-in for MXNet: its batches are copied once."""

    def runner(pipeline: Any) -> Callable[[], Dict[str, Any]]:
        return lambda: dict(zip(("images", "labels"), (copied(each.as_tensor(), context) for each in pipeline.run())))

    return Plugin(runner)


def copied(tensor: Any, context: Any) -> Any:
    """A copy of DALI's tensor, which must be on the device of ``context``. It is complete when the function returns."""
    from nvidia.dali.types import to_numpy_type

    array = mx.nd.empty(tuple(tensor.shape()), ctx=context, dtype=to_numpy_type(tensor.dtype))
    array.wait_to_read()
    pointer = ctypes.c_void_p()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
    tensor.copy_to_external(pointer)
    return array
