"""A run's configuration: the settings that its log states, and those that the user states where the log does not."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from helpers.trainers.contract.errors import LogError

# As a format or a rule: to be chosen by the log's content.
AUTO = "auto"
# How ``Stated.where`` begins for a setting that was read from a name.
FILE_NAME, FOLDER_NAME = "file name", "folder name"


class LogSetting(enum.Enum):
    """The settings of a run. Those in NEEDED must be given by the user if the log does not state them."""

    FRAMEWORK = "framework"
    MODEL = "model"
    PRECISION = "precision"
    BATCH_SIZE_PER_CARD = "batch_size_per_card"
    CARDS = "cards"
    NODES = "nodes"
    DATA = "data"
    EXECUTION = "execution"
    GPU = "gpu"
    FRAMEWORK_VERSION = "framework_version"
    XLA = "xla"
    # The images of all cards in a step. ``settle`` derives the batch size of one card from it, or checks that one.
    GLOBAL_BATCH_SIZE = "global_batch_size"


# The option of ``perfgate import-log`` for each setting; the first five are needed.
OPTIONS: Mapping[LogSetting, str] = {
    LogSetting.FRAMEWORK: "--framework",
    LogSetting.MODEL: "--model",
    LogSetting.PRECISION: "--precision",
    LogSetting.BATCH_SIZE_PER_CARD: "--batch-size",
    LogSetting.CARDS: "--cards",
    LogSetting.NODES: "--nodes",
    LogSetting.GPU: "--gpu",
    LogSetting.DATA: "--data-source",
    LogSetting.EXECUTION: "--execution",
}
NEEDED = tuple(OPTIONS)[:5]
_NUMBERS = (LogSetting.BATCH_SIZE_PER_CARD, LogSetting.CARDS, LogSetting.NODES)
_LESS_EXACT = {"amp_o1": "amp", "amp_o2": "amp", "tf32": "fp32"}


@dataclass(frozen=True)
class Stated:
    """The value of a setting and the place where it is stated."""

    # Written as in a case id: ``paddle``, ``resnet50v1.5``, ``amp_o2``, ``256``.
    value: str
    # ``line 12: batch_size : 256``, ``file name``, ``index``, ``--batch-size``.
    where: str


def settle(
    about: str,
    read: Mapping[LogSetting, Stated],
    asked: Mapping[LogSetting, Stated],
    known: Mapping[LogSetting, Stated] = MappingProxyType({}),
) -> dict[LogSetting, Stated]:
    """Join the settings ``read`` from the log and those ``asked`` for by the user; ``known`` says what neither does.

    If both state a setting and one value is more exact (``amp_o2`` than ``amp``), that value is taken, and its place
    names both. Raises LogError if they contradict each other, and if neither has a needed setting.
    """
    settled = {**asked, **read}
    if LogSetting.CARDS in known:
        settled.setdefault(LogSetting.CARDS, known[LogSetting.CARDS])
    join_global_batch(about, settled)
    for setting in NEEDED:
        if setting in known:
            settled.setdefault(setting, known[setting])
    for setting, wanted in asked.items():
        found = read.get(setting)
        if found is None:
            continue
        if not agrees(setting, found.value, wanted.value):
            raise LogError(
                about,
                field=setting.value,
                got=f"{wanted.value} ({wanted.where})",
                expected=f"{found.value!r}, which the log says ({found.where})",
                remedy="Leave the option out, or give the log of that configuration",
            )
        settled[setting] = _more_exact_of(setting, found, wanted)
    missing = [setting for setting in NEEDED if setting not in settled]
    if missing:
        raise LogError(
            about,
            field=", ".join(setting.value for setting in missing),
            expected="the log to say it",
            remedy=f"Give {', '.join(OPTIONS[setting] for setting in missing)}",
        )
    return settled


def join_global_batch(about: str, settled: dict[LogSetting, Stated]) -> None:
    """Put one card's share of the images of all cards into ``settled``, or check that which is there.

    Raises LogError if the cards do not share them equally, or if the share is not the one that is stated.
    """
    total, cards = settled.pop(LogSetting.GLOBAL_BATCH_SIZE, None), settled.get(LogSetting.CARDS)
    if total is None or cards is None:
        return
    each, left = divmod(int(total.value), int(cards.value))
    stated = settled.get(LogSetting.BATCH_SIZE_PER_CARD)
    # A name says less than the content, and not always of one card.
    if stated is not None and not left and stated.where.startswith((FILE_NAME, FOLDER_NAME)):
        stated = None
    if left or (stated is not None and int(stated.value) != each):
        got = f"{stated.value} ({stated.where}) on " if stated is not None else ""
        raise LogError(
            about,
            field=LogSetting.BATCH_SIZE_PER_CARD.value,
            got=f"{got}{cards.value} cards ({cards.where})",
            expected=f"a share of {total.value} images of all cards, which the log says ({total.where})",
            remedy="Leave the option out, or give the log of that configuration",
        )
    if stated is None:
        where = f"{total.where}, of {cards.value} cards ({cards.where})"
        settled[LogSetting.BATCH_SIZE_PER_CARD] = Stated(str(each), where)


def _more_exact_of(setting: LogSetting, found: Stated, wanted: Stated) -> Stated:
    if found.value == wanted.value:
        return found
    if more_exact(setting, wanted.value, found.value):
        return Stated(wanted.value, f"{wanted.where}; the log says {found.value} ({found.where})")
    return Stated(found.value, f"{found.where}; {wanted.where} says {wanted.value}")


def agrees(setting: LogSetting, one: str, other: str) -> bool:
    """Whether two values of a setting can be true at once: they are the same, or one is more exact."""
    one, other = one.strip().lower(), other.strip().lower()
    if setting in _NUMBERS and one.isdecimal() and other.isdecimal():
        return int(one) == int(other)
    return one == other or more_exact(setting, one, other) or more_exact(setting, other, one)


def more_exact(setting: LogSetting, one: str, other: str) -> bool:
    """Whether ``one`` says the same as ``other`` and more: ``amp_o2`` than ``amp``, ``A100-SXM4-40GB`` than ``A100``,
    ``tf32`` than ``fp32`` (on a card with TF32, frameworks call it FP32)."""
    if setting is LogSetting.PRECISION:
        return _LESS_EXACT.get(one) == other
    return setting is LogSetting.GPU and set() < card_words(other) < card_words(one)


# ---- names of GPU models, as logs and tables write them

# Ampere and later: A100, H200, GB200, L40S, RTX A6000.
_WITH_TF32 = re.compile(r"(?:A|H|GH|B|GB|L)\d+[A-Z]?")


def card_words(name: str) -> set[str]:
    """Model, form factor and memory of a card: ``V100``, ``SXM2`` and ``32GB`` of ``Tesla V100-SXM2-32GB``."""
    return set(re.split(r"[\s_-]+", name.upper())) - {"NVIDIA", "TESLA", "GPU", ""}


def has_tf32(name: str) -> bool:
    """Whether such a card computes FP32 as TF32 unless that is switched off (docs/published.md, "Traps in the
    published tables")."""
    return any(_WITH_TF32.fullmatch(word) for word in card_words(name))
