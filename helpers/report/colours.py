"""Colours of a terminal: where they are wanted, by pytest's rules, and the colour of each status."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TextIO

from helpers.judging.case.verdict import Status
from helpers.session.gate import effect
from helpers.session.outcome import CaseEffect

RED, YELLOW, GREEN, PLAIN = "\033[31m", "\033[33m", "\033[32m", "\033[0m"
OF_EFFECT: Mapping[str, str] = {
    CaseEffect.FAIL.value: RED,
    CaseEffect.ERROR.value: RED,
    CaseEffect.WARN.value: YELLOW,
    CaseEffect.PASS.value: GREEN,
    CaseEffect.SKIP.value: "",
}
# A status as it stands in a text, alone; not the status of a test that was not run, which is no word of its own.
_OF_WORD = {status.value: OF_EFFECT[effect(status).value] for status in Status if status.value.isupper()}
_WORD = re.compile(r"(?<![\w-])(" + "|".join(_OF_WORD) + r")(?![\w-])")


def wanted(out: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether a text on ``out`` has colours: PY_COLORS decides, then NO_COLOR, FORCE_COLOR, and whether it is a
    terminal."""
    if environment.get("PY_COLORS") in ("0", "1"):
        return environment["PY_COLORS"] == "1"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return True
    return out.isatty() and environment.get("TERM") != "dumb"


def with_colours(text: str) -> str:
    """``text`` with each status in its colour."""
    return _WORD.sub(lambda found: f"{_OF_WORD[found[0]]}{found[0]}{PLAIN}", text)
