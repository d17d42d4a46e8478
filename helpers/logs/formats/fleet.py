"""The logs of Paddle's other scripts (for PaddleClas see paddleclas.py): FleetX's trainer, and TIPC's summary line.

The trainer's rates are of one card, those in TIPC's line of all cards.
"""

from __future__ import annotations

import re

from helpers.logs.formats.common import (
    BARE_NUMBER,
    BETWEEN,
    COUNT,
    SPACES,
    Facts,
    compiled,
    count,
    group,
    json_of,
    launch_of,
    paddle_version,
)
from helpers.logs.formats.naming import architecture, settings_of_name
from helpers.logs.record import FormatSpec, RateOf, Settings
from helpers.logs.settings import LogSetting, Stated

_AMP_STRATEGY = re.compile(r"\bamp *= *True *<-> *amp_configs")
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


def of_fleetx(facts: Facts) -> Settings:
    """The configuration by the script's command line; its batch size is that of one process, so of one card."""
    arguments, precision = facts.command_arguments(), facts.line(_AMP_STRATEGY)
    model = arguments.get("model")
    return {
        LogSetting.FRAMEWORK: Stated("paddle", "lines of FleetX"),
        LogSetting.MODEL: Stated(architecture(model.value), model.where) if model else None,
        LogSetting.PRECISION: Stated("amp", precision.where) if precision else None,
        LogSetting.BATCH_SIZE_PER_CARD: count(arguments.get("batch_size")),
        **launch_of(facts),
        LogSetting.EXECUTION: Stated("static", "lines of FleetX's static graph"),
        LogSetting.FRAMEWORK_VERSION: paddle_version(facts),
    }


def of_tipc(facts: Facts) -> Settings:
    """The settings by the line's keys; if they are missing, by ``model_name`` (ResNet50_bs256_pure_fp16_DP)."""
    line = facts.first_record
    if line is None:
        return {}
    keys = {key: str(value) for key, value in json_of(line, line.text[: line.text.find("{")]).items()}
    name, place = keys.get("model_name", "").replace("/", "_"), f"line {line.number}: "
    stated: dict[LogSetting, Stated | None] = {
        setting: Stated(each.value, f"{place}model_name") for setting, each in settings_of_name(name).items()
    }
    # A model that the suite does not know is called by the part of the name before the batch size.
    if model := re.split(r"_bs\d+", name)[0]:
        stated[LogSetting.MODEL] = Stated(architecture(model), f"{place}model_name")
    if (item := keys.get("fp_item", "")) in _FP_ITEMS:
        stated[LogSetting.PRECISION] = Stated(_FP_ITEMS[item], f"{place}fp_item {item}")
    if batch := count(Stated(keys.get("batch_size", ""), f"{place}batch_size")):
        stated[LogSetting.BATCH_SIZE_PER_CARD] = batch
    # N4C32 means four nodes and 32 cards in all (analysis.py takes the number behind C as the number of cards).
    if match := _DEVICE_NUM.fullmatch(keys.get("device_num", "")):
        for setting, number in zip((LogSetting.NODES, LogSetting.CARDS), match.groups(), strict=True):
            stated[setting] = count(Stated(number, f"{place}device_num {match[0]}"))
    if (version := keys.get("frame_version", "")) not in _UNKNOWN_VERSION:
        stated[LogSetting.FRAMEWORK_VERSION] = Stated(version, f"{place}frame_version")
    stated[LogSetting.FRAMEWORK] = Stated("paddle", "a line of TIPC")
    return stated


# ---- the formats

# PaddlePaddle/FleetX, python/fleetx/applications/trainer.py (its VGG16 and ResNet50 benchmarks): speed is 1 / the
# seconds of the step, so it is in steps/s. Step 11 is the first that is printed.
_ANY_VALUE = r"[^,\n]{0,100}"
FLEETX_TRAINER = FormatSpec(
    name="fleetx-trainer",
    marker=b", total time cost = ",
    record=compiled(
        f"(?:epoch id: {group('epoch', COUNT)}|worker_index: {COUNT}), step{group('step', COUNT)}, train_loss: "
        f"{_ANY_VALUE}, total time cost = {_ANY_VALUE}, step per second: {_ANY_VALUE}, "
        f"speed:{SPACES}{group('steps_per_s')}"
    ),
    rate_of=RateOf.CARD,
    configure=of_fleetx,
    rules=("fleetx-20-100-median7",),
    record_covers=1,
    # It trains BERT too.
    unit="samples/s",
)

# Printed by PaddlePaddle/benchmark's analysis.py, which test_tipc/benchmark_train.sh calls: ips is the mean of the
# records times the number of cards. A line in another unit (ms/iteration) is not read.
_TIPC_MARKER = '"model_name": '
_TIPC_RATE = f'"ips":{SPACES}"?' + group("images_per_s", BARE_NUMBER) + r'"?(?:,\s|}|,")'
_TIPC_UNIT = f'"speed_unit":{SPACES}"(?:images|imgs|samples)/s'
_TIPC_RECORD = compiled(f"{_TIPC_MARKER}(?={BETWEEN}{_TIPC_UNIT}){BETWEEN}?{_TIPC_RATE}")
TIPC = FormatSpec(
    name="tipc",
    marker=_TIPC_MARKER.encode(),
    record=_TIPC_RECORD,
    rate_of=RateOf.JOB,
    configure=of_tipc,
    rules=("tipc-summary",),
    # Each line is of another job.
    starts=(_TIPC_RECORD,),
    is_summary=True,
    # TIPC runs models of every kind, and calls the samples of most of them samples.
    unit="samples/s",
)
