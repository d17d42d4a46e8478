"""The training configuration of a PyTorch case.

A case that the published tables have (the published script's own AMP, or a published row's data source) is trained as
NVIDIA's script was: docs/published.md, "The other frameworks' configurations". Every other case has the
optimizer, input and loss of the Paddle trainer for the same case, so that the two can be compared.

Where this departs from the sources:

- The sources do not state the published script's learning rate schedule, augmentation and loader threads: those of
  the Paddle cases are taken.
- "bf16" is autocast to bfloat16, as PyTorch's users use the word; Paddle's is its level O2. The step log's facts say
  which.
- torch.amp.GradScaler lowers its scale at each step that overflows; Paddle does so at the second in a row.
"""

from __future__ import annotations

from dataclasses import replace

from helpers.plan.recipes import OWN, Fixed, Setting, SettingsTable, Source, group, own
from helpers.plan.recipes.common import (
    BFLOAT16,
    FOR_EVERY_CASE,
    NO_AMP,
    common_fixed,
    decoding,
    dynamic_loss_scaling,
    heap_settings,
    is_single_precision,
    without_loss_scaling,
)
from helpers.plan.recipes.publishers import (
    AS_THE_CASE_SAYS,
    PYTORCH,
    is_channels_last,
    network_recipe,
    published_recipe,
)
from helpers.plan.recipes.scheduled import AS_PADDLE, NOT_STATED, as_paddle, refuse_others
from helpers.trainers.contract.case import Case, DataSource, Precision

# torch.nn.parallel.DistributedDataParallel's own default, in MiB.
_BUCKET_CAP_MB = 25

_PRECISIONS = tuple(each for each in Precision if each is not Precision.UNSTATED)


def is_published_configuration(case: Case) -> bool:
    """Whether the case is trained as the published rows are, and not as the other frameworks' cases."""
    return case.precision is Precision.AMP or case.data in (DataSource.DALI_CPU, DataSource.UNSTATED)


def pytorch_settings(case: Case, on_gpu: bool) -> SettingsTable:
    """The settings of ``case``. Raises ConfigError for what PyTorch does not
    have."""
    refuse_others(case, _PRECISIONS, ("compile", "graphs"))
    return {
        **_as_paddle(case, on_gpu),
        **_precision(case, on_gpu),
        **(_pure_layout(on_gpu) if is_channels_last(case) else {}),
        "decay_norms": _decay_norms(case),
        "cudnn_benchmark": _cudnn_benchmark(case, on_gpu),
        "compile_mode": _compile_mode(case),
        **_ddp(case),
        **_environment(on_gpu),
    }


def pytorch_fixed(case: Case, on_gpu: bool) -> tuple[Fixed, ...]:
    """What the trainer does for ``case``, whatever its settings are."""
    weights = Fixed("optimizer's weights", "float32 master copies", AS_PADDLE)
    decoded = Source(PYTORCH, "dali-cpu") if case.data is DataSource.DALI_CPU else AS_PADDLE
    return (
        Fixed("model", network_recipe(case).description, AS_PADDLE),
        Fixed("image size", "224 x 224, 1000 classes", FOR_EVERY_CASE),
        Fixed("loss", "mean cross-entropy, no label smoothing", FOR_EVERY_CASE),
        Fixed("seed", "1234", FOR_EVERY_CASE),
        *((weights,) if case.precision is Precision.AMP_O2 else ()),
        *decoding(case, on_gpu, "torch's DataLoader workers", decoded),
        *common_fixed(case, on_gpu, "forced off"),
    )


def _other(case: Case) -> Source:
    """The source of settings that the published script's description does not state, and of all settings of other
    cases."""
    return NOT_STATED if is_published_configuration(case) else AS_PADDLE


def _as_paddle(case: Case, on_gpu: bool) -> dict[str, Setting]:
    """The Paddle trainer's optimizer and input. The published script's description states some of these settings
    too."""
    published = is_published_configuration(case)
    settings = as_paddle(case, on_gpu, published)
    if not published:
        return settings
    stated = {"optimizer": Source(PYTORCH, "SGD"), **dict.fromkeys(("momentum", "weight_decay"), Source(PYTORCH))}
    if on_gpu:
        stated["layout"] = Source(PYTORCH, "ran NCHW, though the vendor recommends NHWC for AMP")
        # A rate that no publisher states is the suite's choice in every framework.
        if published_recipe(case).learning_rate.where != OWN:
            stated["learning_rate"] = Source(PYTORCH)
    return settings | {key: replace(settings[key], source=source) for key, source in stated.items()}


