"""Lists, shares, decoding and DALI's pipeline, without training."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import ExifTags, Image

from helpers.trainers.common.images import (
    MEAN,
    STD,
    Form,
    ImageList,
    Share,
    crop_box,
    decode,
    read_train_list,
    reading_error,
    synthetic_batch,
)
from helpers.trainers.common.readers import DaliPlan, DaliSource, dali_pipeline
from helpers.trainers.common.settings import Augmentation, Dali, Settings
from helpers.trainers.contract.errors import DatasetError
from tests.helpers.trainers.specs import spec_of

AUGMENTATION = Augmentation((0.08, 1.0), (0.75, 4 / 3), 0.5)
WHOLE = Augmentation((1.0, 1.0), (4 / 3, 4 / 3), 0.0)
NCHW = Form("NCHW", 3, "float32")
PADDED = Form("NHWC", 4, "float16")


def _folder(root: Path, images: int) -> ImageList:
    """Images of one colour each, which no crop changes: the red is 10 x the label."""
    (root / "train").mkdir(parents=True)
    lines = []
    for number in range(images):
        name = f"train/图 {number:03d}.jpeg"
        Image.new("RGB", (40 + number, 30), (10 * number, 100, 50)).save(root / name, quality=100)
        lines.append(f"{name} {number}\n")
    (root / "train_list.txt").write_text("".join(lines), encoding="utf-8")
    return read_train_list(str(root))


def _plan(rank: int, ranks: int, batch: int, form: Form = NCHW, seed: int = 42) -> DaliPlan:
    return DaliPlan(Share(rank, ranks, batch, 1), form, AUGMENTATION, Dali(None, 2, seed, 100, 0, 0), 1, None)


def _dali(images: ImageList, rank: int, ranks: int, batch: int, form: Form = NCHW, seed: int = 42) -> DaliSource:
    return DaliSource(images, _plan(rank, ranks, batch, form, seed))


def _labels(source: DaliSource) -> list[int]:
    return [int(label) for _, labels in source.epoch() for label in numpy.asarray(labels.as_tensor()).reshape(-1)]


@pytest.mark.parametrize(
    "line", ["x.jpeg", "x.jpeg 1000", " 3", "x.jpeg " + "9" * 5000, "/etc/passwd 1", "a/../../x 1"]
)
def test_a_bad_line_is_refused_by_number(tmp_path: Path, line: str) -> None:
    (tmp_path / "train_list.txt").write_text(f"a.jpeg 1\n{line}\n")
    with pytest.raises(DatasetError, match=r"train_list\.txt:2"):
        read_train_list(str(tmp_path))


def test_ranks_share_an_epoch_without_overlap_in_equal_steps_and_a_new_order() -> None:
    images, ranks, batch = 23, 3, 2
    epochs = []
    for epoch in (0, 1):
        shares = [list(Share(rank, ranks, batch, 7).batches(images, epoch)) for rank in range(ranks)]
        seen = [image for share in shares for step in share for image in step]
        assert len(seen) == len(set(seen)) == ranks * batch * (images // ranks // batch)
        assert len({len(share) for share in shares}) == 1
        epochs.append(shares)
    assert epochs[0] != epochs[1]
    with pytest.raises(DatasetError, match="at least 512"):
        Share(0, 2, 256, 7).steps_per_epoch(511)


@pytest.mark.parametrize("form", [NCHW, PADDED])
def test_an_image_is_decoded_normalised_and_flipped_by_chance(tmp_path: Path, form: Form) -> None:
    path = tmp_path / "half.png"
    image = Image.new("RGB", (224, 224), (124, 116, 104))
    image.paste((255, 255, 255), (112, 0, 224, 224))
    image.save(path)
    whole = (1.0, 1.0)
    kept, flipped = (decode(path, random.Random(1), Augmentation(whole, whole, chance), form) for chance in (0.0, 1.0))
    assert (kept.shape, kept.dtype) == (form.shape(1)[1:], form.dtype)
    row, turned = (each[0] if form.layout == "NHWC" else each[:, 0].T for each in (kept, flipped))
    assert abs(row[0, 0]) < 0.02 and row[-1, 0] > 2
    assert not row[:, 3:].any()
    assert numpy.array_equal(turned, row[::-1])


@pytest.mark.parametrize("size", [(500, 375), (1, 1), (3000, 2)])
def test_a_crop_lies_inside_its_image(size: tuple[int, int]) -> None:
    rng = random.Random(3)
    for _ in range(200):
        left, top, right, bottom = crop_box(*size, rng, AUGMENTATION)
        assert 0 <= left < right <= size[0]
        assert 0 <= top < bottom <= size[1]


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_synthetic_batch_is_fixed_by_seed_and_rank_and_has_labels(layout: str) -> None:
    form = Form(layout, 4, "float16")
    images, labels = synthetic_batch(Share(0, 2, 4, 9), form)
    assert (images.shape, labels.dtype) == (form.shape(4), "int64")
    assert 0 <= labels.min() <= labels.max() < 1000
    assert numpy.array_equal(images, synthetic_batch(Share(0, 2, 4, 9), form)[0])
    assert not numpy.array_equal(images, synthetic_batch(Share(1, 2, 4, 9), form)[0])
    by_channel = images if layout == "NCHW" else images.transpose(0, 3, 1, 2)
    assert [bool(channel.any()) for channel in by_channel.swapaxes(0, 1)] == [True, True, True, False]


# ---- DALI's epochs, by counting: every image is its own label


def _copies(root: Path, images: int) -> ImageList:
    """A list of many files that are cheap to decode; a label may exceed the model's classes here."""
    root.mkdir()
    Image.new("RGB", (8, 8)).save(root / "one.jpeg")
    names = tuple(f"{number}.jpeg" for number in range(images))
    for name in names:
        (root / name).hardlink_to(root / "one.jpeg")
    return ImageList(root, names, tuple(range(images)))


