"""The logs of Paddle's other scripts (for PaddleClas see paddleclas.py): FleetX, Paddle 1.8's image classification
(DLPerf), and TIPC's summary line.

Their images/s are of one card, except in TIPC's line, where they are of all cards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from helpers.logs.formats.common import (
    BARE_NUMBER,
    BETWEEN,
    COUNT,
    SPACES,
    Facts,
    LaunchFacts,
    compiled,
    count,
    facts_of,
    finished,
    group,
    json_of,
    launch_of,
    paddle_version,
    present,
    quoted,
)
from helpers.logs.formats.naming import architecture, settings_of_name
from helpers.logs.record import FormatSpec, Line, RateOf, RunContext
from helpers.logs.settings import LogSetting, Stated

# FleetX prints "%25s : %s"; DLPerf's script prints the same behind its logger's prefix.
_ARGUMENT_LINE = re.compile(r"(?:^|INFO:) +(\w+) : (.*)$")
_TRAIN_BATCH = re.compile(r"^train_batch_size: (\d+) device_num: *\d+")
_AMP_STRATEGY = re.compile(r"\bamp *= *True *<-> *amp_configs")
_DALI = re.compile(r"^dali gpu_id: ?(\d+)")
_GPU_NUM = re.compile(r"^-----gpu_num: (\d+)")
_DEVICE_NUM = re.compile(r"N(\d{1,4})C(\d{1,6})")
_UNKNOWN_VERSION = ("", "0.0.0", "None", "null")
# By PaddleClas' test_tipc/common_func.sh fp16 sets AMP.level=O2 and amp sets O1; its static scripts write amp_fp16 for
# O1.
_FP_ITEMS = {
    "fp32": "fp32",
    "null": "fp32",
    "pure_fp16": "amp_o2",
    "fp16": "amp_o2",
    "amp": "amp_o1",
    "amp_fp16": "amp_o1",
}


def of_fleetx(context: RunContext) -> Mapping[LogSetting, Stated]:
    """The batch size of a FleetX script is that of one process, so of one card."""
    facts = facts_of(context)
    arguments, launch = _arguments(facts), launch_of(facts)
    strategy = facts.line(_AMP_STRATEGY)
    return finished(
        facts,
        {
            **_common(facts, arguments, launch, "lines of FleetX"),
            LogSetting.PRECISION: Stated("amp", strategy.where) if strategy else _fp16(arguments.get("fp16")),
            LogSetting.BATCH_SIZE_PER_CARD: count(arguments.get("batch_size")) or count(facts.line(_TRAIN_BATCH)),
            LogSetting.EXECUTION: Stated("static", "lines of FleetX's static graph"),
        },
    )


def of_dlperf(context: RunContext) -> Mapping[LogSetting, Stated]:
    """``batch_size`` is of all cards of one node (reader.py: ``batch_size // get_cuda_device_count()``)."""
    facts = facts_of(context)
    arguments, launch = _arguments(facts), launch_of(facts)
    return finished(
        facts,
        {
            **_common(facts, arguments, launch, "lines of PaddlePaddle/models"),
            LogSetting.PRECISION: _fp16(arguments.get("use_fp16")),
            LogSetting.GLOBAL_BATCH_SIZE: _of_nodes(facts, count(arguments.get("batch_size")), launch),
            LogSetting.EXECUTION: Stated("static", "Paddle 1.8's image classification"),
            LogSetting.SEED: count(arguments.get("random_seed")),
        },
    )


def of_tipc(context: RunContext) -> Mapping[LogSetting, Stated]:
    """The settings by the line's keys; if they are missing, by ``model_name`` (ResNet50_bs256_pure_fp16_DP)."""
    facts = facts_of(context)
    line = context.first_record
    keys = _summary(line)
    name = str(keys.get("model_name", "")).replace("/", "_")
    where = f"line {line.number}: " if line else ""
    stated = {setting: Stated(each.value, f"{where}model_name") for setting, each in settings_of_name(name).items()}
    # A model that the suite does not know is called by the part of the name before the batch size.
    if model := re.split(r"_bs\d+", name)[0]:
        stated[LogSetting.MODEL] = Stated(architecture(model), f"{where}model_name")
    if (item := str(keys.get("fp_item", ""))) in _FP_ITEMS:
        stated[LogSetting.PRECISION] = Stated(_FP_ITEMS[item], f"{where}fp_item {item}")
    if batch := count(Stated(str(keys.get("batch_size", "")), f"{where}batch_size")):
        stated[LogSetting.BATCH_SIZE_PER_CARD] = batch
    stated.update(_tipc_cards(facts, keys, where))
    version = str(keys.get("frame_version", ""))
    if version not in _UNKNOWN_VERSION:
        stated[LogSetting.FRAMEWORK_VERSION] = Stated(version, f"{where}frame_version")
    stated[LogSetting.FRAMEWORK] = Stated("paddle", "a line of TIPC")
    return finished(facts, stated)


def _arguments(facts: Facts) -> dict[str, Stated]:
    """The arguments that the script prints, and those of its command line that it does not print."""
    printed: dict[str, Stated] = {}
    for line in facts.context.lines:
        if match := _ARGUMENT_LINE.search(line.text):
            value = match[2].strip()
            printed.setdefault(match[1], Stated(value, f"line {line.number}: {match[1]} : {quoted(value)}"))
    return {**facts.command_arguments(), **printed}


def _common(
    facts: Facts, arguments: Mapping[str, Stated], launch: LaunchFacts, framework: str
) -> dict[LogSetting, Stated | None]:
    model, use_dali, dali = arguments.get("model"), arguments.get("use_dali"), facts.line(_DALI)
    if use_dali:
        data: Stated | None = Stated("dali" if use_dali.value.lower() == "true" else "native", use_dali.where)
    else:
        data = Stated("dali", dali.where) if dali else None
    return {
        LogSetting.FRAMEWORK: Stated("paddle", framework),
        LogSetting.MODEL: Stated(architecture(model.value), model.where) if model else None,
        LogSetting.CARDS: launch.cards,
        LogSetting.NODES: launch.nodes,
        LogSetting.DATA: data,
        LogSetting.FRAMEWORK_VERSION: paddle_version(facts),
    }


def _fp16(stated: Stated | None) -> Stated | None:
    """In Paddle 1.8, fp16 switches on the mixed-precision decorator, which is AMP."""
    if stated is None or stated.value.lower() not in ("true", "false"):
        return None
    return Stated("amp" if stated.value.lower() == "true" else "fp32", stated.where)


def _of_nodes(facts: Facts, of_node: Stated | None, launch: LaunchFacts) -> Stated | None:
    """The images of all nodes; None if their number is not known."""
    nodes = count(launch.nodes or facts.fallback(LogSetting.NODES))
    if of_node is None or nodes is None:
        return None
    where = of_node.where if nodes.value == "1" else f"{of_node.where}, times {nodes.value} nodes"
    return Stated(str(int(of_node.value) * int(nodes.value)), where)


def _summary(line: Line | None) -> Mapping[str, object]:
    if line is None or (at := line.text.find("{")) < 0:
        return {}
    return json_of(line, line.text[:at])


def _tipc_cards(facts: Facts, keys: Mapping[str, object], where: str) -> dict[LogSetting, Stated]:
    """``N4C32`` means four nodes and 32 cards in all (analysis.py takes the number behind C as the number of cards)."""
    match = _DEVICE_NUM.fullmatch(str(keys.get("device_num", "")))
    if match:
        place = f"{where}device_num {match[0]}"
        nodes, cards = (count(Stated(number, place)) for number in match.groups())
        return present({LogSetting.NODES: nodes, LogSetting.CARDS: cards})
    of_all = count(Stated(str(keys.get("gpu_num", "")), f"{where}gpu_num")) or count(facts.line(_GPU_NUM))
    return present({LogSetting.CARDS: of_all})


# ---- the formats

_EPOCH, _STEP = group("epoch", COUNT), group("step", COUNT)
_STEP_SECONDS = group("step_seconds", BARE_NUMBER)
_IMAGES_PER_S = group("images_per_s")

# PaddlePaddle/FleetX, deprecated/benchmark/collective/resnet/train_with_fleet.py and deprecated/examples: a record's
# time is the mean over the steps since the previous record; its speed is the batch of one process / that time.
FLEETX = FormatSpec(
    name="fleetx",
    title="FleetX's ResNet and VGG scripts (Pass N, trainbatch N)",
    marker=b", trainbatch ",
    record=compiled(
        f"Pass {_EPOCH}, trainbatch {_STEP}, loss {BETWEEN}"
        f"time{SPACES}{_STEP_SECONDS} sec,{SPACES}speed:?{SPACES}{_IMAGES_PER_S}"
    ),
    looked_for="lines 'Pass N, trainbatch N, loss N, ... time N sec, speed N'",
    rate_of=RateOf.CARD,
    configure=of_fleetx,
    rules=("fleetx-20-100-median7",),
    printed=MappingProxyType({"epoch": compiled(f"End pass {_EPOCH}, train_loss {BETWEEN}speed {_IMAGES_PER_S}")}),
)

# PaddlePaddle/FleetX, python/fleetx/applications/trainer.py (its VGG16 and ResNet50 benchmarks): speed is 1 / the
# seconds of the step, so it is in steps/s. Step 11 is the first that is printed.
_ANY_VALUE = r"[^,\n]{0,100}"
FLEETX_TRAINER = FormatSpec(
    name="fleetx-trainer",
    title="FleetX's trainer (epoch id: N, stepN)",
    marker=b", total time cost = ",
    record=compiled(
        f"(?:epoch id: {_EPOCH}|worker_index: {COUNT}), step{_STEP}, train_loss: {_ANY_VALUE}, "
        f"total time cost = {_ANY_VALUE}, step per second: {_ANY_VALUE}, speed:{SPACES}{group('steps_per_s')}"
    ),
    looked_for="lines 'epoch id: N, stepN, train_loss: N, total time cost = N, step per second: N, speed: N'",
    rate_of=RateOf.CARD,
    configure=of_fleetx,
    rules=("fleetx-20-100-median7",),
    record_covers=1,
    # It trains BERT too.
    unit="samples/s",
)

# Printed by PaddlePaddle/benchmark's analysis.py, which test_tipc/benchmark_train.sh calls: ips is the mean of the
# records times the number of cards. Before 2021 the keys were FINAL_RESULT and UNIT. A line in another unit
# (ms/iteration) is not read.
_TIPC_MARKER = '"model_name": '
_TIPC_RATE = f'"(?:ips|FINAL_RESULT)":{SPACES}"?' + group("images_per_s", BARE_NUMBER) + r'"?(?:,\s|}|,")'
_TIPC_UNIT = f'"(?:speed_unit|UNIT)":{SPACES}"(?:images|imgs|samples)/s'
_TIPC_RECORD = compiled(f"{_TIPC_MARKER}(?={BETWEEN}{_TIPC_UNIT}){BETWEEN}?{_TIPC_RATE}")
TIPC = FormatSpec(
    name="tipc",
    title="TIPC's summary line (JSON)",
    marker=_TIPC_MARKER.encode(),
    record=_TIPC_RECORD,
    looked_for='a line {"model_name": ..., "ips": N, "speed_unit": "images/s", ...}',
    rate_of=RateOf.JOB,
    configure=of_tipc,
    rules=("tipc-summary",),
    # Each line is of another job.
    starts=(_TIPC_RECORD,),
    is_summary=True,
    # TIPC runs models of every kind, and calls the samples of most of them samples.
    unit="samples/s",
)

# PaddlePaddle/models release/1.8, PaddleCV/image_classification: each line has the seconds of one step.
_DLPERF_TIME = group("time", r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")
DLPERF_PADDLE = FormatSpec(
    name="dlperf-paddle",
    title="Paddle 1.8's image classification, as DLPerf runs it",
    marker=b", train batch ",
    record=compiled(
        rf"\[Pass (?:(?<={_DLPERF_TIME}-INFO: \[Pass ))?{_EPOCH}, train batch {_STEP}\]{BETWEEN}"
        f"elapse{SPACES}{_STEP_SECONDS} sec"
    ),
    looked_for="lines '[Pass N, train batch N] loss N, ... elapse N sec'",
    rate_of=RateOf.CARD,
    configure=of_dlperf,
    rules=("dlperf-log", "dlperf-time"),
    starts=(compiled("-----------  Configuration Arguments -----------"),),
    record_covers=1,
    # Its script rounds each record to 4 decimals, and subtracts the time stamps of iterations 19 and 119.
    rounding=MappingProxyType({"record_decimals": 4, "time_steps": (19, 119)}),
)