def _precision(case: Case, on_gpu: bool) -> dict[str, Setting]:
    """Mixed precision is float16 with a scaled loss on a GPU, and bfloat16 on a CPU."""
    if is_single_precision(case):
        none = Setting(None, NO_AMP)
        return {"amp_level": none, "amp_dtype": none, **without_loss_scaling(NO_AMP)}
    half = "bfloat16" if case.precision is Precision.BF16 or not on_gpu else "float16"
    level, dtype = _amp_sources(case, on_gpu)
    return {
        "amp_level": Setting("O2" if case.precision is Precision.AMP_O2 else "O1", level),
        "amp_dtype": Setting(half, dtype),
        **(_loss_scaling(case) if half == "float16" else without_loss_scaling(BFLOAT16)),
    }


def _amp_sources(case: Case, on_gpu: bool) -> tuple[Source, Source]:
    """The sources of the level and of the type."""
    if case.precision is Precision.BF16:
        return own("autocast, as PyTorch's users"), own("the case's precision says so") if on_gpu else BFLOAT16
    if not on_gpu:
        return BFLOAT16, BFLOAT16
    on_a_gpu = Source(PYTORCH, "AMP: autocast to float16") if case.precision is Precision.AMP else AS_THE_CASE_SAYS
    return on_a_gpu, on_a_gpu


def _loss_scaling(case: Case) -> dict[str, Setting]:
    """The published script's scale is static. In the settings of a dynamic scale, that is a rule without a rise."""
    if case.precision is not Precision.AMP:
        return {key: replace(each, source=_other(case)) for key, each in dynamic_loss_scaling(case).items()}
    rule = {"incr_every_n_steps": 10**9, "decr_every_n_nan_or_inf": 1, "incr_ratio": 2.0, "decr_ratio": 0.5}
    rises = Source(PYTORCH, "static: it rises after a billion steps")
    return {
        "loss_scaling": Setting(256.0, Source(PYTORCH, "a static loss scale of 256")),
        **group("loss_scaling_rule", rule, rises),
    }


def _pure_layout(on_gpu: bool) -> dict[str, Setting]:
    feed = {"input_dtype": Setting("float16", own("a float16 feed, as the Paddle case has it"))} if on_gpu else {}
    return {
        "layout": Setting("NHWC", own("channels_last, as the Paddle case has it")),
        "input_channels": Setting(4, own("padded to 4, as the Paddle case has it")),
        **feed,
    }


def _decay_norms(case: Case) -> Setting:
    if is_published_configuration(case):
        return Setting(False, Source(PYTORCH, "weight decay not on BN"))
    return Setting(True, own("Paddle's L2 decay has no exception for batch norm, as the same case there"))


def _cudnn_benchmark(case: Case, on_gpu: bool) -> Setting:
    if not on_gpu:
        return Setting(False, own("cuDNN is a GPU's"))
    if is_published_configuration(case):
        return Setting(True, Source(PYTORCH))
    return Setting(True, own("as the published script has it; Paddle's is cudnn_exhaustive_search"))


def _compile_mode(case: Case) -> Setting:
    if case.compile:
        return Setting("default", own("the case has compile; torch.compile's own mode"))
    return Setting(None, own("null: the case is without compile"))


def _ddp(case: Case) -> dict[str, Setting]:
    """The settings of DDP: the defaults, as in the published script; in other cases gradients live in the buckets,
    which saves a copy."""
    if case.cards == 1:
        return group("ddp", {}, own("one card has nothing to exchange"))
    view = Setting(True, own("gradients in the buckets save a copy at every step"))
    if is_published_configuration(case):
        view = Setting(False, Source(PYTORCH, "DDP; the documents give no argument, so its default"))
    others = {"bucket_cap_mb": _BUCKET_CAP_MB, "static_graph": False}
    default = own("the documents give no argument of DDP; its default")
    return {"ddp.gradient_as_bucket_view": view, **group("ddp", others, default)}


def _environment(on_gpu: bool) -> dict[str, Setting]:
    if on_gpu:
        return group("environment", {}, own("none is stated"))
    return heap_settings()
