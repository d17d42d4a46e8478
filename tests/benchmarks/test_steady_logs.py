"""Which published runs would have been steady: the windows, the two limits, and a folder of logs read whole."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from benchmarks.steady_logs import Finding, examine, places_of, table
from helpers.trainers.contract.steplog import steadiness


def paddleclas_log(path: Path, cards: int, seconds: list[float]) -> None:
    """As PaddleClas writes one: a record every 10 steps, its cost the mean since step 5 of the epoch."""
    lines = [
        "[2022/06/15 06:54:00] ppcls INFO: Arch : ",
        "[2022/06/15 06:54:00] ppcls INFO:     name : ResNet50",
        "[2022/06/15 06:54:00] ppcls INFO:         batch_size : 256",
        f"[2022/06/15 06:54:00] ppcls INFO: train with paddle 2.3.0 and device Place(gpu:0), {cards} cards",
    ]
    for step in range(10, len(seconds) + 1, 10):
        timed = seconds[4:step]
        cost = sum(timed) / len(timed)
        lines.append(
            f"[2022/06/15 06:54:{step % 60:02d}] ppcls INFO: epoch:0   train step:{step:<4d} lr: 0.100000, "
            f"loss:  7.5344 top1:  0.0039 top5:  0.0039 batch_cost: {cost:.9f} s, reader_cost: 0.00055 s, "
            f"ips: {256 / cost:.5f} samples/sec."
        )
    path.write_text("\n".join(lines) + "\n")


def test_windows_of_every_step_are_judged_as_the_trainer_judges_them() -> None:
    random = Random(1)
    seconds = [random.gauss(1.0, 0.01) for _ in range(100)]
    places = places_of(seconds, 1)
    assert [place.end for place in places] == [60, 80, 100]
    for looked_once in (False, True):
        own = [steadiness(seconds[: place.end], 20, looked_once).steady for place in places]
        assert [place.steady(looked_once) for place in places] == own


def test_records_of_several_steps_are_joined_to_windows() -> None:
    places = places_of([1.0, 1.0, 1.02, 1.02, 1.04, 1.04], 10)
    assert [(place.end, round(place.spread, 4)) for place in places] == [(60, 0.0392)]


def test_too_few_records_have_no_place() -> None:
    assert places_of([1.0] * 59, 1) == ()


def test_agreeing_ranks_end_their_warm_up_at_the_first_steady_look_of_the_budget() -> None:
    warm = [*[1.5] * 20, *[1.2] * 20, *[1.0] * 60]
    assert Finding("log", 8, 1, places_of(warm, 1)).agreed() == 100
    assert Finding("log", 8, 1, places_of([0.99 ** (at // 20) for at in range(400)], 1)).agreed() is None


def test_a_folder_is_read_run_by_run_and_what_says_nothing_is_told(tmp_path: Path) -> None:
    random = Random(2)
    steady = [random.gauss(0.5, 0.005) for _ in range(300)]
    paddleclas_log(tmp_path / "paddle_gpu8_fp32_bs256.txt", 8, steady)
    paddleclas_log(tmp_path / "paddle_gpu8_amp_bs256.txt", 8, [0.97 ** (at // 20) for at in range(300)])
    paddleclas_log(tmp_path / "paddle_gpu1_fp32_bs256.txt", 1, steady)
    (tmp_path / "notes.txt").write_text("no log\n")
    found, left_out = examine(tmp_path, 8)
    assert [(each.name, each.cards, each.record_steps) for each in found] == [
        ("paddle_gpu8_amp_bs256.txt run 1", 8, 10),
        ("paddle_gpu8_fp32_bs256.txt run 1", 8, 10),
    ]
    assert found[0].agreed() is None and not found[0].last_look(looked_once=True)
    assert found[1].agreed() is not None
    assert found[1].last_look(looked_once=True)
    assert len(left_out) == 1 and left_out[0].startswith("notes.txt")
    assert table(found)[-1] == "ranks agree after every window: 1 of 2 steady"


@pytest.mark.parametrize("looked_once", [False, True])
def test_the_last_look_is_at_the_end_of_the_budget_or_of_the_log(looked_once: bool) -> None:
    late = [*[1.0] * 300, *[2.0] * 100]
    assert Finding("log", 8, 1, places_of(late, 1)).last_look(looked_once)
    assert not Finding("log", 8, 1, places_of([*[1.0] * 80, *[2.0] * 20], 1)).last_look(looked_once)
