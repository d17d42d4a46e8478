"""The verdict on a night, in lines for the terminal."""

from __future__ import annotations

import textwrap

from helpers.judging.night import NightVerdict
from helpers.trainers.contract.errors import printable

_INDENT = "    "
_NARROWEST = 40


def night_lines(night: NightVerdict, width: int) -> list[str]:
    """``the night: PASS, 12 cases`` and the reason below it."""
    text = night.status.value if not night.suspect else f"{night.status.value}, suspect: the {night.suspect}"
    reason = printable(night.reason.message)
    room = max(width - len(_INDENT), _NARROWEST)
    wrapped = textwrap.wrap(reason, room, break_on_hyphens=False, break_long_words=False)
    return [f"the night: {text} ({night.cases} cases)", *(_INDENT + line for line in wrapped)]
