"""The batch that the frameworks take their steps of parity on, and the comparison of gradients. Every framework's
environment can import this module."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy

from helpers.trainers.common.images import Form, Share, synthetic_batch
from helpers.trainers.common.settings import Settings
from helpers.trainers.contract.job import JobSpec

# In pixels, as small_network.py has networks built. Two by two of them are left for VGG16's last layers, so that the
# order in which its classifier takes them still shows in the loss.
SIZE = 64


def parity_batch(spec: JobSpec, settings: Settings, dtype: str) -> tuple[Any, Any, int]:
    """Images of the NumPy type ``dtype``, cut to SIZE; labels; how many."""
    share = Share(0, 1, spec.case.batch_size_per_card, spec.seed)
    form = Form("NCHW", settings.input_channels, settings.input_dtype)
    images, labels = synthetic_batch(share, form)
    images = images[:, :, :SIZE, :SIZE].astype(dtype)
    # The same pixels in either layout.
    return images.transpose(0, 2, 3, 1) if settings.feed_layout == "NHWC" else images, labels, share.batch_size


def read_arrays(path: Path, names: Collection[str], turned: Callable[[Any], Any]) -> dict[str, Any]:
    """The arrays of a file that ``parity_paddle.py`` wrote, each ``turned`` from Paddle's order into the framework's.
    Raises SystemExit unless they have exactly these names."""
    with numpy.load(path) as given:
        if set(given.files) != set(names):
            raise SystemExit(f"other names: {sorted(set(given.files) ^ set(names))}")
        return {name: turned(given[name]) for name in given.files}


def transposed(value: Any) -> Any:
    """Paddle's matrices lie the other way round than PyTorch's and MXNet's."""
    return value.T if value.ndim == 2 else value


def answer(main: Callable[[JobSpec, Path, Path, str], dict[str, Any]]) -> None:
    """The main function of such a program."""
    path, weights, gradients, dtype = sys.argv[1:]
    spec = JobSpec.from_json(Path(path).read_text(encoding="utf-8"))
    print(json.dumps(main(spec, Path(weights), Path(gradients), dtype)))


def relative_errors(found: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, float]:
    """How far each found tensor is from the expected one, as a share of the expected one's Euclidean norm.

    Both are NumPy arrays by the same names, in the same layout. Raises SystemExit where a tensor is of another
    shape, or expected to be zero: nothing could then be compared.
    """
    errors = {}
    for name, gradient in found.items():
        wanted = expected[name].astype("float64")
        norm = float(numpy.linalg.norm(wanted))
        if gradient.shape != wanted.shape or norm == 0.0:
            raise SystemExit(f"{name}: a gradient of {gradient.shape}, expected {wanted.shape} of norm {norm}")
        errors[name] = float(numpy.linalg.norm(gradient.astype("float64") - wanted)) / norm
    return errors


def beyond(errors: Mapping[str, float], bound: float) -> dict[str, float]:
    """The errors that are not within the bound, NaN among them."""
    return {name: error for name, error in errors.items() if not error <= bound}
