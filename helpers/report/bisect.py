"""What a search for the first bad build found: the line for the console, bisect.md and its pictures."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from helpers.judging.bisection import BisectAnswer, BisectEnd, BuildFinding
from helpers.judging.statistics import EffectSize
from helpers.report.table import Align, Column, Table, markdown_text
from helpers.session.bisect import CaseSearch
from helpers.trainers.contract.errors import printable

# 1: first format.
BISECT_SCHEMA_VERSION = 1

_WIDTH, _LEFT, _RIGHT = 1000, 76, 24
_TOP, _LEVELS, _BETWEEN, _SHARES, _BELOW = 56, 230, 26, 110, 150
_HEIGHT = _TOP + _LEVELS + _BETWEEN + _SHARES + _BELOW
_GOOD, _PROBABLE, _UNKNOWN = "#2a6fb0", "#c0392b", "#888888"
# More names would overlap.
_MOST_NAMES, _LONGEST_NAME = 40, 24
# From this probability on a build is drawn as the answer.
_LIKELY = 0.5
_SEARCHED = (BisectEnd.FOUND, BisectEnd.HIDDEN, BisectEnd.BUDGET)
_NOT_REPRODUCED = (BisectEnd.NO_DROP, BisectEnd.FASTER, BisectEnd.UNCONFIRMED)


def headline(search: CaseSearch) -> str:
    """The answer in one line, the one that the console gets first."""
    answer, runs = search.answer, f"{_counted(search.runs, 'run')} of {_counted(search.tried, 'build')}"
    if search.stopped:
        return f"NOT JUDGED: {search.stopped}; {runs} so far"
    if answer is None:
        return f"STILL OPEN: {runs} so far; likeliest: {_likeliest(search.builds)}"
    if answer.end in _NOT_REPRODUCED:
        return f"NOT REPRODUCED: {answer.message}; {runs}"
    if answer.end not in _SEARCHED or answer.first is None or answer.last is None:
        return f"NOT JUDGED: {answer.message}; {runs}"
    change = f", {effect_text(answer.change)}" if answer.change else ""
    left = _left_over(answer)
    if answer.first == answer.last:
        name = search.builds[answer.first].name
        what = "FIRST BAD" if answer.end is BisectEnd.FOUND else "FIRST BAD, NOT CERTAIN"
        others = [each for place, each in enumerate(search.builds) if place != answer.first]
        return (
            f"{what}: {name} ({share_text(answer.probability)}){change}, {runs}; the next likeliest: "
            f"{_likeliest(others)}{left}"
        )
    between = search.builds[answer.first : answer.last + 1]
    why = "the budget is spent" if answer.end is BisectEnd.BUDGET else "what lies between cannot be tested"
    return (
        f"FIRST BAD IS ONE OF {len(between)}: {between[0].name} … {between[-1].name} ({share_text(answer.probability)})"
        f"{change}, {runs}; {why}{left}"
    )


def effect_text(effect: EffectSize) -> str:
    return f"{effect.point:+.1%} (95% {effect.low:+.1%} to {effect.high:+.1%})"


def share_text(share: float) -> str:
    """A probability with a decimal; it is never certain, and never out of the question."""
    if share > 0.999:
        return ">99.9%"
    return f"{share:.1%}" if share >= 0.001 else "<0.1%"


def render_search(search: CaseSearch) -> str:
    """The answer for a terminal: the line, then the builds that were looked at."""
    table = Table.of(_TABLE, [each for each in search.builds if _looked_at(each)]).grid()
    lines = [headline(search), *_details(search), "", table.heading, *table.lines]
    return "\n".join(map(printable, lines))


def render_markdown(searches: Sequence[CaseSearch], pictures: Sequence[str], command: str, good: str, bad: str) -> str:
    """bisect.md: for each case the answer, its picture and every build."""
    parts = [f"# From {markdown_text(good)} to {markdown_text(bad)}", "", f"    {printable(command)}", ""]
    for search, picture in zip(searches, pictures, strict=True):
        parts += [f"## {search.case_id} [{search.target}]", "", f"**{markdown_text(headline(search))}**", ""]
        parts += [f"- {markdown_text(line)}" for line in _details(search)]
        parts += ["", f"![Levels against the good build and probabilities, in the builds' order]({picture})", ""]
        parts += [*Table.of(_TABLE, search.builds).markdown(markdown_text), ""]
    return "\n".join(parts)


def to_record(searches: Sequence[CaseSearch], session: str) -> dict[str, Any]:
    """The answers for programs; effects are fractions of the throughput."""
    return {
        "schema_version": BISECT_SCHEMA_VERSION,
        "session": session,
        "cases": [{**asdict(each), "answer": _answer_record(each.answer), "line": headline(each)} for each in searches],
    }


def draw(search: CaseSearch, good: str) -> str:
    """An SVG: in the builds' order their levels against the good build with 95% intervals, below them how probable
    each is to be the first bad one. Builds that cannot be tested have a cross."""
    axes = _Axes(search.builds)
    title = f"{search.case_id}: {search.unit} against {good}"
    parts = [
        f'<text x="{_LEFT}" y="20" font-size="15">{html.escape(printable(title))}</text>',
        f'<text x="{_LEFT}" y="40">{html.escape(printable(headline(search))[:160])}</text>',
        *axes.frame(),
    ]
    for place, build in enumerate(search.builds):
        parts += axes.build(place, build)
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
    )


class _Axes:
    def __init__(self, builds: Sequence[BuildFinding]) -> None:
        ends = [0.0, *(end for each in builds if each.level for end in (each.level.low, each.level.high))]
        room = 0.08 * (max(ends) - min(ends)) or 0.01
        # A single pair may be off by anything; the picture is about percents.
        self.low, self.high = max(min(ends) - room, -0.6), min(max(ends) + room, 0.6)
        self.step = (_WIDTH - _LEFT - _RIGHT) / len(builds)
        self.named = max(1, -(-len(builds) // _MOST_NAMES))
        self.count = len(builds)

    def x(self, place: float) -> float:
        return round(_LEFT + self.step * (place + 0.5), 1)

    def y(self, level: float) -> float:
        share = (min(max(level, self.low), self.high) - self.low) / (self.high - self.low)
        return round(_TOP + _LEVELS * (1 - share), 1)

    def frame(self) -> list[str]:
        inner, shares = _WIDTH - _LEFT - _RIGHT, _TOP + _LEVELS + _BETWEEN
        box = 'fill="none" stroke="#999"'
        return [
            f'<rect x="{_LEFT}" y="{_TOP}" width="{inner}" height="{_LEVELS}" {box}/>',
            f'<rect x="{_LEFT}" y="{shares}" width="{inner}" height="{_SHARES}" {box}/>',
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{self.y(0)}" y2="{self.y(0)}" stroke="#bbb"/>',
            *(
                f'<text x="{_LEFT - 6}" y="{self.y(level) + 4}" text-anchor="end">{level:+.1%}</text>'
                for level in sorted({self.low, 0.0, self.high}, key=lambda each: (each != 0, each))
                if level == 0 or abs(self.y(level) - self.y(0)) > 14
            ),
            f'<text x="{_LEFT - 6}" y="{shares + 10}" text-anchor="end">100%</text>',
            f'<text x="{_LEFT - 6}" y="{shares + _SHARES}" text-anchor="end">0%</text>',
            f'<text x="{_LEFT + 6}" y="{_TOP + 16}" fill="#555">level against the good build, 95% interval</text>',
            f'<text x="{_LEFT + 6}" y="{shares + 16}" fill="#555">probability to be the first bad build; '
            "×: cannot be tested</text>",
        ]

    def build(self, place: int, build: BuildFinding) -> list[str]:
        at, bottom = self.x(place), _TOP + _LEVELS + _BETWEEN + _SHARES
        colour = _PROBABLE if build.probability >= _LIKELY else _GOOD
        title = f"<title>{html.escape(printable(_words(build)))}</title>"
        parts = []
        if build.level is not None:
            low, high, point = (self.y(each) for each in (build.level.low, build.level.high, build.level.point))
            parts.append(
                f'<g stroke="{colour}" fill="{colour}"><line x1="{at}" x2="{at}" y1="{low}" y2="{high}" '
                f'stroke-width="2"/><circle cx="{at}" cy="{point}" r="4"/>{title}</g>'
            )
        height = round(_SHARES * build.probability, 1)
        if height > 0:
            width = round(max(2.0, 0.6 * self.step), 1)
            parts.append(
                f'<rect x="{round(at - width / 2, 1)}" y="{round(bottom - height, 1)}" width="{width}" '
                f'height="{height}" fill="{colour}">{title}</rect>'
            )
        if build.untestable:
            parts.append(
                f'<text x="{at}" y="{bottom - 6}" text-anchor="middle" font-size="16" fill="{_UNKNOWN}">×{title}</text>'
            )
        if place % self.named == 0 or place == self.count - 1 or build.probability >= _LIKELY:
            weight = ' font-weight="bold"' if build.probability >= _LIKELY else ""
            fill = _UNKNOWN if build.untestable else "#000"
            parts.append(
                f'<text transform="translate({at + 4} {bottom + 12}) rotate(-45)" text-anchor="end" fill="{fill}"'
                f"{weight}>{html.escape(_short(build.name))}</text>"
            )
        return parts


def _details(search: CaseSearch) -> list[str]:
    answer, lines = search.answer, []
    if answer is not None and answer.whole is not None:
        lines.append(f"the bad build against the good one: {effect_text(answer.whole)}")
    if answer is not None and answer.unexplained and answer.residual is not None:
        lines.append(f"it does not explain the whole drop: {effect_text(answer.residual)} is left, by another change")
    if answer is not None and answer.first is not None and answer.first == answer.last:
        alone = search.builds[answer.first].probability
        if share_text(alone) != share_text(answer.probability):
            lines.append(
                f"with {share_text(alone)} it holds the largest change (the last column), with "
                f"{share_text(answer.probability)} the largest or one of two that are about as large"
            )
    cannot = [each for each in search.builds if each.untestable]
    if cannot:
        lines.append(f"{_counted(len(cannot), 'build')} could not be tested:")
        lines += [f"  {each.name}: {each.untestable}" for each in cannot]
    if search.no_drop >= 0.01 and search.runs:
        lines.append(f"that there is no drop: {share_text(search.no_drop)}")
    return lines


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _left_over(answer: BisectAnswer) -> str:
    if not answer.unexplained or answer.residual is None:
        return ""
    return f"; it does not explain the whole drop, {effect_text(answer.residual)} is left"


def _likeliest(builds: Sequence[BuildFinding]) -> str:
    best = max(builds, key=lambda each: each.probability)
    return f"{best.name} ({share_text(best.probability)})"


def _looked_at(build: BuildFinding) -> bool:
    return bool(build.pairs or build.untestable or build.probability >= 0.005)


def _words(build: BuildFinding) -> str:
    level = f"{effect_text(build.level)} by {build.pairs} pairs" if build.level else "not measured"
    return f"{build.name}: {level}; {share_text(build.probability)}" + (
        f"; {build.untestable}" if build.untestable else ""
    )


def _short(name: str) -> str:
    """The end of a name tells builds of one series apart."""
    shown = printable(name).rpartition("/")[2] or printable(name)
    shown = shown.removesuffix(".whl")
    return shown if len(shown) <= _LONGEST_NAME else f"…{shown[-_LONGEST_NAME:]}"


def _level(build: BuildFinding) -> str:
    if build.untestable:
        return "cannot be tested"
    return effect_text(build.level) if build.level else "-"


_TABLE = (
    Column[BuildFinding]("build", lambda each: each.name),
    Column[BuildFinding]("pairs", lambda each: str(each.pairs or ""), Align.RIGHT),
    Column[BuildFinding]("against the good build", _level),
    Column[BuildFinding]("first bad", lambda each: share_text(each.probability), Align.RIGHT),
)


def _answer_record(answer: BisectAnswer | None) -> dict[str, Any] | None:
    return None if answer is None else {**asdict(answer), "end": answer.end.name}
