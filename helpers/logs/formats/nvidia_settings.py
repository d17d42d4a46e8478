"""The configuration of a run of NVIDIA's ResNet50 scripts, from their parameters and the lines beside them.

Nothing is concluded from images/s or step times. A setting that neither the content nor the log's name states must be
given by the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from helpers.logs.formats.common import (
    Facts,
    cards_of_ranks,
    count,
    json_of,
    mapped,
    valued,
)
from helpers.logs.formats.naming import model_of
from helpers.logs.record import RateOf, Settings
from helpers.logs.settings import LogSetting, Stated
from helpers.trainers.contract.errors import LogError

_TF_CARDS = re.compile(r"\bNum GPUs:? (\d+)\b")
_TF_BATCH = re.compile(r"\bPer-GPU Batch Size:? (\d+)\b")
_TF_MODEL = re.compile(r"(?:^|\) )Name:? \"?([\w.-]+)\"? *$")
_TF_AMP = re.compile(r"TF AMP is activated")
_TF_HEADER = re.compile(r"Starting Model Training")
_TF_XLA = re.compile(r"XLA is activated")
_BENCHMARK = re.compile(r"-(\d{1,7}),(\d{1,7})$", re.ASCII)
_RESNET50 = "resnet50v1.5"
_DTYPES = {"float32": "fp32", "float16": "amp", "bfloat16": "bf16"}
_HALF = ("fp16", "float16", "half", "mixed", "amp")
_DATA = {
    "dali-gpu": "dali",
    "dali-cpu": "dali_cpu",
    "pytorch": "native",
    "mxnet": "native",
    "synthetic": "synthetic",
    # The spelling of PyTorch's script before 2022.
    "syntetic": "synthetic",
}


def of_tensorflow(facts: Facts) -> Settings:
    return {
        LogSetting.FRAMEWORK: Stated("tensorflow", "lines of NVIDIA's TensorFlow script"),
        LogSetting.MODEL: _model(facts.parameter("arch") or facts.line(_TF_MODEL)),
        LogSetting.PRECISION: _tensorflow_precision(facts),
        LogSetting.BATCH_SIZE_PER_CARD: count(facts.parameter("batch_size") or facts.line(_TF_BATCH)),
        LogSetting.CARDS: count(facts.line(_TF_CARDS)) or cards_of_ranks(facts),
        LogSetting.DATA: _tensorflow_data(facts),
        LogSetting.XLA: _xla(facts),
    }


def of_pytorch(facts: Facts) -> Settings:
    return {
        LogSetting.FRAMEWORK: Stated("pytorch", "lines of NVIDIA's PyTorch script"),
        LogSetting.MODEL: _model(facts.parameter("arch")),
        LogSetting.PRECISION: valued("amp", facts.switched_on("amp", "fp16"))
        or valued("fp32", facts.parameter("amp", "fp16")),
        LogSetting.BATCH_SIZE_PER_CARD: count(facts.parameter("batch_size")),
        # mpirun starts one launcher on each node (multiproc.py), so its ranks do not count the cards.
        LogSetting.CARDS: count(facts.parameter("world_size")),
        LogSetting.DATA: mapped(_DATA, facts.parameter("data_backend")),
    }


def of_mxnet(facts: Facts) -> Settings:
    return {
        LogSetting.FRAMEWORK: Stated("mxnet", "lines of NVIDIA's MXNet script"),
        LogSetting.MODEL: _mxnet_model(facts),
        LogSetting.PRECISION: valued("amp", facts.switched_on("amp")) or mapped(_DTYPES, facts.parameter("dtype")),
        LogSetting.GLOBAL_BATCH_SIZE: count(facts.parameter("batch_size")),
        LogSetting.CARDS: _mxnet_cards(facts),
        LogSetting.DATA: mapped(_DATA, facts.parameter("data_backend")),
    }


def of_mllog(facts: Facts) -> Settings:
    """MLPerf's log states the benchmark and the batch size of all cards. By MLPerf's rules ``resnet`` is ResNet50
    v1.5."""
    events: dict[str, Stated] = {}
    for line in facts.lines:
        event = json_of(line, ":::MLLOG ")
        if isinstance(key := event.get("key"), str) and isinstance(value := event.get("value"), str | int):
            events.setdefault(key, Stated(str(value), f"line {line.number}: {key} {value}"))
    benchmark = events.get("submission_benchmark")
    return {
        LogSetting.MODEL: valued("resnet50v1.5", benchmark) if benchmark and benchmark.value == "resnet" else benchmark,
        LogSetting.GLOBAL_BATCH_SIZE: count(events.get("global_batch_size")),
        LogSetting.CARDS: cards_of_ranks(facts),
    }


# Whose throughput each benchmark's script prints. Other benchmarks count other samples than images, or nobody knows.
_MLPERF = {_RESNET50: RateOf.JOB, "ssd": RateOf.CARD}


def rate_of_mllog(settings: Mapping[LogSetting, Stated]) -> RateOf:
    """Whose rate the throughput in MLPerf's lines is. Raises LogError for a benchmark of which it is not known."""
    benchmark = settings[LogSetting.MODEL]
    if benchmark.value not in _MLPERF:
        raise LogError(
            "the throughput of MLPerf's benchmark",
            got=f"{benchmark.value} ({benchmark.where})",
            expected="resnet (images/s of all cards) or ssd (of one card)",
            remedy="Of other benchmarks it is not known what they count, and on how many cards",
        )
    return _MLPERF[benchmark.value]


