"""The training configuration of a TensorFlow case.

Three kinds of cases: NVIDIA's benchmark (the Paddle report and its draft: XLA, the framework's own input), DLPerf's
calls of the same script (DALI, synthetic data with XLA, or their batch of 224), and every other case, which has the
optimizer, input and loss of the Paddle trainer for the same case, so that the frameworks can be compared.
"""

from __future__ import annotations

from helpers.plan.recipes import Fixed, Setting, SettingsTable, Source, group, own
from helpers.plan.recipes.common import (
    BFLOAT16,
    NO_AMP,
    common_fixed,
    decoding,
    heap_settings,
    is_single_precision,
)
from helpers.plan.recipes.publishers import (
    DLPERF,
    DLPERF_CALLS,
    TENSORFLOW,
    TENSORFLOW_SCRIPT,
    published_recipe,
)
from helpers.plan.recipes.scheduled import (
    AS_PADDLE,
    STATIC_RULE,
    refuse_others,
    scaled_rate,
    scheduled_fixed,
    scheduled_settings,
    without_mixed_precision,
)
from helpers.trainers.contract.case import Case, DataSource, Precision

_PRECISIONS = (Precision.FP32, Precision.TF32, Precision.BF16, Precision.AMP)
# DLPerf's script counts 120 steps as one epoch while the rate rises, and this many images while it falls.
_DLPERF_STEPS, _DLPERF_BATCH = 120, 224
_IMAGENET_IMAGES, _IMAGENET_EPOCHS = 1_281_167, 90
_NGC_EPOCH_STEPS = 125
_DALI = (DataSource.DALI, DataSource.DALI_CPU)


def tensorflow_settings(case: Case, on_gpu: bool) -> SettingsTable:
    """The settings of ``case``. Raises ConfigError on what TensorFlow has nothing for."""
    refuse_others(case, _PRECISIONS, ("xla",))
    return {
        **scheduled_settings(case, on_gpu, _published(case, on_gpu)),
        **_layout(case),
        **_precision(case, on_gpu),
        **_xla(case, on_gpu),
        **_processes(case, on_gpu),
        **_reading(case, on_gpu),
        **_environment(case, on_gpu),
    }


def tensorflow_fixed(case: Case, on_gpu: bool) -> tuple[Fixed, ...]:
    """What the trainer does for ``case`` whatever its settings say."""
    smoothing = tensorflow_settings(case, on_gpu)["label_smoothing"]
    source = Source(TENSORFLOW_SCRIPT) if _published(case, on_gpu) else AS_PADDLE
    return (
        *scheduled_fixed(case, smoothing, source),
        *decoding(case, on_gpu, "tf.data", source),
        *common_fixed(case, on_gpu, "forced off (tf.config.experimental.enable_tensor_float_32_execution)"),
    )


def is_dlperf(case: Case) -> bool:
    """Whether the case is one of the kind that DLPerf published."""
    synthetic = case.data is DataSource.SYNTHETIC and case.xla
    return case.data is DataSource.DALI or synthetic or (case.batch_size_per_card == _DLPERF_BATCH and case.xla)


def is_ngc(case: Case) -> bool:
    """Whether the case is one of the kind that the Paddle report published: NVIDIA's own benchmark."""
    return case.xla and case.data in (DataSource.NATIVE, DataSource.UNSTATED) and not is_dlperf(case)


def _published(case: Case, on_gpu: bool) -> dict[str, Setting]:
    """What the documents and scripts state for the case; empty for a case of no published kind."""
    is_known = published_recipe(case).has_other_frameworks and case.precision is not Precision.BF16
    if not is_known or not (is_dlperf(case) or is_ngc(case)):
        return {}
    script = Source(TENSORFLOW_SCRIPT)
    crop = {"crop_area": [0.05, 1.0], "crop_aspect_ratio": [0.75, 1.33], "flip_probability": 0.5}
    shared = {
        "learning_rate_boundaries": Setting([30, 60, 80, 90], Source(TENSORFLOW_SCRIPT, "in epochs")),
        "learning_rate_decay": Setting(0.1, script),
        "decay_norms": Setting(False, Source(TENSORFLOW_SCRIPT, "decay on convolutions, classifier and its bias")),
        "batch_norm_momentum": Setting(0.9, script),
        "batch_norm_epsilon": Setting(1e-5, script),
        **group("augmentation", crop, script),
        **(_loaders() if on_gpu else {}),
    }
    return {**shared, **(_dlperf(case) if is_dlperf(case) else _ngc(case))}


def _ngc(case: Case) -> dict[str, Setting]:
    stated = Source(TENSORFLOW)
    if case.data is DataSource.UNSTATED:
        stated = own("the early draft states nothing: as the Paddle report's rows of the same script")
    rises = own("5 epochs of the 125 steps that one card's log prints, for every number of cards")
    return {
        "optimizer": Setting("momentum", stated),
        "learning_rate": scaled_rate(0.1, case, stated),
        "momentum": Setting(0.9, stated),
        "weight_decay": Setting(1e-4, stated),
        "learning_rate_schedule": Setting("step", Source(TENSORFLOW_SCRIPT, "the log: step learning rate schedule")),
        "learning_rate_warmup_steps": Setting(5 * _NGC_EPOCH_STEPS, rises),
        "label_smoothing": Setting(0.0, stated),
    }


