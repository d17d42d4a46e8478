"""The shared part of all frameworks' recipes: optimizer, input, loss scaling, and their numbers.

Numbers and sources are those of Paddle's published figures. Another framework's recipe names its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from helpers.plan.recipes import Fixed, Setting, Source, group, own
from helpers.plan.recipes.publishers import DALI, DRAFT, PADDLECLAS, published_recipe
from helpers.trainers.contract.case import Case, DataSource, Precision

# A model's learning rate is for this batch. Smaller global batches on a CPU scale it down in proportion.
REFERENCE_BATCH = 256
# Both publishers leave these to the defaults of paddle.static.amp.decorate for float16 and of strategy.amp_configs,
# which agree.
LOSS_SCALING_RULE = {"incr_every_n_steps": 1000, "decr_every_n_nan_or_inf": 2, "incr_ratio": 2.0, "decr_ratio": 0.8}

NO_AMP = own("no mixed precision: the case's precision says so")
BFLOAT16 = own("mixed precision in bfloat16, whose range needs no loss scaling")
FOR_EVERY_CASE = own("the same for every case")


def is_single_precision(case: Case) -> bool:
    return case.precision in (Precision.FP32, Precision.TF32)


def common_settings(case: Case, on_gpu: bool) -> dict[str, Setting]:
    """Optimizer and input of a case. A framework's recipe adds precision and its own settings."""
    return {
        **_optimizer(case, on_gpu),
        **_layout(case, on_gpu),
        **_augmentation(case),
        **_dali(on_gpu),
        **_native(on_gpu),
    }


def without_loss_scaling(source: Source) -> dict[str, Setting]:
    return {"loss_scaling": Setting(None, source), **group("loss_scaling_rule", {}, source)}


def dynamic_loss_scaling(case: Case) -> dict[str, Setting]:
    """The first scale and the rule of float16 with dynamic loss scaling."""
    recipe = published_recipe(case)
    return {
        "loss_scaling": recipe.loss_scaling(case),
        **group("loss_scaling_rule", LOSS_SCALING_RULE, recipe.loss_scaling_rule),
    }


def common_fixed(case: Case, on_gpu: bool, forced_off: str) -> tuple[Fixed, ...]:
    """What the trainers of all frameworks do alike; ``forced_off`` says how this one switches TF32 off."""
    fixed = []
    if case.data is DataSource.UNSTATED:
        fixed.append(Fixed("data", "read by DALI", Source(DRAFT, "DALI is on where a framework has it")))
    if case.data is DataSource.SYNTHETIC:
        fixed.append(Fixed("data", "one batch of random numbers, made once", FOR_EVERY_CASE))
    if on_gpu and is_single_precision(case):
        forced = forced_off if case.precision is Precision.FP32 else "forced on"
        fixed.append(Fixed("TF32", f"{forced} and checked in the process", FOR_EVERY_CASE))
    return tuple(fixed)


def decoding(case: Case, on_gpu: bool, workers: str, source: Source) -> tuple[Fixed, ...]:
    """How images in files are decoded; empty for synthetic data. ``workers`` are those of the framework's own
    loader."""
    if case.read_from is DataSource.NATIVE:
        return (Fixed("decoding", f"{workers}: random resized crop, flip, normalise", source),)
    if case.read_from not in (DataSource.DALI, DataSource.DALI_CPU):
        return ()
    where = "GPU (mixed)" if case.read_from is DataSource.DALI and on_gpu else "CPU"
    return (Fixed("decoding", f"DALI on the {where}, crop while decoding, linear resize, labels int64", source),)


def _optimizer(case: Case, on_gpu: bool) -> dict[str, Setting]:
    recipe = published_recipe(case)
    return {
        "optimizer": Setting("momentum", Source(recipe.optimizer)),
        "learning_rate": _learning_rate(case, on_gpu),
        "learning_rate_boundaries": Setting([30, 60, 90], recipe.boundaries),
        "learning_rate_decay": Setting(0.1, recipe.decay),
        "momentum": Setting(0.9, Source(recipe.optimizer)),
        "weight_decay": Setting(1e-4, Source(recipe.optimizer, "L2")),
    }


def _learning_rate(case: Case, on_gpu: bool) -> Setting:
    rate, recipe = case.model.spec.learning_rate, published_recipe(case)
    is_documented = case.model is recipe.documented
    if on_gpu:
        return Setting(rate, recipe.learning_rate if is_documented else own("the model's entry has it"))
    full = (recipe.learning_rate_in_words if is_documented else "the {rate:g} of the model's entry").format(rate=rate)
    return Setting(
        rate * min(1.0, case.batch_size_per_card * case.cards / REFERENCE_BATCH),
        own(f"{full} from 256 images a step on, in proportion below: a CPU's batches are small"),
    )


