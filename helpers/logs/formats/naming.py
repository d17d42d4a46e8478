"""Reads configuration from a log's name: ``paddle_gpu8_pure_fp16_bs256.txt``, ``1n8g/rn50_b128_fp32_1.log``,
``A100_LOG/``.

A name is used only for settings that the log's content does not state. The file's name is read first, then its folders
from the innermost outwards, each for the settings that are still unknown. If a name gives one setting two values
(``gpu1_gpu8``), the setting stays unknown, and the outer folders are not read for it either.

What the parts mean: ``gpu8``, ``8gpus``, ``1x8``: cards of all nodes. ``4n8g``: four nodes of eight cards. ``N4C32``:
four nodes, 32 cards of all nodes (PaddlePaddle's benchmark scripts). ``pure_fp16``, ``amp_o2``: amp_o2. ``fp16``,
``amp``: amp. ``bs256``, ``b128``, ``batch_size_64``: images per card.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from helpers.logs.settings import FILE_NAME, FOLDER_NAME, LogSetting, Stated

_LARGEST = 1_000_000
# Networks of which ResNet50 or VGG16 may be a part: faster_rcnn_r50_fpn, ssd_vgg16, deeplabv3_resnet50.
_OTHER_NETWORK = re.compile(
    r"(?<![a-z])(?:[a-z]{0,12}rcnn|fpn|(?:pp)?yolo[a-z0-9]{0,4}|retinanet|[a-z]{0,12}detr|solov?2?|deeplab[a-z0-9]{0,6}|pspnet"
    r"|fcn|unet|fcos|ocrnet|arcface|ssd|centernet|moco|simclr|dino)(?![a-z])"
)
# What is larger is the size of an image (224x224) or of a patch of it (16x16).
_MOST_CARDS_OF_A_NODE = 16
_RESNET50 = "resnet50v1.5"
_GPUS = "v100|a100|a800|a10|a30|a40|h100|h800|h200|h20|p100|p40|k80|t4|l40s|l40|l4"

Found = tuple[LogSetting, str]
# A pattern for a part of a name (between characters that are neither letters nor digits), and the settings that a match
# states.
_NameRule = tuple[re.Pattern[str], Callable[[re.Match[str]], Iterator[Found]]]


def settings_of_name(name: str) -> dict[LogSetting, Stated]:
    """The settings that the parts of ``name`` state, a path with ``/`` between its parts; the last part is the file."""
    parts = [part for part in name.split("/") if part not in ("", ".", "..")]
    settings: dict[LogSetting, Stated] = {}
    closed: set[LogSetting] = set()
    for depth, part in enumerate(reversed(parts)):
        where = FILE_NAME if depth == 0 else f"{FOLDER_NAME} {part}"
        for setting, values in _values_of_part(part).items():
            if setting not in closed and len(values) == 1:
                settings[setting] = Stated(next(iter(values)), where)
            closed.add(setting)
    return settings


def model_of(text: str) -> str | None:
    """The model as in a case id (``resnet50v1.5``, ``vgg16``); None if the text names none or several.

    Plain ``ResNet50`` is v1.5 (stride in the 3x3 convolution) in every script whose logs are read here, and MXNet's
    ``v1b`` is the same network. ``ResNet50_vd`` and ``vgg16_bn`` are other networks.
    """
    if _OTHER_NETWORK.search(text.lower()):
        return None
    models = {value for setting, value in _found(text.lower(), _MODELS) if setting is LogSetting.MODEL}
    return models.pop() if len(models) == 1 else None


def architecture(text: str) -> str:
    """A script's name of a network, as in a case id. A network that the suite does not know is written in lower case,
    with ``_`` for the characters that an id cannot hold."""
    return model_of(text) or re.sub(r"[^a-z0-9.]+", "_", text.lower()).strip("_")


def _values_of_part(part: str) -> dict[LogSetting, set[str]]:
    values: dict[LogSetting, set[str]] = {}
    for setting, value in (*_found(part, _CASED), *_found(part.lower(), _PARTS)):
        values.setdefault(setting, set()).add(value)
    if _OTHER_NETWORK.search(part.lower()):
        values.pop(LogSetting.MODEL, None)
    if LogSetting.PRECISION in values:
        values[LogSetting.PRECISION] = _narrowed(values[LogSetting.PRECISION])
    return values


def _narrowed(precisions: set[str]) -> set[str]:
    """The precisions, without ``amp`` if ``amp_o2`` is there too, since it is the more exact of the two."""
    exact = {each for each in precisions if each.startswith("amp_")}
    return precisions - {"amp"} if exact else precisions


def _found(text: str, parts: tuple[_NameRule, ...]) -> list[Found]:
    """What the patterns find, tried in their order. A match is removed from the text, so that ``pure_fp16`` is not
    found as ``fp16`` too."""
    found: list[Found] = []
    for pattern, states in parts:
        for match in pattern.finditer(text):
            found.extend(states(match))
        text = pattern.sub("//", text)
    return found


def _part(pattern: str, states: Callable[[re.Match[str]], Iterator[Found]]) -> _NameRule:
    return re.compile(rf"(?<![A-Za-z0-9])(?:{pattern})(?![A-Za-z0-9])", re.ASCII), states


def _is(setting: LogSetting, value: str) -> Callable[[re.Match[str]], Iterator[Found]]:
    def states(match: re.Match[str]) -> Iterator[Found]:
        yield setting, value

    return states


def _number(setting: LogSetting) -> Callable[[re.Match[str]], Iterator[Found]]:
    def states(match: re.Match[str]) -> Iterator[Found]:
        if 1 <= (number := int(match.group(1))) <= _LARGEST:
            yield setting, str(number)

    return states


def _nodes_and_cards(nodes: int, cards: int) -> Iterator[Found]:
    if 1 <= nodes <= cards <= _LARGEST and cards % nodes == 0:
        yield LogSetting.NODES, str(nodes)
        yield LogSetting.CARDS, str(cards)


def _nodes_times_cards(match: re.Match[str]) -> Iterator[Found]:
    nodes, cards_per_node = int(match.group(1)), int(match.group(2))
    if cards_per_node > _MOST_CARDS_OF_A_NODE or nodes == cards_per_node == _MOST_CARDS_OF_A_NODE:
        return
    yield from _nodes_and_cards(nodes, nodes * cards_per_node)


def _nodes_of_cards(match: re.Match[str]) -> Iterator[Found]:
    yield from _nodes_and_cards(int(match.group(1)), int(match.group(2)))


def _gpu(match: re.Match[str]) -> Iterator[Found]:
    yield LogSetting.GPU, match.group("gpu").upper()
    cards = match.group("before") or match.group("after")
    if cards and 1 <= int(cards) <= _LARGEST:
        yield LogSetting.CARDS, str(int(cards))


def _cards(match: re.Match[str]) -> Iterator[Found]:
    if 1 <= (cards := int(match.group(1) or match.group("first"))) <= _LARGEST:
        yield LogSetting.CARDS, str(cards)


# Upper and lower case differ here: B200 is a GPU, b200 a batch size.
_CASED = (
    _part(r"(?P<gpu>GB200|GB300|B100|B200|B300)(?P<before>)(?P<after>)", _gpu),
    # The size of a model, which states nothing here: efficientnet_b4, vit_b16.
    _part(r"(?:efficientnet|[dv]e?it|beit|mit|segformer)[-_]?(?:[a-z]{1,9}[-_])?b[-_]?\d{1,2}", lambda match: iter(())),
    _part(r"b(\d{1,7})", _number(LogSetting.BATCH_SIZE_PER_CARD)),
)
_MODELS = (
    _part(r"(?:resnet|rn|r)[-_]?50[-_]?v1(?:[._]5|b)", _is(LogSetting.MODEL, _RESNET50)),
    # Other networks. They state nothing, but are removed so that the plain names do not match them.
    _part(r"(?:resnet|rn|r)[-_]?50[-_]?(?:v1[ac-z]?|v2|vc|vd)(?:[-_]ssld)?", lambda match: iter(())),
    _part(r"(?:resnet|rn|r)[-_]?50", _is(LogSetting.MODEL, _RESNET50)),
    _part(r"vgg[-_]?16[-_]bn", lambda match: iter(())),
    _part(r"vgg[-_]?16", _is(LogSetting.MODEL, "vgg16")),
)
_PRECISIONS = (
    _part(r"(?:amp[-_]?)?o1", _is(LogSetting.PRECISION, "amp_o1")),
    _part(r"(?:amp[-_]?)?o2|pure[-_]?(?:fp|float)16", _is(LogSetting.PRECISION, "amp_o2")),
    _part(r"tf32", _is(LogSetting.PRECISION, "tf32")),
    _part(r"(?:fp|float)32", _is(LogSetting.PRECISION, "fp32")),
    _part(r"bf16|bfloat16", _is(LogSetting.PRECISION, "bf16")),
    _part(r"amp|fp16|float16|mixed", _is(LogSetting.PRECISION, "amp")),
)
_CARDS = (
    _part(r"(\d{1,4})n[-_]?(\d{1,4})[gc]", _nodes_times_cards),
    _part(r"n(\d{1,4})[-_]?c(\d{1,6})", _nodes_of_cards),
    _part(r"(\d{1,4})x(\d{1,4})", _nodes_times_cards),
    _part(r"gpus?(\d{1,7})|(?P<first>\d{1,7})[-_]?(?:gpus?|cards?)", _cards),
)
_OTHERS = (
    _part(r"(?:batch[-_]?size|batch|bsz|bs|bz)[-_=]?(\d{1,7})", _number(LogSetting.BATCH_SIZE_PER_CARD)),
    _part(
        rf"(?:(?P<before>\d{{1,5}})x?)?(?P<gpu>{_GPUS})(?:x(?P<after>\d{{1,5}}))?",
        _gpu,
    ),
    _part(r"paddle(?:paddle)?", _is(LogSetting.FRAMEWORK, "paddle")),
    _part(r"pytorch|torch", _is(LogSetting.FRAMEWORK, "pytorch")),
    _part(r"tf[12]?|tensorflow[12]?", _is(LogSetting.FRAMEWORK, "tensorflow")),
    _part(r"mxnet", _is(LogSetting.FRAMEWORK, "mxnet")),
    _part(r"dali[-_]cpu", _is(LogSetting.DATA, "dali_cpu")),
    _part(r"dali", _is(LogSetting.DATA, "dali")),
    _part(r"synthetic|synth", _is(LogSetting.DATA, "synthetic")),
    _part(r"to[-_]?static|d2st?|dynamictostatic", _is(LogSetting.EXECUTION, "to_static")),
    _part(r"static", _is(LogSetting.EXECUTION, "static")),
    _part(r"dynamic|dygraph", _is(LogSetting.EXECUTION, "dynamic")),
)
_PARTS = (*_MODELS, *_PRECISIONS, *_CARDS, *_OTHERS)
