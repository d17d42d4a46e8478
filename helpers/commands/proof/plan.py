"""The steps of ``perfgate prove-gpu`` as data: a pure function of the cards.

Paddle's probes come first, since they show within five minutes what breaks on a card. The other steps follow in the
order of their weight, since the time may end before the last.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from helpers.judging.case.evidence import Budget
from helpers.machine.devices import GIB
from helpers.machine.nvml import Gpu
from helpers.plan.matrix import MeasuringProtocol
from helpers.trainers.contract.case import Case, Precision

LIBRARIES, STATISTICS, RANKS = "libraries", "statistics", "two-cards"
REPEATS = 10
# The losses of the first and the last step are fetched on a GPU, too.
_FEW_STEPS = MeasuringProtocol("gpu-proof-few-steps", 1, 9, 1)
_TWENTY_STEPS = MeasuringProtocol("gpu-proof-20-steps", 1, 19, 1)
# It warms up until the steps are steady, like the published protocols, but with fewer steps and runs, since a card may
# be available only for minutes.
_ON_GPU = MeasuringProtocol("gpu-proof", 60, 60, 3, steady_window_steps=20, most_warmup_steps=200)
# Steady steps are not required: on a busy CPU they are rare, and the proof does not need them.
_ON_CPU = MeasuringProtocol("gpu-proof-on-cpu", 3, 4, 2)
# A repeat is a single run with its verdict; nothing is run again.
_ONE_RUN = Budget(screen_runs=1, first_runs=1, repeats=0, retries=0)
# Without turns of unasked comparisons: the slowed build must be compared because it is suspected.
_CONFIRM = Budget(rotation=100)
# The limit of a probe, and of one that trains, in seconds; usually it takes a quarter of that.
_PROBE_SECONDS, _TRAINING_SECONDS = 60.0, 180.0


class StepKind(enum.Enum):
    """What is done with a step's case."""

    PROBE = "a probe of Paddle in a process of its own"
    TRAINS = "a few steps of training"
    MEASURE = "measured and recorded"
    REPEAT = "one more night of the same build"
    SLOWED = "a build slowed down on purpose"
    NEIGHBOUR = "another process on the card"


@dataclass(frozen=True)
class ProofStep:
    """One step of the proof; it is completed or not done."""

    # Its name on disk.
    key: str
    kind: StepKind
    case: Case
    protocol: MeasuringProtocol
    budget: Budget = field(default_factory=Budget)
    # After so many seconds a probe is ended; None: the limits of perf.yaml.
    most_seconds: float | None = None
    # For SLOWED: the fraction by which each training step is longer.
    slowdown: float = 0.0


def steps_here(gpus: Sequence[Gpu], cpu_cards: int) -> tuple[ProofStep, ...]:
    """The steps for these cards; without a GPU, those of a CPU."""
    return tuple(_on_gpu(gpus) if gpus else _on_cpu(cpu_cards))