def _model(stated: Stated | None) -> Stated | None:
    """The model as in a case id. Another network keeps its own name, so that the log's name cannot replace it."""
    return None if stated is None else Stated(model_of(stated.value) or stated.value, stated.where)


def _mxnet_model(facts: Facts) -> Stated | None:
    arch, layers = facts.parameter("arch"), facts.parameter("num_layers")
    if arch is None or layers is None:
        return None
    name = {"resnetv15": "resnet50v1.5"}.get(arch.value) if layers.value == "50" else None
    return Stated(name or f"{arch.value}-{layers.value}", f"{arch.where}, num_layers : {layers.value}")


def _tensorflow_precision(facts: Facts) -> Stated | None:
    amp = facts.switched_on("amp", "use_tf_amp") or facts.line(_TF_AMP)
    precision = facts.parameter("precision")
    if amp is None and precision is not None and precision.value in _HALF:
        amp = precision
    if amp is not None:
        return valued("amp", amp)
    if given := facts.parameter("amp", "use_tf_amp", "precision"):
        return valued("fp32", given)
    # The script of 2019 prints a line for AMP and none for FP32. If the log's beginning is cut off, the name decides.
    if LogSetting.PRECISION in facts.named or (header := facts.line(_TF_HEADER)) is None:
        return None
    return Stated("fp32", f'{header.where}, and no "TF AMP is activated"')


def _tensorflow_data(facts: Facts) -> Stated | None:
    if dali := facts.switched_on("dali", "use_dali"):
        return valued("dali", dali)
    off = facts.parameter("dali", "use_dali")
    if off is None:
        return None
    folder = facts.parameter("data_dir")
    # Without a folder the script trains on synthetic data.
    return valued("native", folder) if folder else Stated("synthetic", f"{off.where}, data_dir : None")


def _xla(facts: Facts) -> Stated | None:
    if given := facts.parameter("xla", "use_xla"):
        return valued(str(given.value == "True").lower(), given)
    return valued("true", facts.line(_TF_XLA))


def _mxnet_cards(facts: Facts) -> Stated | None:
    """The number of cards, from the first of these that states it; None if a log with several runs does not decide it.

    - The name that benchmark.py gives its report (``report.json-8,256``: cards, images per card).
    - The ranks in the lines' prefixes, or the log's name, if they are more than ``gpus``, the cards of one node.
    - ``gpus``.
    """
    report, batch = facts.parameter("dllogger_log", "report"), facts.parameter("batch_size")
    if report and batch and (match := _BENCHMARK.search(report.value)):
        cards = count(Stated(match[1], report.where))
        if cards and batch.value == str(int(cards.value) * int(match[2])):
            return cards
    gpus, by_ranks = facts.parameter("gpus"), cards_of_ranks(facts)
    if gpus is None:
        return by_ranks
    of_node = len(re.findall(r"\d+", gpus.value))
    if by_ranks is not None and int(by_ranks.value) >= of_node:
        return by_ranks
    named = facts.named.get(LogSetting.CARDS)
    if named is not None and int(named.value) > of_node:
        return named
    return None if len(facts.ranks) > of_node else count(Stated(str(of_node), gpus.where))
