"""A damaged data folder gets an error that names what is wrong; the small one is made once and kept whole."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest
from filelock import FileLock
from PIL import Image

from helpers.plan import image_folder, small_dataset
from helpers.plan.image_folder import DatasetFacts, check_dataset
from helpers.plan.small_dataset import PHOTOGRAPHS, make_small_dataset
from helpers.trainers.common.images import read_train_list
from helpers.trainers.contract.errors import DatasetError
from tests.hostile_strings import TEXTS


def _image(path: Path, kind: str = "JPEG", size: tuple[int, int] = (20, 10)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.linear_gradient("L").resize(size).convert("RGB").save(path, kind)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "图 像 data"
    for name in ("a", "b"):
        _image(root / "train" / "n 01" / f"{name} 猫.jpeg")
    lines = "train/n 01/a 猫.jpeg 0\n\ntrain/n 01/b 猫.jpeg 999\n"
    (root / "train_list.txt").write_text(lines, encoding="utf-8")
    return root


def _write(folder: Path, line: str) -> None:
    (folder / "train_list.txt").write_text(f"train/n 01/a 猫.jpeg 0\n{line}\n", encoding="utf-8")


def test_a_good_folder_with_spaces_and_chinese_names_gives_its_facts(folder: Path) -> None:
    facts = check_dataset(folder)
    assert (facts.images, facts.classes, facts.mean_width, facts.mean_height) == (2, 2, 20.0, 10.0)
    size = (folder / "train/n 01/a 猫.jpeg").stat().st_size
    assert facts.mean_bytes == size
    assert check_dataset(folder).digest == facts.digest


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train/" + "n" * 300 + ".jpeg 0", ["train_list.txt:2", "File name too long"]),
        ("train/x.jpeg", ["train_list.txt:2", "PATH LABEL"]),
        ("train/x.jpeg zero", ["train_list.txt:2", "'label'", "'zero'", "0 to 999"]),
        ("train/x.jpeg 1000", ["'label'", "'1000'", "1000 classes"]),
        ("train/../../x.jpeg 0", ["'path'", "inside the data folder"]),
        ("train/missing.jpeg 0", ["train_list.txt:2", "train/missing.jpeg", "No such file"]),
        ("train/n 01 0", ["'path'", "a file"]),
    ],
)
def test_a_bad_line_is_named_with_file_line_and_field(folder: Path, line: str, words: list[str]) -> None:
    _write(folder, line)
    with pytest.raises(DatasetError) as refused:
        check_dataset(folder)
    assert [word for word in words if word not in str(refused.value)] == []


def test_images_that_are_empty_cut_or_no_jpeg_are_refused_by_name(folder: Path) -> None:
    victim = folder / "train/n 01/b 猫.jpeg"
    whole = victim.read_bytes()
    victim.write_bytes(b"")
    with pytest.raises(DatasetError, match=r"b 猫\.jpeg: got '0 bytes'"):
        check_dataset(folder)
    victim.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DatasetError, match=r"b 猫\.jpeg.*(?i:truncated)"):
        check_dataset(folder)
    victim.write_bytes(b"not an image")
    with pytest.raises(DatasetError, match=r"b 猫\.jpeg.*cannot identify"):
        check_dataset(folder)
    Image.linear_gradient("L").save(victim, "GIF")
    with pytest.raises(DatasetError, match=r"b 猫\.jpeg: got 'GIF, mode L', expected a JPEG or PNG"):
        check_dataset(folder)
    Image.linear_gradient("L").convert("I;16").save(victim, "PNG")
    with pytest.raises(DatasetError, match=r"got 'PNG, mode I;16', expected .* 8 bits a colour"):
        check_dataset(folder)


@pytest.mark.parametrize("kind", ["PNG", "CMYK", "grey", "1x1"])
def test_what_imagenet_itself_holds_under_the_name_of_a_jpeg_is_taken(folder: Path, kind: str) -> None:
    victim = folder / "train/n 01/b 猫.jpeg"
    grey = Image.linear_gradient("L")
    if kind == "PNG":
        _image(victim, "PNG")
    elif kind == "CMYK":
        grey.convert("CMYK").save(victim, "JPEG")
    else:
        (grey if kind == "grey" else grey.resize((1, 1))).save(victim, "JPEG")
    assert check_dataset(folder).images == 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.symlink_to(path.with_name("nowhere")), "No such file"),
        (lambda path: os.mkfifo(path), "expected a file"),
    ],
    ids=["a dangling link", "a pipe"],
)
def test_what_is_no_file_under_the_name_of_one_is_refused(
    folder: Path, make: Callable[[Path], None], words: str
) -> None:
    make(folder / "train" / "x.JPEG")
    _write(folder, "train/x.JPEG 0")
    with pytest.raises(DatasetError, match=rf"train_list\.txt:2: field 'path': got 'train/x\.JPEG'.*{words}"):
        check_dataset(folder)


def test_of_a_large_folder_an_even_sample_is_decoded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_folder, "DECODE_ALL_UP_TO", 10)
    monkeypatch.setattr(image_folder, "DECODE_SAMPLE", 4)
    lines = [image_folder._Line(number, "p", 0) for number in range(1, 21)]
    assert [line.number for line in image_folder._sample(lines)] == [1, 6, 11, 16]
    assert image_folder._sample(lines[:10]) == lines[:10]


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photographs")
    for name in PHOTOGRAPHS:
        _image(folder / name, "PNG" if name.endswith("png") else "JPEG", (520, 400))
    return folder


def _make(root: Path, photographs: Path, seed: int = 1) -> DatasetFacts:
    return make_small_dataset(root, images_per_class=2, seed=seed, photographs=photographs)


def test_the_small_dataset_passes_the_check_of_a_real_one(tmp_path: Path, photographs: Path) -> None:
    facts = _make(tmp_path / "small", photographs)
    assert facts == check_dataset(tmp_path / "small")
    assert (facts.images, facts.classes) == (2 * len(PHOTOGRAPHS), len(PHOTOGRAPHS))
    assert {facts.mean_width + facts.mean_height} == {875.0}
    assert [path.name for path in tmp_path.iterdir() if "making" in path.name] == []


@pytest.mark.slow
def test_it_is_made_once_and_the_same_everywhere(tmp_path: Path, photographs: Path) -> None:
    first = _make(tmp_path / "one", photographs)
    with mock.patch.object(small_dataset, "_draw", side_effect=AssertionError("made again")):
        assert _make(tmp_path / "one", photographs) == first
    assert _make(tmp_path / "two", photographs).digest == first.digest


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["missing", "older"])
def test_a_damaged_or_older_one_of_ours_is_made_again(tmp_path: Path, photographs: Path, damage: str) -> None:
    root = tmp_path / "small"
    facts = _make(root, photographs)
    image = next(root.rglob("*.jpeg"))
    record = json.loads((root / "dataset.json").read_text())
    if damage == "missing":
        image.unlink()
    elif damage == "cut":
        image.write_bytes(image.read_bytes()[:100])
    else:
        record.update({"version": 0} if damage == "older" else {"facts": {"images": 3}})
        (root / "dataset.json").write_text(json.dumps(record))
    assert _make(root, photographs) == facts
    assert check_dataset(root) == facts
    assert not (root / "replaced").exists()


@pytest.mark.parametrize("text", [None, "{", '{"generator": "somebody"}'])
def test_a_folder_that_is_not_ours_is_never_touched(tmp_path: Path, photographs: Path, text: str | None) -> None:
    root = tmp_path / "small"
    root.mkdir()
    (root / "precious.txt").write_text("keep")
    if text is not None:
        (root / "dataset.json").write_text(text)
    with pytest.raises(DatasetError, match="did not make"):
        _make(root, photographs)
    assert (root / "precious.txt").read_text() == "keep"


def test_a_maker_that_hangs_is_not_waited_for_for_ever(
    tmp_path: Path, photographs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_dataset, "_MOST_WAIT_SECONDS", 0.0)
    other = FileLock(str(tmp_path / ".small.lock"), is_singleton=False)
    with other, pytest.raises(DatasetError, match=r"another process makes it for 0 s.*fuser"):
        _make(tmp_path / "small", photographs)


def test_a_full_disk_is_an_error_that_leaves_nothing_behind(tmp_path: Path, photographs: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        mock.patch.object(small_dataset, "_write_record", side_effect=full),
        pytest.raises(DatasetError, match=r"No space left.*free 40 MB"),
    ):
        _make(tmp_path / "small", photographs)
    assert [path.name for path in tmp_path.iterdir()] == [".small.lock"]


@pytest.mark.slow
def test_the_real_one_has_imagenet_s_usual_file_size(tmp_path: Path) -> None:
    facts = make_small_dataset(tmp_path / "small", images_per_class=4)
    assert 90_000 < facts.mean_bytes < 130_000
    shutil.rmtree(tmp_path / "small")


@pytest.mark.parametrize("trick", TEXTS)
def test_an_image_of_any_name_is_the_same_to_the_check_and_the_trainer_or_is_refused_in_words(
    folder: Path, trick: str
) -> None:
    name = TEXTS[trick]
    with contextlib.suppress(OSError, ValueError):
        _image(folder / "train" / f"{name}.jpeg")
    text = f"train/n 01/a 猫.jpeg 0\ntrain/{name}.jpeg 1\n"
    (folder / "train_list.txt").write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        facts = check_dataset(folder)
    except DatasetError as error:
        assert str(error).isprintable()
        return
    images = read_train_list(str(folder))
    assert facts.images == len(images.paths) == 2
    assert images.paths[1] == f"train/{name}.jpeg"
