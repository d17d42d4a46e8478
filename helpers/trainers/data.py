"""The images of a job, for any framework: the list, each rank's share, decoding, and DALI's pipeline.

Every epoch has the same number of full batches on every rank; what is left over is dropped.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional, Tuple

import numpy

from helpers.errors import DatasetError
from helpers.trainers.process import Refused
from helpers.trainers.settings import Augmentation, Dali

IMAGE_SIZE = 224
CLASSES = 1000
TRAIN_LIST = "train_list.txt"
# Of ImageNet's pixels, on the scale 0..255, by channel.
MEAN = [123.675, 116.28, 103.53]
STD = [58.395, 57.12, 57.375]
# As DALI and torchvision do; then the centre is taken.
_CROP_ATTEMPTS = 10


@dataclass(frozen=True)
class ImageList:
    """``paths`` are relative to ``root``; ``labels`` lie in 0..999."""

    root: Path
    paths: Tuple[str, ...]
    labels: Tuple[int, ...]


@dataclass(frozen=True)
class Share:
    """What one rank reads: its place among ``world_size``, in batches of ``batch_size`` images."""

    rank: int
    world_size: int
    batch_size: int
    seed: int

    def steps_per_epoch(self, images: int) -> int:
        """Full batches that every rank gets; DatasetError where that is none."""
        steps = images // self.world_size // self.batch_size
        if steps == 0:
            needed = self.world_size * self.batch_size
            raise DatasetError(
                "dataset",
                field="images",
                got=images,
                expected=f"at least {needed}: one batch of {self.batch_size} for each of {self.world_size} ranks",
                remedy="Use a larger dataset or a smaller batch",
            )
        return steps

    def batches(self, images: int, epoch: int) -> Iterator[List[int]]:
        """This rank's image numbers, batch by batch: a new order each epoch, no image on two ranks."""
        order = list(range(images))
        random.Random(f"{self.seed} {epoch}").shuffle(order)
        own = order[self.rank :: self.world_size]
        for step in range(self.steps_per_epoch(images)):
            yield own[step * self.batch_size : (step + 1) * self.batch_size]


@dataclass(frozen=True)
class Form:
    """How a batch arrives: ``layout`` NCHW or NHWC, 3 channels or 4 (the last one zero), float32 or float16."""

    layout: str
    channels: int
    dtype: str

    def shape(self, batch_size: int) -> Tuple[int, int, int, int]:
        if self.layout == "NHWC":
            return batch_size, IMAGE_SIZE, IMAGE_SIZE, self.channels
        return batch_size, self.channels, IMAGE_SIZE, IMAGE_SIZE


def read_train_list(root: Optional[str]) -> ImageList:
    """The images of ``root``'s list; the label stands behind the last space. Raises DatasetError."""
    if root is None:
        raise DatasetError("job", field="data_root", got="nothing", expected="a folder for this data source")
    path = Path(root) / TRAIN_LIST
    paths, labels = [], []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(str(path), got=str(error), expected="a list with lines PATH LABEL") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        image, _, label = line.strip().rpartition(" ")
        if not image.strip() or not (label.isascii() and label.isdigit()) or int(label) >= CLASSES:
            raise DatasetError(f"{path}:{number}", got=line, expected=f"PATH LABEL with a label below {CLASSES}")
        paths.append(image.strip())
        labels.append(int(label))
    return ImageList(Path(root), tuple(paths), tuple(labels))


