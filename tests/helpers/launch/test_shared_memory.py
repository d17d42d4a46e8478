from pathlib import Path

import pytest

from helpers.launch.shared_memory import free_segments


@pytest.mark.parametrize("name", ["paddle_7_0_553796051", "torch_7_1703908341", "torch_7_1703908341_12"])
def test_a_dead_process_of_the_job_loses_its_segments(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert free_segments({7}, lambda pid: False, tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["paddle_8_0_1", "paddle_70_0_1", "xpaddle_7_0_1", "paddle_7", "sem.mp-7", "paddle_7_0_1.x"]
)
def test_what_is_not_surely_the_jobs_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert free_segments({7}, lambda pid: False, tmp_path) == 0
    assert (tmp_path / name).exists()


def test_who_lives_keeps_its_segments(tmp_path: Path) -> None:
    (tmp_path / "paddle_7_0_1").touch()
    assert free_segments({7}, lambda pid: pid == 7, tmp_path) == 0
    assert (tmp_path / "paddle_7_0_1").exists()


def test_a_machine_without_the_folder_has_none(tmp_path: Path) -> None:
    assert free_segments({7}, lambda pid: False, tmp_path / "shm") == 0