def _dlperf(case: Case) -> dict[str, Setting]:
    stated = Source(DLPERF)
    decay_steps = _IMAGENET_EPOCHS * _IMAGENET_IMAGES // (case.batch_size_per_card * case.cards)
    rate, where = (0.001, "one node") if case.nodes == 1 else (0.256, "several nodes")
    return {
        "optimizer": Setting("momentum", stated),
        "learning_rate": scaled_rate(rate, case, Source(DLPERF_CALLS, where)),
        "momentum": Setting(0.875, stated),
        "weight_decay": Setting(3.0517578125e-05, stated),
        "learning_rate_schedule": Setting("cosine", stated),
        "learning_rate_warmup_steps": Setting(8 * _DLPERF_STEPS, Source(DLPERF_CALLS, "8 epochs of 120 steps")),
        "learning_rate_decay_steps": Setting(decay_steps, Source(DLPERF_CALLS, "90 epochs of ImageNet")),
        "label_smoothing": Setting(0.1, stated),
    }


def _loaders() -> dict[str, Setting]:
    paddings = own("the script gives none; DALI's defaults")
    return {
        "dali.threads": Setting(4, Source(TENSORFLOW_SCRIPT)),
        "dali.num_attempts": Setting(100, Source(TENSORFLOW_SCRIPT)),
        "dali.device_memory_padding": Setting(16 * 2**20, paddings),
        "dali.host_memory_padding": Setting(8 * 2**20, paddings),
        "native.workers": Setting(10, Source(TENSORFLOW_SCRIPT, "threads of tf.data")),
    }


def _document(case: Case) -> str:
    return DLPERF if is_dlperf(case) else TENSORFLOW


def _layout(case: Case) -> dict[str, Setting]:
    published = Source(_document(case), "and a CPU's convolutions know no other layout")
    return {
        "layout": Setting("NHWC", published),
        "feed_layout": Setting("NHWC", published),
        "input_channels": Setting(3, Source(TENSORFLOW_SCRIPT)),
        "input_dtype": Setting("float32", Source(TENSORFLOW_SCRIPT, "float32 variables and feed in every precision")),
    }


def _precision(case: Case, on_gpu: bool) -> dict[str, Setting]:
    """Casts in the graph: float16 with a scaled loss on a GPU, and bfloat16 on a CPU."""
    if is_single_precision(case):
        return without_mixed_precision(NO_AMP)
    if case.precision is Precision.BF16 or not on_gpu:
        source = own("the case's precision says so") if on_gpu else BFLOAT16
        half = {"amp_level": Setting("O1", source), "amp_dtype": Setting("bfloat16", source)}
        return {**without_mixed_precision(BFLOAT16), **half}
    stated = Source(_document(case), "AMP")
    return {
        "amp_level": Setting("O1", stated),
        "amp_dtype": Setting("float16", stated),
        "loss_scaling": Setting(128.0, Source(_document(case), "a static loss scale of 128")),
        **group("loss_scaling_rule", STATIC_RULE, Source(TENSORFLOW_SCRIPT, "a loss scale that nothing moves")),
    }


def _xla(case: Case, on_gpu: bool) -> dict[str, Setting]:
    if not case.xla:
        return {"xla_mode": Setting(None, own("null: the case is without xla"))}
    if on_gpu:
        return {"xla_mode": Setting("autoclustering", Source(TENSORFLOW_SCRIPT, "global_jit_level ON_1"))}
    return {"xla_mode": Setting("jit_compile", own("autoclustering leaves a CPU's operations alone"))}


def _processes(case: Case, on_gpu: bool) -> dict[str, Setting]:
    found = {}
    if case.cards == 1:
        found["communication"] = Setting(None, own("one card has nothing to exchange"))
    elif on_gpu:
        found["communication"] = Setting("NCCL", Source(_document(case), "Horovod, which exchanges by NCCL"))
    else:
        found["communication"] = Setting("RING", own("tf.distribute's exchange between CPUs"))
    threads = (
        Setting(1, Source(TENSORFLOW_SCRIPT)) if on_gpu else Setting(None, own("null: as many as the rank's cores"))
    )
    found["intra_op_threads"] = threads
    found["inter_op_threads"] = Setting(None, own("null: as many as the rank's cores; the script divides them alike"))
    found["memory_fraction"] = _memory(case, on_gpu)
    return found


def _memory(case: Case, on_gpu: bool) -> Setting:
    if not on_gpu:
        return Setting(None, own("a GPU's memory"))
    if case.read_from not in _DALI:
        return Setting(None, Source(TENSORFLOW_SCRIPT, "it grows as needed without DALI"))
    if case.nodes > 1:
        return Setting(0.98, Source(DLPERF_CALLS, "several nodes"))
    return Setting(0.7, Source(TENSORFLOW_SCRIPT, "with DALI"))


def _reading(case: Case, on_gpu: bool) -> dict[str, Setting]:
    """TFRecord files if the publishers had them; otherwise the folder's files in the order of every framework."""
    if on_gpu and _published(case, on_gpu):
        found = {"native_source": "tfrecord", "shuffle_buffer": 4096}
        return {key: Setting(value, Source(TENSORFLOW_SCRIPT)) for key, value in found.items()}
    return {
        "native_source": Setting("jpeg", own("the files of the folder, as every framework here reads them")),
        "shuffle_buffer": Setting(4096, own("of TFRecord files alone")),
    }


def _environment(case: Case, on_gpu: bool) -> dict[str, Setting]:
    if not on_gpu:
        return heap_settings()
    variables = {
        "TF_GPU_THREAD_MODE": "gpu_private",
        "TF_GPU_THREAD_COUNT": "2",
        "TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT": "1",
        "TF_ENABLE_WINOGRAD_NONFUSED": "1",
        "TF_AUTOTUNE_THRESHOLD": "2",
    }
    if case.xla:
        variables["TF_XLA_FLAGS"] = "--tf_xla_enable_lazy_compilation=false"
    return group("environment", variables, Source(TENSORFLOW_SCRIPT))