def _on_gpu(gpus: Sequence[Gpu]) -> Iterator[ProofStep]:
    """The steps of the weakest of the cards, since any of them may be leased."""
    capability = min(gpu.compute_capability for gpu in gpus)
    memory = min(gpu.memory_bytes for gpu in gpus)

    def able(precision: str) -> bool:
        return capability >= Precision(precision).least_capability

    o2, o1 = ("amp_o2", "amp_o1") if able("amp_o2") else ("fp32", "fp32")
    batch = _batch(memory, o2)
    few = replace(_ON_GPU, runs=2)
    paddle = f"paddle-resnet50v1.5-{o2}-bs{{}}-1x{{}}-{{}}"
    yield _probe(LIBRARIES, paddle.format(batch, 1, "synthetic-dynamic"))
    yield _probe(STATISTICS, paddle.format(batch, 1, "synthetic-dynamic"))
    # Half of what fits: a probe is about what breaks, not about figures.
    yield _trains(paddle.format(batch // 2, 1, "dali-static"))
    yield _trains(f"paddle-resnet50v1.5-fp32-bs{batch // 4}-1x1-native-static")
    yield _trains(f"paddle-vgg16-{o1}-bs{batch // 4}-1x1-native-static")
    if len(gpus) > 1:
        yield _two_cards(paddle.format(batch // 2, 2, "dali-static"))
    yield _measure(paddle.format(batch, 1, "synthetic-static"), few)

    # Without TF32 it is float32 that shows the card's arithmetic without AMP.
    precisions = [each for each in ("bf16", "amp", "tf32") if able(each)]
    precisions += [] if "tf32" in precisions else ["fp32"]
    pytorch = [f"pytorch-resnet50v1.5-{each}-bs{_batch(memory, each)}-1x1-synthetic" for each in precisions]
    first = pytorch[0]
    yield from (_measure(each, _ON_GPU) for each in pytorch)
    yield from _repeats(first, _ON_GPU)
    yield _slowed(first, _ON_GPU, 0.05, _CONFIRM)
    yield _measure(first.replace("synthetic", "dali"), few)
    if "amp" in precisions:
        yield _measure(f"pytorch-resnet50v1.5-amp-bs{_batch(memory, 'amp')}-1x1-dali_cpu", few)
    vgg16_batch = min(128, _batch(memory, precisions[0]) // 2)
    yield _measure(f"pytorch-vgg16-{precisions[0]}-bs{vgg16_batch}-1x1-synthetic", few)
    yield _neighbour(first, replace(few, runs=1))
    yield from (_measure(f"{first}-{each}", few) for each in ("compile", "graphs"))


def _batch(memory_bytes: int, precision: str) -> int:
    """The images a step that fit: ResNet50 with 256 takes 12 GB with 2 bytes a value, and twice that with 4."""
    needed = 24 * GIB if precision in ("fp32", "tf32") else 15 * GIB
    return 256 if memory_bytes >= needed else 128 if memory_bytes >= needed / 2 else 64


def _on_cpu(cards: int) -> Iterator[ProofStep]:
    """The same with the smallest batches that can be trained, in float32: of CPUs without instructions for bfloat16 a
    step of AMP takes ten times as long."""
    first = "pytorch-resnet50v1.5-fp32-bs2-1x1-synthetic"
    paddle = "paddle-resnet50v1.5-fp32-bs2-1x{}-synthetic-dynamic"
    once = replace(_ON_CPU, runs=1)
    yield _probe(LIBRARIES, paddle.format(1))
    yield _trains("paddle-resnet50v1.5-fp32-bs4-1x1-dali-static")
    yield _trains("paddle-resnet50v1.5-fp32-bs4-1x1-native-dynamic")
    yield _trains("paddle-vgg16-fp32-bs2-1x1-native-static")
    if cards > 1:
        yield _two_cards(paddle.format(2))
    yield _measure(paddle.format(1), once)
    yield _measure(first, _ON_CPU)
    yield from _repeats(first, once)
    yield _slowed(first, once, 1.0, replace(_CONFIRM, pairs=8))
    yield _measure("pytorch-resnet50v1.5-fp32-bs2-1x1-dali", once)
    yield _measure("pytorch-vgg16-fp32-bs1-1x1-synthetic", once)
    yield _neighbour(first, once)


def _probe(key: str, case_id: str) -> ProofStep:
    return ProofStep(key, StepKind.PROBE, Case.parse(case_id), _FEW_STEPS, most_seconds=_PROBE_SECONDS)


def _trains(case_id: str) -> ProofStep:
    case = Case.parse(case_id)
    return ProofStep(f"trains-{case_id}", StepKind.TRAINS, case, _FEW_STEPS, _ONE_RUN, _TRAINING_SECONDS)


def _two_cards(case_id: str) -> ProofStep:
    return replace(_trains(case_id), key=RANKS, protocol=_TWENTY_STEPS)


def _measure(case_id: str, protocol: MeasuringProtocol) -> ProofStep:
    return ProofStep(case_id, StepKind.MEASURE, Case.parse(case_id), protocol)


def _repeats(case_id: str, protocol: MeasuringProtocol) -> Iterator[ProofStep]:
    for number in range(1, REPEATS + 1):
        yield ProofStep(f"repeat-{number}", StepKind.REPEAT, Case.parse(case_id), protocol, _ONE_RUN)


def _slowed(case_id: str, protocol: MeasuringProtocol, slowdown: float, budget: Budget) -> ProofStep:
    return ProofStep("slowed", StepKind.SLOWED, Case.parse(case_id), protocol, budget, slowdown=slowdown)


def _neighbour(case_id: str, protocol: MeasuringProtocol) -> ProofStep:
    return ProofStep("neighbour", StepKind.NEIGHBOUR, Case.parse(case_id), protocol, _ONE_RUN)
