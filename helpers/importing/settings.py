"""A run's configuration: what its log says, and what was asked for where the log is silent."""

from __future__ import annotations

from collections.abc import Mapping

from helpers.errors import LogError
from helpers.importing.record import NEEDED, Said, Setting

OPTIONS: Mapping[Setting, str] = {
    Setting.FRAMEWORK: "--framework",
    Setting.MODEL: "--model",
    Setting.PRECISION: "--precision",
    Setting.BATCH_SIZE_PER_CARD: "--batch-size",
    Setting.CARDS: "--cards",
}


def settle(about: str, read: Mapping[Setting, Said], asked: Mapping[Setting, Said]) -> dict[Setting, Said]:
    """What was read from the log and what was asked for, together.

    Raises LogError where the two contradict each other, and where a needed setting is in neither.
    """
    for setting, wanted in asked.items():
        found = read.get(setting)
        if found is not None and found.value != wanted.value:
            raise LogError(
                about,
                field=setting.value,
                got=f"{wanted.value} ({wanted.where})",
                expected=f"{found.value!r}, which the log says ({found.where})",
                remedy="Leave the option out, or give the log of that configuration",
            )
    missing = [setting for setting in NEEDED if setting not in read and setting not in asked]
    if missing:
        raise LogError(
            about,
            field=", ".join(setting.value for setting in missing),
            expected="the log to say it",
            remedy=f"Give {', '.join(OPTIONS[setting] for setting in missing)}",
        )
    return {**asked, **read}
