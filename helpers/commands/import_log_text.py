"""A log's run as ``perfgate import-log`` prints it: as text, and as plain values for JSON."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from helpers.judging.rates import key_of
from helpers.judging.statistics import number
from helpers.logs.imported import Imported, RateSpread, RuleFigure
from helpers.logs.settings import LogSetting, Stated
from helpers.report.table import GAP, Align, Column, Table
from helpers.report.text import hanging, printable

_INDENT = "  "
_HASH_DIGITS = 12
_LEFT_OUT = "left out"
_SETTING_NAMES: Mapping[LogSetting, str] = {
    LogSetting.BATCH_SIZE_PER_CARD: "batch size a card",
    LogSetting.FRAMEWORK_VERSION: "framework version",
}


def render_imported(found: Imported, width: int) -> str:
    """One run: what it is, its configuration with the place of each value, its figures, and what is to be doubted."""
    lines = [*hanging(_title(found), width, "", _INDENT), *_settings(found.settings, width), ""]
    lines += _figures(found, width)
    lines += [line for each in found.figures if each.samples_per_s is None for line in _missing(each, width)]
    if found.honest.samples_per_s is None:
        lines += _missing(found.honest, width)
    lines += hanging(_data(found), width, _INDENT, _INDENT * 2)
    if found.spread is not None:
        lines += hanging(_spread(found.spread), width, _INDENT, _INDENT * 2)
    for each in found.warnings:
        lines += hanging(f"warning: {each}", width, _INDENT, _INDENT * 2)
    return "\n".join(lines)


def imported_record(found: Imported) -> dict[str, Any]:
    """The run as plain values; a setting has its value and its place."""
    record = {key_of(each.name): _plain(getattr(found, each.name)) for each in fields(found)}
    usual = found.figure(found.usual)
    record["images_per_s"] = None if usual is None else usual.samples_per_s
    return record


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {key_of(each.name): _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    # JSON has no NaN and no infinity.
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _title(found: Imported) -> str:
    run = f"run {found.number} of {found.runs_in_file}, " if found.runs_in_file > 1 else ""
    return (
        f"{found.source}: {found.format}, {run}lines {found.first_line} to {found.last_line}, "
        f"sha256 {found.sha256[:_HASH_DIGITS]}"
    )


def _settings(settings: Mapping[LogSetting, Stated], width: int) -> list[str]:
    shown = [(_SETTING_NAMES.get(each, each.value), settings[each]) for each in LogSetting if each in settings]
    names = max((len(name) for name, _ in shown), default=0)
    values = max((len(printable(said.value)) for _, said in shown), default=0)
    lines = []
    for name, said in shown:
        text = f"{_INDENT}{name.ljust(names)}{GAP}{printable(said.value).ljust(values)}{GAP}"
        place = printable(said.where)
        room = width - len(text)
        lines.append(text + (place if len(place) <= room or room < 10 else place[: room - 1] + "…"))
    return lines


def _figures(found: Imported, width: int) -> list[str]:
    """The computed figures, the publisher's first; ``against`` is each one's difference from it."""
    usual = found.figure(found.usual)
    known = [each for each in (*found.figures, found.honest) if each.samples_per_s is not None]
    if not known:
        return [f"{_INDENT}no figure can be computed"]
    known.sort(key=lambda each: (each is not usual, each is found.honest))
    base = usual.samples_per_s if usual is not None else None
    grid = Table.of(_columns(base, usual), known).grid(_INDENT)
    lines = [f"{grid.padded_heading}{GAP}{_LEFT_OUT}", _INDENT + "-" * (width - len(_INDENT))]
    for each, text in zip(known, grid.padded_lines, strict=True):
        left_out = "; ".join(printable(part) for part in each.unused)
        if len(text) + len(GAP) + len(left_out) <= width:
            lines.append((text + GAP + left_out).rstrip())
        else:
            lines += [text.rstrip(), *hanging(f"{_LEFT_OUT}: {left_out}", width, _INDENT * 3, _INDENT * 4)]
    return lines


def _columns(base: float | None, usual: RuleFigure | None) -> tuple[Column[RuleFigure], ...]:
    def against(each: RuleFigure) -> str:
        if each is usual or not base or each.samples_per_s is None:
            return ""
        return f"{each.samples_per_s / base - 1:+.2%}"

    return (
        Column("rule", lambda each: printable(each.rule)),
        Column("images/s", lambda each: rate_text(each.samples_per_s), Align.RIGHT),
        Column("against", against, Align.RIGHT),
        Column("used", lambda each: str(each.used), Align.RIGHT),
    )


def rate_text(samples_per_s: float | None) -> str:
    """As the published tables print it, with three decimals."""
    return "-" if samples_per_s is None else f"{samples_per_s:.3f}"


def _missing(each: RuleFigure, width: int) -> list[str]:
    reason = each.reason.removeprefix(f"rule {each.rule}").removeprefix(":").strip()
    return hanging(f"{each.rule}: not computed: {reason}", width, _INDENT, _INDENT * 2)


def _data(found: Imported) -> str:
    if found.reader_share is None:
        return f"data: {found.reader_reason}"
    return f"data: {found.reader_share:.1%} of a step spent waiting for data"


def _spread(spread: RateSpread) -> str:
    return (
        f"spread: {spread.records} records after warm-up, median {number(spread.median_samples_per_s)} images/s, "
        f"variation {spread.variation:.2%}, {number(spread.lowest_samples_per_s)} to "
        f"{number(spread.highest_samples_per_s)}"
    )
