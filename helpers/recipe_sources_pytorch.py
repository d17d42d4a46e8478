"""Where each value of a PyTorch case's settings comes from, and what its trainer does for every case alike."""

from __future__ import annotations

from helpers.case import Case, DataSource, Precision
from helpers.recipe_pytorch import is_published_configuration
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

PYTORCH = "METHODS, Peers' configurations: PyTorch (NGC 21.03)"


def _published(case: Case, device: str) -> bool:
    return is_published_configuration(case)


def _one_card(case: Case, device: str) -> bool:
    return case.cards == 1


def _static_scale(case: Case, device: str) -> bool:
    return case.precision is Precision.AMP and device == "gpu"


def _published_on_gpu(case: Case, device: str) -> bool:
    return _published(case, device) and device == "gpu"


_AS_PADDLE = Source(OWN, "as Paddle's trainer, to compare the two")
_NOT_STATED = Source(OWN, "not stated: as Paddle's trainer")
_CPU_RATE = "from 256 images a step on, in proportion below: a CPU's batches are small"
_NO_AMP = Source(OWN, "no mixed precision: the case's precision says so")
_CPU_AMP = Source(OWN, "mixed precision in bfloat16, whose range needs no loss scaling")

# What both frameworks' settings have.
_SHARED = (
    "optimizer", "learning_rate*", "momentum", "weight_decay", "layout", "feed_layout", "input_*", "loss_scaling*",
    "augmentation.*", "dali.*", "native.*",
)  # fmt: skip

SOURCES: tuple[Row, ...] = (
    (
        "learning_rate",
        lambda case, device: on_cpu(case, device) and resnet50(case, device),
        Source(OWN, f"the published 0.1 {_CPU_RATE}"),
    ),
    ("learning_rate", on_cpu, Source(OWN, f"0.01 as on a GPU {_CPU_RATE}")),
    (
        "learning_rate",
        vgg16,
        Source(OWN, "0.1 makes this network's logits NaN within 5 steps; 0.01 is VGG16's authors' rate"),
    ),
    ("learning_rate", _published, Source(PYTORCH)),
    ("learning_rate_*", _published, _NOT_STATED),
    ("optimizer", _published, Source(PYTORCH, "SGD")),
    ("momentum", _published, Source(PYTORCH)),
    ("weight_decay", _published, Source(PYTORCH)),
    ("decay_norms", _published, Source(PYTORCH, "weight decay not on BN")),
    ("decay_norms", any_case, Source(OWN, "Paddle's L2 decay has no exception for batch norm, as the same case there")),
    ("cudnn_benchmark", on_cpu, Source(OWN, "cuDNN is a GPU's")),
    ("cudnn_benchmark", _published, Source(PYTORCH)),
    ("cudnn_benchmark", any_case, Source(OWN, "as the published script has it; Paddle's is cudnn_exhaustive_search")),
    ("layout", _published_on_gpu, Source(PYTORCH, "ran NCHW, though the vendor recommends NHWC for AMP")),
    ("amp_*", single_precision, _NO_AMP),
    ("loss_scaling*", single_precision, _NO_AMP),
    ("amp_level", lambda case, device: case.precision is Precision.BF16, Source(OWN, "autocast, as PyTorch's users")),
    ("amp_*", on_cpu, _CPU_AMP),
    ("loss_scaling*", on_cpu, _CPU_AMP),
    ("amp_dtype", lambda case, device: case.precision is Precision.BF16, Source(OWN, "the case's precision says so")),
    ("loss_scaling*", lambda case, device: case.precision is Precision.BF16, _CPU_AMP),
    ("amp_*", _static_scale, Source(PYTORCH, "AMP: autocast to float16")),
    ("loss_scaling", _static_scale, Source(PYTORCH, "a static loss scale of 256")),
    ("loss_scaling_rule.*", _static_scale, Source(PYTORCH, "static: it rises after a billion steps")),
    ("amp_*", any_case, Source(OWN, "what the case's precision means on a GPU")),
    ("input_dtype", pure_fp16, Source(OWN, "a float16 feed, as the Paddle case has it")),
    ("layout", pure, Source(OWN, "channels_last, as the Paddle case has it")),
    ("input_channels", pure, Source(OWN, "padded to 4, as the Paddle case has it")),
    ("compile_mode", lambda case, device: case.compile, Source(OWN, "the case has compile; torch.compile's own mode")),
    ("compile_mode", any_case, Source(OWN, "null: the case is without compile")),
    ("ddp", _one_card, Source(OWN, "one card has nothing to exchange")),
    (
        "ddp.gradient_as_bucket_view",
        _published,
        Source(PYTORCH, "DDP; METHODS gives no argument, so its default"),
    ),
    ("ddp.gradient_as_bucket_view", any_case, Source(OWN, "gradients in the buckets save a copy at every step")),
    ("ddp.*", any_case, Source(OWN, "METHODS gives no argument of DDP; its default")),
    ("environment*", on_cpu, Source(OWN, "glibc's heap as in docs/cpu-settings.md; nothing is published for a CPU")),
    ("environment", any_case, Source(OWN, "none is stated")),
    (
        "dali.threads",
        on_cpu,
        Source(OWN, "null: as many as the rank has cores"),
    ),
    ("dali.*_padding", on_cpu, Source(OWN, "for decoding on a GPU alone")),
    ("native.workers", on_cpu, Source(OWN, "one beside the rank, which shares its core")),
    *((key, _published, _NOT_STATED) for key in _SHARED),
    *((key, any_case, _AS_PADDLE) for key in _SHARED),
)

_EVERY = Source(OWN, "the same for every case")

FIXED: tuple[tuple[Condition, Fixed], ...] = (
    (resnet50, Fixed("model", "v1.5: stride 2 in the 3x3 convolution", _AS_PADDLE)),
    (vgg16, Fixed("model", "VGG16 with convolution bias, no batch norm", _AS_PADDLE)),
    (any_case, Fixed("image size", "224 x 224, 1000 classes", _EVERY)),
    (any_case, Fixed("loss", "mean cross-entropy, no label smoothing", _EVERY)),
    (any_case, Fixed("seed", "1234", _EVERY)),
    (
        lambda case, device: case.precision is Precision.AMP_O2,
        Fixed("optimizer's weights", "float32 master copies", _AS_PADDLE),
    ),
    (
        lambda case, device: case.data is DataSource.DALI and device == "gpu",
        Fixed("decoding", "DALI on the GPU (mixed), crop while decoding, linear resize, labels int64", _AS_PADDLE),
    ),
    (
        lambda case, device: case.data is DataSource.DALI_CPU,
        Fixed(
            "decoding", "DALI on the CPU, crop while decoding, linear resize, labels int64", Source(PYTORCH, "dali-cpu")
        ),
    ),
    (
        lambda case, device: case.data is DataSource.DALI and device == "cpu",
        Fixed("decoding", "DALI on the CPU, crop while decoding, linear resize, labels int64", _AS_PADDLE),
    ),
    (
        native,
        Fixed("decoding", "torch's DataLoader workers: random resized crop, flip, normalise", _AS_PADDLE),
    ),
    (
        lambda case, device: case.data is DataSource.SYNTHETIC,
        Fixed("data", "one batch of random numbers, made once", _EVERY),
    ),
    (
        lambda case, device: case.precision is Precision.FP32 and device == "gpu",
        Fixed("TF32", "forced off and checked in the process", _EVERY),
    ),
    (
        lambda case, device: case.precision is Precision.TF32 and device == "gpu",
        Fixed("TF32", "forced on and checked in the process", _EVERY),
    ),
)
