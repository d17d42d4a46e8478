"""Hand-made lines in the form that NVIDIA's scripts print, with invented numbers."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.logs.formats import FORMATS
from helpers.logs.formats.common import Facts
from helpers.logs.record import Line
from tests.helpers.logs.made_runs import configured

TENSORFLOW_PARAMETERS = (
    "DLL 2022-03-04 05:06:07.123456 - PARAMETER arch : resnet50  mode : training_benchmark  export_dir : None  "
    "batch_size : 96  display_every : 10  seed : 41  data_dir : ./my data/tf, records  dali : False  amp : True  "
    "pretrained :   xla : True  data_format : NHWC  lr_steps : [30, 60]  use_static_loss_scaling : True "
)
PYTORCH_PARAMETERS = (
    "DLL 2022-03-04 05:06:07.123456 - PARAMETER data : /images  data_backend : dali-cpu  arch : resnet50  "
    "batch_size : 96  pretrained_weights :   fp16 : False  static_loss_scale : 1  amp : False  seed : None  "
    "distributed : True  world_size : 4 "
)
MXNET_PARAMETERS = (
    "DLL 2022-03-04 05:06:07.123456 - PARAMETER arch : resnetv15  num_layers : 50  seed : None  gpus : [0, 1, 2, 3]  "
    "kv_store : horovod  dtype : float16  amp : False  batch_size : 384  disp_batches : 20  data_backend : dali-gpu  "
    "image_shape : [4, 224, 224] "
)
MLLOG = (
    ':::MLLOG {{"namespace": "", "time_ms": 1600000000123, "event_type": "POINT_IN_TIME", "key": "{key}", '
    '"value": {value}, "metadata": {{"file": "train.py", "lineno": 3, "epoch_num": 2}}}}'
)
_DLL = "DLL 2022-03-04 05:06:07.123456 - "
_DLL_STEP = {"time": "2022-03-04 05:06:07.123456", "epoch": "1", "step": "29"}

# A format's record lines in every form, with what they tell.
RECORDS: dict[str, list[tuple[str, dict[str, str]]]] = {
    "nvidia-tensorflow": [
        (f"{_DLL}(1, 29) total_ips : 4000.25 ", {**_DLL_STEP, "images_per_s": "4000.25"}),
        (f"{_DLL}(1, 29) total_ips : 4000.25 images/s", {**_DLL_STEP, "images_per_s": "4000.25"}),
        (
            ":::NVLOGv0.2.3 resnet 1600000000.123456789 (benchmark_hooks.py:60) total_ips: 4000.25",
            {"time": "1600000000.123456789", "images_per_s": "4000.25"},
        ),
        (
            ":::MLPv0.5.0 resnet 1600000000.123456789 (benchmark_hooks.py:60) total_ips: 4000.25",
            {"time": "1600000000.123456789", "images_per_s": "4000.25"},
        ),
    ],
    "nvidia-pytorch": [
        (
            f"{_DLL}Epoch: 1 Iteration: 29  train.loss : 6.5 None train.compute_ips : 4001.75 images/s "
            "train.total_ips : 4000.25 images/s train.lr : 0.1  train.grad_scale : 1.0 None",
            {**_DLL_STEP, "compute_images_per_s": "4001.75", "images_per_s": "4000.25"},
        ),
        (
            f"{_DLL}Epoch: 1 Iteration: 29  train.loss : 6.5  train.compute_ips : 4001.75 img/s "
            "train.total_ips : 4000.25 img/s train.lr : 0.1 ",
            {**_DLL_STEP, "compute_images_per_s": "4001.75", "images_per_s": "4000.25"},
        ),
        (
            f"{_DLL}Epoch: 1 Iteration: 29  train.loss : 6.5  train.total_ips : 4000.25 img/s/opt/a.py:1: Warning: 7",
            {**_DLL_STEP, "images_per_s": "4000.25"},
        ),
    ],
    "nvidia-mxnet": [
        (
            f"{_DLL}Epoch: 1 Iteration: 29  train.loss : 6.5  train.ips : 4000.25  train.lr : 0 ",
            {**_DLL_STEP, "images_per_s": "4000.25"},
        ),
        (
            f"{_DLL}Epoch: 1 Iteration: 29  train.loss : 6.5  train.ips : 4000.25 images/s train.lr : 0.5 ",
            {**_DLL_STEP, "images_per_s": "4000.25"},
        ),
    ],
    "nvidia-mllog": [
        (
            MLLOG.format(key="tracked_stats", value='{"throughput": 4000.25}'),
            {"time": "1600000000", "epoch": "2", "images_per_s": "4000.25"},
        ),
        (
            MLLOG.format(key="throughput", value="4000.25"),
            {"time": "1600000000", "epoch": "2", "images_per_s": "4000.25"},
        ),
        (
            MLLOG.format(key="throughput", value="4000.25").replace('"epoch_num": 2', '"step": 8'),
            {"time": "1600000000", "step": "8", "images_per_s": "4000.25"},
        ),
    ],
}


def context(lines: Sequence[str], name: str = "a.log", ranks: Sequence[int] = (), runs: int = 1) -> Facts:
    return Facts(name, tuple(Line(number, text) for number, text in enumerate(lines, 1)), frozenset(ranks), runs)


def settings(
    format_name: str, lines: Sequence[str], name: str = "a.log", ranks: Sequence[int] = (), runs: int = 1
) -> dict[str, str]:
    """What a format says of a run of ``lines``, by setting."""
    said = configured(FORMATS[format_name], context(lines, name, ranks, runs))
    return {setting.value: each.value for setting, each in said.items()}
