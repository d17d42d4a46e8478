"""Lists, shares, decoding and DALI's pipeline, without training."""

from __future__ import annotations

import collections
import dataclasses
import errno
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from PIL import ExifTags, Image

from helpers.plan.grown_dataset import photographs_folder
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.common.images import (
    MEAN,
    STD,
    Form,
    ImageList,
    Share,
    crop_box,
    decode,
    read_jpeg,
    read_rgb,
    read_train_list,
    reading_error,
    synthetic_batch,
)
from helpers.trainers.common.process import DeviceRecord, RankPlace, Refused
from helpers.trainers.common.readers import (
    DaliPlan,
    DaliSource,
    dali_names,
    dali_pipeline,
    decoding_workers,
    open_reader,
)
from helpers.trainers.common.settings import Augmentation, Dali, Settings
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import DatasetError
from helpers.trainers.contract.job import JobSpec

AUGMENTATION = Augmentation((0.08, 1.0), (0.75, 4 / 3), 0.5)
NCHW = Form("NCHW", 3, "float32")


def _folder(root: Path, images: int) -> ImageList:
    (root / "train").mkdir(parents=True)
    lines = []
    for number in range(images):
        name = f"train/图 {number:03d}.jpeg"
        Image.new("RGB", (40 + number, 30), (number, 100, 50)).save(root / name)
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
    "line",
    ["x.jpeg", "x.jpeg 1000", "x.jpeg -1", " 3", "x.jpeg " + "9" * 5000, "/etc/passwd 1", "a/../../x 1", "a\0b 1"],
)
def test_a_bad_line_is_refused_by_number(tmp_path: Path, line: str) -> None:
    (tmp_path / "train_list.txt").write_text(f"a.jpeg 1\n{line}\n")
    with pytest.raises(DatasetError, match=r"train_list\.txt:2"):
        read_train_list(str(tmp_path))


def test_a_job_without_a_data_folder_is_refused() -> None:
    with pytest.raises(DatasetError, match="data_root"):
        read_train_list(None)


