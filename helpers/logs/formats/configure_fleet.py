"""The configuration of FleetX's scripts, of Paddle 1.8's image classification (DLPerf) and of TIPC's summary line."""

from __future__ import annotations

import re
from collections.abc import Mapping

from helpers.logs.formats.dllogger import count, facts_of, finished, json_of, quoted
from helpers.logs.formats.naming import architecture, settings_of_name
from helpers.logs.formats.paddle_launch import Launch, arguments_of, first, framework_version, launch_of, present
from helpers.logs.record import Context, Line, Said, Setting

# FleetX: "%25s : %s"; DLPerf's the same behind its logger's prefix.
_ARGUMENT_LINE = re.compile(r"(?:^|INFO:) +(\w+) : (.*)$")
_TRAIN_BATCH = re.compile(r"^train_batch_size: (\d+) device_num: *\d+")
_AMP_STRATEGY = re.compile(r"\bamp *= *True *<-> *amp_configs")
_DALI = re.compile(r"^dali gpu_id: ?(\d+)")
_GPU_NUM = re.compile(r"^-----gpu_num: (\d+)")
_DEVICE_NUM = re.compile(r"N(\d{1,4})C(\d{1,6})")
_UNKNOWN_VERSION = ("", "0.0.0", "None", "null")
# PaddleClas' test_tipc/common_func.sh: fp16 sets AMP.level=O2, amp sets O1; its static scripts say amp_fp16 for O1.
_FP_ITEMS = {
    "fp32": "fp32",
    "null": "fp32",
    "pure_fp16": "amp_o2",
    "fp16": "amp_o2",
    "amp": "amp_o1",
    "amp_fp16": "amp_o1",
}


def of_fleetx(context: Context) -> Mapping[Setting, Said]:
    return _of_fleetx(context, Said("static", "lines of FleetX's static graph"))


def of_fleetx_dynamic(context: Context) -> Mapping[Setting, Said]:
    return _of_fleetx(context, Said("dynamic", "lines of fleet's dynamic graph"))


def _of_fleetx(context: Context, execution: Said) -> Mapping[Setting, Said]:
    """A FleetX script's batch size is one process's, so one card's."""
    arguments, launch = _arguments(context), launch_of(context)
    batch = count(arguments.get("batch_size")) or count(first(context, _TRAIN_BATCH))
    return finished(
        facts_of(context),
        {
            **_common(context, arguments, launch, "lines of FleetX"),
            Setting.PRECISION: _fleetx_precision(context, arguments),
            Setting.BATCH_SIZE_PER_CARD: batch,
            Setting.EXECUTION: execution,
        },
    )


def of_dlperf(context: Context) -> Mapping[Setting, Said]:
    """``batch_size`` is of the cards of one node (reader.py: ``batch_size // get_cuda_device_count()``)."""
    arguments, launch = _arguments(context), launch_of(context)
    return finished(
        facts_of(context),
        {
            **_common(context, arguments, launch, "lines of PaddlePaddle/models"),
            Setting.PRECISION: _fp16(arguments.get("use_fp16")),
            Setting.BATCH_SIZE_PER_CARD: _of_node(context, count(arguments.get("batch_size")), launch),
            Setting.EXECUTION: Said("static", "Paddle 1.8's image classification"),
            Setting.SEED: count(arguments.get("random_seed")),
        },
    )


def of_tipc(context: Context) -> Mapping[Setting, Said]:
    """From the line's own keys; ``model_name`` holds the same in words (ResNet50_bs256_pure_fp16_DP)."""
    line = context.first_record
    keys = _summary(line)
    named = settings_of_name(_name_of_model(keys))
    where = f"line {line.number}: " if line else ""
    said = {setting: Said(each.value, f"{where}model_name") for setting, each in named.items()}
    said.update(present({Setting.MODEL: _tipc_model(keys, where)}))
    if (item := str(keys.get("fp_item", ""))) in _FP_ITEMS:
        said[Setting.PRECISION] = Said(_FP_ITEMS[item], f"{where}fp_item {item}")
    if batch := count(Said(str(keys.get("batch_size", "")), f"{where}batch_size")):
        said[Setting.BATCH_SIZE_PER_CARD] = batch
    said.update(_tipc_cards(context, keys, where))
    version = str(keys.get("frame_version", ""))
    if version not in _UNKNOWN_VERSION:
        said[Setting.FRAMEWORK_VERSION] = Said(version, f"{where}frame_version")
    said[Setting.FRAMEWORK] = Said("paddle", "a line of TIPC")
    return finished(facts_of(context), said)


