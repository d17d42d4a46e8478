"""What the logs of a few steps show: losses, clocks and the weights of ranks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers.commands.proof.few_steps import Found, look_at, spec_of, unequal
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ResultError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.program import COUNTED, PROGRAM_COUNTS_FACT, counts_text
from helpers.trainers.contract.steplog import COMPLETE, WARMUP, WINDOW, Footer, Header, Heartbeat, Step, StepLogWriter

FALLING = (7.0, 6.5, 6.0, 5.5)


def run(
    folder: Path,
    losses: Sequence[float] = FALLING,
    *,
    step_seconds: float = 1.0,
    host_seconds: float = 1.0,
    sums: Sequence[float] = (5.0,),
    facts: dict[str, str] | None = None,
) -> Found:
    """Look at a run of one warm-up step and three more, of as many ranks as ``sums``."""
    case = Case.parse(f"paddle-resnet50v1.5-fp32-bs2-1x{len(sums)}-synthetic-dynamic")
    spec = JobSpec("j", case, 0, str(folder), "cpu", 1, len(losses) - 1)
    spec.spec_path.write_text(spec.to_json())
    for rank, total in enumerate(sums):
        header = Header("j", case.id, 0, rank, len(sums), "h", 1, "paddle", "3.3.1", "", "cpu", facts or {})
        log = StepLogWriter(spec.step_log_path(rank), header)
        beats = Heartbeat(spec.heartbeat_path(rank))
        for number, loss in enumerate(losses):
            phase, start = WINDOW if number else WARMUP, number * step_seconds
            log.step(Step(0, number + 1, phase, start, start + step_seconds, 2, 0.0, loss))
            beats.beat(phase, number + 1, number * host_seconds)
        log.footer(Footer(COMPLETE))
        spec.weights_path(rank).write_text(json.dumps({"absolute_sum": total}))
    return look_at(spec_of(folder), compare_ranks=len(sums) > 1)


def test_a_good_run_has_no_fault_and_its_numbers(tmp_path: Path) -> None:
    found = run(tmp_path)
    assert found.faults == ()
    assert found.message == "loss 7 to 5.5 in 4 steps; steps' clock over host's 1.000"


def test_a_loss_that_does_not_fall_is_a_fault(tmp_path: Path) -> None:
    (fault,) = run(tmp_path, (7.0, 6.0, 7.0, 7.5)).faults
    assert fault == "the loss did not fall: 7 at the first step, 7.5 at the last"


@pytest.mark.parametrize(("host_seconds", "right"), [(1.05, True), (0.95, True), (1.2, False), (0.8, False)])
def test_the_two_clocks_must_agree(tmp_path: Path, host_seconds: float, right: bool) -> None:
    assert (not run(tmp_path, host_seconds=host_seconds).faults) is right


def test_ranks_with_equal_weights_are_right_and_other_weights_a_fault(tmp_path: Path) -> None:
    assert unequal([5.0, 5.0]) == []
    assert unequal([float("nan"), float("nan")]) != []
    (fault,) = run(tmp_path, sums=(5.0, 5.0000001)).faults
    assert fault == "the ranks' weights differ: their sums are 5.0, 5.0000001"


@pytest.mark.parametrize(("joined", "faults"), [(21, 0), (0, 1)])
def test_a_program_of_several_cards_without_an_all_reduce_is_a_fault(tmp_path: Path, joined: int, faults: int) -> None:
    counts = counts_text({**dict.fromkeys(COUNTED, 0), "all_reduce": joined})
    found = run(tmp_path, sums=(5.0, 5.0), facts={PROGRAM_COUNTS_FACT: counts})
    assert len(found.faults) == faults
    assert f"{joined} all-reduces in the program" in found.message


def test_a_rank_that_wrote_no_weights_or_no_life_signs_is_an_error(tmp_path: Path) -> None:
    run(tmp_path, sums=(5.0, 5.0))
    spec = spec_of(tmp_path)
    spec.weights_path(1).unlink()
    with pytest.raises(ResultError, match=r"rank1\.weights\.json"):
        look_at(spec, compare_ranks=True)
    spec.heartbeat_path(0).write_text("")
    with pytest.raises(ResultError, match="life signs"):
        look_at(spec, compare_ranks=False)
