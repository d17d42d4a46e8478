"""Draws images like ImageNet's from photographs, each from its number alone.

As a program it is one of the processes that fill a folder:
``python -m helpers.plan.photo_images ROOT PHOTOGRAPHS SEED COUNT SHARE SHARES``.

What is known of ImageNet, and so is meant:

- Most images are 500 pixels wide or high (Ehrlich's survey, below), and their mean is said everywhere to be 469 x 387;
  nobody names who measured it. The shares of the single sizes below are ours, chosen to come near this mean.
- "The vast majority … are not chroma subsampled and were quantized at quality 96" (M. Ehrlich, "Compression in the
  ImageNet Dataset", 2021): hence 4:4:4. Quality 97 makes a mean of 110 KB of these photographs; the archives of
  ILSVRC 2012 have 115 KB an image for training (147,897,477,120 bytes) and 135 KB for validation (6,744,924,160 bytes).
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from PIL import Image

from helpers.common.files import open_regular
from helpers.plan.small_dataset import PHOTOGRAPHS

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
PART = ".part"


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


def label_of(number: int) -> int:
    """An image's class is its photograph."""
    return number % len(PHOTOGRAPHS)


def name_of(number: int) -> str:
    """``train/coffee/coffee_000010.jpeg``: where image ``number`` lies in the folder."""
    stem = Path(PHOTOGRAPHS[label_of(number)]).stem
    return f"train/{stem}/{stem}_{number:06d}.jpeg"


def is_whole(path: Path) -> bool:
    """Whether the file is there and ends as a JPEG does. A machine that lost power may leave one that does not."""
    try:
        with open_regular(path) as file:
            file.seek(-len(_END_OF_JPEG), os.SEEK_END)
            return file.read() == _END_OF_JPEG
    except OSError:
        return False


def main(arguments: list[str]) -> int:
    """Draw the missing images of one share, a dot on standard output for each. 1 if the disk takes no more."""
    root, photographs = (Path(each) for each in arguments[:2])
    seed, count, share, shares = (int(each) for each in arguments[2:])
    drawing = Drawing(photographs, seed)
    for number in range(share, count, shares):
        path = root / name_of(number)
        if is_whole(path):
            continue
        part = path.with_name(f".{path.name}.{os.getpid()}{PART}")
        try:
            drawing.draw(number).save(part, "JPEG", quality=JPEG_QUALITY, subsampling=0)
            part.replace(path)
            # Fails once nobody listens any more, so that no process outlives a killed suite.
            os.write(1, b".")
        except OSError as error:
            print(error, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
