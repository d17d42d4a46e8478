"""Finds the CPU case that trains the same program as a GPU case."""

from __future__ import annotations

from collections.abc import Iterable

from helpers.plan.case_plan import CPU, SuiteCase
from helpers.trainers.contract.case import FEATURES, Case, Precision

# The precisions of CPU twins: a CPU has no TF32, and its mixed precision is always bfloat16.
_STANDS_FOR = {
    Precision.FP32: (Precision.FP32,),
    Precision.TF32: (Precision.FP32,),
    Precision.BF16: (Precision.BF16,),
    Precision.AMP_O1: (Precision.AMP_O1,),
    Precision.AMP_O2: (Precision.AMP_O2,),
    Precision.AMP: (Precision.AMP, Precision.AMP_O1, Precision.BF16),
    Precision.UNSTATED: (Precision.AMP_O1, Precision.FP32),
}
_ALIKE = ("framework", "model", "execution", *FEATURES)


def cpu_twin(case: Case, cases: Iterable[SuiteCase]) -> SuiteCase | None:
    """The CPU case with the same framework, model, execution and features, and with the precision that replaces the
    case's on a CPU; None if there is none.

    Of several the one that agrees in having several nodes, several cards, and in the data source is taken, and among
    these the one with the smallest batch.
    """
    precisions = _STANDS_FOR[case.precision]

    def distance(other: Case) -> tuple[object, ...]:
        return (
            (other.nodes > 1) != (case.nodes > 1),
            (other.cards > 1) != (case.cards > 1),
            precisions.index(other.precision),
            other.data is not case.data,
            other.batch_size_per_card,
            other.id,
        )

    fitting = [
        each
        for each in cases
        if each.target == CPU
        and each.case.precision in precisions
        and all(getattr(each.case, name) == getattr(case, name) for name in _ALIKE)
    ]
    return min(fitting, key=lambda each: distance(each.case), default=None)
