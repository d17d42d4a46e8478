"""Makes images like ImageNet's from photographs of scikit-image, where the user names no folder: a few for the cases
for which nothing is published, and as many as a published comparison needs.

``ROOT/train`` holds the images, and ``ROOT/lists/50000x13`` is a data folder of its own: 50,000 of them, each 13 times
in its list. So a case always reads the same images, however many others need.

Paddle's publisher read the 50,000 images of ImageNet's validation set again and again (docs/published.md), so no
comparison needs more different ones; its list still is as long as the steps that its rule takes.

What is known of ImageNet, and so is meant:

- Most images are 500 pixels wide or high (Ehrlich's survey, below), and their mean is said everywhere to be 469 x 387;
  nobody names who measured it. The shares of the single sizes below are ours, chosen to come near this mean.
- "The vast majority … are not chroma subsampled and were quantized at quality 96" (M. Ehrlich, "Compression in the
  ImageNet Dataset", 2021): hence 4:4:4. Quality 97 makes a mean of 110 KB of these photographs; the archives of
  ILSVRC 2012 have 115 KB an image for training (147,897,477,120 bytes) and 135 KB for validation (6,744,924,160 bytes).
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import PIL
from PIL import Image

from helpers.common.files import MOST_NOTE_BYTES, lock_within, open_lock, open_regular, read_text_limited, write_whole
from helpers.machine.host import Space, space
from helpers.plan.image_folder import TRAIN_LIST, DatasetFacts, ImagesNeeded, check_dataset
from helpers.trainers.contract.errors import DatasetError

GENERATOR = "perfgate grown dataset"
# 1: first generator.
GENERATOR_VERSION = 1
RECORD = "dataset.json"
# Each is a class.
PHOTOGRAPHS = (
    "astronaut.png",
    "chelsea.png",
    "coffee.png",
    "hubble_deep_field.jpg",
    "ihc.png",
    "motorcycle_left.png",
    "retina.jpg",
    "rocket.jpg",
)
# Enough for the batches of the CPU cases.
FEW_IMAGES = 256
# The images of ImageNet's validation set.
MOST_IMAGES = 50_000
# Mean of an image, with the rest of its last block.
BYTES_AN_IMAGE = 115_000
# What stays free for the runs' own files.
KEPT_FREE_BYTES = 2 * 10**9
# Width and height in pixels, and the share of such images in percent.
SIZES = {
    (500, 375): 45.0,
    (500, 333): 17.0,
    (375, 500): 12.0,
    (333, 500): 5.0,
    (500, 500): 5.0,
    (400, 300): 6.0,
    (320, 240): 5.0,
    (640, 480): 4.0,
    (800, 600): 0.7,
    (1024, 768): 0.3,
}
SMALLEST_CROP = 0.55
JPEG_QUALITY = 97
# Factor and offset of each colour.
_GAIN, _OFFSET = (0.85, 1.15), (-20.0, 20.0)
_END_OF_JPEG = b"\xff\xd9"
_PART = ".part"
# The list is this many times as long as a rule's steps need, because warm-up may go on.
_LONGER = 2
_FIRST_WORD_SECONDS, _SAY_SECONDS = 3.0, 15.0
# An image takes milliseconds, and all of them an hour on two cores.
_MOST_WAIT_SECONDS = 4 * 3600.0
Say: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class GrownDataset:
    """The images under ``root``. Several processes may use it at once; an image, once made, never changes."""

    root: Path
    seed: int = 1234
    # How many threads draw; None: one for each core.
    threads: int | None = None
    free: Callable[[Path], Space] = space
    _known: dict[tuple[int, int], DatasetFacts] = field(default_factory=dict)

    def first(self, count: int = FEW_IMAGES) -> DatasetFacts:
        """A data folder of the first images, made if they are not there yet. Raises DatasetError."""
        self.grow(count, lambda line: None)
        return check_dataset(self._listed(count, 1))

    def feeding(self, needed: ImagesNeeded, say: Say) -> DatasetFacts:
        """The folder from which the case is fed, made if it is not there yet. Raises DatasetError."""
        count = images_for(needed)
        times = -(-_LONGER * needed.images // count)
        if (count, times) not in self._known:
            self.grow(count, say)
            facts = check_dataset(self._listed(count, 1))
            listed = replace(facts, root=self._listed(count, times), images=count * times, made=count)
            self._known[count, times] = listed
        return self._known[count, times]

    def why_not(self, count: int) -> str:
        """Why the disk has no room for ``count`` images; empty if it has, or they are there."""
        missing = count - sum(1 for _ in self.root.glob("train/*/*.jpeg"))
        if missing <= 0:
            return ""
        place = next(folder for folder in (self.root, *self.root.parents) if folder.exists())
        found, wanted = self.free(place), missing * BYTES_AN_IMAGE + KEPT_FREE_BYTES
        enough_files = found.free_files is None or found.free_files > missing
        if found.free_bytes >= wanted and enough_files:
            return ""
        got = f"{found.free_bytes / 1e9:.1f} GB are free" if enough_files else f"{found.free_files:,} inodes are free"
        need = f"{wanted / 1e9:.1f} GB ({KEPT_FREE_BYTES / 1e9:.0f} GB of them for the runs)"
        return f"{missing:,} more images in {self.root} need {need}, {got}"

    def missing(self, count: int) -> list[int]:
        """The numbers below ``count`` of the images that are not there, or not whole."""
        return [number for number in range(count) if not _is_whole(self.root / name_of(number))]

    def grow(self, count: int, say: Say) -> None:
        """Make the images that are missing of the first ``count``.

        What is there stays, so a killed call is gone on with. ``say`` is told how far it is. Raises DatasetError, also
        if the disk is full.
        """
        try:
            self.root.parent.mkdir(parents=True, exist_ok=True)
            with self._locked(say):
                self._mark()
                if not (missing := self.missing(count)):
                    return
                if why := self.why_not(count):
                    remedy = "Free the rest, or name your own images with --data"
                    raise DatasetError("made images", got=why, expected="room for them", remedy=remedy)
                for left_over in self.root.glob(f"train/*/*{_PART}"):
                    left_over.unlink(missing_ok=True)
                for name in {Path(name_of(number)).parent for number in missing}:
                    (self.root / name).mkdir(parents=True, exist_ok=True)
                self._draw(missing, say)
        except OSError as error:
            raise DatasetError(
                f"images {self.root}",
                got=str(error),
                expected="a folder that can be written, and that no other process holds",
                remedy="Free space, or correct the folder's permissions, and start again: what was made stays",
            ) from error

    @contextlib.contextmanager
    def _locked(self, say: Say) -> Iterator[None]:
        descriptor = open_lock(self.root.parent / f".{self.root.name}.lock")
        try:
            waiting = f"images: waiting for another process that makes them in {self.root}"
            lock_within(_MOST_WAIT_SECONDS, descriptor, fcntl.LOCK_EX, lambda: say(waiting))
            yield
        finally:
            os.close(descriptor)

    def _mark(self) -> None:
        """Say in ``dataset.json`` who made the folder. One of another generator is made anew; one that is not ours is
        refused."""
        wanted = {"generator": GENERATOR, "version": GENERATOR_VERSION, "seed": self.seed}
        record = self._record()
        if all(record.get(key) == value for key, value in wanted.items()):
            return
        if record.get("generator") == GENERATOR:
            shutil.rmtree(self.root)
        elif self.root.exists() and not (self.root.is_dir() and not any(self.root.iterdir())):
            raise DatasetError(
                f"made images {self.root}",
                field=RECORD,
                got="a folder that the suite did not make",
                expected="an empty place, or made images",
                remedy="Nothing was changed; name your own images with --data, or move the folder away",
            )
        self.root.mkdir(exist_ok=True)
        about = "made by perfgate from photographs of scikit-image; these are not ImageNet's images"
        text = json.dumps({**wanted, "about": about, "pillow": PIL.__version__}, indent=1, sort_keys=True)
        write_whole(self.root / RECORD, f"{text}\n".encode())

    def _record(self) -> dict[str, Any]:
        try:
            record = json.loads(read_text_limited(self.root / RECORD, MOST_NOTE_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        return record if isinstance(record, dict) else {}

    def _draw(self, missing: list[int], say: Say) -> None:
        """Draw the images, and say how far the drawing is, and how long the rest takes at the rate so far."""
        drawing = Drawing(photographs_folder(), self.seed)
        cores = len(os.sched_getaffinity(0)) if self.threads is None else self.threads
        began, due = time.monotonic(), _FIRST_WORD_SECONDS
        # Pillow resizes and compresses without Python's lock.
        with ThreadPoolExecutor(cores) as pool:
            drawn = [pool.submit(drawing.write, self.root, number) for number in missing]
            try:
                for made, each in enumerate(as_completed(drawn), 1):
                    each.result()
                    seconds = time.monotonic() - began
                    if seconds >= due:
                        due = seconds + _SAY_SECONDS
                        left = max(1, round((len(missing) - made) * seconds / made))
                        far = f"{made:,} of {len(missing):,} made, {made / seconds:.0f}/s by {cores} threads"
                        say(f"images: {far}, about {left // 60}:{left % 60:02} left")
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _listed(self, count: int, times: int) -> Path:
        """The data folder of the first ``count`` images, each ``times`` in its list."""
        folder = self.root / "lists" / f"{count}x{times}"
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            (folder / "train").symlink_to(Path("..") / ".." / "train")
        once = "".join(f"{name_of(number)} {label_of(number)}\n" for number in range(count)).encode()
        path = folder / TRAIN_LIST
        if not (path.exists() and path.stat().st_size == len(once) * times):
            write_whole(path, once * times)
        return folder


def images_for(needed: ImagesNeeded) -> int:
    """How many different images a comparison is given."""
    return min(needed.images, MOST_IMAGES)


class Drawing:
    """Draws image number ``n`` of a seed: always the same, whoever draws it and whatever was drawn before."""

    def __init__(self, photographs: Path, seed: int) -> None:
        self._seed = seed
        self._sources = []
        for name in PHOTOGRAPHS:
            with Image.open(photographs / name) as image:
                self._sources.append(image.convert("RGB"))

    def draw(self, number: int) -> Image.Image:
        """A crop of a photograph, perhaps mirrored, in other colours."""
        rng = random.Random(f"{self._seed} {number}")
        source = self._sources[label_of(number)]
        width, height = rng.choices(list(SIZES), list(SIZES.values()))[0]
        scale = min(source.width / width, source.height / height) * rng.uniform(SMALLEST_CROP, 1.0)
        left = rng.uniform(0, source.width - width * scale)
        top = rng.uniform(0, source.height - height * scale)
        # A rounding error may put an edge beyond the photograph.
        right, bottom = min(left + width * scale, source.width), min(top + height * scale, source.height)
        image = source.resize((width, height), Image.Resampling.BICUBIC, box=(left, top, right, bottom))
        if rng.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        colours = [(rng.uniform(*_GAIN), rng.uniform(*_OFFSET)) for _ in range(3)]
        return image.point(
            [max(0, min(255, round(value * gain + offset))) for gain, offset in colours for value in range(256)]
        )

    def write(self, root: Path, number: int) -> None:
        """Write the image to its place below ``root``, where it is whole or not at all. Raises OSError."""
        path = root / name_of(number)
        part = path.with_name(f".{path.name}{_PART}")
        self.draw(number).save(part, "JPEG", quality=JPEG_QUALITY, subsampling=0)
        part.replace(path)


def label_of(number: int) -> int:
    """An image's class is its photograph."""
    return number % len(PHOTOGRAPHS)


def name_of(number: int) -> str:
    """``train/coffee/coffee_000010.jpeg``: where image ``number`` lies in the folder."""
    stem = Path(PHOTOGRAPHS[label_of(number)]).stem
    return f"train/{stem}/{stem}_{number:06d}.jpeg"


def _is_whole(path: Path) -> bool:
    """Whether the file is there and ends as a JPEG does. A machine that lost power may leave one that does not."""
    try:
        with open_regular(path) as file:
            file.seek(-len(_END_OF_JPEG), os.SEEK_END)
            return file.read() == _END_OF_JPEG
    except OSError:
        return False


def photographs_folder() -> Path:
    """scikit-image's data folder, found without importing it (its own dependencies need not be there)."""
    spec = importlib.util.find_spec("skimage")
    folders = [Path(each) / "data" for each in (spec.submodule_search_locations or ())] if spec is not None else []
    for folder in folders:
        if all((folder / name).is_file() for name in PHOTOGRAPHS):
            return folder
    raise DatasetError(
        "made images",
        got=f"not all of its photographs in {folders[0]}" if folders else "no scikit-image",
        expected="the photographs of the package scikit-image",
        remedy="Install requirements/dataset.txt with pip --no-deps, or name your own images with --data",
    )
