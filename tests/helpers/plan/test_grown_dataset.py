"""The dataset that grows to as many images as a published comparison needs, from real photographs by real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy
import pytest
from PIL import Image

from helpers.machine.host import Space
from helpers.plan import grown_dataset
from helpers.plan.grown_dataset import MOST_IMAGES, GrownDataset, images_for
from helpers.plan.image_folder import ImagesNeeded, check_dataset
from helpers.plan.photo_images import Drawing, name_of
from helpers.plan.small_dataset import photographs_folder
from helpers.trainers.common.images import Form, ImageList, Share, read_train_list
from helpers.trainers.common.readers import DaliPlan, DaliReader, KeyedBatches, KeyedImages
from helpers.trainers.common.settings import Augmentation, Dali
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import DatasetError

ONE_CARD = Case.parse("paddle-vgg16-fp32-bs1-1x1-native-static")
EIGHT_CARDS = Case.parse("paddle-resnet50v1.5-amp_o2-bs256-1x8-dali-static")


def quiet(line: str) -> None:
    """Nobody listens."""


def digests(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*.jpeg"))
    }


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> GrownDataset:
    """200 images, made by two processes."""
    made = GrownDataset(tmp_path_factory.mktemp("data") / "grown", processes=2)
    made.grow(200, quiet)
    return made


def test_images_are_of_imagenet_s_sizes_and_file_sizes(grown: GrownDataset) -> None:
    sizes, files, grey = [], [], []
    for path in grown.root.glob("train/*/*.jpeg"):
        files.append(path.stat().st_size)
        with Image.open(path) as image:
            sizes.append(image.size)
            # 4:4:4, as most of ImageNet's: each colour component has as many samples as the first.
            assert {component[1:3] for component in image.layer} == {(1, 1)}  # type: ignore[attr-defined]
            grey.append(numpy.asarray(image.convert("L").resize((16, 16)), dtype=float).ravel())
    assert len(files) == 200
    assert 100_000 < sum(files) / 200 < 125_000
    assert abs(sum(width for width, _ in sizes) / 200 - 469) < 25
    assert abs(sum(height for _, height in sizes) / 200 - 387) < 25
    # Most are 500 wide or high, some are smaller or larger, and no two are the same.
    assert 0.7 < sum(1 for size in sizes if 500 in size) / 200 < 0.95
    assert len(set(sizes)) >= 6
    assert len(set(digests(grown.root).values())) == 200
    assert min(numpy.std(each) for each in grey) > 5


@pytest.mark.parametrize("processes", [1, 3])
def test_however_many_processes_draw_the_images_are_the_same(
    grown: GrownDataset, tmp_path: Path, processes: int
) -> None:
    other = replace(grown, root=tmp_path / "other", processes=processes, _known={})
    other.grow(40, quiet)
    there = digests(grown.root)
    assert digests(other.root) == {name: there[name] for name in map(name_of, range(40))}
    assert digests(other.root)[name_of(3)] != sha256(_drawn(tmp_path, seed=2)).hexdigest()


def _drawn(folder: Path, seed: int) -> bytes:
    path = folder / "drawn.jpeg"
    Drawing(photographs_folder(), seed).draw(3).save(path, "JPEG", quality=97, subsampling=0)
    return path.read_bytes()


def test_a_case_reads_the_same_images_however_many_others_need(grown: GrownDataset) -> None:
    """Its recorded figure would be incomparable otherwise: the images' digest is part of what must be equal."""
    few = ImagesNeeded(ONE_CARD, 24, "a-rule")
    first = grown.feeding(few, quiet)
    assert (first.images, first.made, first.classes) == (48, 24, 8)
    assert first.describe().startswith("24 made images, each 2 times, 8 classes, digest ")
    fresh = replace(grown, _known={})
    fresh.grow(208, quiet)
    assert fresh.feeding(few, quiet) == first
    assert few.why_not(first) is None
    assert check_dataset(first.root).images == 48


