"""The scaled-down twin of a published case: what of it a machine without its cards can run."""

from __future__ import annotations

from collections.abc import Iterable

from helpers.plan.case_plan import CPU, SuiteCase
from helpers.trainers.contract.case import FEATURES, Case, Precision

# What stands for a precision on a CPU: there is no TF32, and mixed precision is bfloat16 in any case.
_STANDS_FOR = {
    Precision.FP32: (Precision.FP32,),
    Precision.TF32: (Precision.FP32,),
    Precision.BF16: (Precision.BF16,),
    Precision.AMP_O1: (Precision.AMP_O1,),
    Precision.AMP_O2: (Precision.AMP_O2,),
    Precision.AMP: (Precision.AMP, Precision.AMP_O1),
    Precision.UNSTATED: (Precision.UNSTATED, Precision.AMP_O1, Precision.FP32),
}


def cpu_twin(case: Case, cases: Iterable[SuiteCase]) -> SuiteCase | None:
    """The CPU case that is nearest to ``case``: same framework, model, execution and features.

    Its precision is the one that stands for the case's on a CPU. Automatic parallelism is static in the
    published cases and dynamic on a CPU, so there the execution may differ. Of several cases the one counts
    that has several nodes, several cards and the data source where the case has them, then the smaller
    batch. None without any.
    """
    precisions = _STANDS_FOR.get(case.precision, ())

    def distance(other: Case) -> tuple[object, ...]:
        return (
            (other.nodes > 1) != (case.nodes > 1),
            (other.cards > 1) != (case.cards > 1),
            other.execution is not case.execution,
            precisions.index(other.precision),
            other.data is not case.data,
            other.batch_size_per_card,
            other.id,
        )

    fitting = [
        each
        for each in cases
        if each.target == CPU and each.case.precision in precisions and _same_program(each.case, case)
    ]
    return min(fitting, key=lambda each: distance(each.case), default=None)


def differences(twin: Case, case: Case) -> tuple[str, ...]:
    """In what a twin is another case, beside its batch: ``1 card for 8``."""
    told = []
    if twin.precision is not case.precision:
        told.append(f"{twin.precision.value} for {case.precision.value}")
    if twin.execution is not None and case.execution is not None and twin.execution is not case.execution:
        told.append(f"{twin.execution.value} for {case.execution.value}")
    if twin.cards != case.cards:
        told.append(f"{_cards(twin)} for {_cards(case)}")
    if twin.data is not case.data:
        told.append(f"{twin.data.value} for {case.data.value}")
    return tuple(told)


def _same_program(one: Case, other: Case) -> bool:
    names = ("framework", "model", *FEATURES, *(() if one.auto else ("execution",)))
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _cards(case: Case) -> str:
    if case.nodes > 1:
        return f"{case.nodes}x{case.cards_per_node} cards"
    return "1 card" if case.cards == 1 else f"{case.cards} cards"
