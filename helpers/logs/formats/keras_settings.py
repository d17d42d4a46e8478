"""The configuration of a run of tensorflow/models' image classification trainer, from the parameters it prints.

It prints a dictionary three times: the defaults, the options, ``Final model parameters``. The last one is what ran.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from helpers.logs.formats.dllogger import Facts, count, facts_of, finished
from helpers.logs.formats.naming import model_of
from helpers.logs.record import Context, Line, Said, Setting

_FINAL = "Final model parameters: "
# The dictionary's lines, one a key; far more than the trainer has.
_MOST_LINES = 500
# ResNet50 of the trainer has its stride in the 3x3 convolution (official/vision/.../resnet/resnet_model.py).
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


def of_keras(context: Context) -> Mapping[Setting, Said]:
    facts = facts_of(context)
    parameters = _final_parameters(facts)
    cards = _cards(parameters)
    said = {
        Setting.FRAMEWORK: Said("tensorflow", "lines of tensorflow/models' TimeHistory"),
        Setting.MODEL: _model(parameters.get("model.name")),
        Setting.PRECISION: _precision(parameters),
        Setting.BATCH_SIZE_PER_CARD: _batch(parameters, cards),
        Setting.CARDS: cards,
        Setting.NODES: count(_hosts(parameters)) if cards else None,
        Setting.DATA: _mapped(_DATA, parameters.get("train_dataset.builder")),
        Setting.XLA: _lower(parameters.get("runtime.enable_xla")),
    }
    return finished(facts, said)


def _final_parameters(facts: Facts) -> dict[str, Said]:
    """``runtime.num_gpus`` and so on; empty where there is no such dictionary, or foreign lines in it."""
    lines = facts.context.lines
    for index, line in enumerate(lines):
        if (at := line.text.find(_FINAL)) >= 0:
            text = _dictionary(lines[index : index + _MOST_LINES], at + len(_FINAL))
            return _flat(text, f"line {line.number}: {_FINAL.strip()}")
    return {}


def _dictionary(lines: Sequence[Line], start: int) -> str:
    """From the first line's ``start`` to where the outermost bracket closes."""
    parts = [lines[0].text[start:]]
    for line in lines[1:]:
        if not line.text.startswith(" "):
            break
        parts.append(line.text)
    return "\n".join(parts)


def _flat(text: str, where: str) -> dict[str, Said]:
    try:
        parameters = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    flat: dict[str, Said] = {}
    if isinstance(parameters, dict):
        for section, values in parameters.items():
            if isinstance(values, dict):
                for key, value in values.items():
                    if value is not None:
                        flat[f"{section}.{key}"] = Said(str(value), f"{where} {section}.{key} {str(value)[:60]}")
    return flat


def _hosts(parameters: Mapping[str, Said]) -> Said | None:
    strategy = parameters.get("runtime.distribution_strategy")
    hosts = parameters.get("runtime.worker_hosts")
    if strategy is None:
        return None
    if strategy.value == "multi_worker_mirrored" and hosts is not None:
        return Said(str(len(re.findall(r"[^,\s]+", hosts.value))), hosts.where)
    return Said("1", strategy.where) if strategy.value in _ONE_NODE else None


def _cards(parameters: Mapping[str, Said]) -> Said | None:
    gpus, hosts = count(parameters.get("runtime.num_gpus")), count(_hosts(parameters))
    if gpus is None or hosts is None:
        return None
    where = gpus.where if hosts.value == "1" else f"{gpus.where}; {hosts.where}"
    return Said(str(int(gpus.value) * int(hosts.value)), where)


def _batch(parameters: Mapping[str, Said], cards: Said | None) -> Said | None:
    batch = count(parameters.get("train_dataset.batch_size"))
    per_replica = parameters.get("train_dataset.use_per_replica_batch_size")
    if batch is None or per_replica is None:
        return None
    if per_replica.value == "True":
        return batch
    if cards is None or int(batch.value) % int(cards.value):
        return None
    return Said(str(int(batch.value) // int(cards.value)), f"{batch.where} of {cards.value} cards")


def _precision(parameters: Mapping[str, Said]) -> Said | None:
    mixed = parameters.get("runtime.mixed_precision_dtype")
    return _mapped(_PRECISIONS, mixed or parameters.get("train_dataset.dtype"))


def _model(said: Said | None) -> Said | None:
    if said is None:
        return None
    name = said.value.lower()
    return Said(_MODELS.get(name) or model_of(name) or name, said.where)


def _mapped(known: Mapping[str, str], said: Said | None) -> Said | None:
    return None if said is None or said.value not in known else Said(known[said.value], said.where)


def _lower(said: Said | None) -> Said | None:
    return None if said is None else Said(said.value.lower(), said.where)
