"""What DLLogger's JSON backend writes (``raport.json``, ``dllogger_log.log``): the same figures, one object a line.

``DLLL {"timestamp": "1669262505.48", "datetime": ..., "elapsedtime": ..., "type": "LOG", "step": [0, 200], "data":
{"total_ips": 1207.69}}``; a step of one number is an epoch's end, an empty one the run's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from helpers.logs.formats.dllogger import BETWEEN, COUNT, PARAMETERS_BETWEEN, group
from helpers.logs.formats.nvidia_settings import of_mxnet, of_pytorch, of_tensorflow
from helpers.logs.record import Configure, FormatSpec, RateOf

_START = re.compile(rb'DLLL \{[^{\n]{0,500}"step": "PARAMETER", "data": \{' + PARAMETERS_BETWEEN + rb'"batch_size": ')
_STEP = (
    rb'DLLL \{"timestamp": "'
    + group("time", rb"[\d.]{1,32}")
    + rb'"[^\[\]\n]{0,500}"step": \['
    + group("epoch", COUNT)
    + rb", "
    + group("step", COUNT)
    + rb'\], "data": \{'
)
_EPOCH = rb'"step": \[' + group("epoch", COUNT) + rb'\], "data": \{' + BETWEEN + rb"?"
_RUN = rb'"step": \[\], "data": \{' + BETWEEN + rb"?"


def _key(name: str) -> bytes:
    return rb'"' + re.escape(name.encode()) + rb'": '


def _spec(
    script: str, key: str, configure: Configure, rules: tuple[str, ...], before: bytes, printed: Mapping[str, bytes]
) -> FormatSpec:
    return FormatSpec(
        name=f"nvidia-{script.lower()}-json",
        title=f"the JSON report of NVIDIA's {script} script (DLLogger)",
        marker=f'"{key}": '.encode(),
        record=re.compile(_STEP + before + _key(key) + group("images_per_s")),
        looked_for=f'lines \'DLLL {{... "step": [EPOCH, STEP], "data": {{... "{key}": N\'',
        rate_of=RateOf.JOB,
        configure=configure,
        rules=rules,
        starts=(_START,),
        printed=MappingProxyType({name: re.compile(pattern) for name, pattern in printed.items()}),
        record_covers=1 if script == "TensorFlow" else None,
    )


_EVERY = (
    _spec(
        "TensorFlow",
        "total_ips",
        of_tensorflow,
        ("ngc-tf-mean", "ngc-tf-average", "ngc-tf-summary"),
        b"",
        {"train_throughput": _RUN + _key("train_throughput") + group("images_per_s")},
    ),
    _spec(
        "PyTorch",
        "train.total_ips",
        of_pytorch,
        ("ngc-pytorch-mean", "ngc-pytorch-summary", "ngc-pytorch-summary-compute"),
        rb"(?:"
        + BETWEEN
        + rb"?"
        + _key("train.compute_ips")
        + group("compute_images_per_s")
        + rb",)?"
        + BETWEEN
        + rb"?",
        {
            "summary_total": _RUN + _key("train.total_ips") + group("images_per_s"),
            "summary_compute": _RUN + _key("train.compute_ips") + group("images_per_s"),
            "epoch": _EPOCH + _key("train.total_ips") + group("images_per_s"),
        },
    ),
    _spec(
        "MXNet",
        "train.ips",
        of_mxnet,
        ("ngc-mxnet-epochs",),
        BETWEEN + rb"?",
        {
            "epoch": _EPOCH + _key("train.ips") + group("images_per_s"),
            "summary_ips": _RUN + _key("train.ips") + group("images_per_s"),
        },
    ),
)
NVIDIA_JSON_FORMATS: Mapping[str, FormatSpec] = MappingProxyType({spec.name: spec for spec in _EVERY})
