"""PyTorch's own loader and DALI's plugin for it, by counting: every image is its own label, its red 10 x the label."""

from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.helpers.trainers.environments import PYTORCH

pytestmark = [pytest.mark.slow, PYTORCH.needs]

EPOCHS = Path(__file__).with_name("native_epochs.py")


@pytest.fixture
def twelve(tmp_path: Path) -> Path:
    for number in range(12):
        Image.new("RGB", (40, 30), (10 * number, 60, 60)).save(tmp_path / f"{number}.jpeg", quality=100)
    return tmp_path


def _read(folder: Path, share: str, workers: int, kind: str, images: int = 12) -> dict[str, Any]:
    """Two epochs; ``share``: rank, ranks and batch size."""
    printed = PYTORCH.run(str(EPOCHS), str(folder), str(images), *share.split(), str(workers), kind)
    told: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return told


def test_workers_read_the_same_batches_as_none_and_through_pipes_as_through_shared_memory(twelve: Path) -> None:
    alone, helped, piped = (
        _read(twelve, "1 2 2", workers, kind) for workers, kind in ((0, "shared"), (2, "shared"), (2, "piped"))
    )
    assert alone == helped == piped
    assert alone["epochs"][0] != alone["epochs"][1]


def test_no_image_is_read_twice_an_epoch_over_all_ranks_and_labels_stay_with_their_images(twelve: Path) -> None:
    ranks = [_read(twelve, f"{rank} 2 3", 1, "shared") for rank in range(2)]
    for number in range(2):
        seen = collections.Counter(label for rank in ranks for label in rank["epochs"][number])
        assert set(seen) == set(range(12)) and set(seen.values()) == {1}
    for rank in ranks:
        assert [round(red / 10) for red in rank["reds"]] == [label for epoch in rank["epochs"] for label in epoch]


@pytest.mark.parametrize("kind", ["dali", "plugin"])
def test_dali_reads_every_image_once_an_epoch_with_its_label(twelve: Path, kind: str) -> None:
    told = _read(twelve, "0 1 4", 0, kind)
    assert [sorted(epoch) for epoch in told["epochs"]] == [list(range(12))] * 2
    assert [round(red / 10) for red in told["reds"]] == [label for epoch in told["epochs"] for label in epoch]


@pytest.mark.parametrize(("workers", "kind"), [(0, "shared"), (2, "shared"), (2, "piped"), (0, "plugin")])
def test_a_broken_image_is_named_alone(twelve: Path, workers: int, kind: str) -> None:
    broken = twelve / "7.jpeg"
    broken.write_bytes(broken.read_bytes()[:200])
    error = _read(twelve, "0 1 4", workers, kind)["error"]
    assert error.startswith(f"{broken}: got ")
    assert error.endswith("Copy it again, or take it out of the list")
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("worker", "error"),
    [
        ("dead", "RuntimeError: DataLoader worker (pid(s) PID) exited unexpectedly"),
        ("alive", "ConnectionResetError: [Errno 104] Connection reset by peer"),
    ],
)
def test_a_pipe_that_breaks_with_its_worker_is_the_workers_death(worker: str, error: str) -> None:
    printed = PYTORCH.run(str(Path(__file__).with_name("dying_worker.py")), worker)
    assert printed.splitlines()[-1] == error
