"""A file's name stands for all of its runs: where they differ, it may not be true of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from helpers.logs.formats.naming import FILE_NAME, FOLDER_NAME
from helpers.logs.imported import Imported
from helpers.logs.record import NEEDED, Setting

# Runs of one configuration on one machine differ by less.
_DIFFER = 0.10


def with_doubts(runs: Sequence[Imported]) -> list[Imported]:
    """The runs of one file; those that take a setting from its name alone and differ by more have a warning more."""
    alike: dict[tuple[str, ...], list[Imported]] = {}
    for each in runs:
        alike.setdefault(tuple(each.settings[setting].value for setting in NEEDED), []).append(each)
    warnings = {id(each): told for of_one in alike.values() if (told := _doubt(of_one)) for each in of_one}
    return [
        replace(each, warnings=(*each.warnings, warnings[id(each)])) if id(each) in warnings else each for each in runs
    ]


def _doubt(runs: Sequence[Imported]) -> str:
    rates = [rate for each in runs if (rate := _rate(each)) is not None]
    named = [setting for setting in NEEDED if any(_by_name(each, setting) for each in runs)]
    if len(rates) < 2 or not named or max(rates) / min(rates) - 1 <= _DIFFER:
        return ""
    return (
        f"the log's name alone tells {', '.join(each.value for each in named)} of {len(runs)} runs in it that "
        f"differ by {max(rates) / min(rates) - 1:.0%}: it may not be true of each"
    )


def _rate(each: Imported) -> float | None:
    if each.honest.samples_per_s is not None:
        return each.honest.samples_per_s
    usual = each.figure(each.usual)
    return None if usual is None else usual.samples_per_s


def _by_name(each: Imported, setting: Setting) -> bool:
    return each.settings[setting].where.startswith((FILE_NAME, FOLDER_NAME))
