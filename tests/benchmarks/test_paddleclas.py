"""The trainer beside PaddleClas: what is compared, and that PaddleClas's own loop stops where its turn ends.

The copy of PaddleClas is the test's own: its ``ppcls/static/train.py`` has the functions that the worker uses, and
writes down what it trains on.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from benchmarks.cores import last_core
from benchmarks.paddleclas import CASE, TRAIN_PROGRAM, paddleclas_arm, speed, told
from helpers.session.lockstep import Seat, Turns, take_turns
from helpers.trainers.contract.blocks import BARE, TRAIN, StepBlock
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError

ROOT = Path(__file__).parents[2]
EPOCH = 3

TRAIN_PY = f"""
from pathlib import Path

NOTES = Path(__file__).with_name("notes")


class Loader:
    def __len__(self):
        return {EPOCH}

    def __call__(self):
        return iter(range({EPOCH}))


def build_dataloader(*arguments, **named):
    return Loader()


def main(arguments):
    note(arguments.config, *sorted(arguments.override))
    batches = build_dataloader({{}}, "Train")()
    while True:
        try:
            note(next(batches))
        except StopIteration:
            break


def note(*words):
    with NOTES.open("a") as file:
        print(*words, file=file)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    program = tmp_path / TRAIN_PROGRAM
    program.parent.mkdir(parents=True)
    program.write_text(TRAIN_PY)
    return tmp_path


@pytest.mark.slow
def test_paddleclas_s_loop_runs_on_over_its_epochs_and_stops_where_a_turn_ends(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    arm = paddleclas_arm(Case.parse(CASE), folder, Seat((last_core(),)))
    blocks = take_turns([arm], Turns(rounds=2, steps_per_block=2, warmup_steps=1))[BARE]
    assert [block.steps for block in blocks] == [2, 2]
    assert all(0 < block.reader_seconds <= block.seconds for block in blocks)
    configured, *batches = (folder / TRAIN_PROGRAM.with_name("notes")).read_text().splitlines()
    assert batches == ["0", "1", "2", "0", "1"]
    assert configured.startswith(str(folder / "ppcls/configs/ImageNet/ResNet/ResNet50.yaml"))
    for wanted in ("Global.device=cpu", "DataLoader.Train.sampler.batch_size=8", "Optimizer.lr.learning_rate=0.003125"):
        assert wanted in configured.split()


def test_both_have_the_variables_of_the_case(folder: Path) -> None:
    arm = paddleclas_arm(Case.parse(CASE), folder, Seat((0, 1), interpreter="/opt/python"))
    assert "GLIBC_TUNABLES" in arm.environment
    assert arm.argv[0] == "/opt/python"
    assert arm.argv[-3:] == ("--cores", "0", "1")


def test_a_folder_that_is_no_paddleclas_and_a_case_that_it_does_not_train_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a copy of PaddleClas"):
        paddleclas_arm(Case.parse(CASE), tmp_path, Seat((0,), interpreter=sys.executable))
    other = dataclasses.replace(Case.parse(CASE), data=Case.parse(CASE.replace("native", "dali")).data)
    with pytest.raises(ConfigError, match="expected Paddle, ResNet50, static, native images"):
        paddleclas_arm(other, tmp_path, Seat((0,)))


def test_the_ratio_is_of_images_a_second_a_pair_of_processes_an_observation() -> None:
    sets = [{TRAIN: [StepBlock(1, 2.0, 4.0)] * 3, BARE: [StepBlock(1, 2.2, 4.0)] * 3}] * 2
    assert str(speed(sets)) == "1.1000 (1.1000 to 1.1000, n=2)"
    lines = told(Case.parse(CASE), sets)
    assert lines[1] == "  by the wall clock: 1.1000 (1.1000 to 1.1000, n=2); median of 6 turns 1.1000"
    assert lines[2] == "  by the time on the cores: 1.0000 (1.0000 to 1.0000, n=2)"
    assert lines[3] == "  the trainer: 4.00 images/s, 4.000 s on the cores a step, 0.00% waiting for data"