def test_an_eight_card_comparison_gets_the_validation_set_s_number_and_a_list_for_all_its_steps(
    grown: GrownDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = ImagesNeeded(EIGHT_CARDS, 310, "paddleclas-trimmed")
    assert (needed.images, images_for(needed), MOST_IMAGES) == (634_880, 50_000, 50_000)
    monkeypatch.setattr(grown_dataset, "MOST_IMAGES", 200)
    facts = replace(grown, _known={}).feeding(ImagesNeeded(EIGHT_CARDS, 1, "a-rule"), quiet)
    # 2,048 images a step, and as many again for a longer warm-up.
    assert (facts.images, facts.made) == (4200, 200)
    assert facts.remark().startswith("not on ImageNet: on 200 images of its sizes")
    assert "names each 21 times" in facts.remark()
    images = read_train_list(str(facts.root))
    seen = [index for rank in range(8) for batch in _batches(images, rank) for index in batch]
    assert len(seen) == len(set(seen)) == 2 * 2048
    assert len({images.paths[index] for index in seen}) == 200


def _batches(images: ImageList, rank: int) -> list[list[int]]:
    return list(Share(rank, 8, 256, 1).batches(len(images.paths), 0))


def test_dali_and_the_native_loaders_read_it(grown: GrownDataset) -> None:
    pytest.importorskip("nvidia.dali")
    images = read_train_list(str(grown.feeding(ImagesNeeded(ONE_CARD, 24, "a-rule"), quiet).root))
    augmentation, form = Augmentation((0.08, 1.0), (0.75, 4 / 3), 0.5), Form("NCHW", 3, "float32")
    plan = DaliPlan(Share(0, 1, 8, 1), form, augmentation, Dali(None, 2, 42, 10, 0, 0), 1, None)
    batches = list(DaliReader(images, plan, numpy.asarray).epoch(0))
    assert [batch.images.shape for batch in batches] == [(8, 3, 224, 224)] * 6
    assert sorted(label for batch in batches for label in batch.labels.tolist()) == sorted(list(range(8)) * 6)
    native = KeyedImages(images, form, augmentation, 1)
    keys = [key for batch in KeyedBatches(images, Share(0, 1, 8, 1)) for key in batch]
    pixels = numpy.stack([native.read(key)[0] for key in keys])
    assert pixels.shape == (48, 3, 224, 224) and 0.3 < pixels.std() < 3


def test_what_a_killed_session_made_stays_and_nothing_half_written_is_used(tmp_path: Path) -> None:
    root = tmp_path / "grown"
    code = (
        "from pathlib import Path; from helpers.plan.grown_dataset import GrownDataset;"
        f"GrownDataset(Path({str(root)!r}), processes=2).grow(5000, print)"
    )
    suite = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL)
    _wait_for(lambda: len(list(root.glob("train/*/*.jpeg"))) >= 12)
    suite.send_signal(signal.SIGKILL)
    suite.wait()
    # Its processes end by themselves: the first dot that nobody reads ends each.
    _wait_for(lambda: not _drawing(root))
    before = {path: path.stat().st_mtime_ns for path in root.glob("train/*/*.jpeg")}
    broken = max(before)
    broken.write_bytes(broken.read_bytes()[:1000])
    (broken.parent / f".{broken.name}.1.part").write_bytes(b"half")
    made = GrownDataset(root, processes=2)
    wanted = max(int(path.stem[-6:]) for path in before) + 4
    assert [str(root / name_of(number)) for number in made.missing(wanted)].count(str(broken)) == 1
    made.grow(wanted, quiet)
    assert made.missing(wanted) == []
    after = {path: path.stat().st_mtime_ns for path in root.glob("train/*/*.jpeg")}
    assert all(after[path] == before[path] for path in before if path != broken)
    assert list(root.glob("train/*/.*")) == []
    assert check_dataset(made._listed(wanted, 1)).images == wanted


