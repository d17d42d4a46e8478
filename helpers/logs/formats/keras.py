"""The logs of tensorflow/models' image classification trainer with TimeHistory, as DLPerf runs it.

TimeHistory (official/utils/misc/keras_utils.py) prints the rate of all replicas over the steps between two step
numbers. The trainer prints a dictionary of parameters three times: the defaults, the options, and ``Final model
parameters``, which are those of the run.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from helpers.logs.formats.common import (
    COUNT,
    Facts,
    compiled,
    count,
    group,
    mapped,
    valued,
)
from helpers.logs.formats.naming import model_of
from helpers.logs.record import FormatSpec, Line, RateOf, Settings
from helpers.logs.settings import LogSetting, Stated

_TIME = r"\d{4} [\d:.]{1,20}"
_FINAL = "Final model parameters: "
# The most lines of a dictionary, which has one line for each key. The trainer's has far fewer.
_MOST_LINES = 500
# The trainer's ResNet50 has its stride in the 3x3 convolution (official/vision/.../resnet/resnet_model.py).
_MODELS = {"resnet": "resnet50v1.5"}
_PRECISIONS = {
    "float32": "fp32",
    "float16": "amp",
    "mixed_float16": "amp",
    "bfloat16": "bf16",
    "mixed_bfloat16": "bf16",
}
_DATA = {"records": "native", "tfds": "native", "synthetic": "synthetic"}
_ONE_NODE = ("mirrored", "one_device", "off", "default", "")


def of_keras(facts: Facts) -> Settings:
    parameters = _final_parameters(facts)
    strategy = parameters.get("runtime.distribution_strategy")
    one_node = strategy is not None and strategy.value in _ONE_NODE
    dtype = parameters.get("runtime.mixed_precision_dtype") or parameters.get("train_dataset.dtype")
    xla = parameters.get("runtime.enable_xla")
    return {
        LogSetting.FRAMEWORK: Stated("tensorflow", "lines of tensorflow/models' TimeHistory"),
        LogSetting.MODEL: _model(parameters.get("model.name")),
        LogSetting.PRECISION: mapped(_PRECISIONS, dtype),
        **_batch(parameters),
        LogSetting.CARDS: count(parameters.get("runtime.num_gpus")) if one_node else None,
        LogSetting.NODES: valued("1", strategy) if one_node else None,
        LogSetting.DATA: mapped(_DATA, parameters.get("train_dataset.builder")),
        LogSetting.XLA: valued(xla.value.lower(), xla) if xla else None,
    }


def _final_parameters(facts: Facts) -> dict[str, Stated]:
    """The parameters by path (``runtime.num_gpus``); empty if there is no such dictionary, or if other lines interrupt
    it."""
    lines = facts.lines
    for index, line in enumerate(lines):
        if (at := line.text.find(_FINAL)) >= 0:
            text = _dictionary(lines[index : index + _MOST_LINES], at + len(_FINAL))
            return _flat(text, f"line {line.number}: {_FINAL.strip()}")
    return {}


def _dictionary(lines: Sequence[Line], start: int) -> str:
    """The text from the first line's ``start`` to where the outermost bracket closes."""
    parts = [lines[0].text[start:]]
    for line in lines[1:]:
        if not line.text.startswith(" "):
            break
        parts.append(line.text)
    return "\n".join(parts)


def _flat(text: str, where: str) -> dict[str, Stated]:
    try:
        parameters = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    flat: dict[str, Stated] = {}
    if isinstance(parameters, dict):
        for section, values in parameters.items():
            if isinstance(values, dict):
                for key, value in values.items():
                    if value is not None:
                        flat[f"{section}.{key}"] = Stated(str(value), f"{where} {section}.{key} {str(value)[:60]}")
    return flat


def _batch(parameters: Mapping[str, Stated]) -> dict[LogSetting, Stated | None]:
    batch = count(parameters.get("train_dataset.batch_size"))
    per_replica = parameters.get("train_dataset.use_per_replica_batch_size")
    if per_replica is None:
        return {}
    of_card = per_replica.value == "True"
    return {LogSetting.BATCH_SIZE_PER_CARD if of_card else LogSetting.GLOBAL_BATCH_SIZE: batch}


def _model(stated: Stated | None) -> Stated | None:
    if stated is None:
        return None
    name = stated.value.lower()
    return Stated(_MODELS.get(name) or model_of(name) or name, stated.where)


_STEPS = f"between steps {group('span_start', COUNT)} and {group('span_end', COUNT)}"
TENSORFLOW_2 = FormatSpec(
    name="dlperf-tensorflow2",
    marker=b"TimeHistory: ",
    record=compiled(
        rf"(?:[IWEF]{group('time', _TIME)} {{1,40}}\d{{1,20}} \S{{1,100}}\] )?"
        f"TimeHistory: {group('span_seconds')} seconds, {group('images_per_s')} examples/second {_STEPS}"
    ),
    rate_of=RateOf.JOB,
    configure=of_keras,
    rules=("dlperf-tf2",),
    starts=(compiled(r"\] Base params: \{"),),
)
