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
    Precision.UNSTATED: (Precision.UNSTATED, Precision.AMP_O1, Precision.FP32),
}


def cpu_twin(case: Case, cases: Iterable[SuiteCase]) -> SuiteCase | None:
    """The CPU case most similar to ``case``, with the same framework, model, execution and features; None if there is
    none.

    Its precision is that which replaces the case's on a CPU. The execution may differ for automatic parallelism, which
    is static in the published cases and dynamic on a CPU. Of several such cases the one that agrees in having several
    nodes, several cards, and in the data source is taken, and among these the one with the smallest batch.
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
    """How a twin differs from its case besides the batch, such as ``1 card for 8``."""
    parts = []
    if twin.precision is not case.precision:
        parts.append(f"{twin.precision.value} for {case.precision.value}")
    if twin.execution is not None and case.execution is not None and twin.execution is not case.execution:
        parts.append(f"{twin.execution.value} for {case.execution.value}")
    if twin.cards != case.cards:
        parts.append(f"{_cards_of(twin)} for {_cards_of(case)}")
    if twin.data is not case.data:
        parts.append(f"{twin.data.value} for {case.data.value}")
    return tuple(parts)


def _same_program(one: Case, other: Case) -> bool:
    names = ("framework", "model", *FEATURES, *(() if one.auto else ("execution",)))
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _cards_of(case: Case) -> str:
    if case.nodes > 1:
        return f"{case.nodes}x{case.cards_per_node} cards"
    return "1 card" if case.cards == 1 else f"{case.cards} cards"
