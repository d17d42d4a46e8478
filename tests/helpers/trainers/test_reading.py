"""The loaders of every framework, by counting: every image is its own label, its red 10 x the label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.trainers.environments import MXNET, PADDLE, PYTORCH, TENSORFLOW, FrameworkEnvironment
from tests.helpers.trainers.once import made_once
from tests.helpers.trainers.readings import IMAGES, Reading, asked

pytestmark = pytest.mark.slow

# All readings of a framework share one import of it.
ASKED: dict[str, list[Reading]] = {}
Told = Callable[[FrameworkEnvironment, Reading], dict[str, Any]]


def _each(*readings: tuple[FrameworkEnvironment, Reading]) -> list[Any]:
    return [_param(environment, reading) for environment, reading in readings]


def _param(environment: FrameworkEnvironment, *readings: Reading) -> Any:
    ASKED.setdefault(environment.name, []).extend(readings)
    first = readings[0]
    name = f"{environment.name}-{first.kind}-{first.workers}"
    return pytest.param(environment, *([readings] if len(readings) > 1 else readings), id=name, marks=environment.needs)


@pytest.fixture
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """What a reading told."""

    def answer(environment: FrameworkEnvironment, reading: Reading) -> dict[str, Any]:
        program, asked_for = Path(__file__).parent / environment.name / "native_epochs.py", ASKED[environment.name]

        def ask() -> Any:
            return asked(environment.run, program, tmp_path_factory.mktemp("images"), asked_for)

        answers = made_once(tmp_path_factory, f"read-{environment.name}", ask)
        return dict(answers[asked_for.index(reading)])

    return answer


def _reds_are_labels(told: dict[str, Any]) -> bool:
    return [round(red / 10) for red in told["reds"]] == [label for epoch in told["epochs"] for label in epoch]


@pytest.mark.parametrize(
    ("environment", "readings"),
    [
        _param(PADDLE, Reading("1 2 2", 0, "native"), Reading("1 2 2", 2, "native")),
        _param(PYTORCH, Reading("1 2 2", 0, "shared"), Reading("1 2 2", 2, "shared"), Reading("1 2 2", 2, "piped")),
        _param(TENSORFLOW, Reading("1 2 2", 0, "jpeg"), Reading("1 2 2", 3, "jpeg")),
    ],
)
def test_helpers_read_the_same_batches_as_none_in_a_new_order_each_epoch(
    told: Told, environment: FrameworkEnvironment, readings: tuple[Reading, ...]
) -> None:
    alone, *helped = [told(environment, reading) for reading in readings]
    assert all(each == alone for each in helped)
    first, second = alone["epochs"]
    assert first != second and sorted(first) != first


@pytest.mark.parametrize(
    ("environment", "readings"),
    [
        # It drops what fills no batch.
        _param(PADDLE, Reading("0 2 5", 0, "native"), Reading("1 2 5", 0, "native")),
        _param(PYTORCH, Reading("0 2 3", 1, "shared"), Reading("1 2 3", 1, "shared")),
        _param(TENSORFLOW, Reading("0 2 3", 1, "jpeg"), Reading("1 2 3", 1, "jpeg")),
        _param(TENSORFLOW, Reading("0 2 3", 1, "tfrecord"), Reading("1 2 3", 1, "tfrecord")),
    ],
)
def test_no_image_is_read_twice_an_epoch_over_all_ranks_and_labels_stay_with_their_images(
    told: Told, environment: FrameworkEnvironment, readings: tuple[Reading, ...]
) -> None:
    ranks = [told(environment, reading) for reading in readings]
    whole = 2 * int(readings[0].share.split()[2])
    for number in range(2):
        seen = [label for rank in ranks for label in rank["epochs"][number]]
        assert len(seen) == len(set(seen)) == IMAGES // whole * whole
    for rank in ranks:
        assert _reds_are_labels(rank)
        assert rank["epochs"][0] != rank["epochs"][1]


# With DALI's plugin, or what lends or copies its memory in its place.
@pytest.mark.parametrize(
    ("environment", "reading"),
    _each(*((each, Reading("0 1 4", 0, kind)) for each in (PYTORCH, TENSORFLOW, MXNET) for kind in ("dali", "plugin"))),
)
def test_dali_reads_every_image_once_an_epoch_with_its_label(
    told: Told, environment: FrameworkEnvironment, reading: Reading
) -> None:
    answer = told(environment, reading)
    assert [sorted(epoch) for epoch in answer["epochs"]] == [list(range(IMAGES))] * 2
    assert _reds_are_labels(answer)


@pytest.mark.parametrize(
    ("environment", "reading"),
    _each(
        *(
            (environment, replace(Reading("0 1 4", workers, kind), broken=True))
            for environment, workers, kind in [
                (PADDLE, 0, "native"), (PADDLE, 2, "native"),
                (PYTORCH, 0, "shared"), (PYTORCH, 2, "shared"), (PYTORCH, 2, "piped"), (PYTORCH, 0, "plugin"),
                (TENSORFLOW, 2, "jpeg"), (MXNET, 0, "plugin"),
            ]
        )
    ),
)  # fmt: skip
def test_a_broken_image_is_named_alone(told: Told, environment: FrameworkEnvironment, reading: Reading) -> None:
    answer = told(environment, reading)
    assert answer["error"].startswith(f"{answer['cut']}: got ")
    assert answer["error"].endswith("Copy it again, or take it out of the list")
    assert "Traceback" not in answer["error"]