@pytest.mark.parametrize(("images", "ranks", "batch"), [(12, 1, 1), (12, 3, 2), (17, 3, 4), (14, 2, 2)])
def test_dali_reads_no_image_twice_an_epoch_over_all_ranks_and_drops_only_what_fills_no_batch(
    tmp_path: Path, images: int, ranks: int, batch: int
) -> None:
    listed = _folder(tmp_path, images)
    sources = [_dali(listed, rank, ranks, batch) for rank in range(ranks)]
    each_rank = images // ranks // batch * batch
    for _ in range(3):
        epoch = [_labels(source) for source in sources]
        assert [len(labels) for labels in epoch] == [each_rank] * ranks
        assert len({label for labels in epoch for label in labels}) == each_rank * ranks


@pytest.mark.slow
def test_dali_repeats_no_image_where_its_shuffling_buffer_is_smaller_than_the_shard(tmp_path: Path) -> None:
    # DALI shuffles within a buffer of 1024 images; a shard of ImageNet is far larger.
    listed = _copies(tmp_path / "many", 2200)
    sources = [_dali(listed, rank, 2, 50) for rank in range(2)]
    for _ in range(2):
        assert sorted(label for source in sources for label in _labels(source)) == list(range(2200))


def test_dali_shuffles_each_epoch_anew_by_its_seed(tmp_path: Path) -> None:
    listed = _folder(tmp_path, 24)

    def epochs(seed: int) -> list[list[int]]:
        source = _dali(listed, 0, 1, 4, seed=seed)
        return [_labels(source) for _ in range(3)]

    first = epochs(42)
    assert len(set(map(tuple, first))) == 3 and sorted(first[0]) != first[0]
    assert first == epochs(42) != epochs(43)


@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_dali_s_operators_get_the_arguments_of_the_case_s_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    from nvidia.dali import fn, types
    from nvidia.dali.pipeline import Pipeline

    told: dict[str, dict[str, Any]] = {}

    def told_of(module: Any, name: str) -> None:
        operator = getattr(module, name)

        def call(*inputs: Any, **arguments: Any) -> Any:
            told[name] = arguments
            return operator(*inputs, **arguments)

        monkeypatch.setattr(module, name, call)

    told_of(fn.decoders, "image_random_crop")
    told_of(fn, "crop_mirror_normalize")
    told_of(fn.random, "coin_flip")
    # There is no card here to build for.
    monkeypatch.setattr(Pipeline, "build", lambda pipeline: None)
    settings = Settings.of(spec_of("paddle-resnet50v1.5-amp_o2-bs256-1x8-dali-static", device))
    on_gpu = device == "gpu"
    plan = DaliPlan(Share(3, 8, 1, 1), PADDED, settings.augmentation, settings.dali, 4, 3 if on_gpu else None)
    pipeline = dali_pipeline(_folder(tmp_path, 8), plan)
    paddings = {"device_memory_padding": 211025920, "host_memory_padding": 140544512}
    assert told["image_random_crop"] == {
        "device": "mixed" if on_gpu else "cpu",
        "output_type": types.RGB,
        "random_area": [0.08, 1.0],
        "random_aspect_ratio": [3 / 4, 4 / 3],
        "num_attempts": 100,
        **(paddings if on_gpu else {}),
    }
    assert told["coin_flip"] == {"probability": 0.5}
    assert (told["crop_mirror_normalize"]["dtype"], told["crop_mirror_normalize"]["pad_output"]) == (
        types.FLOAT16,
        True,
    )
    assert (pipeline.device_id, pipeline.num_threads) == (3 if on_gpu else None, 4)
    assert (pipeline.prefetch_queue_depth, pipeline.seed) == (settings.dali.prefetch_queue_depth, 42 + 3)


