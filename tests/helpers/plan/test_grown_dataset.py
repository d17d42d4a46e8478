"""The dataset that grows to as many images as a published comparison needs, from real photographs."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy
import pytest
from filelock import FileLock
from PIL import Image

from helpers.machine.host import Space
from helpers.plan import grown_dataset
from helpers.plan.grown_dataset import MOST_IMAGES, Drawing, GrownDataset, images_for, name_of, photographs_folder
from helpers.plan.image_folder import ImagesNeeded, check_dataset
from helpers.trainers.common.images import ImageList, Share, read_train_list
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import DatasetError

pytestmark = pytest.mark.slow

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
    """200 images, made by two threads."""
    made = GrownDataset(tmp_path_factory.mktemp("data") / "grown", threads=2)
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


def test_however_many_threads_draw_the_images_are_the_same(grown: GrownDataset, tmp_path: Path) -> None:
    other = replace(grown, root=tmp_path / "other", threads=3, _known={})
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


def test_what_a_killed_session_made_stays_and_nothing_half_written_is_used(tmp_path: Path) -> None:
    root = tmp_path / "grown"
    code = (
        "from pathlib import Path; from helpers.plan.grown_dataset import GrownDataset;"
        f"GrownDataset(Path({str(root)!r}), threads=2).grow(5000, print)"
    )
    suite = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL)
    _wait_for(lambda: len(list(root.glob("train/*/*.jpeg"))) >= 12)
    suite.send_signal(signal.SIGKILL)
    suite.wait()
    before = {path: path.stat().st_mtime_ns for path in root.glob("train/*/*.jpeg")}
    broken = max(before)
    broken.write_bytes(broken.read_bytes()[:1000])
    (broken.parent / f".{broken.name}.part").write_bytes(b"half")
    made = GrownDataset(root, threads=2)
    wanted = max(int(path.stem[-6:]) for path in before) + 4
    assert [str(root / name_of(number)) for number in made.missing(wanted)].count(str(broken)) == 1
    made.grow(wanted, quiet)
    assert made.missing(wanted) == []
    after = {path: path.stat().st_mtime_ns for path in root.glob("train/*/*.jpeg")}
    assert all(after[path] == before[path] for path in before if path != broken)
    assert list(root.glob("train/*/.*")) == []
    assert check_dataset(made._listed(wanted, 1)).images == wanted


def _wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline
        os.sched_yield()


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


def test_a_folder_that_is_not_ours_is_never_touched(tmp_path: Path) -> None:
    root = tmp_path / "grown"
    root.mkdir()
    (root / "precious.txt").write_text("keep")
    with pytest.raises(DatasetError, match="did not make"):
        GrownDataset(root).grow(8, quiet)
    assert [path.name for path in root.iterdir()] == ["precious.txt"]


def test_another_process_that_hangs_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grown_dataset, "_MOST_WAIT_SECONDS", 0.0)
    said: list[str] = []
    other = FileLock(str(tmp_path / ".grown.lock"), is_singleton=False)
    with other, pytest.raises(DatasetError, match=r"another process holds it for 0 s"):
        GrownDataset(tmp_path / "grown").grow(1, said.append)
    assert len(said) == 1


def test_a_full_disk_is_an_error_that_ends_the_drawing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(drawing: Drawing, root: Path, number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Drawing, "write", full)
    with pytest.raises(DatasetError, match=r"No space left.*what was made stays"):
        GrownDataset(tmp_path / "grown").first(4)


def test_the_few_images_of_a_case_without_a_figure_pass_the_check_and_one_of_an_older_suite_are_made_anew(
    grown: GrownDataset,
) -> None:
    facts = grown.first(16)
    assert (facts.images, facts.classes, facts.remark()) == (16, 8, "")
    assert facts == check_dataset(facts.root)
    record = grown.root / "dataset.json"
    record.write_text(record.read_text().replace('"version": 1', '"version": 0'))
    assert grown.first(16).digest == facts.digest
    assert len(list(grown.root.glob("train/*/*.jpeg"))) == 16
