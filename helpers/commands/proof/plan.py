"""The plan of ``perfgate prove-gpu``: a pure function of the cards, the installed builds and the options.

Paddle's probes come first, since they show within five minutes what breaks on a card. The other steps follow in the
order of their weight, since the time may end before the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from helpers.commands.proof import PROBES, Proof, ProofStep, StepKind
from helpers.judging.case.evidence import Budget
from helpers.machine.devices import GIB
from helpers.machine.environment import CPU, GPU
from helpers.machine.nvml import Gpu
from helpers.plan.matrix import MeasuringProtocol
from helpers.trainers.contract.case import Case, Precision
from helpers.trainers.contract.frameworks import Framework


@dataclass(frozen=True)
class Here:
    """What the plan depends on."""

    # The cards on which the suite measures; empty: the plan is the CPU's.
    gpus: tuple[Gpu, ...] = ()
    # How many CPU cards there are.
    cpu_cards: int = 1
    # The frameworks that cannot compute on these cards, each with the reason.
    unable: Mapping[Framework, str] = field(default_factory=dict)


REPEATS = 10
# The losses of the first and the last step are fetched on a GPU, too.
_FEW_STEPS = MeasuringProtocol("gpu-proof-few-steps", 1, 9, 1)
_TWENTY_STEPS = MeasuringProtocol("gpu-proof-20-steps", 1, 19, 1)
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

LIBRARIES, STATISTICS, PROGRAMS, RANKS = "libraries", "statistics", "programs", "two-cards"
# The limit of a probe that trains, in seconds; usually it takes a quarter of that.
_TRAINING_SECONDS = 180.0

_PADDLE = "Paddle"
_REFUSED = "what this card cannot compute"
_SYNTHETIC = "ResNet50 on synthetic data"
_AGAIN = "ten A/A repeats of one case"
_SLOW = "an injected slowdown"
_DALI = "real data through DALI"
_VGG16 = "VGG16"
_BATCHES = "other batch sizes"
_FEATURES = "compiled, and as a CUDA graph"
_MEMORY = "a batch that does not fit"
_NEIGHBOUR = "another process on the card"
_PARTS = "the parts of a step"


def proof_here(here: Here) -> Proof:
    """The plan for these cards, builds and options."""
    return _on_gpu(here) if here.gpus else _on_cpu(here)


def _on_gpu(here: Here) -> Proof:
    """The steps of the weakest of the cards, since any of them may be leased."""
    capability = min(gpu.compute_capability for gpu in here.gpus)
    memory = min(gpu.memory_bytes for gpu in here.gpus)
    steps = [*_paddle_on_gpu(here, capability, memory), *_pytorch_on_gpu(capability, memory)]
    kept = [step for step in steps if step.case is None or step.case.framework not in here.unable]
    left_out = [f"{framework.value}, {_count(steps, framework)}: {why}" for framework, why in here.unable.items()]
    if Framework.PADDLE not in here.unable and len(here.gpus) == 1:
        left_out.append(f"{RANKS}: one card")
    return Proof(GPU, tuple(kept), tuple(left_out))


def _count(steps: Sequence[ProofStep], framework: Framework) -> str:
    found = sum(step.case is not None and step.case.framework is framework for step in steps)
    return f"{found} steps"


def _paddle_on_gpu(here: Here, capability: tuple[int, int], memory: int) -> Iterator[ProofStep]:
    able = partial(_able, capability)
    o2, o1 = ("amp_o2", "amp_o1") if able("amp_o2") else ("fp32", "fp32")
    batch = _batch(memory, o2)
    rows = ("a100",) if able("tf32") else ("v100",)
    yield from _probes(GPU, f"paddle-resnet50v1.5-{o2}-bs{batch}-1x1-synthetic-dynamic", rows)
    # Half of what fits: a probe is about what breaks, not about figures.
    yield _trains(f"paddle-resnet50v1.5-{o2}-bs{batch // 2}-1x1-dali-static")
    yield _trains(f"paddle-resnet50v1.5-fp32-bs{batch // 4}-1x1-native-static")
    yield _trains(f"paddle-vgg16-{o1}-bs{batch // 4}-1x1-native-static")
    if len(here.gpus) > 1:
        yield _two_cards(f"paddle-resnet50v1.5-{o2}-bs{batch // 2}-1x2-dali-static")
    yield _measure(_PADDLE, f"paddle-resnet50v1.5-{o2}-bs{batch}-1x1-synthetic-static", replace(_ON_GPU, runs=2))
    for precision in ("tf32", "bf16", "amp_o2"):
        if not able(precision):
            yield _refused(f"paddle-resnet50v1.5-{precision}-bs256-1x1-synthetic-static")


def _pytorch_on_gpu(capability: tuple[int, int], memory: int) -> Iterator[ProofStep]:
    able = partial(_able, capability)
    precisions = [each for each in ("bf16", "amp", "tf32") if able(each)]
    # Without TF32 it is float32 that shows the card's arithmetic without AMP.
    precisions += [] if "tf32" in precisions else ["fp32"]
    batches = {each: _batch(memory, each) for each in precisions}
    single, few = precisions[-1], replace(_ON_GPU, runs=2)
    case_ids = [f"pytorch-resnet50v1.5-{each}-bs{batches[each]}-1x1-synthetic" for each in precisions]
    first = case_ids[0]
    yield from (_measure(_SYNTHETIC, each, _ON_GPU) for each in case_ids)
    yield from (_refused(f"pytorch-resnet50v1.5-{each}-bs256-1x1-synthetic") for each in ("bf16", "tf32")
                if not able(each))  # fmt: skip
    yield from _repeats(first, _ON_GPU)
    yield _slowed(first, _ON_GPU, 0.05, _CONFIRM)
    yield _measure(_DALI, first.replace("synthetic", "dali"), few)
    if "amp" in precisions:
        yield _measure(_DALI, f"pytorch-resnet50v1.5-amp-bs{batches['amp']}-1x1-dali_cpu", few)
    yield from (_measure(_VGG16, f"pytorch-vgg16-{each}-bs{min(128, batches[each] // 2)}-1x1-synthetic", few)
                for each in precisions)  # fmt: skip
    for batch in (128, 64, 32, 512):
        if batch != batches[precisions[0]]:
            case_id = f"pytorch-resnet50v1.5-{precisions[0]}-bs{batch}-1x1-synthetic"
            yield replace(_measure(_BATCHES, case_id, few), may_not_fit=True)
    yield _other(StepKind.EXPLAIN, _PARTS, f"pytorch-resnet50v1.5-{single}-bs{min(128, batches[single])}-1x1-synthetic",
                 _IN_PROFILES)  # fmt: skip
    yield _other(StepKind.NEIGHBOUR, _NEIGHBOUR, first, replace(few, runs=1))
    yield _other(StepKind.TOO_LARGE, _MEMORY, f"pytorch-resnet50v1.5-{single}-bs4096-1x1-synthetic",
                 replace(few, runs=1))  # fmt: skip
    yield from (_measure(_FEATURES, f"{first}-{each}", few) for each in ("compile", "graphs"))


def _able(capability: tuple[int, int], precision: str) -> bool:
    return capability >= Precision(precision).least_capability


def _batch(memory_bytes: int, precision: str) -> int:
    """The images a step that fit: ResNet50 with 256 takes 12 GB with 2 bytes a value, and twice that with 4."""
    needed = 24 * GIB if precision in ("fp32", "tf32") else 15 * GIB
    return 256 if memory_bytes >= needed else 128 if memory_bytes >= needed / 2 else 64


def _on_cpu(here: Here) -> Proof:
    """The same parts with the smallest batches that can be trained."""
    first = "pytorch-resnet50v1.5-fp32-bs2-1x1-synthetic"
    once = replace(_ON_CPU, runs=1)
    steps = [
        *_probes(CPU, "paddle-resnet50v1.5-fp32-bs2-1x1-synthetic-dynamic", ("v100", "a100")),
        # In float32: of CPUs without instructions for bfloat16 a step of AMP takes ten times as long.
        _trains("paddle-resnet50v1.5-fp32-bs4-1x1-dali-static"),
        _trains("paddle-resnet50v1.5-fp32-bs4-1x1-native-dynamic"),
        _trains("paddle-vgg16-fp32-bs2-1x1-native-static"),
        *([_two_cards("paddle-resnet50v1.5-fp32-bs2-1x2-synthetic-dynamic")] if here.cpu_cards > 1 else []),
        _measure(_PADDLE, "paddle-resnet50v1.5-fp32-bs2-1x1-synthetic-dynamic", once),
        _measure(_SYNTHETIC, first, _ON_CPU),
        *(_measure(_SYNTHETIC, f"pytorch-resnet50v1.5-{each}-bs2-1x1-synthetic", once) for each in ("bf16", "amp")),
        *_repeats(first, once),
        _slowed(first, once, 1.0, replace(_CONFIRM, pairs=8)),
        _measure(_DALI, "pytorch-resnet50v1.5-fp32-bs2-1x1-dali", once),
        _measure(_VGG16, "pytorch-vgg16-fp32-bs1-1x1-synthetic", once),
        replace(_measure(_BATCHES, "pytorch-resnet50v1.5-fp32-bs4-1x1-synthetic", once), may_not_fit=True),
        _other(StepKind.NEIGHBOUR, _NEIGHBOUR, first, once),
    ]  # fmt: skip
    left_out = (
        *([] if here.cpu_cards > 1 else [f"{RANKS}: one CPU card"]),
        f"{STATISTICS}: the fused operator is a GPU's (float16, NHWC)",
        "ResNet50 in tf32: TF32 is arithmetic of NVIDIA GPUs; fp32 stands in its place",
        f"{_MEMORY}: on a CPU it would take the machine's memory, not a card's",
        f"{_FEATURES}: CUDA graphs need a GPU, and compiling takes minutes",
        f"{_PARTS}: on a CPU the profiles are read in docs/evidence/planted-causes.md",
    )
    return Proof(CPU, tuple(steps), left_out)


def _probes(device: str, case_id: str, rows: tuple[str, ...]) -> Iterator[ProofStep]:
    """The probes that train nothing."""
    probe = ProofStep(LIBRARIES, PROBES, StepKind.PROBE, Case.parse(case_id), _FEW_STEPS, most_seconds=60.0)
    yield probe
    yield replace(probe, key=PROGRAMS, kind=StepKind.PROGRAMS, case=None, targets=rows, most_seconds=300.0)
    if device == GPU:
        yield replace(probe, key=STATISTICS)


def _trains(case_id: str) -> ProofStep:
    case = Case.parse(case_id)
    return ProofStep(f"trains-{case_id}", PROBES, StepKind.TRAINS, case, _FEW_STEPS, _ONE_RUN, _TRAINING_SECONDS)


def _two_cards(case_id: str) -> ProofStep:
    return replace(_trains(case_id), key=RANKS, protocol=_TWENTY_STEPS)


def _refused(case_id: str) -> ProofStep:
    case = Case.parse(case_id)
    return ProofStep(f"refused-{case_id}", _REFUSED, StepKind.REFUSED, case, _FEW_STEPS, _ONE_RUN)


def _measure(part: str, case_id: str, protocol: MeasuringProtocol) -> ProofStep:
    return ProofStep(case_id, part, StepKind.MEASURE, Case.parse(case_id), protocol)


def _repeats(case_id: str, protocol: MeasuringProtocol) -> Iterator[ProofStep]:
    for number in range(1, REPEATS + 1):
        yield ProofStep(f"repeat-{number}", _AGAIN, StepKind.REPEAT, Case.parse(case_id), protocol, _ONE_RUN)


def _slowed(case_id: str, protocol: MeasuringProtocol, slowdown: float, budget: Budget) -> ProofStep:
    return ProofStep("slowed", _SLOW, StepKind.SLOWED, Case.parse(case_id), protocol, budget, slowdown=slowdown)


def _other(kind: StepKind, part: str, case_id: str, protocol: MeasuringProtocol) -> ProofStep:
    return ProofStep(kind.name.lower().replace("_", "-"), part, kind, Case.parse(case_id), protocol, _ONE_RUN)
