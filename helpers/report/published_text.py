"""What ``perfgate verify-published`` prints: a table of published and recomputed figures, and the sum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from helpers.importing.published import Verified
from helpers.importing.record import Setting
from helpers.report.text import hanging, printable

_HEADINGS = ("published", "computed", "difference", "", "rule")
_GAP = "  "
_INDENT = "  "
_AGREES, _DIFFERS, _MISSING = "agrees", "DIFFERS", "NO FIGURE"


def render_verified(found: Sequence[Verified], width: int) -> str:
    """A row's file and configuration on one line, its figures below, its problem below them."""
    rows = [_HEADINGS, *(_cells(each) for each in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS) - 1)]
    lines = [_line(_HEADINGS, widths), "-" * width]
    for each, cells in zip(found, rows[1:], strict=True):
        lines += hanging(f"{_short(each.entry.file, width // 2)}: {_configuration(each)}", width, "", _INDENT)
        lines.append(_line(cells, widths))
        for line in each.lines or filter(None, (each.problem,)):
            lines += hanging(line, width, _INDENT * 2, _INDENT * 3)
    agreeing = sum(not each.problem for each in found)
    return "\n".join([*lines, "", f"{agreeing} of {len(found)} agree with the published figure"])


def verified_record(each: Verified) -> dict[str, Any]:
    """One row as plain values; published and index figures as printed."""
    entry = each.entry
    return {
        "line": entry.line,
        "file": entry.file,
        "settings": {setting.value: said.value for setting, said in entry.settings.items()},
        "rule": each.rule,
        "published_images_per_s": str(entry.published),
        "index_images_per_s": None if entry.computed is None else str(entry.computed),
        "computed_images_per_s": each.images_per_s,
        "difference_images_per_s": None if each.difference is None else float(each.difference),
        "agrees": not each.problem,
        "problem": each.problem,
    }


def _configuration(each: Verified) -> str:
    said = {setting: value.value for setting, value in each.entry.settings.items()}
    cards = said[Setting.CARDS]
    return (
        f"{said[Setting.FRAMEWORK]} {said[Setting.MODEL]} {said[Setting.PRECISION]} "
        f"bs{said[Setting.BATCH_SIZE_PER_CARD]}, {cards} {said[Setting.GPU]}"
    )


def _short(file: str, width: int) -> str:
    """The end of a path, which tells more than its beginning."""
    return file if len(file) <= width else "…" + file[-(width - 1) :]


def _cells(each: Verified) -> tuple[str, ...]:
    published, rule = str(each.entry.published), printable(each.rule)
    if each.images_per_s is None or each.difference is None:
        return published, "-", "-", _MISSING, rule
    return published, f"{each.images_per_s:.3f}", f"{each.difference:+.3f}", _DIFFERS if each.problem else _AGREES, rule


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.rjust(width) for cell, width in zip(cells[:-1], widths, strict=True)]
    return (_INDENT + _GAP.join([*padded, cells[-1]])).rstrip()