@pytest.mark.parametrize("form", [NCHW, PADDED])
def test_dali_gives_the_form_asked_for_and_labels_stay_with_their_images(tmp_path: Path, form: Form) -> None:
    for images, labels in _dali(_folder(tmp_path, 12), 0, 1, 3, form).epoch():
        array: Any = numpy.asarray(images.as_tensor())
        assert (array.shape, array.dtype) == (form.shape(3), form.dtype)
        by_channel = (array if form.layout == "NCHW" else array.transpose(0, 3, 1, 2)).astype("float32")
        assert not by_channel[:, 3:].any()
        red = by_channel[:, 0].mean(axis=(1, 2)) * STD[0] + MEAN[0]
        told = numpy.asarray(labels.as_tensor())
        assert ((red / 10).round().astype(int).tolist(), told.dtype) == (told.tolist(), "int64")


# ---- what a folder may hold: alike through both loaders, or refused by name in both


def _special(path: Path, kind: str) -> None:
    """An image of 320 x 240 whose colours differ from side to side, so that a wrong channel or corner shows."""
    grey = Image.radial_gradient("L").resize((320, 240))
    colours = (grey, grey.transpose(Image.Transpose.FLIP_LEFT_RIGHT).point(lambda value: value // 2), grey.rotate(90))
    image = Image.merge("RGB", colours)
    if kind == "CMYK":
        image.convert("CMYK").save(path, "JPEG", quality=95)
    elif kind == "grey":
        grey.save(path, "JPEG", quality=95)
    elif kind == "1x1":
        image.resize((1, 1)).save(path, "JPEG", quality=95)
    elif kind == "transparent PNG":
        image.convert("RGBA").save(path, "PNG")
    elif kind == "turned":
        exif = Image.Exif()
        # 6: to be turned by a quarter, clockwise, before it is shown.
        exif[ExifTags.Base.Orientation] = 6
        image.transpose(Image.Transpose.ROTATE_90).save(path, "JPEG", quality=95, exif=exif)
    else:
        image.save(path, kind)


def _by_dali(root: Path, name: str) -> Any:
    plan = dataclasses.replace(_plan(0, 1, 1), augmentation=WHOLE)
    images, _ = next(DaliSource(ImageList(root, (name,), (1,)), plan).epoch())
    return numpy.asarray(images.as_tensor())[0]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "CMYK", "grey", "1x1", "transparent PNG", "turned"])
def test_an_image_named_jpeg_gives_the_same_pixels_through_both_loaders(tmp_path: Path, kind: str) -> None:
    name = "空 格 猫.JPEG"
    _special(tmp_path / name, kind)
    native, by_dali = decode(tmp_path / name, random.Random(1), WHOLE, NCHW), _by_dali(tmp_path, name)
    # 1 of 256 levels is 0.017; a decoder rounds, and resizing does so again.
    assert abs(native - by_dali).mean() < 0.02
    if kind == "turned":
        _special(tmp_path / "flat.jpeg", "JPEG")
        assert abs(native - decode(tmp_path / "flat.jpeg", random.Random(1), WHOLE, NCHW)).mean() < 0.02


def _broken(path: Path, fault: str) -> None:
    _special(path, "JPEG")
    whole = path.read_bytes()
    if fault == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif fault == "empty":
        path.write_bytes(b"")
    elif fault == "missing":
        path.unlink()
    elif fault == "noise":
        path.write_bytes(b"no image at all" * 9)
    elif fault == "claims more pixels than memory holds":
        frame = whole.index(b"\xff\xc0")
        path.write_bytes(whole[: frame + 5] + b"\xff" * 4 + whole[frame + 9 :])


@pytest.mark.parametrize("fault", ["cut", "empty", "missing", "noise", "claims more pixels than memory holds"])
def test_what_is_no_whole_image_is_named_by_both_loaders(tmp_path: Path, fault: str) -> None:
    listed = _folder(tmp_path, 4)
    broken = tmp_path / listed.paths[2]
    _broken(broken, fault)
    with pytest.raises(DatasetError, match=r"图 002\.jpeg: got .*expected a readable image"):
        decode(broken, random.Random(1), AUGMENTATION, NCHW)
    with pytest.raises(DatasetError, match=r"图 002\.jpeg: got .*expected a readable image"):
        _labels(_dali(listed, 0, 1, 2))


@pytest.mark.slow
def test_dali_s_broken_image_is_named_far_down_a_list(tmp_path: Path) -> None:
    listed = _copies(tmp_path / "many", 2300)
    broken = listed.root / "2250.jpeg"
    broken.unlink()
    _broken(broken, "noise")
    with pytest.raises(DatasetError, match=r"many/2250\.jpeg: got"):
        _labels(_dali(listed, 0, 1, 7))


def test_a_loader_that_fails_on_no_image_is_named_itself_and_the_longest_name_in_its_words_else(
    tmp_path: Path,
) -> None:
    listed = _copies(tmp_path / "many", 12)
    assert reading_error(listed, "out of memory", listed.paths).about == f"the loader over {listed.root}"
    assert reading_error(listed, "Failed to decode sample #0 : 11.jpeg", ()).about == str(listed.root / "11.jpeg")
