"""The logs of NVIDIA's ResNet50 scripts (NVIDIA/DeepLearningExamples) for TensorFlow, PyTorch and MXNet, and MLPerf's
lines.

Their images/s are of all cards: the scripts multiply a step's batch by the number of ranks. The steps that a record
covers:

- TensorFlow: the one step whose number it has (utils/hooks/benchmark_hooks.py), whether every step or every tenth is
  printed. In training the figure is called ``imgs_per_sec`` (utils/hooks/training_hooks.py); with DLPerf's options
  every step is printed.
- PyTorch: the mean over the iterations since the previous record (image_classification/logger.py); by default that is
  one.
- MXNet: the batches since the previous record, 20 by default (fit.py, ``disp_batches``).

DLLogger's JSON backend writes the same figures, one object on each line (``raport.json``, ``dllogger_log.log``): ``DLLL
{"timestamp": "1669262505.48", "datetime": ..., "elapsedtime": ..., "type": "LOG", "step": [0, 200], "data":
{"total_ips": 1207.69}}``. A step of one number is the end of an epoch, an empty step the end of the run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from helpers.logs.formats.common import BETWEEN, COUNT, PARAMETERS_BETWEEN, compiled, group
from helpers.logs.formats.nvidia_settings import of_mllog, of_mxnet, of_pytorch, of_tensorflow, rate_of_mllog
from helpers.logs.record import Configure, FormatSpec, RateOf

_TENSORFLOW_RULES = ("ngc-tf-mean", "ngc-tf-average", "ngc-tf-summary")
_PYTORCH_RULES = ("ngc-pytorch-mean", "ngc-pytorch-summary", "ngc-pytorch-summary-compute")
_MXNET_RULES = ("ngc-mxnet-epochs",)

_EPOCH, _STEP, _IMAGES_PER_S = group("epoch", COUNT), group("step", COUNT), group("images_per_s")
_TIME = r"[\d-]{10} [\d:.]{1,20}"

# DLLogger's parameter line; PyTorch's script writes a second one without a batch size.
_PARAMETERS = compiled(r"DLL [\d: .-]{1,40}- PARAMETER " + PARAMETERS_BETWEEN + " batch_size : ")
_NVLOG = r":::NVLOG\S{0,20} \S{1,100} \S{1,40} \([^)\n]{0,200}\) "
# Lines that the TensorFlow script prints first; in its version of 2019 only rank 0 prints them.
_TENSORFLOW_STARTS = (_PARAMETERS, compiled(f"{_NVLOG}TF AMP is activated"), compiled(f"{_NVLOG}Model HParams:"))
_SUMMARY = rf"- Summary: {BETWEEN}?\b"
_EPOCH_END = rf"- Epoch: {_EPOCH}  {BETWEEN}?\b"
_ITERATION = rf"DLL {group('time', _TIME)} - Epoch: {_EPOCH} Iteration: {_STEP}  train\.loss : \S{{1,40}} (?:None)?"

# From 2020 on: "DLL 2022-11-24 04:01:45.487468 - (0, 200) total_ips : 1207.69". In 2019: ":::NVLOGv0.2.3 resnet
# 1621935982.789288282 (benchmark_hooks.py:60) total_ips: 1180.76", with the step on a line of its own.
_STEP_OF_TENSORFLOW = (
    r"(?:DLL |:::\w{1,40}[\d.]{0,20} \S{1,100} )"
    + group("time", rf"{_TIME}|\d{{1,12}}\.\d{{1,12}}")
    + rf" (?:- \({_EPOCH}, {_STEP}"
    + r"|\([^(), \n]{0,200})\) "
)
_TRAIN_THROUGHPUT = compiled(rf"\(\) train_throughput : {_IMAGES_PER_S}")

_tensorflow = partial(
    FormatSpec, rate_of=RateOf.JOB, configure=of_tensorflow, starts=_TENSORFLOW_STARTS, record_covers=1
)

TENSORFLOW = _tensorflow(
    name="nvidia-tensorflow",
    title="NVIDIA's TensorFlow script (DLLogger or NVLOG), training_benchmark",
    marker=b") total_ips",
    record=compiled(f"{_STEP_OF_TENSORFLOW}total_ips ?: {_IMAGES_PER_S}"),
    looked_for="lines 'DLL ... - (EPOCH, STEP) total_ips : N' or ':::NVLOG... total_ips: N'",
    rules=_TENSORFLOW_RULES,
    printed=MappingProxyType(
        {
            "average": compiled(rf"\) Average total_ips: {_IMAGES_PER_S}"),
            "train_throughput": _TRAIN_THROUGHPUT,
        }
    ),
)

TENSORFLOW_DLPERF = _tensorflow(
    name="dlperf-tensorflow1",
    title="NVIDIA's TensorFlow script (DLLogger or NVLOG) in training, as DLPerf runs it",
    marker=b") imgs_per_sec",
    record=compiled(f"{_STEP_OF_TENSORFLOW}imgs_per_sec ?: {_IMAGES_PER_S}"),
    looked_for="lines 'DLL ... - (EPOCH, STEP) imgs_per_sec : N' or ':::NVLOG... imgs_per_sec: N'",
    rules=("dlperf-log", "dlperf-time"),
    printed=MappingProxyType({"train_throughput": _TRAIN_THROUGHPUT}),
)

PYTORCH = FormatSpec(
    name="nvidia-pytorch",
    title="NVIDIA's PyTorch script (DLLogger)",
    marker=b" train.total_ips : ",
    record=compiled(
        rf"{_ITERATION}(?: train\.compute_ips : {group('compute_images_per_s')} \S{{1,40}})?"
        rf" train\.total_ips : {_IMAGES_PER_S}"
    ),
    looked_for="lines 'DLL ... - Epoch: N Iteration: N  train.loss : N ... train.total_ips : N images/s'",
    rate_of=RateOf.JOB,
    configure=of_pytorch,
    rules=_PYTORCH_RULES,
    starts=(_PARAMETERS,),
    printed=MappingProxyType(
        {
            "summary_total": compiled(rf"{_SUMMARY}train\.total_ips : {_IMAGES_PER_S}"),
            "summary_compute": compiled(rf"{_SUMMARY}train\.compute_ips : {_IMAGES_PER_S}"),
            "epoch": compiled(rf"{_EPOCH_END}train\.total_ips : {_IMAGES_PER_S}"),
        }
    ),
)

MXNET = FormatSpec(
    name="nvidia-mxnet",
    title="NVIDIA's MXNet script (DLLogger)",
    marker=b"  train.ips : ",
    record=compiled(rf"{_ITERATION} train\.ips : {_IMAGES_PER_S}"),
    looked_for="lines 'DLL ... - Epoch: N Iteration: N  train.loss : N  train.ips : N'",
    rate_of=RateOf.JOB,
    configure=of_mxnet,
    rules=_MXNET_RULES,
    starts=(_PARAMETERS,),
    printed=MappingProxyType(
        {
            "epoch": compiled(rf"{_EPOCH_END}train\.ips : {_IMAGES_PER_S}"),
            "summary_ips": compiled(rf"{_SUMMARY}train\.ips : {_IMAGES_PER_S}"),
        }
    ),
)

_NAMESPACE_START = compiled(r":INFO: [Ss]tart with arguments Namespace\(")
MXNET_2020 = FormatSpec(
    name="nvidia-mxnet-2020",
    title="NVIDIA's MXNet script before DLLogger",
    marker=b" samples/sec",
    record=compiled(
        group("time", r"\d{4}-\d\d-\d\d [\d:]{8},\d{3}")
        + rf":INFO: Epoch\[{_EPOCH}\] Batch \[(?:\d{{1,12}}-)?{_STEP}\][\t ]{{1,9}}Speed: {_IMAGES_PER_S}"
        # The learning rate is matched too; else its digits would be tried as a date, which takes as long as the record.
        + r" samples/sec(?:\tLR: \S{1,40})?"
    ),
    looked_for="lines 'INFO: Epoch[N] Batch [N-N] Speed: N samples/sec' and the script's arguments or its 'LR: N'",
    rate_of=RateOf.JOB,
    configure=of_mxnet,
    rules=_MXNET_RULES,
    starts=(_NAMESPACE_START,),
    proofs=(compiled(r" samples/sec\tLR: "), _NAMESPACE_START, compiled(":INFO: [Ss]tarting epoch ")),
)

# mlperf_logging: {"namespace": "", "time_ms": 1719843792116, ..., "key": "tracked_stats", "value": {"throughput":
# 14214.65}, "metadata": {"file": ..., "lineno": 1850, "epoch_num": 2}}. Before 2021 the key was "throughput" itself.
MLLOG = FormatSpec(
    name="nvidia-mllog",
    title="MLPerf's log lines (:::MLLOG) with a throughput",
    marker=b'"throughput"',
    record=compiled(
        r':::MLLOG \{"namespace": "[^"\n]{0,200}", "time_ms": '
        + group("time", r"\d{10}")
        + r'\d{3}, "event_type": "\w{1,40}", "key": "'
        + r'(?:throughput", "value": |tracked_stats", "value": \{"throughput": )'
        + _IMAGES_PER_S
        + rf'\}}?, "metadata": \{{(?:{BETWEEN}?"epoch_num": {_EPOCH})?(?:{BETWEEN}?\"step\": {_STEP})?'
    ),
    looked_for=':::MLLOG lines with the key "throughput", or "tracked_stats" with a throughput',
    rate_of=rate_of_mllog,
    configure=of_mllog,
    rules=(),
    starts=(compiled(f':::MLLOG {BETWEEN}"key": "run_start"'),),
)

# ---- DLLogger's JSON backend

_JSON_START = compiled(r'DLLL \{[^{\n]{0,500}"step": "PARAMETER", "data": \{' + PARAMETERS_BETWEEN + '"batch_size": ')
_JSON_STEP = (
    r'DLLL \{"timestamp": "'
    + group("time", r"[\d.]{1,32}")
    + r'"[^\[\]\n]{0,500}"step": \['
    + rf'{_EPOCH}, {_STEP}\], "data": \{{'
)
_JSON_EPOCH = rf'"step": \[{_EPOCH}\], "data": \{{{BETWEEN}?'
_JSON_RUN = rf'"step": \[\], "data": \{{{BETWEEN}?'


def _key(name: str, value: str = _IMAGES_PER_S) -> str:
    return f'"{re.escape(name)}": {value}'


def _json_format(
    script: str, key: str, configure: Configure, rules: tuple[str, ...], before: str, printed: Mapping[str, str]
) -> FormatSpec:
    return FormatSpec(
        name=f"nvidia-{script.lower()}-json",
        title=f"the JSON report of NVIDIA's {script} script (DLLogger)",
        marker=f'"{key}": '.encode(),
        record=compiled(_JSON_STEP + before + _key(key)),
        looked_for=f'lines \'DLLL {{... "step": [EPOCH, STEP], "data": {{... "{key}": N\'',
        rate_of=RateOf.JOB,
        configure=configure,
        rules=rules,
        starts=(_JSON_START,),
        printed=MappingProxyType({name: compiled(pattern) for name, pattern in printed.items()}),
        record_covers=1 if script == "TensorFlow" else None,
    )


TENSORFLOW_JSON = _json_format(
    "TensorFlow",
    "total_ips",
    of_tensorflow,
    _TENSORFLOW_RULES,
    "",
    {"train_throughput": _JSON_RUN + _key("train_throughput")},
)
PYTORCH_JSON = _json_format(
    "PyTorch",
    "train.total_ips",
    of_pytorch,
    _PYTORCH_RULES,
    f"(?:{BETWEEN}?{_key('train.compute_ips', group('compute_images_per_s'))},)?{BETWEEN}?",
    {
        "summary_total": _JSON_RUN + _key("train.total_ips"),
        "summary_compute": _JSON_RUN + _key("train.compute_ips"),
        "epoch": _JSON_EPOCH + _key("train.total_ips"),
    },
)
MXNET_JSON = _json_format(
    "MXNet",
    "train.ips",
    of_mxnet,
    _MXNET_RULES,
    f"{BETWEEN}?",
    {"epoch": _JSON_EPOCH + _key("train.ips"), "summary_ips": _JSON_RUN + _key("train.ips")},
)
