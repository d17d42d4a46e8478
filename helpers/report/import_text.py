"""What ``perfgate import-log`` prints of a log's run, as text and as plain values for JSON."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from helpers.importing.imported import Imported, RuleFigure, Spread
from helpers.importing.record import Said, Setting
from helpers.report.text import hanging, printable
from helpers.stats import number

_INDENT = "  "
_GAP = "  "
_HASH_DIGITS = 12
_HEADINGS = ("rule", "images/s", "against", "used", "left out")
_SETTING_NAMES: Mapping[Setting, str] = {
    Setting.BATCH_SIZE_PER_CARD: "batch size a card",
    Setting.FRAMEWORK_VERSION: "framework version",
}


def render_imported(found: Imported, width: int) -> str:
    """One run: what it is, its configuration with the place of each value, its figures, what to doubt."""
    lines = [*hanging(_title(found), width, "", _INDENT), *_settings(found.settings, width), ""]
    lines += _figures(found, width)
    lines += [line for each in found.figures if each.images_per_s is None for line in _missing(each, width)]
    if found.honest.images_per_s is None:
        lines += _missing(found.honest, width)
    lines += hanging(_data(found), width, _INDENT, _INDENT * 2)
    if found.spread is not None:
        lines += hanging(_spread(found.spread), width, _INDENT, _INDENT * 2)
    for each in found.warnings:
        lines += hanging(f"warning: {each}", width, _INDENT, _INDENT * 2)
    return "\n".join(lines)


def imported_record(found: Imported) -> dict[str, Any]:
    """The run as plain values; a setting has its value and where it stands."""
    record = {each.name: _plain(getattr(found, each.name)) for each in fields(found)}
    usual = found.figure(found.usual)
    record["images_per_s"] = None if usual is None else usual.images_per_s
    return record


def _plain(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    # JSON has no such number.
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _title(found: Imported) -> str:
    run = f"run {found.number} of {found.runs_in_file}, " if found.runs_in_file > 1 else ""
    return (
        f"{found.source}: {found.format}, {run}lines {found.first_line} to {found.last_line}, "
        f"sha256 {found.sha256[:_HASH_DIGITS]}"
    )


def _settings(settings: Mapping[Setting, Said], width: int) -> list[str]:
    shown = [(_SETTING_NAMES.get(each, each.value), settings[each]) for each in Setting if each in settings]
    names = max((len(name) for name, _ in shown), default=0)
    values = max((len(printable(said.value)) for _, said in shown), default=0)
    lines = []
    for name, said in shown:
        told = f"{_INDENT}{name.ljust(names)}{_GAP}{printable(said.value).ljust(values)}{_GAP}"
        place = printable(said.where)
        room = width - len(told)
        lines.append(told + (place if len(place) <= room or room < 10 else place[: room - 1] + "…"))
    return lines


def _figures(found: Imported, width: int) -> list[str]:
    """The computed figures, the publisher's first; ``against`` is each one's difference from it."""
    usual = found.figure(found.usual)
    known = [each for each in (*found.figures, found.honest) if each.images_per_s is not None]
    if not known:
        return [f"{_INDENT}no figure can be computed"]
    known.sort(key=lambda each: (each is not usual, each is found.honest))
    base = usual.images_per_s if usual is not None else None
    rows = [_HEADINGS[:-1], *(_cells(each, base, each is usual) for each in known)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [f"{_INDENT}{_row(rows[0], widths)}{_GAP}{_HEADINGS[-1]}", _INDENT + "-" * (width - len(_INDENT))]
    for each, row in zip(known, rows[1:], strict=True):
        told = f"{_INDENT}{_row(row, widths)}"
        left_out = "; ".join(printable(part) for part in each.unused)
        if len(told) + len(_GAP) + len(left_out) <= width:
            lines.append((told + _GAP + left_out).rstrip())
        else:
            lines += [told.rstrip(), *hanging(f"left out: {left_out}", width, _INDENT * 3, _INDENT * 4)]
    return lines


def _cells(each: RuleFigure, base: float | None, usual: bool) -> tuple[str, ...]:
    assert each.images_per_s is not None
    against = "" if usual or not base else f"{each.images_per_s / base - 1:+.2%}"
    return printable(each.rule), rate_text(each.images_per_s), against, str(each.used)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return _GAP.join([cells[0].ljust(widths[0]), *padded])


def rate_text(images_per_s: float) -> str:
    """As the published tables print it, with three decimals."""
    return f"{images_per_s:.3f}"


def _missing(each: RuleFigure, width: int) -> list[str]:
    reason = each.reason.removeprefix(f"rule {each.rule}").removeprefix(":").strip()
    return hanging(f"{each.rule}: not computed: {reason}", width, _INDENT, _INDENT * 2)


def _data(found: Imported) -> str:
    if found.reader_share is None:
        return f"data: {found.reader_reason}"
    return f"data: {found.reader_share:.1%} of a step spent waiting for data"


def _spread(spread: Spread) -> str:
    return (
        f"spread: {spread.records} records after warm-up, median {number(spread.median_images_per_s)} images/s, "
        f"variation {spread.variation:.2%}, {number(spread.lowest_images_per_s)} to "
        f"{number(spread.highest_images_per_s)}"
    )
