"""A damaged data folder gets an error that names what is wrong."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from helpers.plan import image_folder
from helpers.plan.image_folder import check_dataset
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
    assert (facts.images, facts.classes) == (2, 2)
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


@pytest.mark.parametrize("what", ["empty", "cut", "no image", "GIF", "16 bits"])
def test_images_that_are_empty_cut_or_no_jpeg_are_refused_by_name(folder: Path, what: str) -> None:
    victim = folder / "train/n 01/b 猫.jpeg"
    whole = victim.read_bytes()
    if what == "GIF":
        Image.linear_gradient("L").save(victim, "GIF")
    elif what == "16 bits":
        Image.linear_gradient("L").convert("I;16").save(victim, "PNG")
    else:
        victim.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "no image": b"not an image"}[what])
    with pytest.raises(DatasetError, match=r"b 猫\.jpeg") as refused:
        check_dataset(folder)
    assert "image" in str(refused.value.expected)


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
    monkeypatch.setattr(image_folder, "DECODE_ALL_UP_TO", 1)
    monkeypatch.setattr(image_folder, "DECODE_SAMPLE", 1)
    (folder / "train/n 01/b 猫.jpeg").write_bytes(b"not an image, and not among the sample")
    assert check_dataset(folder).images == 2
    (folder / "train/n 01/a 猫.jpeg").write_bytes(b"not an image")
    with pytest.raises(DatasetError, match="a 猫"):
        check_dataset(folder)


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


@pytest.mark.parametrize("what", ["no folder", "no list", "a list that is no text"])
def test_a_folder_without_a_list_is_refused_with_the_way_out(folder: Path, what: str) -> None:
    if what == "a list that is no text":
        (folder / "train_list.txt").write_bytes(b"\xff\xfe\xff")
    else:
        (folder / "train_list.txt").unlink()
    with pytest.raises(DatasetError) as refused:
        check_dataset(folder / "nowhere" if what == "no folder" else folder)
    assert (refused.value.field, "--data" in (refused.value.remedy or "")) == ("train_list.txt", True)
