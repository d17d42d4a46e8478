"""Where each value of a Paddle case's settings comes from, and what its trainer does for every case alike."""

from __future__ import annotations

from helpers.case import Case, DataSource, Execution, Precision
from helpers.recipe_source import (
    OWN,
    Condition,
    Fixed,
    Row,
    Source,
    any_case,
    native,
    on_cpu,
    pure,
    pure_fp16,
    resnet50,
    single_precision,
    vgg16,
)

_RESNET50 = "METHODS, Paddle ResNet50 v1.5"
COMMON = f"{_RESNET50}: Common"
FP32 = f"{_RESNET50}: FP32"
FP16 = f"{_RESNET50}: FP16"
ENVIRONMENT = f"{_RESNET50}: Environment"
FLEET = f"{_RESNET50}: Fleet"
DALI = f"{_RESNET50}: DALI pipeline"
NATIVE = f"{_RESNET50}: Without DALI"
VGG16 = "METHODS, Paddle VGG16 (FleetX)"
# Where METHODS is silent, the publishers' own code.
PADDLECLAS = "PaddleClas, 2023-07"
FLEETX = "FleetX, commit 296e0d7"


def _static_on_gpu(case: Case, device: str) -> bool:
    return case.execution is Execution.STATIC and device == "gpu"


def _static_resnet50_on_gpu(case: Case, device: str) -> bool:
    return _static_on_gpu(case, device) and resnet50(case, device)


def _open(case: Case, device: str) -> bool:
    return case.precision is Precision.UNSTATED


def _auto(case: Case, device: str) -> bool:
    return case.auto and device == "gpu"


def _static(case: Case, device: str) -> bool:
    return case.execution is Execution.STATIC


_NO_AMP = Source(OWN, "no mixed precision: the case's precision says so")
_CPU_AMP = Source(OWN, "mixed precision in bfloat16, whose range needs no loss scaling")
_NO_FUSION = Source(OWN, "the published strategies are for programs on a GPU; none is set on a CPU")
_AUTO = Source(OWN, "strategy.auto chooses; whatever were set beside it would turn that off")
_VGG_STRATEGY = Source(VGG16)

