"""The kind of a Paddle case's static program and its counts of operators, as they stand in the facts of a step log's
header and of a build check."""

from __future__ import annotations

import enum
import json
from typing import Dict, Mapping, Optional

from helpers.trainers.contract.errors import ConfigError

# The fact with the kind of program (a ProgramKind's value), and the one with its counts (``counts_text``).
PROGRAM_FACT = "program"
PROGRAM_COUNTS_FACT = "program_counts"

# The fact of a build check that names the package beside Paddle whose fault it is that no program was built.
COMPANION_FACT = "companion_at_fault"

# The fact of a build check by a build for CPUs: what it pretends of a GPU, and what of the program it leaves out.
PRETENDED_FACT = "pretended"
_NO_FUSIONS = "batch norm's fusions left out"

# What is counted of a program, by names that do not depend on the kind of program: an all-reduce is called
# ``c_allreduce_sum`` before Paddle 3.1 and ``all_reduce`` since, a ``conv2d`` is ``pd_op.conv2d`` under PIR.
COUNTED = (
    "operators",
    "conv2d",
    "float16_conv2d",
    "nhwc_conv2d",
    "batch_norm",
    "fused_batch_norm_act",
    "fused_bn_add_activation",
    "fused_elemwise_add_activation",
    "relu",
    "elementwise_add",
    "momentum",
    "merged_momentum",
    "all_reduce",
    "coalesce_tensor",
    "cast",
)


class ProgramKind(enum.Enum):
    """How a static program was made; the value is the fact. The first kind that builds is taken."""

    # ProgramDesc, Paddle's representation before PIR (FLAGS_enable_pir_api=0): the published program.
    OLD = "old"
    # The same with the one call that Paddle 3.2 and 3.3 no longer build in it (paddle.any) made of its operator.
    OLD_WITH_SHIM = "old, with paddle.any shimmed"
    # PIR, with the explicit pass for batch norm + add + ReLU; not the published program.
    PIR = "PIR"

    @property
    def is_published(self) -> bool:
        """Whether a figure of such a program may be judged against a published one."""
        return self is not ProgramKind.PIR


def kind_of(facts: Mapping[str, str]) -> Optional[ProgramKind]:
    """The kind of program that the facts state; None if they state none. Raises ConfigError on an unknown kind."""
    text = facts.get(PROGRAM_FACT)
    if text is None:
        return None
    try:
        return ProgramKind(text)
    except ValueError:
        known = ", ".join(kind.value for kind in ProgramKind)
        raise ConfigError("facts", field=PROGRAM_FACT, got=text, expected=f"one of {known}") from None


def pretended_text(*, float16: bool, several_cards: bool, fuses_batch_norm: bool) -> str:
    """The text of PRETENDED_FACT for a program of these properties; empty if a build for CPUs has all of it."""
    parts = {
        "float16 kernels pretended": float16,
        "NCCL's start-up left out": several_cards,
        _NO_FUSIONS: fuses_batch_norm,
    }
    return ", ".join(text for text, holds in parts.items() if holds)


def lacks_fusions(facts: Mapping[str, str]) -> bool:
    """Whether the program misses fusions of batch norm only because a build for CPUs has no passes for them: its
    additions are fused with ReLU instead."""
    return _NO_FUSIONS in facts.get(PRETENDED_FACT, "")


def counts_text(counts: Mapping[str, int]) -> str:
    """The counts as the text of a fact: names of COUNTED, zeros included."""
    return json.dumps({name: counts.get(name, 0) for name in COUNTED})


def counts_of(facts: Mapping[str, str]) -> Optional[Dict[str, int]]:
    """The counts that the facts state; None if they state none. Raises ConfigError if they are no counts."""
    text = facts.get(PROGRAM_COUNTS_FACT)
    if text is None:
        return None
    expected = "a JSON object of whole numbers by the names of COUNTED"
    try:
        read = json.loads(text)
    except ValueError:
        read = None
    if not isinstance(read, dict) or not all(type(each) is int for each in read.values()) or set(read) != set(COUNTED):
        raise ConfigError("facts", field=PROGRAM_COUNTS_FACT, got=text[:100], expected=expected)
    return {str(name): count for name, count in read.items()}