def _arguments(context: Context) -> dict[str, Said]:
    """What the script prints of its arguments, and what a command line says of those it does not print."""
    printed: dict[str, Said] = {}
    for line in context.lines:
        if match := _ARGUMENT_LINE.search(line.text):
            value = match[2].strip()
            printed.setdefault(match[1], Said(value, f"line {line.number}: {match[1]} : {quoted(value)}"))
    return {**arguments_of(context), **printed}


def _common(
    context: Context, arguments: Mapping[str, Said], launch: Launch, framework: str
) -> dict[Setting, Said | None]:
    model, dali = arguments.get("model"), arguments.get("use_dali")
    data = Said("dali" if dali.value.lower() == "true" else "native", dali.where) if dali else first(context, _DALI)
    return {
        Setting.FRAMEWORK: Said("paddle", framework),
        Setting.MODEL: Said(architecture(model.value), model.where) if model else None,
        Setting.CARDS: launch.cards,
        Setting.NODES: launch.nodes,
        Setting.DATA: data if dali or data is None else Said("dali", data.where),
        Setting.FRAMEWORK_VERSION: framework_version(context),
    }


def _fleetx_precision(context: Context, arguments: Mapping[str, Said]) -> Said | None:
    strategy = first(context, _AMP_STRATEGY)
    if strategy is not None:
        return Said("amp", strategy.where)
    return _fp16(arguments.get("fp16"))


def _fp16(said: Said | None) -> Said | None:
    """Paddle 1.8's fp16 is its mixed-precision decorator."""
    if said is None or said.value.lower() not in ("true", "false"):
        return None
    return Said("amp" if said.value.lower() == "true" else "fp32", said.where)


def _of_node(context: Context, total: Said | None, launch: Launch) -> Said | None:
    named = settings_of_name(context.name)
    cards = count(launch.cards or named.get(Setting.CARDS))
    nodes = count(launch.nodes or named.get(Setting.NODES))
    if total is None or cards is None or nodes is None or int(cards.value) % int(nodes.value):
        return None
    of_node = int(cards.value) // int(nodes.value)
    if int(total.value) % of_node:
        return None
    return Said(str(int(total.value) // of_node), f"{total.where}, of {of_node} cards of a node")


def _summary(line: Line | None) -> Mapping[str, object]:
    if line is None or (at := line.text.find("{")) < 0:
        return {}
    return json_of(line, line.text[:at])


def _name_of_model(keys: Mapping[str, object]) -> str:
    return str(keys.get("model_name", "")).replace("/", "_")


def _tipc_model(keys: Mapping[str, object], where: str) -> Said | None:
    """The name up to its batch size, where the suite knows no such model."""
    name = re.split(r"_bs\d+", _name_of_model(keys))[0]
    return Said(architecture(name), f"{where}model_name") if name else None


def _tipc_cards(context: Context, keys: Mapping[str, object], where: str) -> dict[Setting, Said]:
    """``N4C32``: four nodes, 32 cards of all (analysis.py takes the number behind C as the cards)."""
    match = _DEVICE_NUM.fullmatch(str(keys.get("device_num", "")))
    if match:
        place = f"{where}device_num {match[0]}"
        return present({Setting.NODES: count(Said(match[1], place)), Setting.CARDS: count(Said(match[2], place))})
    cards = count(Said(str(keys.get("gpu_num", "")), f"{where}gpu_num")) or count(first(context, _GPU_NUM))
    return present({Setting.CARDS: cards})
