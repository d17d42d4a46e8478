"""Makes the small dataset on which a case trains if the user names no folder. It is made once, from photographs of
scikit-image.

Each photograph is a class and each image a crop of it, so the labels are real and can be learned. Size (500 x 375) and
file size (about 110 KB) are ImageNet's usual ones, so that decoding costs as much.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import PIL
from PIL import Image

from helpers.common.files import MOST_NOTE_BYTES, own_mode, read_text_limited
from helpers.plan.image_folder import TRAIN_LIST, DatasetFacts, check_dataset
from helpers.trainers.contract.errors import DatasetError

# 1: first generator.
GENERATOR_VERSION = 1
GENERATOR = "perfgate small dataset"
RECORD = "dataset.json"

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
IMAGES_PER_CLASS = 32
LANDSCAPE = (500, 375)
PORTRAIT_SHARE = 0.25
SMALLEST_CROP = 0.55
# With 4:4:4 sampling this gives a mean of about 110 KB over these photographs, as in ImageNet.
JPEG_QUALITY = 97
# It is made in seconds.
_MOST_WAIT_SECONDS = 600.0


def make_small_dataset(
    root: Path,
    *,
    images_per_class: int = IMAGES_PER_CLASS,
    seed: int = 1234,
    photographs: Path | None = None,
) -> DatasetFacts:
    """The small dataset at ``root``, made if it is not there yet.

    A complete one of the same generator, seed and size is reused; a damaged or older one is made again,
    but only if its ``dataset.json`` says that it is ours. ``photographs`` is the folder of the sources
    (default: scikit-image's). Several processes may call this at once. Raises DatasetError, also when
    the disk is full.
    """
    if images_per_class < 1:
        raise DatasetError("small dataset", field="images_per_class", got=images_per_class, expected="at least 1")
    wanted = {
        "generator": GENERATOR,
        "version": GENERATOR_VERSION,
        "seed": seed,
        "images_per_class": images_per_class,
    }
    lock = root.parent / f".{root.name}.lock"
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        # Imported here because collecting tests imports this module and makes nothing.
        from filelock import FileLock

        with FileLock(str(lock), timeout=_MOST_WAIT_SECONDS, mode=own_mode(root.parent)):
            facts = _existing(root, wanted)
            return facts or _make(root, wanted, photographs or photographs_folder())
    except TimeoutError as error:
        raise DatasetError(
            f"small dataset {root}",
            got=f"another process makes it for {_MOST_WAIT_SECONDS:g} s",
            expected="it to be made by then",
            remedy=f"Look which process that is (fuser {lock}), and end it if it hangs",
        ) from error
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise DatasetError(
            f"small dataset {root}",
            got=str(error),
            expected="a folder that can be written",
            remedy="The disk is full: free 40 MB" if full else "Check the folder's permissions",
        ) from error


def photographs_folder() -> Path:
    """scikit-image's data folder, found without importing it (its own dependencies need not be there)."""
    spec = importlib.util.find_spec("skimage")
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    for folder in folders:
        data = Path(folder) / "data"
        if all((data / name).is_file() for name in PHOTOGRAPHS):
            return data
    raise DatasetError(
        "small dataset",
        got="no scikit-image" if not folders else f"no {'/'.join(PHOTOGRAPHS[:1])} … in {folders[0]}",
        expected="the photographs of the package scikit-image",
        remedy="Install requirements/dataset.txt with pip --no-deps, or name your own images with --data",
    )


def _existing(root: Path, wanted: dict[str, Any]) -> DatasetFacts | None:
    """The facts of the dataset at ``root`` if it is complete and as requested; None if it must be made (again)."""
    record = record_of(root, GENERATOR)
    if record is None:
        refuse_foreign(root, "small dataset")
        return None
    if any(record.get(key) != value for key, value in wanted.items()):
        return None
    try:
        sizes = {str(name): int(size) for name, size in record["files"].items()}
        whole = all((root / name).stat().st_size == size for name, size in sizes.items())
        facts = DatasetFacts(root=root, **record["facts"])
    except (KeyError, TypeError, ValueError, AttributeError, OSError):
        return None
    return facts if whole else None


def refuse_foreign(root: Path, what: str) -> None:
    """Raise DatasetError if there is something at ``root`` that is no ``what`` of ours."""
    if root.exists() and not (root.is_dir() and not any(root.iterdir())):
        raise DatasetError(
            f"{what} {root}",
            field=RECORD,
            got="a folder that the suite did not make",
            expected=f"an empty place, or a {what}",
            remedy="Nothing was changed; name your own images with --data, or move the folder away",
        )


def record_of(root: Path, generator: str) -> dict[str, Any] | None:
    """The content of ``dataset.json`` if ``generator`` made the folder."""
    try:
        record = json.loads(read_text_limited(root / RECORD, MOST_NOTE_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and record.get("generator") == generator else None


def _make(root: Path, wanted: dict[str, Any], photographs: Path) -> DatasetFacts:
    for left_over in root.parent.glob(f".{root.name}.making-*"):
        shutil.rmtree(left_over)
    folder = Path(tempfile.mkdtemp(prefix=f".{root.name}.making-", dir=root.parent))
    # mkdtemp makes 0700, but a trainer of another user may read the dataset.
    folder.chmod(0o755)
    try:
        _draw(folder, wanted["images_per_class"], wanted["seed"], photographs)
        facts = check_dataset(folder)
        _write_record(folder, wanted, facts)
        if root.exists():
            root.rename(folder / "replaced")
        folder.rename(root)
        shutil.rmtree(root / "replaced", ignore_errors=True)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return DatasetFacts(**{**vars(facts), "root": root})


def _draw(folder: Path, images_per_class: int, seed: int, photographs: Path) -> None:
    lines = []
    for label, photograph in enumerate(PHOTOGRAPHS):
        name = f"train/{Path(photograph).stem}"
        (folder / name).mkdir(parents=True)
        with Image.open(photographs / photograph) as source:
            image = source.convert("RGB")
        rng = random.Random(f"{seed} {photograph}")
        for index in range(images_per_class):
            path = f"{name}/{Path(photograph).stem}_{index:04d}.jpeg"
            _crop(image, rng).save(folder / path, "JPEG", quality=JPEG_QUALITY, subsampling=0)
            lines.append(f"{path} {label}\n")
    (folder / TRAIN_LIST).write_text("".join(lines), encoding="utf-8")


def _crop(image: Image.Image, rng: random.Random) -> Image.Image:
    width, height = LANDSCAPE if rng.random() >= PORTRAIT_SHARE else LANDSCAPE[::-1]
    scale = min(image.width / width, image.height / height) * rng.uniform(SMALLEST_CROP, 1.0)
    crop_width, crop_height = int(width * scale), int(height * scale)
    left = rng.randint(0, image.width - crop_width)
    top = rng.randint(0, image.height - crop_height)
    box = (left, top, left + crop_width, top + crop_height)
    return image.resize((width, height), Image.Resampling.LANCZOS, box=box)


def _write_record(folder: Path, wanted: dict[str, Any], facts: DatasetFacts) -> None:
    files = {
        path.relative_to(folder).as_posix(): path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()
    }
    facts_record = {key: value for key, value in vars(facts).items() if key != "root"}
    record = {**wanted, "pillow": PIL.__version__, "facts": facts_record, "files": files}
    (folder / RECORD).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
