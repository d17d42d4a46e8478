"""Checks the folder of images that the trainers read, which has ImageNet's layout.

``train/<class>/*.jpeg`` and ``train_list.txt`` with lines ``train/n01440764/x.jpeg 0``. The label stands behind the
last space, so that names may hold spaces. A file's content decides what it is, not its name: ImageNet itself has a PNG
and some CMYK images named .JPEG, and both loaders turn them to RGB.

A published comparison needs so many images that no epoch begins within the steps that its rule uses. The publishers fed
ImageNet, or its validation set many times over (docs/published.md). On a few hundred images an epoch has a few
steps, and the reader's work between two epochs would be measured instead of the card's.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from helpers.common.files import MOST_LIST_BYTES, named_by_user, read_text_limited
from helpers.judging.rules.own import RULES
from helpers.trainers.contract.case import Case, DataSource
from helpers.trainers.contract.errors import DatasetError

TRAIN_LIST = "train_list.txt"
# Decoding all 1.28 million images of ImageNet would take half an hour; a small folder is checked whole.
DECODE_ALL_UP_TO = 2000
DECODE_SAMPLE = 500
# The formats that are accepted, by content. The loaders differ in which others they could decode.
FORMATS = ("JPEG", "PNG")
# Besides its own errors Pillow raises these for files that are not what they seem.
_UNREADABLE = (
    OSError, SyntaxError, ValueError, TypeError, LookupError, ArithmeticError, struct.error, zlib.error,
    Image.DecompressionBombError,
)  # fmt: skip


@dataclass(frozen=True)
class DatasetFacts:
    """The facts of a usable folder."""

    root: Path
    images: int
    # The number of labels that occur.
    classes: int
    # The digest of path, label and file size of every line, not of the pixels.
    digest: str
    # How many images the suite has made for a published comparison: the list names each several times. 0: none.
    made: int = 0

    def describe(self) -> str:
        """The description of the data in a result's environment: ``256 images, 8 classes, digest 0123456789ab``."""
        images = (
            f"{self.made} made images, each {self.images // self.made} times" if self.made else f"{self.images} images"
        )
        return f"{images}, {self.classes} classes, digest {self.digest[:12]}"

    def remark(self) -> str:
        """What the reader of a figure must know of the images; empty for a folder of the user's."""
        if not self.made:
            return ""
        return (
            f"not on ImageNet: on {self.made:,} images of its sizes, which the suite made from photographs; the list "
            f"names each {self.images // self.made} times, and once read they come from memory (page cache)"
        )


@dataclass(frozen=True)
class _Line:
    number: int
    path: str
    label: int


def check_dataset(root: Path, classes: int = 1000) -> DatasetFacts:
    """The facts of an ImageNet-layout folder whose labels lie in 0..``classes``-1.

    Every listed file must exist and hold bytes; every image of up to DECODE_ALL_UP_TO, else an evenly
    spaced sample of DECODE_SAMPLE, must decode as a JPEG or PNG of 8 bits a colour to its end. Raises DatasetError
    naming file, line and remedy.
    """
    lines = list(_read_list(root, classes))
    if not lines:
        raise DatasetError(
            f"{root / TRAIN_LIST}",
            got="no line",
            expected="one line per image: PATH LABEL",
            remedy="List the images, or leave --data out to use the small dataset",
        )
    digest = hashlib.sha256()
    for line in lines:
        digest.update(f"{line.path}\0{line.label}\0{_size(root, line)}\n".encode())
    for line in _sample(lines):
        _decode(root, line)
    return DatasetFacts(
        root=root,
        images=len(lines),
        classes=len({line.label for line in lines}),
        digest=digest.hexdigest(),
    )