def _drawing(root: Path) -> list[int]:
    """The processes that draw into ``root``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(root).encode() in words and b"photo_images" in words:
                found.append(int(entry.name))
    return found


def _wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        os.sched_yield()


def test_an_interrupt_ends_all_processes_and_keeps_what_is_there(tmp_path: Path) -> None:
    root = tmp_path / "grown"

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt(line)

    grown = GrownDataset(root, processes=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grown_dataset, "_FIRST_WORD_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt, match=r"of 5,000 made, \d+/s by 2 processes, about \d+:\d\d left"):
            grown.grow(5000, interrupt)
    assert _drawing(root) == []
    there = len(list(root.glob("train/*/*.jpeg")))
    assert there >= 1
    assert len(grown.missing(5000)) == 5000 - there


def test_two_sessions_at_once_make_each_image_once(tmp_path: Path) -> None:
    root, said = tmp_path / "grown", []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grown_dataset, "_FIRST_WORD_SECONDS", 0.0)
        began, go_on = threading.Event(), threading.Event()

        def first_says(line: str) -> None:
            began.set()
            assert go_on.wait(60)

        def second_says(line: str) -> None:
            said.append(line)
            go_on.set()

        first = threading.Thread(target=GrownDataset(root, processes=1).grow, args=(20, first_says))
        first.start()
        assert began.wait(60)
        GrownDataset(root, processes=1).grow(20, second_says)
        first.join()
    assert said == [f"images: waiting for another process that makes them in {root}"]
    assert GrownDataset(root).missing(20) == []


def test_a_disk_that_is_too_small_is_said_before_anything_is_made(tmp_path: Path) -> None:
    grown = GrownDataset(tmp_path / "grown", free=lambda path: Space(10**12, 5 * 10**9))
    with pytest.raises(DatasetError, match=r"50,000 more images in .* need 7\.8 GB") as refused:
        grown.grow(50_000, quiet)
    assert "5.0 GB are free" in str(refused.value) and "--data" in str(refused.value)
    assert list(grown.root.glob("train")) == []
    assert grown.why_not(20_000) == ""
    few_inodes = replace(grown, free=lambda path: Space(10**12, 10**11, 100))
    assert "100 inodes are free" in few_inodes.why_not(200)
    assert few_inodes.why_not(50) == ""


def test_a_disk_that_is_full_meanwhile_is_an_error_in_words(tmp_path: Path, grown: GrownDataset) -> None:
    """A folder that takes no file stands for the full disk: the process ends, and its words come back."""
    other = replace(grown, root=tmp_path / "grown", processes=1, _known={})
    other.grow(8, quiet)
    (tmp_path / "grown" / Path(name_of(8))).mkdir()
    with pytest.raises(DatasetError, match=r"Is a directory.*expected a folder that can be written"):
        other.grow(16, quiet)


def test_the_folder_says_that_it_is_not_imagenet(grown: GrownDataset) -> None:
    record = json.loads((grown.root / "dataset.json").read_text())
    assert record["about"] == "made by perfgate from photographs of scikit-image; these are not ImageNet's images"
    assert (record["generator"], record["seed"]) == ("perfgate grown dataset", 1234)


def test_a_folder_that_is_not_ours_is_never_touched(tmp_path: Path) -> None:
    root = tmp_path / "grown"
    root.mkdir()
    (root / "precious.txt").write_text("keep")
    with pytest.raises(DatasetError, match="did not make"):
        GrownDataset(root).grow(8, quiet)
    assert [path.name for path in root.iterdir()] == ["precious.txt"]


def test_one_of_another_seed_is_made_anew(tmp_path: Path) -> None:
    GrownDataset(tmp_path / "grown", processes=1).grow(8, quiet)
    first = digests(tmp_path / "grown")
    GrownDataset(tmp_path / "grown", seed=2, processes=1).grow(8, quiet)
    second = digests(tmp_path / "grown")
    assert first.keys() == second.keys() and not set(first.values()) & set(second.values())
