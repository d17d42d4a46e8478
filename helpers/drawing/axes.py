"""The parts of drawings: scales from values to coordinates, axes with round numbers, and escaped text.

Drawings are made of the elements of svg.py, which does not escape attributes or texts. So each foreign text goes
through ``words``, and attributes are only numbers and names that this suite gives. Colours are classes (drawing.css),
so that one drawing serves light, dark and printed pages.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import svg

from helpers.trainers.contract.errors import printable

# In the drawing's units, which a page scales to its width.
LABEL_HEIGHT = 12
LONGEST_TEXT = 160
_STEPS = (1, 2, 2.5, 5, 10)
# A grid has at most so many numbers.
_MOST_NUMBERS = 5
# A fraction of an axis' span.
_ROOM = 0.08


@dataclass(frozen=True)
class Scale:
    """A linear map from values to coordinates."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return round(self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start), 1)

    def within(self, value: float) -> float:
        """The coordinate of ``value``, or of the end of the axis if ``value`` is beyond it."""
        return self(min(max(value, self.low), self.high))


def span_of(values: Iterable[float], least: float) -> tuple[float, float]:
    """The ends of an axis for ``values`` (at least one), with some room at both ends.

    It spans at least the fraction ``least`` of the middle value, so that noise of a few tenths of a percent does not
    fill the picture.
    """
    values = list(values)
    low, high = min(values), max(values)
    middle = (low + high) / 2
    half = max((high - low) / 2 * (1 + 2 * _ROOM), abs(middle) * least / 2) or 1.0
    return middle - half, middle + half


def round_numbers(low: float, high: float, most: int) -> list[float]:
    """At most ``most`` round numbers from ``low`` to ``high``, in equal steps of 1, 2, 2.5 or 5 times a power of 10."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(power * each for each in _STEPS if (high - low) / (power * each) <= most)
    first = math.ceil(low / step)
    return [at * step for at in range(first, math.floor(high / step) + 1)]


def shortened(text: str, longest: int) -> str:
    """Foreign text on one line, of at most ``longest`` characters."""
    shown = printable(text)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def words(text: str, longest: int = LONGEST_TEXT) -> str:
    """Foreign text for an element: put on one line, shortened and escaped."""
    return html.escape(shortened(text, longest))


def label(text: str, x: float, y: float, *classes: str, longest: int = LONGEST_TEXT) -> svg.Text:
    """A text at a place, which is its end (class e), its middle (class m) or else its start."""
    return svg.Text(text=words(text, longest), x=x, y=y, class_=list(classes) or None)


def line(points: Sequence[tuple[float, float]], *classes: str) -> svg.Path:
    """A line through the points, in the order given."""
    return svg.Path(d=[Steps("M " + " L ".join([f"{x} {y}" for x, y in points]))], class_=list(classes))


@dataclass
class Steps(svg.PathData):
    """The steps of a path as they are written: one by one, svg.py takes longer for those of three months than for the
    rest of a drawing."""

    text: str

    def __str__(self) -> str:
        return self.text


def level_line(y: float, left: float, right: float, *classes: str) -> svg.Path:
    """A horizontal line."""
    return line([(left, y), (right, y)], *classes)


def grid(scale: Scale, left: float, right: float, unit: str = "") -> list[svg.Element]:
    """Round numbers along the left side, each with ``unit`` behind it and a thin horizontal line."""
    values = round_numbers(scale.low, scale.high, _MOST_NUMBERS)
    parts: list[svg.Element] = []
    for value in values:
        y = scale(value)
        parts.append(level_line(y, left, right, "grid"))
        parts.append(label(f"{value:g}{unit}", left - 6, y + 4, "e"))
    return parts


def drawing(width: float, height: float, name: str, elements: Sequence[svg.Element], **data: float) -> svg.SVG:
    """A drawing with ``name`` for screen readers. The table beside it has its values; ``data`` are attributes for a
    script."""
    return svg.SVG(
        xmlns=None,
        viewBox=svg.ViewBoxSpec(0, 0, width, height),
        class_=["chart"],
        extra={"role": "img", "aria-label": words(name, 600)},
        data=data or None,
        elements=list(elements),
    )


def style() -> str:
    """The style sheet of all drawings. A page includes it once; a drawing in a file of its own contains it."""
    return (Path(__file__).parent / "drawing.css").read_text(encoding="utf-8")


def on_its_own(picture: svg.SVG, title: str) -> str:
    """The drawing as the text of a file, with its title and style; a browser needs no other file to show it."""
    box = picture.viewBox
    assert box is not None
    titled = [label(title, 0, -14, "title"), *(picture.elements or [])]
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -30 {box.width + 20} {box.height + 40}">',
            str(svg.Style(text=f"{style()}svg {{ background: var(--paper); }}")),
            str(svg.Title(text=words(title))),
            str(svg.SVG(xmlns=None, class_=["chart"], elements=titled)),
            "</svg>\n",
        ]
    )