def _read_list(root: Path, classes: int) -> Iterator[_Line]:
    path = root / TRAIN_LIST
    try:
        # Editors of other systems add a byte order mark and carriage returns.
        text = read_text_limited(named_by_user(path), MOST_LIST_BYTES, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(
            f"data folder {root}",
            field=TRAIN_LIST,
            got=str(error),
            expected="a list in UTF-8 with one line per image: train/n01440764/x.jpeg 0",
            remedy="Correct --data (or data.root in perf.yaml), or leave it out: then images are made",
        ) from error
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        if line.strip():
            yield _parse(f"{path}:{number}", number, line, classes)


def _parse(about: str, number: int, line: str, classes: int) -> _Line:
    path, space, word = line.strip().rpartition(" ")
    if not space or not path.strip():
        raise DatasetError(about, got=line, expected="PATH LABEL, separated by a space")
    # int() also accepts '1_0', '+1' and digits of other scripts; DALI and the frameworks' own loaders do not.
    if not (word.isascii() and word.isdigit()):
        raise DatasetError(about, field="label", got=word, expected=f"a whole number from 0 to {classes - 1}")
    label = int(word) if len(word) < 10 else classes
    if label >= classes:
        raise DatasetError(
            about,
            field="label",
            got=word,
            expected=f"a whole number from 0 to {classes - 1}",
            remedy=f"The models have {classes} classes",
        )
    path = path.strip()
    if path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise DatasetError(
            about,
            field="path",
            got=path,
            expected="a path inside the data folder, relative to it",
            remedy="Move the image into the folder, or link its class folder into train/",
        )
    return _Line(number, path, label)


def _size(root: Path, line: _Line) -> int:
    try:
        # 1.28 million Paths take longer to make than to look at.
        status = os.stat(f"{root}/{line.path}")  # noqa: PTH116
    except OSError as error:
        raise DatasetError(
            _about(root, line),
            field="path",
            got=line.path,
            expected=f"a file ({error.strerror})",
            remedy="Copy the missing image, or take its line out of the list",
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise DatasetError(_about(root, line), field="path", got=line.path, expected="a file")
    if status.st_size == 0:
        raise DatasetError(
            str(root / line.path), got="0 bytes", expected="an image", remedy="The copy broke off: copy it again"
        )
    return status.st_size


def _sample(lines: list[_Line]) -> list[_Line]:
    if len(lines) <= DECODE_ALL_UP_TO:
        return lines
    return [lines[index * len(lines) // DECODE_SAMPLE] for index in range(DECODE_SAMPLE)]


def _decode(root: Path, line: _Line) -> None:
    path = root / line.path
    try:
        with Image.open(path) as image:
            # A mode I or F has more bits: the loaders would make different pixels of it.
            if image.format not in FORMATS or image.mode.startswith(("I", "F")):
                raise DatasetError(
                    str(path),
                    got=f"{image.format}, mode {image.mode}",
                    expected="a JPEG or PNG image of 8 bits a colour",
                    remedy=f"Convert it ({_about(root, line)})",
                )
            image.load()
    except _UNREADABLE as error:
        raise DatasetError(
            str(path),
            got=str(error) or type(error).__name__,
            expected="an image that decodes to its end",
            remedy=f"Copy it again, or take it out of the list ({_about(root, line)})",
        ) from error


def _about(root: Path, line: _Line) -> str:
    return f"{root / TRAIN_LIST}:{line.number}"


# ---- the images that a published comparison needs


@dataclass(frozen=True)
class ImagesNeeded:
    """One epoch of ``images`` images feeds all cards of ``case`` for ``steps`` steps: those that ``rule`` uses or
    skips."""

    case: Case
    steps: int
    rule: str

    @property
    def images(self) -> int:
        return self.steps * self.case.batch_size_per_card * self.case.cards

    def describe(self) -> str:
        cards = f"{self.case.cards} card{'s' if self.case.cards > 1 else ''}"
        batch = self.case.batch_size_per_card
        return f"{self.images:,} images an epoch ({self.steps} steps of {batch} on {cards}, by {self.rule})"

    def why_not(self, data: DatasetFacts) -> str | None:
        """Why ``data`` has too few images, and what to do; None if there are enough."""
        if data.images >= self.images:
            return None
        return (
            f"too few images for its published figure: {data.images:,} in {data.root}, needs {self.describe()}. Name a "
            "folder with as many: --data FOLDER, ImageNet's training set or a train_list.txt that names its images "
            "several times, as the publishers' did"
        )


def images_needed(case: Case, rules: Iterable[str]) -> ImagesNeeded | None:
    """The images that the longest of ``rules`` needs; None if no images are read or no rule is known."""
    if case.data is DataSource.SYNTHETIC:
        return None
    steps, rule = max(((RULES[rule].steps, rule) for rule in rules if rule in RULES), default=(0, ""))
    return ImagesNeeded(case, steps, rule) if steps else None