def _layout(case: Case, on_gpu: bool) -> dict[str, Setting]:
    recipe = published_recipe(case)
    feed = "a float16 feed is stated for ResNet50's FP16 rows alone" if on_gpu else "a CPU computes nothing in float16"
    return {
        "layout": Setting("NCHW", recipe.layout),
        "feed_layout": Setting("NCHW", own("the model's own")),
        "input_channels": Setting(3, recipe.input_channels),
        "input_dtype": Setting("float32", own(feed)),
    }


def _augmentation(case: Case) -> dict[str, Setting]:
    values = {"crop_area": [0.08, 1.0], "crop_aspect_ratio": [0.75, 4 / 3], "flip_probability": 0.5}
    return group("augmentation", values, published_recipe(case).augmentation(case))


def _dali(on_gpu: bool) -> dict[str, Setting]:
    if on_gpu:
        reason = "the documents give no number; 4 is PaddleClas's default, fewer where a rank has fewer CPUs"
        threads = Setting(4, own(reason))
        paddings, padded = (211025920, 140544512), Source(DALI)
    else:
        threads = Setting(None, own("null: as many as the rank has cores"))
        paddings, padded = (0, 0), Source(DALI, "CPU-only: no padding arguments")
    return {
        "dali.threads": threads,
        "dali.prefetch_queue_depth": Setting(2, own("the documents give no number; 2 is DALI's default")),
        "dali.seed": Setting(42, Source(DALI, "each rank adds its number")),
        "dali.num_attempts": Setting(100, Source(PADDLECLAS, "its DALI pipeline's default; DALI's own is 10")),
        "dali.device_memory_padding": Setting(paddings[0], padded),
        "dali.host_memory_padding": Setting(paddings[1], padded),
    }


def _native(on_gpu: bool) -> dict[str, Setting]:
    here = Setting(1, own("one beside the rank, which shares its core"))
    workers = Setting(8, own("the documents give no number; fewer where a rank has fewer CPUs")) if on_gpu else here
    default = own("the documents give none; Paddle's own default")
    return {"native.workers": workers, **group("native", {"prefetch_factor": 2, "shared_memory": True}, default)}


# ---- the variables of a CPU


CPUINFO = Path("/proc/cpuinfo")

# The MKL in Paddle's wheels looks at the CPU's maker before it looks at what the CPU can do, and runs SSE2 kernels on
# AMD's. This variable chooses the kernels: 7 those for AVX-512, 5 those for AVX2.
_MKL_KERNELS = "MKL_DEBUG_CPU_TYPE"
# A training step frees and allocates some 800 MB at batch 4. By glibc's defaults most of that goes back to the kernel,
# and every step faults it in again and clears it page by page. So large blocks get no mapping of their own, nothing is
# given back, and the heap grows by 256 MiB at a time. Huge pages are left out: while the kernel gathers them, single
# steps of VGG16 take half as long again. An unknown name is ignored by an older glibc.
_HEAP = {
    "glibc.malloc.mmap_max": 0,
    "glibc.malloc.top_pad": 2**28,
    "glibc.malloc.trim_threshold": 2**40,
}
_AVX512 = frozenset({"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"})
_AVX2 = frozenset({"avx2", "fma"})


@dataclass(frozen=True)
class Processor:
    """A processor: its maker (``AuthenticAMD``, ``GenuineIntel``) and its instruction sets, as Linux names them."""

    vendor: str
    instructions: frozenset[str]


def read_processor(cpuinfo: Path = CPUINFO) -> Processor:
    """The processor that ``/proc/cpuinfo`` describes. A field that it does not state is empty."""
    found = {"vendor_id": "", "flags": ""}
    for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in found:
            found[name.strip()] = value.strip()
    return Processor(found["vendor_id"], frozenset(found["flags"].split()))


def cpu_environment(processor: Processor) -> dict[str, str]:
    """The variables of a CPU case of Paddle on this processor."""
    return {**_heap_environment(), **_mkl_kernels(processor)}


def heap_settings() -> dict[str, Setting]:
    """The variables of a CPU case of the other frameworks: those of glibc's heap."""
    heap = own("glibc's heap as in docs/evidence/cpu-settings.md; nothing is published for a CPU")
    return group("environment", _heap_environment(), heap)


def _heap_environment() -> dict[str, str]:
    return {"GLIBC_TUNABLES": ":".join(f"{name}={value}" for name, value in _HEAP.items())}


def _mkl_kernels(processor: Processor) -> dict[str, str]:
    """On Intel's processors MKL itself chooses the best kernels, and this variable could only make it choose worse."""
    if processor.vendor != "AuthenticAMD":
        return {}
    if processor.instructions >= _AVX512:
        return {_MKL_KERNELS: "7"}
    return {_MKL_KERNELS: "5"} if processor.instructions >= _AVX2 else {}
