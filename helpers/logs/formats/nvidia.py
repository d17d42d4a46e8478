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
"""

from __future__ import annotations

from functools import partial
from types import MappingProxyType

from helpers.logs.formats.common import BETWEEN, COUNT, PARAMETERS_BETWEEN, compiled, group
from helpers.logs.formats.nvidia_settings import of_mllog, of_mxnet, of_pytorch, of_tensorflow, rate_of_mllog
from helpers.logs.record import FormatSpec, RateOf

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
    marker=b") total_ips",
    record=compiled(f"{_STEP_OF_TENSORFLOW}total_ips ?: {_IMAGES_PER_S}"),
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
    marker=b") imgs_per_sec",
    record=compiled(f"{_STEP_OF_TENSORFLOW}imgs_per_sec ?: {_IMAGES_PER_S}"),
    rules=("dlperf-log", "dlperf-time"),
    printed=MappingProxyType({"train_throughput": _TRAIN_THROUGHPUT}),
)

PYTORCH = FormatSpec(
    name="nvidia-pytorch",
    marker=b" train.total_ips : ",
    record=compiled(
        rf"{_ITERATION}(?: train\.compute_ips : {group('compute_images_per_s')} \S{{1,40}})?"
        rf" train\.total_ips : {_IMAGES_PER_S}"
    ),
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
    marker=b"  train.ips : ",
    record=compiled(rf"{_ITERATION} train\.ips : {_IMAGES_PER_S}"),
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

# mlperf_logging: {"namespace": "", "time_ms": 1719843792116, ..., "key": "tracked_stats", "value": {"throughput":
# 14214.65}, "metadata": {"file": ..., "lineno": 1850, "epoch_num": 2}}. Before 2021 the key was "throughput" itself.
MLLOG = FormatSpec(
    name="nvidia-mllog",
    marker=b'"throughput"',
    record=compiled(
        r':::MLLOG \{"namespace": "[^"\n]{0,200}", "time_ms": '
        + group("time", r"\d{10}")
        + r'\d{3}, "event_type": "\w{1,40}", "key": "'
        + r'(?:throughput", "value": |tracked_stats", "value": \{"throughput": )'
        + _IMAGES_PER_S
        + rf'\}}?, "metadata": \{{(?:{BETWEEN}?"epoch_num": {_EPOCH})?(?:{BETWEEN}?\"step\": {_STEP})?'
    ),
    rate_of=rate_of_mllog,
    configure=of_mllog,
    rules=(),
    starts=(compiled(f':::MLLOG {BETWEEN}"key": "run_start"'),),
)