@pytest.mark.parametrize(("images", "ranks", "batch"), [(16, 2, 4), (17, 2, 4), (23, 3, 2)])
def test_ranks_share_an_epoch_without_overlap_and_in_equal_steps(images: int, ranks: int, batch: int) -> None:
    for epoch in (0, 1):
        shares = [list(Share(rank, ranks, batch, 7).batches(images, epoch)) for rank in range(ranks)]
        seen = [image for share in shares for step in share for image in step]
        assert len(seen) == len(set(seen)) == ranks * batch * (images // ranks // batch)
        assert len({len(share) for share in shares}) == 1


def test_each_epoch_has_its_own_order() -> None:
    share = Share(0, 1, 8, 7)
    assert list(share.batches(16, 0)) != list(share.batches(16, 1))
    assert list(share.batches(16, 0)) == list(share.batches(16, 0))


def test_too_few_images_for_one_batch_says_how_many_are_needed() -> None:
    with pytest.raises(DatasetError, match="at least 512: one batch of 256 for each of 2 ranks"):
        Share(0, 2, 256, 7).steps_per_epoch(511)


@pytest.mark.parametrize(
    ("form", "shape"),
    [
        (NCHW, (3, 224, 224)),
        (Form("NHWC", 4, "float16"), (224, 224, 4)),
        (Form("NCHW", 4, "float32"), (4, 224, 224)),
    ],
)
def test_an_image_is_decoded_to_the_form_asked_for(tmp_path: Path, form: Form, shape: tuple[int, ...]) -> None:
    images = _folder(tmp_path, 1)
    array = decode(tmp_path / images.paths[0], random.Random(1), AUGMENTATION, form)
    assert array.shape == shape
    assert array.dtype == form.dtype
    if form.channels == 4:
        last = array[..., 3] if form.layout == "NHWC" else array[3]
        assert not last.any()


def test_pixels_are_normalised_and_flipped_by_chance(tmp_path: Path) -> None:
    path = tmp_path / "half.png"
    image = Image.new("RGB", (224, 224), (124, 116, 104))
    image.paste((255, 255, 255), (112, 0, 224, 224))
    image.save(path)
    whole = (1.0, 1.0)
    kept = decode(path, random.Random(1), Augmentation(whole, whole, 0.0), NCHW)
    flipped = decode(path, random.Random(1), Augmentation(whole, whole, 1.0), NCHW)
    assert abs(kept[0, 0, 0]) < 0.02
    assert kept[0, 0, -1] > 2
    assert numpy.array_equal(flipped, kept[:, :, ::-1])


@pytest.mark.parametrize("size", [(500, 375), (1, 1), (3000, 2), (224, 224)])
def test_a_crop_lies_inside_its_image(size: tuple[int, int]) -> None:
    rng = random.Random(3)
    for _ in range(200):
        left, top, right, bottom = crop_box(*size, rng, AUGMENTATION)
        assert 0 <= left < right <= size[0]
        assert 0 <= top < bottom <= size[1]


def test_a_broken_image_is_named(tmp_path: Path) -> None:
    (tmp_path / "broken.jpeg").write_bytes(b"\xff\xd8 no jpeg")
    with pytest.raises(DatasetError, match=r"broken\.jpeg"):
        decode(tmp_path / "broken.jpeg", random.Random(1), AUGMENTATION, NCHW)


def test_a_synthetic_batch_is_fixed_by_seed_and_rank_and_has_labels() -> None:
    images, labels = synthetic_batch(Share(0, 2, 4, 9), NCHW)
    again, _ = synthetic_batch(Share(0, 2, 4, 9), NCHW)
    other, _ = synthetic_batch(Share(1, 2, 4, 9), NCHW)
    assert images.shape == (4, 3, 224, 224)
    assert labels.dtype == "int64"
    assert 0 <= labels.min() <= labels.max() < 1000
    assert numpy.array_equal(images, again)
    assert not numpy.array_equal(images, other)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_synthetic_batch_s_padded_channel_is_zero_and_no_other(layout: str) -> None:
    images, _ = synthetic_batch(Share(0, 1, 2, 9), Form(layout, 4, "float16"))
    by_channel = images if layout == "NCHW" else images.transpose(0, 3, 1, 2)
    assert [bool(channel.any()) for channel in by_channel.swapaxes(0, 1)] == [True, True, True, False]


# --- DALI's epochs, by counting: every image is its own label


def _copies(root: Path, images: int) -> ImageList:
    """A list of many files that are cheap to decode; a label may exceed the model's classes here."""
    root.mkdir()
    Image.new("RGB", (8, 8)).save(root / "one.jpeg")
    names = tuple(f"{number}.jpeg" for number in range(images))
    for name in names:
        (root / name).hardlink_to(root / "one.jpeg")
    return ImageList(root, names, tuple(range(images)))


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize(("images", "batch"), [(12, 1), (12, 2), (14, 2), (17, 4), (12, 4)])
def test_dali_reads_no_image_twice_an_epoch_over_all_ranks_and_drops_only_what_fills_no_batch(
    tmp_path: Path, images: int, ranks: int, batch: int
) -> None:
    listed = _folder(tmp_path, images)
    sources = [_dali(listed, rank, ranks, batch) for rank in range(ranks)]
    each_rank = images // ranks // batch * batch
    for _ in range(3):
        epoch = [_labels(source) for source in sources]
        assert [len(labels) for labels in epoch] == [each_rank] * ranks
        seen = collections.Counter(label for labels in epoch for label in labels)
        assert len(seen) == sum(seen.values()) == each_rank * ranks
        assert set(seen) <= set(range(images))


def test_dali_reads_every_image_once_where_all_batches_are_full(tmp_path: Path) -> None:
    listed = _folder(tmp_path, 12)
    sources = [_dali(listed, rank, 3, 2) for rank in range(3)]
    for _ in range(3):
        assert sorted(label for source in sources for label in _labels(source)) == list(range(12))


@pytest.mark.slow
def test_dali_repeats_no_image_where_its_shuffling_buffer_is_smaller_than_the_shard(tmp_path: Path) -> None:
    # DALI shuffles within a buffer of 1024 images; a shard of ImageNet is far larger.
    listed = _copies(tmp_path / "many", 2200)
    sources = [_dali(listed, rank, 2, 50) for rank in range(2)]
    for _ in range(2):
        assert sorted(label for source in sources for label in _labels(source)) == list(range(2200))


@pytest.mark.parametrize("ranks", [1, 2])
def test_dali_shuffles_each_epoch_anew(tmp_path: Path, ranks: int) -> None:
    listed = _folder(tmp_path, 24)
    for source in [_dali(listed, rank, ranks, 4) for rank in range(ranks)]:
        first, second, third = (_labels(source) for _ in range(3))
        assert len({tuple(first), tuple(second), tuple(third)}) == 3
        assert first != sorted(first)
        assert second != sorted(second)


def test_dali_s_order_is_that_of_its_seed(tmp_path: Path) -> None:
    listed = _folder(tmp_path, 24)

    def epochs(seed: int) -> list[list[int]]:
        source = _dali(listed, 0, 1, 4, seed=seed)
        return [_labels(source) for _ in range(3)]

    assert epochs(42) == epochs(42)
    assert epochs(42) != epochs(43)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_dali_s_seed_is_the_published_42_plus_the_rank(tmp_path: Path, rank: int) -> None:
    published = settings_for(Case.parse("paddle-resnet50v1.5-fp32-bs256-1x1-dali-static"), "gpu")["dali"]["seed"]
    plan = _plan(rank, 3, 1, seed=published)
    assert dali_pipeline(_folder(tmp_path, 6), plan).seed == 42 + rank


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
    told_of(fn, "resize")
    told_of(fn, "crop_mirror_normalize")
    told_of(fn.random, "coin_flip")
    # There is no card here to build for.
    monkeypatch.setattr(Pipeline, "build", lambda pipeline: None)
    case = Case.parse("paddle-resnet50v1.5-amp_o2-bs256-1x8-dali-static")
    settings = Settings.of(JobSpec("j", case, 0, "r", device, 0, 1, settings=settings_for(case, device)))
    form = Form("NHWC", 4, "float16")
    on_gpu = device == "gpu"
    options = dataclasses.replace(settings.dali, prefetch_queue_depth=5)
    plan = DaliPlan(Share(3, 8, 1, 1), form, settings.augmentation, options, 4, 3 if on_gpu else None)
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
    assert told["resize"] == {"resize_x": 224, "resize_y": 224, "interp_type": types.INTERP_LINEAR}
    assert told["coin_flip"] == {"probability": 0.5}
    assert "mirror" in told["crop_mirror_normalize"]
    assert told["crop_mirror_normalize"]["dtype"] == types.FLOAT16
    assert told["crop_mirror_normalize"]["pad_output"]
    assert (pipeline.device_id, pipeline.num_threads) == (3 if on_gpu else None, 4)
    assert pipeline.prefetch_queue_depth == 5


def test_dali_s_labels_stay_with_their_images(tmp_path: Path) -> None:
    # Red is 10 x the label, and nothing but a flat colour can come out of any crop.
    for number in range(12):
        Image.new("RGB", (40, 30), (10 * number, 60, 60)).save(tmp_path / f"{number}.jpeg", quality=100)
    listed = ImageList(tmp_path, tuple(f"{number}.jpeg" for number in range(12)), tuple(range(12)))
    source = _dali(listed, 0, 1, 3)
    for _ in range(2):
        for images, labels in source.epoch():
            red = numpy.asarray(images.as_tensor())[:, 0].mean(axis=(1, 2)) * STD[0] + MEAN[0]
            assert (red / 10).round().astype(int).tolist() == numpy.asarray(labels.as_tensor()).tolist()


@pytest.mark.parametrize("form", [NCHW, Form("NHWC", 4, "float16")])
def test_dali_gives_the_form_asked_for_with_int64_labels(tmp_path: Path, form: Form) -> None:
    images, labels = next(_dali(_folder(tmp_path, 2), 0, 1, 2, form).epoch())
    array: Any = numpy.asarray(images.as_tensor())
    assert array.shape == form.shape(2)
    assert array.dtype == form.dtype
    if form.channels == 4:
        assert array[..., :3].any()
        assert not array[..., 3].any()
    assert numpy.asarray(labels.as_tensor()).dtype == "int64"


def test_dali_fails_on_a_broken_image_and_the_error_names_it(tmp_path: Path) -> None:
    listed = _folder(tmp_path, 4)
    (tmp_path / listed.paths[2]).write_bytes(b"\xff\xd8\xff\xe0 no jpeg at all")
    with pytest.raises(DatasetError, match=r"图 002\.jpeg: got .*expected a readable image"):
        _labels(_dali(listed, 0, 1, 2))


# ---- what a folder may hold: alike through both loaders, or refused by name in both

WHOLE = Augmentation((1.0, 1.0), (4 / 3, 4 / 3), 0.0)


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
    elif kind == "palette PNG":
        image.convert("P").save(path, "PNG")
    else:
        image.save(path, kind)


def _by_dali(root: Path, name: str) -> Any:
    plan = dataclasses.replace(_plan(0, 1, 1), augmentation=WHOLE)
    images, _ = next(DaliSource(ImageList(root, (name,), (1,)), plan).epoch())
    return numpy.asarray(images.as_tensor())[0]


@pytest.mark.parametrize(
    "kind", ["JPEG", "PNG", "CMYK", "grey", "1x1", "transparent PNG", "palette PNG", "BMP", "TIFF", "WEBP"]
)
def test_an_image_named_jpeg_gives_the_same_pixels_through_both_loaders(tmp_path: Path, kind: str) -> None:
    name = "空 格 猫.JPEG"
    _special(tmp_path / name, kind)
    native, by_dali = decode(tmp_path / name, random.Random(1), WHOLE, NCHW), _by_dali(tmp_path, name)
    # 1 of 256 levels is 0.017; a decoder rounds, and resizing does so again.
    assert abs(native - by_dali).mean() < 0.02


def test_a_photograph_held_upright_is_read_upright_by_both_loaders(tmp_path: Path) -> None:
    _special(tmp_path / "flat.jpeg", "JPEG")
    turned = Image.open(tmp_path / "flat.jpeg").transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    # 6: to be turned by a quarter, clockwise, before it is shown.
    exif[ExifTags.Base.Orientation] = 6
    turned.save(tmp_path / "upright.jpeg", quality=95, exif=exif)
    flat, upright = (decode(tmp_path / name, random.Random(1), WHOLE, NCHW) for name in ("flat.jpeg", "upright.jpeg"))
    assert abs(flat - upright).mean() < 0.02
    assert abs(_by_dali(tmp_path, "upright.jpeg") - upright).mean() < 0.02


def test_opencv_s_jpegs_are_pillow_s_but_for_interpolation(tmp_path: Path) -> None:
    """One level of 256 is 0.017; a crop's mean, and its deviation, on which training depends, stay within 1%."""
    photographs = ("astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg")
    apart = []
    for seed, name in enumerate(photographs * 4):
        path = tmp_path / f"{name}.jpeg"
        Image.open(photographs_folder() / name).convert("RGB").resize((500, 375)).save(path, "JPEG", quality=97)
        here = decode(path, random.Random(seed), AUGMENTATION, NCHW)
        assert read_jpeg(path) is not None
        rng, rgb = random.Random(seed), read_rgb(path)
        box = crop_box(rgb.width, rgb.height, rng, AUGMENTATION)
        pixels = numpy.asarray(rgb.resize((224, 224), Image.Resampling.BILINEAR, box=box), numpy.float32)
        pixels = pixels[:, ::-1] if rng.random() < AUGMENTATION.flip_probability else pixels
        there = ((pixels - MEAN) / STD).transpose(2, 0, 1)
        apart.append(abs(here - there).mean())
        assert abs(here.mean() - there.mean()) < 0.01
        assert here.std() == pytest.approx(there.std(), rel=0.02)
    assert numpy.mean(apart) < 0.017


def test_an_interpreter_without_opencv_is_refused_before_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case.parse("paddle-resnet50v1.5-fp32-bs1-1x1-native-dynamic")
    settings = settings_for(case, "cpu")
    _folder(tmp_path, 1)
    spec = JobSpec("job", case, 0, "/", "cpu", 0, 1, data_root=str(tmp_path), settings=settings)
    trainer: Any = SimpleNamespace(spec=spec, ranks=RankPlace(0, 0, 1), device=DeviceRecord())
    loaders: Any = SimpleNamespace(native=lambda *args: args, native_loader=decoding_workers("a loader"))
    open_reader(trainer, Settings.of(spec), loaders)
    assert trainer.device.facts["loader"].startswith("a loader, 1 worker processes, decoding by OpenCV 4.")
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(Refused, match="install opencv-python-headless"):
        open_reader(trainer, Settings.of(spec), loaders)


def test_workers_without_dev_shm_are_refused_before_they_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own error, which the loaders pass on, is only: No such file or directory."""

    def no_semaphore(*_: object, **__: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr("multiprocessing.synchronize._multiprocessing.SemLock", no_semaphore)
    describe = decoding_workers("a loader")
    with pytest.raises(Refused, match=r"a loader need /dev/shm.*No such file.*--shm-size.*native\.workers=0"):
        describe(2)
    assert describe(0).startswith("a loader, 0 worker processes")


def test_a_jpeg_that_claims_more_pixels_than_memory_holds_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jpeg"
    _special(path, "JPEG")
    content = bytearray(path.read_bytes())
    frame = content.index(b"\xff\xc0")
    content[frame + 5 : frame + 9] = b"\xff\xff\xff\xff"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"bomb\.jpeg: got .*expected a readable image"):
        decode(path, random.Random(1), AUGMENTATION, NCHW)


def _broken(path: Path, fault: str) -> None:
    _special(path, "PNG" if fault == "cut PNG" else "GIF" if fault == "GIF" else "JPEG")
    whole = path.read_bytes()
    if fault.startswith("cut"):
        path.write_bytes(whole[: len(whole) // 2])
    elif fault == "without its end":
        path.write_bytes(whole[:-2])
    elif fault in ("empty", "folder", "missing", "link to itself"):
        path.unlink()
    if fault == "empty":
        path.touch()
    elif fault == "folder":
        path.mkdir()
    elif fault == "link to itself":
        path.symlink_to(path)
    elif fault == "noise":
        path.write_bytes(b"no image at all" * 9)


FAULTS = ["cut JPEG", "cut PNG", "without its end", "empty", "folder", "missing", "link to itself", "noise", "GIF"]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_no_whole_image_is_named_by_both_loaders(tmp_path: Path, fault: str) -> None:
    listed = _folder(tmp_path, 4)
    broken = tmp_path / listed.paths[2]
    broken.unlink()
    _broken(broken, fault)
    with pytest.raises(DatasetError, match=r"图 002\.jpeg: got .*expected a readable image"):
        decode(broken, random.Random(1), AUGMENTATION, NCHW)
    with pytest.raises(DatasetError, match=r"图 002\.jpeg: got .*expected a readable image"):
        _labels(_dali(listed, 0, 1, 2))


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "batch"), [("GIF", 7), ("noise", 7), ("cut JPEG", 7), ("noise", 1)])
def test_dali_s_broken_image_is_named_far_down_a_list(tmp_path: Path, fault: str, batch: int) -> None:
    listed = _copies(tmp_path / "many", 2300)
    broken = listed.root / "2250.jpeg"
    broken.unlink()
    _broken(broken, fault)
    with pytest.raises(DatasetError, match=r"many/2250\.jpeg: got"):
        _labels(_dali(listed, 0, 1, batch))


def test_dali_s_batches_are_told_again_in_its_own_order(tmp_path: Path) -> None:
    listed = _folder(tmp_path, 24)
    plan = dataclasses.replace(_plan(1, 2, 4))
    labels = _labels(DaliSource(listed, plan))
    for run in range(3):
        names = dali_names(listed, plan, run)[:4]
        assert [listed.paths.index(name) for name in names] == labels[4 * run : 4 * run + 4]


def test_a_loader_that_fails_on_no_image_is_named_itself(tmp_path: Path) -> None:
    listed = _folder(tmp_path, 2)
    told = reading_error(listed, "out of memory", listed.paths)
    assert str(told).startswith(f"the loader over {tmp_path}: got 'out of memory'")


def test_of_two_names_in_a_loader_s_words_the_whole_one_is_meant(tmp_path: Path) -> None:
    listed = _copies(tmp_path / "many", 12)
    assert "/many/11.jpeg:" in str(reading_error(listed, "Failed to decode sample #0 : 11.jpeg", ()))
