"""The logs of NVIDIA's ResNet50 scripts (NVIDIA/DeepLearningExamples): TensorFlow, PyTorch, MXNet, MLPerf's lines.

Their images/s are of all cards: the scripts multiply a step's batch by the number of ranks. What a record times:

- TensorFlow: the one step it stands at (utils/hooks/benchmark_hooks.py), whether every step or each tenth is printed.
- PyTorch: the mean of the iterations since the record before (image_classification/logger.py); by default one each.
- MXNet: the batches since the record before, 20 by default (fit.py, ``disp_batches``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from helpers.logs.formats.dllogger import BETWEEN, COUNT, PARAMETERS_BETWEEN, group
from helpers.logs.formats.nvidia_json import NVIDIA_JSON_FORMATS
from helpers.logs.formats.nvidia_settings import of_mllog, of_mxnet, of_pytorch, of_tensorflow
from helpers.logs.record import FormatSpec, RateOf

PYTORCH_RULES = ("ngc-pytorch-mean", "ngc-pytorch-summary", "ngc-pytorch-summary-compute")
TENSORFLOW_RULES = ("ngc-tf-mean", "ngc-tf-average", "ngc-tf-summary")
MXNET_RULES = ("ngc-mxnet-epochs",)

# DLLogger's parameter line; PyTorch's script writes a second one without a batch size.
PARAMETERS = re.compile(rb"DLL [\d: .-]{1,40}- PARAMETER " + PARAMETERS_BETWEEN + rb" batch_size : ")
_NVLOG = rb":::NVLOG\S{0,20} \S{1,100} \S{1,40} \([^)\n]{0,200}\) "
# What the script of 2019 prints first, at rank 0 alone.
NVLOG_STARTS = (
    re.compile(_NVLOG + rb"TF AMP is activated"),
    re.compile(_NVLOG + rb"Model HParams:"),
)
_SUMMARY = rb"- Summary: " + BETWEEN + rb"?\b"
_EPOCH_END = rb"- Epoch: " + group("epoch", COUNT) + rb"  " + BETWEEN + rb"?\b"
_DATE = group("time", rb"[\d-]{10} [\d:.]{1,20}")

# 2020 on: "DLL 2022-11-24 04:01:45.487468 - (0, 200) total_ips : 1207.69"; 2019: ":::NVLOGv0.2.3 resnet
# 1621935982.789288282 (benchmark_hooks.py:60) total_ips: 1180.76", which tells the step in a line of its own.
STEP_OF_TENSORFLOW = (
    rb"(?:DLL |:::\w{1,40}[\d.]{0,20} \S{1,100} )"
    + group("time", rb"[\d-]{10} [\d:.]{1,20}|\d{1,12}\.\d{1,12}")
    + rb" (?:- \("
    + group("epoch", COUNT)
    + rb", "
    + group("step", COUNT)
    + rb"|\([^(), \n]{0,200})\) "
)

TENSORFLOW = FormatSpec(
    name="nvidia-tensorflow",
    title="NVIDIA's TensorFlow script (DLLogger or NVLOG), training_benchmark",
    marker=b") total_ips",
    record=re.compile(STEP_OF_TENSORFLOW + rb"total_ips ?: " + group("images_per_s")),
    looked_for="lines 'DLL ... - (EPOCH, STEP) total_ips : N' or ':::NVLOG... total_ips: N'",
    rate_of=RateOf.JOB,
    configure=of_tensorflow,
    rules=TENSORFLOW_RULES,
    starts=(PARAMETERS, *NVLOG_STARTS),
    printed=MappingProxyType(
        {
            "average": re.compile(rb"\) Average total_ips: " + group("images_per_s")),
            "train_throughput": re.compile(rb"\(\) train_throughput : " + group("images_per_s")),
        }
    ),
    record_covers=1,
)

PYTORCH = FormatSpec(
    name="nvidia-pytorch",
    title="NVIDIA's PyTorch script (DLLogger)",
    marker=b" train.total_ips : ",
    record=re.compile(
        rb"DLL "
        + _DATE
        + rb" - Epoch: "
        + group("epoch", COUNT)
        + rb" Iteration: "
        + group("step", COUNT)
        + rb"  train\.loss : \S{1,40} (?:None)?(?: train\.compute_ips : "
        + group("compute_images_per_s")
        + rb" \S{1,40})? train\.total_ips : "
        + group("images_per_s")
    ),
    looked_for="lines 'DLL ... - Epoch: N Iteration: N  train.loss : N ... train.total_ips : N images/s'",
    rate_of=RateOf.JOB,
    configure=of_pytorch,
    rules=PYTORCH_RULES,
    starts=(PARAMETERS,),
    printed=MappingProxyType(
        {
            "summary_total": re.compile(_SUMMARY + rb"train\.total_ips : " + group("images_per_s")),
            "summary_compute": re.compile(_SUMMARY + rb"train\.compute_ips : " + group("images_per_s")),
            "epoch": re.compile(_EPOCH_END + rb"train\.total_ips : " + group("images_per_s")),
        }
    ),
)

MXNET = FormatSpec(
    name="nvidia-mxnet",
    title="NVIDIA's MXNet script (DLLogger)",
    marker=b"  train.ips : ",
    record=re.compile(
        rb"DLL "
        + _DATE
        + rb" - Epoch: "
        + group("epoch", COUNT)
        + rb" Iteration: "
        + group("step", COUNT)
        + rb"  train\.loss : \S{1,40} (?:None)? train\.ips : "
        + group("images_per_s")
    ),
    looked_for="lines 'DLL ... - Epoch: N Iteration: N  train.loss : N  train.ips : N'",
    rate_of=RateOf.JOB,
    configure=of_mxnet,
    rules=MXNET_RULES,
    starts=(PARAMETERS,),
    printed=MappingProxyType(
        {
            "epoch": re.compile(_EPOCH_END + rb"train\.ips : " + group("images_per_s")),
            "summary_ips": re.compile(_SUMMARY + rb"train\.ips : " + group("images_per_s")),
        }
    ),
)

MXNET_2020 = FormatSpec(
    name="nvidia-mxnet-2020",
    title="NVIDIA's MXNet script before DLLogger",
    marker=b" samples/sec",
    record=re.compile(
        group("time", rb"\d{4}-\d\d-\d\d [\d:]{8},\d{3}")
        + rb":INFO: Epoch\["
        + group("epoch", COUNT)
        + rb"\] Batch \[(?:\d{1,12}-)?"
        + group("step", COUNT)
        + rb"\][\t ]{1,9}Speed: "
        + group("images_per_s")
        # The learning rate's digits are consumed too: looked at as a date, they cost as much as the record.
        + rb" samples/sec(?:\tLR: \S{1,40})?"
    ),
    looked_for="lines 'INFO: Epoch[N] Batch [N-N] Speed: N samples/sec' and the script's arguments or its 'LR: N'",
    rate_of=RateOf.JOB,
    configure=of_mxnet,
    rules=MXNET_RULES,
    starts=(re.compile(rb":INFO: [Ss]tart with arguments Namespace\("),),
    proofs=(
        re.compile(rb" samples/sec\tLR: "),
        re.compile(rb":INFO: [Ss]tart with arguments Namespace\("),
        re.compile(rb":INFO: [Ss]tarting epoch "),
    ),
)

# mlperf_logging: {"namespace": "", "time_ms": 1719843792116, ..., "key": "tracked_stats", "value": {"throughput":
# 14214.65}, "metadata": {"file": ..., "lineno": 1850, "epoch_num": 2}}, before 2021 "key": "throughput" itself.
MLLOG = FormatSpec(
    name="nvidia-mllog",
    title="MLPerf's log lines (:::MLLOG) with a throughput",
    marker=b'"throughput"',
    record=re.compile(
        rb':::MLLOG \{"namespace": "[^"\n]{0,200}", "time_ms": '
        + group("time", rb"\d{10}")
        + rb'\d{3}, "event_type": "\w{1,40}", "key": "'
        + rb'(?:throughput", "value": |tracked_stats", "value": \{"throughput": )'
        + group("images_per_s")
        + rb'\}?, "metadata": \{(?:[^\n]{0,500}?"epoch_num": '
        + group("epoch", COUNT)
        + rb")?(?:[^\n]{0,500}?\"step\": "
        + group("step", COUNT)
        + rb")?"
    ),
    looked_for=':::MLLOG lines with the key "throughput", or "tracked_stats" with a throughput',
    rate_of=RateOf.JOB,
    configure=of_mllog,
    rules=(),
    starts=(re.compile(rb':::MLLOG [^\n]{0,500}"key": "run_start"'),),
)

_EVERY = (TENSORFLOW, PYTORCH, MXNET, MXNET_2020, MLLOG)
NVIDIA_FORMATS: Mapping[str, FormatSpec] = MappingProxyType(
    {**{spec.name: spec for spec in _EVERY}, **NVIDIA_JSON_FORMATS}
)
