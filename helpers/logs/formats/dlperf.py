"""The logs of DLPerf (Oneflow-Inc/DLPerf): NVIDIA's TensorFlow 1 script in training, tensorflow/models, Paddle.

- ``imgs_per_sec`` (utils/hooks/training_hooks.py) is one step's rate of all cards, of every step with DLPerf's options.
- TimeHistory (official/utils/misc/keras_utils.py) prints the rate of all replicas from one step to another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from helpers.logs.formats.dllogger import COUNT, group
from helpers.logs.formats.keras_settings import of_keras
from helpers.logs.formats.nvidia import NVLOG_STARTS, PARAMETERS, STEP_OF_TENSORFLOW
from helpers.logs.formats.nvidia_settings import of_tensorflow
from helpers.logs.formats.paddle import DLPERF_PADDLE
from helpers.logs.record import FormatSpec, RateOf

TENSORFLOW_1 = FormatSpec(
    name="dlperf-tensorflow1",
    title="NVIDIA's TensorFlow script (DLLogger or NVLOG) in training, as DLPerf runs it",
    marker=b") imgs_per_sec",
    record=re.compile(STEP_OF_TENSORFLOW + rb"imgs_per_sec ?: " + group("images_per_s")),
    looked_for="lines 'DLL ... - (EPOCH, STEP) imgs_per_sec : N' or ':::NVLOG... imgs_per_sec: N'",
    rate_of=RateOf.JOB,
    configure=of_tensorflow,
    rules=("dlperf-log", "dlperf-time"),
    starts=(PARAMETERS, *NVLOG_STARTS),
    printed=MappingProxyType(
        {"train_throughput": re.compile(rb"\(\) train_throughput : " + group("images_per_s"))},
    ),
    record_covers=1,
)

TENSORFLOW_2 = FormatSpec(
    name="dlperf-tensorflow2",
    title="tensorflow/models with TimeHistory, as DLPerf runs it",
    marker=b"TimeHistory: ",
    record=re.compile(
        rb"(?:[IWEF]"
        + group("time", rb"\d{4} [\d:.]{1,20}")
        + rb" {1,40}\d{1,20} \S{1,100}\] )?TimeHistory: "
        + group("span_seconds")
        + rb" seconds, "
        + group("images_per_s")
        + rb" examples/second between steps "
        + group("span_start", COUNT)
        + rb" and "
        + group("span_end", COUNT)
    ),
    looked_for="lines 'TimeHistory: N seconds, N examples/second between steps N and N'",
    rate_of=RateOf.JOB,
    configure=of_keras,
    rules=("dlperf-tf2",),
    starts=(re.compile(rb"\] Base params: \{"),),
)

DLPERF_FORMATS: Mapping[str, FormatSpec] = MappingProxyType(
    {spec.name: spec for spec in (TENSORFLOW_1, TENSORFLOW_2, DLPERF_PADDLE)}
)