SOURCES: tuple[Row, ...] = (
    (
        "learning_rate",
        lambda case, device: on_cpu(case, device) and resnet50(case, device),
        Source(OWN, "the published 0.1 from 256 images a step on, in proportion below: a CPU's batches are small"),
    ),
    (
        "learning_rate",
        on_cpu,
        Source(OWN, "0.01 as on a GPU from 256 images a step on, in proportion below: a CPU's batches are small"),
    ),
    (
        "learning_rate",
        vgg16,
        Source(OWN, "the published 0.1 makes this network's logits NaN within 5 steps; 0.01 is VGG16's authors' rate"),
    ),
    ("learning_rate_boundaries", vgg16, Source(OWN, "VGG16's document states no schedule: ResNet50's, never reached")),
    ("learning_rate_decay", vgg16, Source(OWN, "VGG16's document states no schedule: ResNet50's, never reached")),
    (
        "learning_rate_decay",
        any_case,
        Source(COMMON, "piecewise; the step of 0.1 is PaddleClas's, METHODS gives its epochs alone"),
    ),
    ("layout", pure, Source(FP16)),
    ("layout", resnet50, Source(FP32)),
    ("layout", vgg16, Source(VGG16)),
    ("feed_layout", pure, Source(PADDLECLAS, "batches come as NCHW and the model transposes them")),
    ("feed_layout", any_case, Source(OWN, "the model's own")),
    ("input_channels", pure, Source(FP16, "padded")),
    ("input_channels", resnet50, Source(FP32)),
    ("input_channels", vgg16, Source(OWN, "3 as the images have: no padding is stated for VGG16")),
    ("input_dtype", pure_fp16, Source(FP16, "fp16 feed")),
    ("input_dtype", on_cpu, Source(OWN, "a CPU computes nothing in float16")),
    ("input_dtype", any_case, Source(OWN, "a float16 feed is stated for ResNet50's FP16 rows alone")),
    ("accuracy_top_k", on_cpu, Source(OWN, "the accuracies are of the published programs on a GPU")),
    ("accuracy_top_k", resnet50, Source(PADDLECLAS, "its program computes both at every step")),
    ("accuracy_top_k", vgg16, Source(OWN, "none is stated for VGG16")),
    ("amp_*", single_precision, _NO_AMP),
    ("loss_scaling*", single_precision, _NO_AMP),
    (
        "amp_through",
        lambda case, device: not _static_on_gpu(case, device),
        Source(OWN, "Paddle's switch outside static programs on a GPU"),
    ),
    ("amp_*", on_cpu, _CPU_AMP),
    ("loss_scaling*", on_cpu, _CPU_AMP),
    ("loss_scaling*", lambda case, device: case.precision is Precision.BF16, _CPU_AMP),
    ("amp_through", _static_resnet50_on_gpu, Source(PADDLECLAS, "the optimizer is decorated before fleet takes it")),
    ("amp_*", pure_fp16, Source(FP16)),
    ("loss_scaling", pure_fp16, Source(FP16, "dynamic, the first scale")),
    ("amp_*", _open, Source(OWN, "the auto table leaves the precision open; its speeds lie near the AMP table's")),
    (
        "amp_*",
        lambda case, device: vgg16(case, device) and case.precision is Precision.AMP_O1,
        Source(VGG16, "strategy.amp = True"),
    ),
    ("amp_*", any_case, Source(OWN, "what the case's precision means on a GPU")),
    ("loss_scaling", vgg16, Source(FLEETX, "dynamic, strategy.amp's own first scale")),
    ("loss_scaling", any_case, Source(OWN, "dynamic, from the first scale of the FP16 rows")),
    ("loss_scaling_rule.*", vgg16, Source(FLEETX, "Paddle's default")),
    ("loss_scaling_rule.*", any_case, Source(PADDLECLAS, "Paddle's default")),
    ("environment.FLAGS_enable_pir_*", _static, Source(OWN, "Paddle 3's PIR programs would take no BuildStrategy")),
    ("environment.FLAGS_conv_workspace_size_limit", resnet50, Source(ENVIRONMENT, "1500 under AMP")),
    ("environment.FLAGS_*", lambda case, device: resnet50(case, device) and device == "gpu", Source(ENVIRONMENT)),
    ("environment", _auto, _AUTO),
    ("environment*", on_cpu, Source(OWN, "the published flags are a GPU's; the fastest of docs/cpu-settings.md")),
    ("environment", vgg16, Source(OWN, "VGG16's document states none")),
    ("build_strategy*", on_cpu, _NO_FUSION),
    ("execution_strategy*", on_cpu, _NO_FUSION),
    ("fleet*", on_cpu, _NO_FUSION),
    ("build_strategy", _auto, _AUTO),
    ("execution_strategy", _auto, _AUTO),
    ("fleet", _auto, _AUTO),
    ("build_strategy.*", vgg16, _VGG_STRATEGY),
    ("execution_strategy.*", vgg16, _VGG_STRATEGY),
    ("fleet.*", vgg16, _VGG_STRATEGY),
    ("build_strategy.*", pure_fp16, Source(FP16)),
    ("build_strategy.*", resnet50, Source(FP32)),
    ("execution_strategy", resnet50, Source(OWN, "the document states none")),
    ("fleet.*", resnet50, Source(FLEET)),
    ("augmentation.*", vgg16, Source(OWN, "VGG16's document states none: that of ResNet50's pipelines")),
    (
        "augmentation.*",
        native,
        Source(NATIVE, "random resized crop, flip; the ranges are the DALI pipeline's"),
    ),
    ("augmentation.*", any_case, Source(DALI)),
    ("dali.threads", on_cpu, Source(OWN, "null: as many as the rank has cores")),
    ("dali.threads", any_case, Source(OWN, "METHODS gives no number; 4 is PaddleClas's default")),
    ("dali.prefetch_queue_depth", any_case, Source(OWN, "METHODS gives no number; 2 is DALI's default")),
    ("dali.seed", any_case, Source(DALI, "each rank adds its number")),
    ("dali.*_padding", on_cpu, Source(DALI, "CPU-only: no padding arguments")),
    ("dali.*_padding", any_case, Source(DALI)),
    ("native.workers", on_cpu, Source(OWN, "one beside the rank, which shares its core")),
    ("native.workers", any_case, Source(OWN, "METHODS gives no number")),
    ("native.*", any_case, Source(OWN, "METHODS gives none; Paddle's own default")),
    ("optimizer", vgg16, Source(VGG16)),
    ("momentum", vgg16, Source(VGG16)),
    ("weight_decay", vgg16, Source(VGG16, "L2")),
    ("weight_decay", any_case, Source(COMMON, "L2")),
    ("optimizer", any_case, Source(COMMON)),
    ("momentum", any_case, Source(COMMON)),
    ("learning_rate", any_case, Source(COMMON)),
    ("learning_rate_boundaries", any_case, Source(COMMON, "in epochs")),
)

_EVERY = Source(OWN, "the same for every case")

FIXED: tuple[tuple[Condition, Fixed], ...] = (
    (resnet50, Fixed("model", "v1.5: stride 2 in the 3x3 convolution", Source(f"{_RESNET50}: Model"))),
    (vgg16, Fixed("model", "VGG16 with convolution bias, no batch norm", Source(VGG16))),
    (any_case, Fixed("image size", "224 x 224, 1000 classes", Source(COMMON))),
    (any_case, Fixed("loss", "mean cross-entropy, no label smoothing", Source(COMMON))),
    (resnet50, Fixed("seed", "1234", Source(COMMON))),
    (vgg16, Fixed("seed", "1234", Source(OWN, "VGG16's document states none: ResNet50's"))),
    (
        lambda case, device: case.precision is Precision.AMP_O2 and device == "gpu",
        Fixed("optimizer's weights", "float32 master copies (multi_precision)", Source(FP16)),
    ),
    (
        lambda case, device: case.data is DataSource.DALI and device == "gpu",
        Fixed("decoding", "DALI on the GPU (mixed), crop while decoding, linear resize, labels int64", Source(DALI)),
    ),
    (
        lambda case, device: case.data is DataSource.DALI_CPU or (case.data is DataSource.DALI and device == "cpu"),
        Fixed(
            "decoding", "DALI on the CPU, crop while decoding, linear resize, labels int64", Source(DALI, "CPU-only")
        ),
    ),
    (
        native,
        Fixed("decoding", "the framework's loader workers: random resized crop, flip, normalise", Source(NATIVE)),
    ),
    (
        lambda case, device: case.data is DataSource.SYNTHETIC,
        Fixed("data", "one batch of random numbers, made once", _EVERY),
    ),
    (
        lambda case, device: case.precision is Precision.FP32 and device == "gpu",
        Fixed("TF32", "forced off (NVIDIA_TF32_OVERRIDE=0) and checked in the process", _EVERY),
    ),
    (
        lambda case, device: case.precision is Precision.TF32 and device == "gpu",
        Fixed("TF32", "forced on and checked in the process", _EVERY),
    ),
)
