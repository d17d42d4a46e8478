"""Reports the result of a search for the first bad build: the line for the console, and bisect.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from helpers.common.words import counted, first_few
from helpers.judging.bisect.search import BisectAnswer, BisectEnd, BuildFinding
from helpers.judging.statistics import EffectSize
from helpers.report.reasons import finding_text
from helpers.report.table import Align, Column, Table, markdown_text
from helpers.session.bisect import CaseSearch
from helpers.trainers.contract.errors import printable

# 1: first format.
BISECT_SCHEMA_VERSION = 1

_SEARCHED = (BisectEnd.FOUND, BisectEnd.HIDDEN, BisectEnd.BUDGET)
_NOT_REPRODUCED = (BisectEnd.NO_DROP, BisectEnd.FASTER, BisectEnd.UNCONFIRMED)


def headline(search: CaseSearch) -> str:
    """The answer in one line, which is printed first."""
    answer, runs = search.answer, f"{counted(search.runs, 'run')} of {counted(search.tried, 'build')}"
    if search.stopped:
        return f"NOT JUDGED: {search.stopped}; {runs} so far"
    if answer is None:
        return f"STILL OPEN: {runs} so far; likeliest: {_likeliest(search.builds)}"
    if answer.end in _NOT_REPRODUCED:
        return f"NOT REPRODUCED: {finding_text(answer.why)}; {runs}"
    if answer.end not in _SEARCHED or answer.first is None or answer.last is None:
        return f"NOT JUDGED: {finding_text(answer.why)}; {runs}"
    change = f", {effect_text(answer.change)}" if answer.change else ""
    left = "".join(f"; {each}" for each in _left_over(answer))
    if answer.first == answer.last:
        name = search.builds[answer.first].name
        what = "FIRST BAD" if answer.end is BisectEnd.FOUND else "FIRST BAD, NOT CERTAIN"
        return (
            f"{what}: {name} ({share_text(answer.probability)}){change}, {runs}; the next likeliest: "
            f"{_likeliest(search.builds, besides=answer.first)}{left}"
        )
    between = search.builds[answer.first : answer.last + 1]
    why = "the budget is spent" if answer.end is BisectEnd.BUDGET else "what lies between cannot be tested"
    return (
        f"FIRST BAD IS ONE OF {len(between)}: {between[0].name} … {between[-1].name} ({share_text(answer.probability)})"
        f"{change}, {runs}; {why}{left}"
    )


def effect_text(effect: EffectSize) -> str:
    """The effect with its interval, such as ``-2.1% (95% -2.4% to -1.8%)``."""
    return f"{effect.point:+.1%} (95% {effect.low:+.1%} to {effect.high:+.1%})"


def share_text(share: float) -> str:
    """A probability with one decimal, never rounded to 0% or 100%."""
    if share > 0.999:
        return ">99.9%"
    return f"{share:.1%}" if share >= 0.001 else "<0.1%"


def render_search(search: CaseSearch) -> str:
    """The answer for a terminal: the headline, then the builds that were measured or could not be tested."""
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
    """The answers for programs; effects are fractions of the throughput (-0.02 is 2% slower)."""
    return {
        "schema_version": BISECT_SCHEMA_VERSION,
        "session": session,
        "cases": [{**asdict(each), "answer": _answer_record(each.answer), "line": headline(each)} for each in searches],
    }


def _details(search: CaseSearch) -> list[str]:
    """What the headline does not say, line by line."""
    lines = [] if search.answer is None else _answer_details(search.answer, search.builds)
    if search.changed:
        lines.append(f"what changed with it, besides the build: {first_few(search.changed)}")
    cannot = [each for each in search.builds if each.untestable]
    if cannot:
        lines.append(f"{counted(len(cannot), 'build')} could not be tested:")
        lines += [f"  {each.name}: {each.untestable}" for each in cannot]
    if search.no_drop >= 0.01 and search.runs:
        lines.append(f"probability that there is no drop: {share_text(search.no_drop)}")
    return lines


def _answer_details(answer: BisectAnswer, builds: Sequence[BuildFinding]) -> list[str]:
    lines = []
    if answer.whole is not None:
        lines.append(f"the bad build against the good one: {effect_text(answer.whole)}")
    lines += _left_over(answer)
    if answer.first is not None and answer.first == answer.last:
        alone = share_text(builds[answer.first].probability)
        together = share_text(answer.probability)
        if alone != together:
            lines.append(
                f"with {alone} it holds the largest change (the last column), with {together} the largest or one of "
                "two that are about as large"
            )
    return lines


def _left_over(answer: BisectAnswer) -> list[str]:
    """How much of the drop the build does not explain, in one line; no line if it explains all."""
    if not answer.unexplained or answer.residual is None:
        return []
    return [f"it does not explain the whole drop: another change makes up {effect_text(answer.residual)}"]


def _likeliest(builds: Sequence[BuildFinding], besides: int = -1) -> str:
    """The likeliest first bad build, not the one at place ``besides``.

    Nothing was measured at a build that cannot be tested. So it is never named alone, but as a range that ends with the
    next build that can be tested.
    """
    ranges: list[list[BuildFinding]] = [[]]
    for place, each in enumerate(builds):
        if place == besides:
            ranges.append([])
            continue
        ranges[-1].append(each)
        if not each.untestable:
            ranges.append([])
    best = max(ranges, key=lambda each: sum(build.probability for build in each))
    share = share_text(sum(build.probability for build in best))
    if len(best) == 1:
        return f"{best[0].name} ({share})"
    hidden = sum(bool(each.untestable) for each in best)
    return f"one of {len(best)}, {best[0].name} … {best[-1].name} ({share}; {hidden} of them cannot be tested)"


def _looked_at(build: BuildFinding) -> bool:
    return bool(build.pairs or build.untestable or build.probability >= 0.005)


def build_words(build: BuildFinding) -> str:
    """What was found of the build, in one line."""
    level = f"{effect_text(build.level)} by {counted(build.pairs, 'pair')}" if build.level else "not measured"
    why_not = f"; {build.untestable}" if build.untestable else ""
    return f"{build.name}: {level}; {share_text(build.probability)}{why_not}"


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
