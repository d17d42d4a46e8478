"""What Slurm's accounting says of an end. The lines are as sacct of Slurm 22.05 printed them with a real slurmdbd."""

from __future__ import annotations

import pytest

from helpers.judging.failure_class import FailureClass
from helpers.launch.nodes.accounting import NO_ACCOUNTING, end_of_step, keeps_accounting, read_starts
from helpers.trainers.contract.errors import LaunchError

KEPT = "AccountingStorageTRES   = cpu,mem\nAccountingStorageType   = accounting_storage/slurmdbd\n"
STARTED_AGAIN = """\
2|NODE_FAIL|0:0||n0|perfgate-gate-1
2.batch|CANCELLED|||n0|batch
2|FAILED|4:0||n0|perfgate-gate-1
2.batch|FAILED|4:0|3330048|n0|batch
"""
OUT_OF_MEMORY = """\
1|FAILED|6:0||n[0-1]|perfgate-gate-1
1.batch|FAILED|6:0|3899392|n0|batch
1.0|OUT_OF_MEMORY|0:125|229376K|n1|env
1.1|CANCELLED by 77777|0:9|1.50G|n1|env
"""


def test_a_job_that_slurm_started_again_has_both_ends() -> None:
    first, second = read_starts(STARTED_AGAIN, "2", "perfgate-gate-1")
    assert first.job.text == "NODE_FAIL on n0"
    assert (second.job.exit_code, second.steps[0].most_bytes) == (4, 3330048)
    assert not second.job.is_telling and first.job.is_telling and not first.steps[0].is_telling


def test_an_earlier_job_of_that_number_is_left_out() -> None:
    assert len(read_starts(STARTED_AGAIN.replace("gate-1", "x", 1), "2", "perfgate-gate-1")) == 1


def test_memory_and_who_cancelled_a_step_are_told() -> None:
    (start,) = read_starts(OUT_OF_MEMORY, "1")
    assert [step.text for step in start.steps if step.is_telling] == [
        "OUT_OF_MEMORY on n1, its largest process 0.22 GiB",
        "CANCELLED by user 77777 on n1, its largest process 1.5 GiB",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "1|FAILED|6:0||n0",
        "1|SLEEPING|6:0||n0|x",
        "1|FAILED|six||n0|x",
        "1|FAILED|6:0|many|n0|x",
        "1|CANCELLED by root|6:0||n0|x",
        "1_3|FAILED|6:0||n0|x",
        "2|FAILED|6:0||n0|x",
        "1.0|FAILED|6:0||n0|x",
        "sacct: error: no slurmdbd",
    ],
)
def test_what_sacct_does_not_document_is_refused(line: str) -> None:
    with pytest.raises(LaunchError, match=r"^sacct: got"):
        read_starts(f"{line}\n", "1")


@pytest.mark.parametrize("value", ["(null)", "accounting_storage/none"])
def test_where_nothing_is_kept_nothing_is_asked(value: str) -> None:
    asked = []

    def ask(*words: str, seconds: float) -> str:
        asked.append(words[0])
        return KEPT.replace("accounting_storage/slurmdbd", value)

    assert not keeps_accounting(ask)
    assert end_of_step("1.0", ask) == (None, NO_ACCOUNTING)
    assert asked == ["scontrol", "scontrol"]
    with pytest.raises(LaunchError, match="no AccountingStorageType"):
        keeps_accounting(lambda *words, seconds: "")


def test_a_step_that_the_kernel_ended_has_that_class_and_one_that_cannot_be_read_has_none() -> None:
    def ask(*words: str, seconds: float) -> str:
        return KEPT if words[0] == "scontrol" else shown

    shown = OUT_OF_MEMORY
    assert end_of_step("1.0", ask) == (
        FailureClass.OOM_KILLED,
        "Slurm's accounting of step 1.0: OUT_OF_MEMORY on n1, its largest process 0.22 GiB",
    )
    shown = "nonsense\n"
    assert end_of_step("1.0", ask)[1].startswith("Slurm's accounting cannot be read (sacct: got 'nonsense'")
