"""The ordered steps of ``perfgate prove-gpu`` as data, for a GPU and for the CPU."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from helpers.judging.evidence import Budget
from helpers.machine.environment import CPU, GPU
from helpers.plan.matrix import MeasuringProtocol
from helpers.session.lockstep import Turns
from helpers.trainers.contract.case import Case


class StepKind(enum.Enum):
    """The kinds of steps: what is done with a step's case."""

    MEASURE = "measured and recorded"
    REPEAT = "one more night of the same build"
    SLOWED = "a build slowed down on purpose"
    TOO_LARGE = "a batch that cannot fit"
    NEIGHBOUR = "another process on the card"
    BARE_LOOP = "the suite's trainer against a bare loop"
    EXPLAIN = "profiles of one build beside itself"


@dataclass(frozen=True)
class ProofStep:
    """One step of the proof; it is completed or not done."""

    # Its name on disk.
    key: str
    # The part of the proof to which it belongs; a heading of the summary.
    part: str
    kind: StepKind
    case: Case | None = None
    protocol: MeasuringProtocol | None = None
    budget: Budget = field(default_factory=Budget)
    # For SLOWED: the fraction by which each training step is longer.
    slowdown: float = 0.0
    # For BARE_LOOP: the number of pairs of processes, and the turns of each pair.
    pairs: int = 0
    turns: Turns = field(default_factory=lambda: Turns(1))
    # Whether the step is also right if the batch does not fit into the card's memory.
    may_not_fit: bool = False
    # Whether the step is also right if this machine lacks something that the case needs.
    optional: bool = False


@dataclass(frozen=True)
class Proof:
    """The steps on one device in their order."""

    device: str
    steps: tuple[ProofStep, ...]
    # The parts that are impossible on this device, each with the reason.
    left_out: tuple[str, ...] = ()

    @property
    def cases(self) -> tuple[tuple[Case, MeasuringProtocol], ...]:
        """Each case that is measured, once."""
        found = {step.case.id: (step.case, step.protocol) for step in self.steps if step.case and step.protocol}
        return tuple((case, protocol) for case, protocol in found.values() if protocol is not None)


REPEATS = 10
# It warms up until the steps are steady, like the published protocols, but with fewer steps and runs, since a card may
# be available only for minutes.
_ON_GPU = MeasuringProtocol("gpu-proof", 60, 60, 3, steady_window_steps=20, most_warmup_steps=200)
# Profiles are made of the steps after the window, and it matters little how steady those of the window are.
_IN_PROFILES = MeasuringProtocol("gpu-proof-profiles", 20, 20, 1)
# Steady steps are not required: on a busy CPU they are rare, and the proof does not need them.
_ON_CPU = MeasuringProtocol("gpu-proof-on-cpu", 3, 4, 2)
# A repeat is a single run with its verdict; nothing is run again.
_ONE_RUN = Budget(screen_runs=1, first_runs=1, repeats=0, retries=0)
# Without turns of unasked comparisons: the slowed build must be compared because it is suspected.
_CONFIRM = Budget(rotation=100)

_SYNTHETIC = "ResNet50 on synthetic data"
_AGAIN = "ten A/A repeats of one case"
_SLOW = "an injected slowdown"
_DALI = "real data through DALI"
_VGG16 = "VGG16"
_BATCHES = "other batch sizes"
_FEATURES = "compiled, and as a CUDA graph"
_MEMORY = "a batch that does not fit"
_NEIGHBOUR = "another process on the card"
_SPEED = "the suite beside a bare loop"
_PARTS = "the parts of a step"
_PADDLE = "Paddle"
# Parts that may be missing: DALI is a separate wheel, Paddle's wheel has no code for the newest cards, and compiling
# needs a C compiler.
_OPTIONAL = (_DALI, _PADDLE, _FEATURES)


