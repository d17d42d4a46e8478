"""Draws both builds' steps as bars of their phases, with what is longer marked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import svg

from helpers.drawing.axes import Scale, drawing, label, on_its_own
from helpers.judging.parts.differences import Difference
from helpers.judging.parts.explanation import Explanation
from helpers.report.explanation import PHASES

_WIDTH, _HEIGHT = 640, 170
_LEFT, _RIGHT = 10, 630
_BAR = 34
# The tops of the bars; the texts of marks stand so far below a bar.
_REFERENCE, _CANDIDATE, _BELOW = 26, 96, 14
# A mark that is narrower has no text: those of neighbours would overlap.
_WORTH_A_TEXT = 12
# About the width of a letter of a phase's name.
_LETTER = 6.2


def draw_step(explanation: Explanation) -> svg.SVG:
    """The mean profiled step of the reference above that of the build under test, phase by phase."""
    phases = [each for each in explanation.phases if each.reference.seconds or each.candidate.seconds]
    longest = max(_whole(phases, _old), _whole(phases, _new))
    places = Scale(0.0, longest or 1.0, _LEFT, _RIGHT)
    parts: list[svg.Element] = [
        *_bar(phases, _old, places, _REFERENCE),
        *_bar(phases, _new, places, _CANDIDATE),
        *_longer(phases, places),
    ]
    for title, seconds, top in (("reference", _old, _REFERENCE), ("under test", _new, _CANDIDATE)):
        parts.append(label(f"{title}: {1000 * _whole(phases, seconds):.4g} ms a step", _LEFT, top - 6))
    words = ", ".join(
        f"{PHASES[each.part.phase]} {1000 * _old(each):.4g} and {1000 * _new(each):.4g} ms" for each in phases
    )
    return drawing(_WIDTH, _HEIGHT, f"a step with the reference and with the build under test: {words}", parts)


def picture_of(explanation: Explanation, title: str) -> str:
    """The drawing as the text of a file."""
    return on_its_own(draw_step(explanation), title)


def _bar(
    phases: Sequence[Difference], seconds: Callable[[Difference], float], places: Scale, top: float
) -> Iterator[svg.Element]:
    begin = 0.0
    for at, each in enumerate(phases):
        end = begin + seconds(each)
        yield _rectangle(places(begin), places(end), top, "band", "even" if at % 2 else "odd")
        name = PHASES[each.part.phase]
        if places(end) - places(begin) > _LETTER * len(name):
            yield label(name, (places(begin) + places(end)) / 2, top + _BAR / 2 + 4, "m")
        begin = end


def _longer(phases: Sequence[Difference], places: Scale) -> Iterator[svg.Element]:
    """Marks at the ends of the phases that take longer, as wide as the difference that the table has: on a busy machine
    that is not the difference of the bars."""
    begin = 0.0
    for each in phases:
        end = begin + _new(each)
        more = min(each.seconds.mean, _new(each))
        if more > 0:
            yield _rectangle(places(end - more), places(end), _CANDIDATE, "longer")
            if places(end) - places(end - more) >= _WORTH_A_TEXT:
                yield label(f"{1000 * more:+.3g} ms", places(end - more), _CANDIDATE + _BAR + _BELOW)
        begin = end


def _rectangle(left: float, right: float, top: float, *classes: str) -> svg.Rect:
    return svg.Rect(x=left, y=top, width=round(right - left, 1), height=_BAR, class_=list(classes))


def _whole(phases: Sequence[Difference], seconds: Callable[[Difference], float]) -> float:
    return sum(map(seconds, phases))


def _old(each: Difference) -> float:
    return each.reference.seconds


def _new(each: Difference) -> float:
    return each.candidate.seconds
