"""A run's configuration: what its log says, and what was asked for where the log is silent."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from helpers.logs.cards import card_words, same_card
from helpers.trainers.contract.errors import LogError


class LogSetting(enum.Enum):
    """What a run's configuration consists of; the first five are needed, and asked for where the log is silent."""

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
    SEED = "seed"


NEEDED = (
    LogSetting.FRAMEWORK,
    LogSetting.MODEL,
    LogSetting.PRECISION,
    LogSetting.BATCH_SIZE_PER_CARD,
    LogSetting.CARDS,
)


@dataclass(frozen=True)
class Stated:
    """A setting's value, written as in a case id (``paddle``, ``resnet50v1.5``, ``amp_o2``, ``256``), and where it
    stands: ``line 12: batch_size : 256``, ``file name``, ``index``, ``--batch-size``."""

    value: str
    where: str


_LESS_EXACT = {"amp_o1": ("amp",), "amp_o2": ("amp",), "tf32": ("fp32",)}
_NUMBERS = (LogSetting.BATCH_SIZE_PER_CARD, LogSetting.CARDS, LogSetting.NODES, LogSetting.SEED)

OPTIONS: Mapping[LogSetting, str] = {
    LogSetting.FRAMEWORK: "--framework",
    LogSetting.MODEL: "--model",
    LogSetting.PRECISION: "--precision",
    LogSetting.BATCH_SIZE_PER_CARD: "--batch-size",
    LogSetting.CARDS: "--cards",
}


def settle(
    about: str, read: Mapping[LogSetting, Stated], asked: Mapping[LogSetting, Stated]
) -> dict[LogSetting, Stated]:
    """What was read from the log and what was asked for, together.

    Where both say the same and one says it more exactly (``amp_o2`` of ``amp``), that one is taken, and its place says
    so. Raises LogError where the two contradict each other, and where a needed setting is in neither.
    """
    settled = {**asked, **read}
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
        settled[setting] = _taken(setting, found, wanted)
    missing = [setting for setting in NEEDED if setting not in read and setting not in asked]
    if missing:
        raise LogError(
            about,
            field=", ".join(setting.value for setting in missing),
            expected="the log to say it",
            remedy=f"Give {', '.join(OPTIONS[setting] for setting in missing)}",
        )
    return settled


def _taken(setting: LogSetting, found: Stated, wanted: Stated) -> Stated:
    if found.value == wanted.value:
        return found
    if more_exact(setting, wanted.value, found.value):
        return Stated(wanted.value, f"{wanted.where}; the log says {found.value} ({found.where})")
    return Stated(found.value, f"{found.where}; {wanted.where} says {wanted.value}")


def agrees(setting: LogSetting, one: str, other: str) -> bool:
    """Whether two sayings of a setting can be true at once: the same, or one says it less exactly: ``amp`` of
    ``amp_o2``, ``fp32`` of ``tf32`` (which is what frameworks call FP32 on a card that has it), ``A100`` of
    ``A100-SXM4-40GB``."""
    one, other = one.strip().lower(), other.strip().lower()
    if one == other:
        return True
    if setting is LogSetting.PRECISION:
        return other in _LESS_EXACT.get(one, ()) or one in _LESS_EXACT.get(other, ())
    if setting is LogSetting.GPU:
        return same_card(one, other)
    if setting in _NUMBERS and one.isdecimal() and other.isdecimal():
        return int(one) == int(other)
    return False


def more_exact(setting: LogSetting, one: str, other: str) -> bool:
    """Of two sayings that agree, whether ``one`` says more than ``other``."""
    if setting is LogSetting.PRECISION:
        return other in _LESS_EXACT.get(one, ())
    if setting is LogSetting.GPU:
        return len(card_words(one)) > len(card_words(other))
    return False