def proof_on_gpu() -> Proof:
    """The most important parts come first, since the time may end before the last."""
    first = "pytorch-resnet50v1.5-bf16-bs256-1x1-synthetic"
    few = replace(_ON_GPU, runs=2)
    steps = [
        *(_measure(_SYNTHETIC, f"pytorch-resnet50v1.5-{each}-bs256-1x1-synthetic", _ON_GPU) for each in
          ("bf16", "amp", "tf32")),
        *_repeats(first, _ON_GPU),
        _slowed(first, _ON_GPU, 0.05, _CONFIRM),
        _measure(_DALI, "pytorch-resnet50v1.5-bf16-bs256-1x1-dali", few),
        _measure(_DALI, "pytorch-resnet50v1.5-amp-bs256-1x1-dali_cpu", few),
        *(_measure(_VGG16, f"pytorch-vgg16-{each}-bs128-1x1-synthetic", few) for each in ("bf16", "amp", "tf32")),
        *(replace(_measure(_BATCHES, f"pytorch-resnet50v1.5-bf16-bs{batch}-1x1-synthetic", few), may_not_fit=True)
          for batch in (128, 64, 32, 512)),
        # A turn must be long compared with the wait for the card at its end. During warm-up cuDNN searches for its
        # algorithms.
        _bare_loop(first, 4, Turns(rounds=4, steps_per_block=20, warmup_steps=20)),
        _other(StepKind.EXPLAIN, _PARTS, "pytorch-resnet50v1.5-tf32-bs128-1x1-synthetic", _IN_PROFILES),
        _measure(_PADDLE, "paddle-resnet50v1.5-amp_o2-bs256-1x1-synthetic-static", few),
        _other(StepKind.NEIGHBOUR, _NEIGHBOUR, first, replace(few, runs=1)),
        _other(StepKind.TOO_LARGE, _MEMORY, "pytorch-resnet50v1.5-tf32-bs4096-1x1-synthetic", replace(few, runs=1)),
        *(_measure(_FEATURES, f"{first}-{each}", few) for each in ("compile", "graphs")),
    ]  # fmt: skip
    return Proof(GPU, tuple(steps))


def proof_on_cpu() -> Proof:
    """The same parts with the smallest batches that can be trained, so that everything takes four minutes."""
    first = "pytorch-resnet50v1.5-fp32-bs2-1x1-synthetic"
    once = replace(_ON_CPU, runs=1)
    steps = [
        _measure(_SYNTHETIC, first, _ON_CPU),
        *(_measure(_SYNTHETIC, f"pytorch-resnet50v1.5-{each}-bs2-1x1-synthetic", once) for each in ("bf16", "amp")),
        *_repeats(first, once),
        _slowed(first, once, 1.0, replace(_CONFIRM, pairs=8)),
        _measure(_DALI, "pytorch-resnet50v1.5-fp32-bs2-1x1-dali", once),
        _measure(_VGG16, "pytorch-vgg16-fp32-bs1-1x1-synthetic", once),
        replace(_measure(_BATCHES, "pytorch-resnet50v1.5-fp32-bs4-1x1-synthetic", once), may_not_fit=True),
        _bare_loop(first, 2, Turns(rounds=3)),
        _measure(_PADDLE, "paddle-resnet50v1.5-fp32-bs2-1x1-synthetic-dynamic", once),
        _other(StepKind.NEIGHBOUR, _NEIGHBOUR, first, once),
    ]
    left_out = (
        "ResNet50 in tf32: TF32 is arithmetic of NVIDIA GPUs; fp32 stands in its place",
        f"{_MEMORY}: on a CPU it would take the machine's memory, not a card's",
        f"{_FEATURES}: CUDA graphs need a GPU, and compiling takes minutes",
        f"{_PARTS}: on a CPU the profiles are read in docs/planted-causes.md",
    )
    return Proof(CPU, tuple(steps), left_out)


def _measure(part: str, case_id: str, protocol: MeasuringProtocol) -> ProofStep:
    return ProofStep(case_id, part, StepKind.MEASURE, Case.parse(case_id), protocol, optional=part in _OPTIONAL)


def _repeats(case_id: str, protocol: MeasuringProtocol) -> Iterator[ProofStep]:
    for number in range(1, REPEATS + 1):
        yield ProofStep(f"repeat-{number}", _AGAIN, StepKind.REPEAT, Case.parse(case_id), protocol, _ONE_RUN)


def _slowed(case_id: str, protocol: MeasuringProtocol, slowdown: float, budget: Budget) -> ProofStep:
    return ProofStep("slowed", _SLOW, StepKind.SLOWED, Case.parse(case_id), protocol, budget, slowdown=slowdown)


def _other(kind: StepKind, part: str, case_id: str, protocol: MeasuringProtocol) -> ProofStep:
    return ProofStep(kind.name.lower().replace("_", "-"), part, kind, Case.parse(case_id), protocol, _ONE_RUN)


def _bare_loop(case_id: str, pairs: int, turns: Turns) -> ProofStep:
    return ProofStep("bare-loop", _SPEED, StepKind.BARE_LOOP, Case.parse(case_id), pairs=pairs, turns=turns)
