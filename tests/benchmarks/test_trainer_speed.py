"""When the trainer's speed fails, from blocks that nobody had to wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.cpu_settings import CANDIDATES, speed_up
from benchmarks.loader_cost import told as loader_told
from benchmarks.trainer_speed import told
from helpers.trainers.contract.blocks import BARE, FOR, TRAIN, StepBlock

Sets = list[Mapping[str, Sequence[StepBlock]]]


def sets(bare_seconds: Sequence[float], for_seconds: Sequence[float], recording_seconds: float = 1e-4) -> Sets:
    """A pair of processes for each of the two loops' step seconds; the trainer's are 1."""
    return [
        {
            TRAIN: [StepBlock(1, 1.0, 1.0, recording_seconds)] * 3,
            FOR: [StepBlock(1, own, own)] * 3,
            BARE: [StepBlock(1, bare, bare)] * 3,
        }
        for bare, own in zip(bare_seconds, for_seconds, strict=True)
    ]


def test_a_trainer_as_fast_as_a_bare_loop_passes() -> None:
    lines, wrong = told(sets([1.0, 1.001, 0.999], [1.0, 1.0, 1.0]))
    assert wrong == []
    assert lines[0].startswith("another process, wall clock: 1.0000 (0.997")
    assert lines[-2] == "recording: 0.0100% (0.0100% to 0.0100%, n=3) of the window"


def test_a_trainer_known_to_be_slower_fails() -> None:
    _, wrong = told(sets([0.95, 0.951, 0.949], [1.0, 1.0, 1.0]))
    assert [line.partition(":")[0] for line in wrong] == [
        "slower, another process, wall clock",
        "slower, another process, time on the core",
    ]


def test_a_loop_known_to_be_slower_than_its_own_steps_fails() -> None:
    _, wrong = told(sets([1.0, 1.0, 1.0], [0.98, 0.98, 0.98]))
    assert [line.partition(":")[0] for line in wrong] == [
        "slower, its own process, wall clock",
        "slower, its own process, time on the core",
    ]


def test_a_wide_interval_below_the_limit_in_part_does_not_fail() -> None:
    _, wrong = told(sets([0.9, 1.1, 0.95], [1.0, 1.0, 1.0]))
    assert wrong == []


def test_recording_that_takes_too_much_fails() -> None:
    _, wrong = told(sets([1.0] * 3, [1.0] * 3, recording_seconds=0.006))
    assert wrong[0].startswith("recording takes 0.6000%")
    assert "of the shortest published step" in wrong[1]


def test_recording_is_held_against_the_shortest_published_step_too() -> None:
    # 0.1% of a step of 1 s is 1.2% of one of 84 ms.
    _, wrong = told(sets([1.0] * 3, [1.0] * 3, recording_seconds=0.001))
    assert len(wrong) == 1
    assert wrong[0].startswith("recording takes 1.1900%")


def test_a_loader_is_told_with_its_ratio_and_its_share() -> None:
    blocks = {"synthetic": [StepBlock(2, 2.0, 2.0)], "dali": [StepBlock(2, 2.5, 2.5, reader_seconds=0.25)]}
    assert loader_told([blocks, blocks], "dali") == (
        "dali: 0.8000 (0.8000 to 0.8000, n=2); waiting for data 10.00% (10.00% to 10.00%) of a step"
    )


def test_a_candidate_is_told_with_its_speed_up_and_whether_it_computed_the_same() -> None:
    usual = [StepBlock(1, 2.0, 2.0, losses=(6.5,))]
    blocks = {"as it is": usual, "same": [StepBlock(1, 1.0, 1.6, losses=(6.5,))], "other": [StepBlock(1, 1.0, 1.6)]}
    assert speed_up([blocks, blocks], "same") == (
        "wall x 2.0000 (2.0000 to 2.0000, n=2); CPU time x 1.2500 (1.2500 to 1.2500, n=2); same losses"
    )
    assert speed_up([blocks, blocks], "other").endswith("; other losses")


def test_candidates_have_names_of_their_own() -> None:
    names = [candidate.name for candidate in CANDIDATES]
    assert len(set(names)) == len(names)
