"""The settings of a Paddle case, read strictly, and the header's facts on the resulting program; imports no
framework."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, Dict, List, Mapping, Optional, Tuple

from helpers.trainers.common.settings import BASIC_AMP_LEVELS, AmpLevels, Settings, at_least, one_of
from helpers.trainers.contract.case import Execution, Precision
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.program import COUNTED, PROGRAM_COUNTS_FACT, counts_text


@dataclass(frozen=True)
class PaddleSettings(Settings):
    """The settings of every framework and those of Paddle alone."""

    AMP_LEVELS: ClassVar[AmpLevels] = {**BASIC_AMP_LEVELS, Precision.BF16: ("O2", "bfloat16")}

    # The k of each top-k accuracy that a static program computes at every step.
    accuracy_top_k: Tuple[int, ...]
    # The function that casts: ``auto_cast``; for static programs on a GPU ``decorate`` or ``fleet``.
    amp_through: Optional[str]
    build_strategy: Mapping[str, Any]
    execution_strategy: Mapping[str, Any]
    fleet: Mapping[str, Any]
    # Whether Momentum updates all weights of one type in one operator, merged_momentum; of old programs alone.
    use_multi_tensor: bool

    def _check(self, spec: JobSpec) -> None:
        super()._check(spec)
        for k in self.accuracy_top_k:
            at_least("accuracy_top_k", k, 1)
        self._check_amp_through(spec)

    def _check_amp_through(self, spec: JobSpec) -> None:
        known: Tuple[Optional[str], ...] = (None,)
        if self.amp_level is not None:
            on_gpu = spec.device == "gpu" and spec.case.execution is Execution.STATIC
            known = ("decorate", "fleet") if on_gpu else ("auto_cast",)
        one_of("amp_through", self.amp_through, known)


# The class into which helpers.trainers.common.settings reads a job of this framework.
SETTINGS = PaddleSettings


# Names of operators that are counted by another name (contract/program.py).
_COUNTED_AS = {"c_allreduce_sum": "all_reduce", "add": "elementwise_add"}


def program_facts(program: Any, settings: PaddleSettings) -> Dict[str, str]:
    """Counts of operators in a program (of PIR or a ProgramDesc): what the contract counts, and convolutions by type
    and layout."""
    counts = counts_in(program)
    facts = {"operators": str(counts["operators"]), PROGRAM_COUNTS_FACT: counts_text(counts)}
    if settings.amp_dtype is not None:
        facts[f"{settings.amp_dtype}_convolutions"] = str(convolutions(program, dtype=settings.amp_dtype))
    facts[f"{settings.layout}_convolutions"] = str(convolutions(program, layout=settings.layout))
    return facts


def counts_in(program: Any) -> Dict[str, int]:
    """How many of each operator in COUNTED a program has."""
    ops = program.global_block().ops
    names = Counter(_counted_name(op) for op in ops)
    counts = {name: names[name] for name in COUNTED}
    counts["operators"] = len(ops)
    counts["float16_conv2d"] = convolutions(program, dtype="float16")
    counts["nhwc_conv2d"] = convolutions(program, layout="NHWC")
    return counts


def convolutions(program: Any, dtype: Optional[str] = None, layout: Optional[str] = None) -> int:
    """How many convolutions of a program work on images of ``dtype`` (a name) in ``layout``; None stands for any."""
    block = program.global_block()
    found = [op for op in block.ops if _name(op) in ("conv2d", "pd_op.conv2d")]
    if dtype is not None:
        found = [op for op in found if _is_type(_images_type(block, op), dtype)]
    if layout is not None:
        found = [op for op in found if _attribute(op, "data_format") == layout]
    return len(found)


def amp_faults(main: Any, startup: Any, settings: PaddleSettings, facts: Dict[str, str]) -> List[str]:
    """How the AMP of a ProgramDesc differs from the settings, in words. The number of master copies is added to
    ``facts``.

    It checks the optimizer's master copies of 16-bit weights, the first loss scale and the rule by which it changes.
    """
    faults = []
    ops = main.global_block().ops
    if settings.amp_level is not None:
        weights = sum(_is_type(each.dtype, str(settings.amp_dtype)) for each in main.all_parameters() if each.trainable)
        # merged_momentum has the copies of all its weights.
        copies = sum(len(op.input("MasterParam")) for op in ops if "MasterParam" in op.input_names)
        pure = settings.amp_level == "O2"
        if copies != weights or bool(weights) is not pure:
            faults.append(f"{copies} float32 master copies of {weights} weights in {settings.amp_dtype}")
        if pure:
            facts["master_copies"] = str(copies)
    scaled = [op for op in ops if op.type == "update_loss_scaling"]
    wanted = {"first scale": settings.loss_scaling, **settings.loss_scaling_rule}
    if not scaled and settings.loss_scaling is not None:
        faults.append("no dynamic loss scaling")
    for op in scaled:
        (scale,) = op.input("PrevLossScaling")
        (first,) = (each for each in startup.global_block().ops if scale in each.output_arg_names)
        got = {"first scale": first.attr("value"), **{name: op.attr(name) for name in settings.loss_scaling_rule}}
        # A ProgramDesc keeps its numbers in float32.
        if not all(wanted[name] and math.isclose(got[name], wanted[name], rel_tol=1e-6) for name in got):
            faults.append(f"loss scaling {got}, not {wanted}")
    return faults


def _is_type(named: Any, dtype: str) -> bool:
    # A ProgramDesc names its types as VarType.FP16 does in old builds.
    names = {"float16": ("FLOAT16", "FP16"), "bfloat16": ("BFLOAT16", "BF16")}[dtype]
    return str(named).upper().rpartition(".")[2] in names


def _name(op: Any) -> str:
    return str(op.name()) if hasattr(op, "operand_source") else str(op.type)


def _counted_name(op: Any) -> str:
    """The operator's name without what depends on the kind of program and on whether it works in place."""
    name = _name(op)
    if name.startswith("pd_op."):
        name = name[len("pd_op.") :].rstrip("_")
    return _COUNTED_AS.get(name, name)


def _images_type(block: Any, op: Any) -> Any:
    if hasattr(op, "operand_source"):
        return op.operand_source(0).dtype
    return block.var(op.input("Input")[0]).dtype


def _attribute(op: Any, name: str) -> Any:
    return op.attrs()[name] if hasattr(op, "operand_source") else op.attr(name)
