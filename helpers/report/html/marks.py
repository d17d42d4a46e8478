"""The marks of statuses. They differ in shape as well as in colour, so that they can be distinguished without
colours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import svg
from markupsafe import Markup

from helpers.judging.case.verdict import Status
from helpers.report.nights import CALIBRATED
from helpers.trainers.contract.errors import printable

GOOD = "reference build"

_CIRCLE = "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0Z"
_SMALL = "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0Z"
_DOWN = "M-6-5H6L0 6Z"
_UP = "M-6 5H6L0-6Z"
_DIAMOND = "M0-6.5L6.5 0L0 6.5L-6.5 0Z"
_SQUARE = "M-5-5H5V5H-5Z"
_TIMES = "M-5-5L5 5M-5 5L5-5"
_PLUS = "M-6 0H6M0-6V6"
_DASH = "M-5 0H5"

# Each shape is centred at 0, and extends at most 7 units from it.
_SHAPES: Mapping[str, str] = MappingProxyType(
    {
        Status.INFRA_ERROR.value: _PLUS,
        Status.INVALID.value: _TIMES,
        Status.REGRESSION.value: _DOWN,
        Status.SLOWER.value: _DOWN,
        Status.BELOW_PUBLISHED.value: _SQUARE,
        Status.INCOMPARABLE.value: _DIAMOND,
        Status.INCONCLUSIVE.value: _DIAMOND,
        Status.NO_BASELINE.value: _CIRCLE,
        Status.IMPROVEMENT.value: _UP,
        Status.PASS.value: _CIRCLE,
        Status.NOT_RUN.value: _DASH,
        CALIBRATED: _SMALL,
        # No status has it: beside it each mark of the build under test can be told without colours.
        GOOD: "M-5-5.5H5L-5 5.5H5Z",
    }
)
_SMALL_ONE, _SMALLER = "t", 0.64
# For a status of a newer suite.
_UNKNOWN = _DASH


def name_of(status: str) -> str:
    """The status as a class or part of an id, such as ``s-below-published``; ``s-unknown`` for an unknown status."""
    return f"s-{status.lower().replace(' ', '-').replace('_', '-')}" if status in _SHAPES else "s-unknown"


def mark(status: str, x: float, y: float) -> svg.Use:
    """One mark; for many small ones use ``small_marks``."""
    name = name_of(status)
    return svg.Use(href=f"#{name}", x=x, y=y, class_=[name])


def small_marks(status: str, places: Iterable[tuple[float, float]], *more: str) -> svg.G:
    """Marks of one status, two thirds as large, so that those of three months fit side by side."""
    name = name_of(status)
    return svg.G(class_=[name, *more], elements=[_Uses(href=f"#{_SMALL_ONE}{name}", places=tuple(places))])


@dataclass
class _Uses(svg.Element):
    """One shape at many places: svg.py takes a hundred times as long for an element of each."""

    href: str = ""
    places: tuple[tuple[float, float], ...] = ()

    def as_str(self) -> str:
        return "".join([f'<use href="{self.href}" x="{x}" y="{y}"/>' for x, y in self.places])


def definitions() -> svg.Defs:
    """The definitions of all shapes, once for all drawings of a page."""
    shapes = {**{name_of(status): shape for status, shape in _SHAPES.items()}, "s-unknown": _UNKNOWN}
    large: list[svg.Element] = [svg.Path(id=name, extra={"d": shape}) for name, shape in shapes.items()]
    small: list[svg.Element] = [
        svg.Path(id=f"{_SMALL_ONE}{name}", extra={"d": shape}, transform=[svg.Scale(_SMALLER)])
        for name, shape in shapes.items()
    ]
    return svg.Defs(elements=[*large, *small])


@lru_cache(maxsize=64)
def badge_shape(status: str) -> Markup:
    """The shape beside a status's name. Screen readers ignore it, since the name follows."""
    shape = svg.SVG(
        xmlns=None,
        viewBox=svg.ViewBoxSpec(-8, -8, 16, 16),
        class_=["shape"],
        extra={"aria-hidden": "true"},
        elements=[mark(status, 0, 0)],
    )
    return Markup(shape.as_str())


def markup(drawn: svg.Element) -> Markup:
    """A drawing as markup. It needs no escaping, since a drawing escapes its own texts (axes.words)."""
    return Markup(drawn.as_str())


def picture(draw: Callable[..., svg.Element | None], *figures: object) -> Markup | None:
    """What ``draw`` makes of ``figures``. A sentence takes the place of a picture that cannot be drawn, since no
    picture may cost the page its results."""
    try:
        drawn = draw(*figures)
        return None if drawn is None else markup(drawn)
    except Exception as error:  # noqa: BLE001 - the figures stand beside it
        why = printable(f"{type(error).__name__}: {error}")
        return Markup('<span class="missing">This picture could not be drawn ({}).</span>').format(why)
