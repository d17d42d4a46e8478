"""A run's configuration: what its log says, and what was asked for where the log is silent."""

from __future__ import annotations

from collections.abc import Mapping

from helpers.logs.formats.naming import agrees, more_exact
from helpers.logs.record import NEEDED, Said, Setting
from helpers.trainers.contract.errors import LogError

OPTIONS: Mapping[Setting, str] = {
    Setting.FRAMEWORK: "--framework",
    Setting.MODEL: "--model",
    Setting.PRECISION: "--precision",
    Setting.BATCH_SIZE_PER_CARD: "--batch-size",
    Setting.CARDS: "--cards",
}


def settle(about: str, read: Mapping[Setting, Said], asked: Mapping[Setting, Said]) -> dict[Setting, Said]:
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


def _taken(setting: Setting, found: Said, wanted: Said) -> Said:
    if found.value == wanted.value:
        return found
    if more_exact(setting, wanted.value, found.value):
        return Said(wanted.value, f"{wanted.where}; the log says {found.value} ({found.where})")
    return Said(found.value, f"{found.where}; {wanted.where} says {wanted.value}")