def decode(path: Path, rng: random.Random, augmentation: Augmentation, form: Form) -> Any:
    """One image as the model takes it: decoded, random resized crop, flip, normalised; an array without batch
    dimension. Raises DatasetError naming the file."""
    from PIL import Image

    try:
        with Image.open(str(path)) as image:
            rgb = image.convert("RGB")
    # Pillow raises SyntaxError and ValueError too on files that are not what they seem.
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DatasetError(str(path), got=str(error), expected="a readable image", remedy="Copy it again") from error
    box = crop_box(rgb.width, rgb.height, rng, augmentation)
    resized = rgb.resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BILINEAR, box=box)
    pixels: Any = numpy.asarray(resized, dtype=numpy.float32)
    if rng.random() < augmentation.flip_probability:
        pixels = pixels[:, ::-1]
    pixels = (pixels - numpy.array(MEAN, numpy.float32)) / numpy.array(STD, numpy.float32)
    if form.channels == 4:
        pixels = numpy.concatenate([pixels, numpy.zeros_like(pixels[..., :1])], axis=2)
    if form.layout == "NCHW":
        pixels = pixels.transpose(2, 0, 1)
    return numpy.ascontiguousarray(pixels, dtype=form.dtype)


def crop_box(
    width: int, height: int, rng: random.Random, augmentation: Augmentation
) -> Tuple[float, float, float, float]:
    """Left, top, right, bottom of a random resized crop in pixels."""
    low, high = augmentation.crop_aspect_ratio
    for _ in range(_CROP_ATTEMPTS):
        area = width * height * rng.uniform(*augmentation.crop_area)
        ratio = math.exp(rng.uniform(math.log(low), math.log(high)))
        crop_width, crop_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            left, top = rng.randint(0, width - crop_width), rng.randint(0, height - crop_height)
            return left, top, left + crop_width, top + crop_height
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def synthetic_batch(share: Share, form: Form) -> Tuple[Any, Any]:
    """One batch of noise with real labels, the same for a seed and a rank: images, labels (int64)."""
    rng = numpy.random.RandomState(share.seed + share.rank)
    images = rng.standard_normal(form.shape(share.batch_size)).astype(form.dtype)
    if form.channels == 4:
        images[(Ellipsis, 3) if form.layout == "NHWC" else (slice(None), 3)] = 0
    labels = rng.randint(0, CLASSES, size=(share.batch_size,)).astype("int64")
    return images, labels


@dataclass(frozen=True)
class DaliPlan:
    """``gpu`` is the index of the decoding card, None for a pipeline wholly on the CPU."""

    share: Share
    form: Form
    augmentation: Augmentation
    options: Dali
    threads: int
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
            raise reading_error(images=self._images, words=str(error).rpartition("encountered:")[2]) from error
        return outputs


def reading_error(images: ImageList, words: str) -> DatasetError:
    """A loader failed and, as loaders do, named no file: so the files are read again to find the broken one."""
    broken = first_unreadable(images)
    return DatasetError(
        str(broken) if broken is not None else f"the loader over {images.root}",
        got=" ".join(words.split())[:150],
        expected="a readable image",
        remedy="Copy it again, or take it out of the list" if broken is not None else "See the rank's own output",
    )


def first_unreadable(images: ImageList, limit: int = 2000) -> Optional[Path]:
    """The first of up to ``limit`` images that does not decode to its end; None where all do."""
    from PIL import Image

    for name in images.paths[:limit]:
        try:
            with Image.open(str(images.root / name)) as image:
                image.load()
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
            return images.root / name
    return None


def dali_version() -> str:
    """DALI's version; Refused where it is not installed."""
    try:
        import nvidia.dali as dali
    except ImportError as error:
        raise Refused(f"data source dali needs NVIDIA DALI, which this interpreter lacks ({error})") from error
    return str(dali.__version__)


def dali_pipeline(images: ImageList, plan: DaliPlan) -> Any:
    """The built pipeline of METHODS.md: read by shard, random crop while decoding, resize, flip and normalise."""
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
        seed=options.seed + share.rank,
        prefetch_queue_depth=options.prefetch_queue_depth,
    )
    with pipeline:
        encoded, labels = fn.readers.file(
            name="reader",
            file_root=str(images.root),
            files=list(images.paths),
            labels=list(images.labels),
            shard_id=share.rank,
            num_shards=share.world_size,
            random_shuffle=True,
            pad_last_batch=True,
        )
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
