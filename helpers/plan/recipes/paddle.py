"""The training configuration of a Paddle case: that of the published figures.

Sources: docs/published.md, "Paddle ResNet50 v1.5" and "Paddle VGG16 (FleetX)"; behind them PaddleClas
(ppcls/static/train.py and program.py, ResNet50_amp_O2_ultra.yaml, the benchmark's run_benchmark.sh) as of 2023-07 with
the published logs, and FleetX at commit 296e0d7 (benchmark/paddle/vgg_benchmark.py). The trainers read the result
strictly (``helpers/trainers/common/settings.py``) and record in the step log's header what of it the installed build of
the framework does not know.

Where this and the trainers depart from the sources:

- VGG16's published learning rate of 0.1 is too large for a network without batch norm: its logits are NaN from the
  third to fifth step on (seen on a CPU with batches of 8 and 16). That is no training, and the trainer ends such a run
  as failed, so the suite uses the rate of VGG16's authors, 0.01.
- On a CPU the batches are a hundredth of the published ones, and the learning rate falls with them; AMP is
  bfloat16 without loss scaling, the feed float32 (a CPU computes nothing in float16).
- FLAGS_enable_pir_api=0 and FLAGS_enable_pir_in_executor=0 are added to the published flags of static programs on a
  GPU: otherwise Paddle 3 makes PIR programs, which accept no BuildStrategy.
- The published loops fetch the loss (PaddleClas: and both accuracies) to the host after every step, which
  empties the GPU's queue. Here a static program's loss and the mean logit that tells a NaN are fetched likewise,
  by the Executor itself, and looked at every 10 steps; in dynamic execution they come every 10 steps.
- The program's batch size is fixed; the published ones leave it open. No operator depends on it.
- FleetX's VGG16 program is a binary download; here it is built from layers, and has no accuracy operators.
- ExecutionStrategy was removed from Paddle with its ParallelExecutor: the installed build says so by name.
"""

from __future__ import annotations

from helpers.plan.recipes import Fixed, Setting, SettingsTable, Source, group, own
from helpers.plan.recipes.common import (
    BFLOAT16,
    NO_AMP,
    Processor,
    common_fixed,
    common_settings,
    cpu_environment,
    decoding,
    dynamic_loss_scaling,
    is_single_precision,
    read_processor,
    without_loss_scaling,
)
from helpers.plan.recipes.publishers import (
    AS_THE_CASE_SAYS,
    COMMON,
    DALI,
    FP16,
    NATIVE,
    PADDLECLAS,
    STRATEGIES,
    empty_groups,
    is_channels_last,
    network_recipe,
    published_recipe,
)
from helpers.trainers.contract.case import Case, DataSource, Execution, Precision


def paddle_settings(case: Case, on_gpu: bool) -> SettingsTable:
    """The settings of ``case``; on a CPU some are those for this machine's."""
    return {
        **common_settings(case, on_gpu),
        "accuracy_top_k": _accuracies(case, on_gpu),
        "use_multi_tensor": _merged_momentum(case),
        **_precision(case, on_gpu),
        **(_pure_layout(on_gpu) if is_channels_last(case) else {}),
        **(_on_gpu(case) if on_gpu else _on_cpu(read_processor())),
    }


def paddle_fixed(case: Case, on_gpu: bool) -> tuple[Fixed, ...]:
    """What the trainer does for ``case``, whatever its settings are."""
    recipe = published_recipe(case)
    weights = Fixed("optimizer's weights", "float32 master copies (multi_precision)", Source(FP16))
    pipeline = Source(DALI) if case.data is DataSource.DALI and on_gpu else Source(DALI, "CPU-only")
    decoded = Source(NATIVE) if case.data is DataSource.NATIVE else pipeline
    return (
        Fixed("model", network_recipe(case).description, recipe.model),
        Fixed("image size", "224 x 224, 1000 classes", Source(COMMON)),
        Fixed("loss", "mean cross-entropy, no label smoothing", Source(COMMON)),
        Fixed("seed", "1234", recipe.seed),
        *((weights,) if case.precision is Precision.AMP_O2 and on_gpu else ()),
        *decoding(case, on_gpu, "the framework's loader workers", decoded),
        *common_fixed(case, on_gpu, "forced off (NVIDIA_TF32_OVERRIDE=0)"),
    )


def _accuracies(case: Case, on_gpu: bool) -> Setting:
    if not on_gpu:
        return Setting([], own("the accuracies are of the published programs on a GPU"))
    return published_recipe(case).accuracies


def _merged_momentum(case: Case) -> Setting:
    if case.execution is not Execution.STATIC or case.auto:
        return Setting(False, own("merged_momentum is of the published static programs"))
    return published_recipe(case).merged_momentum


def _precision(case: Case, on_gpu: bool) -> dict[str, Setting]:
    """AMP is float16 with dynamic loss scaling on a GPU and bfloat16 on a CPU."""
    if is_single_precision(case):
        none = Setting(None, NO_AMP)
        return {"amp_level": none, "amp_dtype": none, "amp_through": none, **without_loss_scaling(NO_AMP)}
    half = "bfloat16" if case.precision is Precision.BF16 or not on_gpu else "float16"
    source = _amp_source(case) if on_gpu else BFLOAT16
    return {
        "amp_level": Setting("O2" if case.precision in (Precision.AMP_O2, Precision.BF16) else "O1", source),
        "amp_dtype": Setting(half, source),
        "amp_through": _amp_through(case, on_gpu, source),
        **(dynamic_loss_scaling(case) if half == "float16" else without_loss_scaling(BFLOAT16)),
    }


def _amp_source(case: Case) -> Source:
    if is_channels_last(case):
        return Source(FP16)
    if case.precision is Precision.UNSTATED:
        return own("the auto table leaves the precision open; its speeds lie near the AMP table's")
    return published_recipe(case).amp_o1 if case.precision is Precision.AMP_O1 else AS_THE_CASE_SAYS


def _amp_through(case: Case, on_gpu: bool, amp: Source) -> Setting:
    """The settings that switch mixed precision on; ``amp`` is the source of its level."""
    if not on_gpu or case.execution is not Execution.STATIC:
        return Setting("auto_cast", own("Paddle's switch outside static programs on a GPU"))
    recipe = published_recipe(case)
    return Setting(recipe.amp_through, recipe.amp_through_source or amp)


def _pure_layout(on_gpu: bool) -> dict[str, Setting]:
    """The layout of pure half precision: batches are NCHW, in float16 on a GPU, and the model transposes them."""
    feed = {"input_dtype": Setting("float16", Source(FP16, "fp16 feed"))} if on_gpu else {}
    return {
        "layout": Setting("NHWC", Source(FP16)),
        "feed_layout": Setting("NCHW", Source(PADDLECLAS, "batches come as NCHW and the model transposes them")),
        "input_channels": Setting(4, Source(FP16, "padded")),
        **feed,
    }


def _on_cpu(processor: Processor) -> dict[str, Setting]:
    flags = own("the published flags are a GPU's; the fastest of docs/evidence/cpu-settings.md")
    none = own("the published strategies are for programs on a GPU; none is set on a CPU")
    return {**group("environment", cpu_environment(processor), flags), **empty_groups(STRATEGIES, none)}


def _on_gpu(case: Case) -> dict[str, Setting]:
    """Environment and strategies."""
    if case.auto:
        chooses = own("strategy.auto chooses; whatever were set beside it would turn that off")
        return empty_groups(("environment", *STRATEGIES), chooses)
    return published_recipe(case).strategies(case)
