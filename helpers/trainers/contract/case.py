"""A case: one training configuration, and the id that is its key everywhere.

``paddle-resnet50v1.5-amp_o2-bs256-4x8-dali-static``: framework, model, precision, batch size per
card, nodes x cards per node, data source, execution; then the switched-on features in a fixed
order. No field value holds a hyphen, so the id parses without ambiguity.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.models import Convolution, Model


class Precision(enum.Enum):
    """The precision of a case. ``UNSTATED`` is for the auto-parallel table, which does not state it: the strategy
    chooses it, and the result records the choice."""

    FP32 = "fp32"
    TF32 = "tf32"
    BF16 = "bf16"
    AMP_O1 = "amp_o1"
    AMP_O2 = "amp_o2"
    AMP = "amp"
    UNSTATED = "unstated"

    @property
    def is_amp(self) -> bool:
        return self in (Precision.AMP_O1, Precision.AMP_O2, Precision.AMP)

    @property
    def least_capability(self) -> tuple[int, int]:
        """The least compute capability of an NVIDIA GPU: TF32 and bfloat16 came with Ampere, the tensor cores of
        float16 with Volta (CUDA C++ Programming Guide, "Compute Capabilities")."""
        if self in (Precision.TF32, Precision.BF16):
            return (8, 0)
        return (7, 0) if self.is_amp else (0, 0)


class DataSource(enum.Enum):
    DALI = "dali"
    DALI_CPU = "dali_cpu"
    NATIVE = "native"
    SYNTHETIC = "synthetic"
    UNSTATED = "unstated"


class Execution(enum.Enum):
    STATIC = "static"
    DYNAMIC = "dynamic"
    TO_STATIC = "to_static"


# A framework's own compilers, and all that a case may switch on.
COMPILERS = ("compile", "graphs", "xla")
FEATURES = (*COMPILERS, "auto")

_ID = re.compile(
    r"(?P<framework>[^-]+)-(?P<model>[^-]+)-(?P<precision>[^-]+)-bs(?P<batch>\d+)"
    r"-(?P<nodes>\d+)x(?P<cards>\d+)-(?P<data>[^-]+)(?P<rest>(?:-[a-z0-9_]+)*)",
    re.ASCII,
)
# The largest number in a case id; a larger one is a typing error.
_LARGEST = 1_000_000
_LONGEST_ID = 200

E = TypeVar("E", bound=enum.Enum)


@dataclass(frozen=True)
class Case:
    """One configuration; ``batch_size_per_card`` in samples, ``nodes`` x ``cards_per_node`` cards.

    Raises ConfigError on a value outside its range and on a Paddle case without an execution.
    """

    framework: Framework
    model: Model
    precision: Precision
    batch_size_per_card: int
    nodes: int
    cards_per_node: int
    data: DataSource
    execution: Execution | None = None
    compile: bool = False
    graphs: bool = False
    xla: bool = False
    auto: bool = False

    def __post_init__(self) -> None:
        for name in ("batch_size_per_card", "nodes", "cards_per_node"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LARGEST:
                raise ConfigError(
                    "case",
                    field=name,
                    got=value,
                    expected=f"a whole number from 1 to {_LARGEST}",
                    remedy="Write the number of images, nodes or cards",
                )
        if self.framework.spec.names_execution and self.execution is None:
            raise ConfigError(
                "case",
                field="execution",
                got="nothing",
                expected="static, dynamic or to_static",
                remedy=f"A {self.framework.spec.title} case always names its execution",
            )

    @property
    def cards(self) -> int:
        """Cards of all nodes."""
        return self.nodes * self.cards_per_node

    @property
    def read_from(self) -> DataSource:
        """The source from which the trainers read. An unstated source is read through DALI, since the draft that does
        not state it says so of all its tests (docs/published.md, "The other frameworks' configurations")."""
        return DataSource.DALI if self.data is DataSource.UNSTATED else self.data

    @property
    def least_capability(self) -> tuple[int, int]:
        """The least compute capability of an NVIDIA GPU on which it runs."""
        # Triton, which torch.compile writes kernels for, begins with Volta.
        return max(self.precision.least_capability, (7, 0) if self.compile else (0, 0))

    @property
    def least_device_bytes(self) -> int:
        """Bytes of a GPU's memory that it certainly needs: the outputs of its convolutions, and of the batch norms
        after them, stay there until the backward pass has read them. A compiler may compute the second ones again."""
        bytes_each = 2 if self.precision.is_amp or self.precision is Precision.BF16 else 4
        model = self.model.spec
        outputs = sum(
            each.outputs * each.size**2 for each in model.layers().in_order() if isinstance(each, Convolution)
        )
        kept = 2 if model.network.batch_norm and not self.compilers else 1
        return self.batch_size_per_card * outputs * kept * (0 if self.precision is Precision.UNSTATED else bytes_each)

    @property
    def features(self) -> tuple[str, ...]:
        """The features that are switched on, in the order of FEATURES."""
        return tuple(name for name in FEATURES if getattr(self, name))

    @property
    def compilers(self) -> tuple[str, ...]:
        """The compilers that are switched on."""
        return tuple(name for name in COMPILERS if getattr(self, name))

    @cached_property
    def id(self) -> str:
        parts = [
            self.framework.value,
            self.model.value,
            self.precision.value,
            f"bs{self.batch_size_per_card}",
            f"{self.nodes}x{self.cards_per_node}",
            self.data.value,
        ]
        if self.execution is not None:
            parts.append(self.execution.value)
        return "-".join([*parts, *self.features])

    def __str__(self) -> str:
        return self.id

    @staticmethod
    def parse(case_id: str) -> Case:
        """The case of an id: ``parse(c.id) == c``. Raises ConfigError, which names the unknown field."""
        match = _ID.fullmatch(case_id) if len(case_id) <= _LONGEST_ID else None
        if match is None:
            raise ConfigError(
                "case id",
                got=case_id,
                expected="FRAMEWORK-MODEL-PRECISION-bsN-NODESxCARDS-DATA[-EXECUTION][-FEATURE...]",
                remedy="'pytest perf_tests --collect-only -q' lists the ids",
            )
        words = [word for word in match["rest"].split("-") if word]
        execution = None
        if words and words[0] in {e.value for e in Execution}:
            execution = Execution(words.pop(0))
        case = Case(
            framework=choice(Framework, match["framework"], "framework"),
            model=choice(Model, match["model"], "model"),
            precision=choice(Precision, match["precision"], "precision"),
            batch_size_per_card=_number(match["batch"], case_id),
            nodes=_number(match["nodes"], case_id),
            cards_per_node=_number(match["cards"], case_id),
            data=choice(DataSource, match["data"], "data"),
            execution=execution,
            **_features(words, case_id),
        )
        if case.id != case_id:
            raise ConfigError("case id", got=case_id, expected=f"{case.id!r} (one spelling each)")
        return case


def choice(kind: type[E], value: object, field: str) -> E:
    """The member of ``kind`` with this value. Raises ConfigError, which lists the known values."""
    for member in kind:
        if member.value == value:
            return member
    raise ConfigError(
        "case",
        field=field,
        got=value,
        expected="one of " + ", ".join(str(member.value) for member in kind),
        remedy="Correct the spelling; nothing is substituted",
    )


def _features(words: list[str], case_id: str) -> dict[str, bool]:
    for word in words:
        if word not in FEATURES:
            raise ConfigError(
                f"case id {case_id!r}",
                field="feature",
                got=word,
                expected="one of " + ", ".join(FEATURES) + ", each once and in this order",
            )
    return dict.fromkeys(words, True)


def _number(text: str, case_id: str) -> int:
    # Checked before int(), which is slow for thousands of digits and raises ValueError beyond 4300.
    if len(text) > 7:
        raise ConfigError(f"case id {case_id[:80]!r}", got=text[:20], expected=f"a number up to {_LARGEST}")
    return int(text)
