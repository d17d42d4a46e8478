"""The scores as a table for people and as JSON for programs, and the goals that they are held against."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.special import gammaincinv

from benchmarks.verdict_replay import DROPS_PERCENT, FIRST_NIGHTS, LOST, LOST_FIRST, PROCEDURE, Score, Scores
from helpers.judging.statistics import student_t_95


@dataclass(frozen=True)
class Goal:
    """What the procedure has to reach: ``value`` of its score called ``rule``, at most or at least ``limit``."""

    rule: str
    name: str
    value: Callable[[Score], float]
    interval: Callable[[Score], tuple[float, float]]
    limit: float
    at_most: bool

    def text(self, score: Score) -> str:
        how = "at most" if self.at_most else "at least"
        low, high = self.interval(score)
        between = f" (95% {low:.3g} to {high:.3g})" if low < high else ""
        answer = "reached    " if self.reached(score) else "NOT reached"
        unsure = ", as few nights may be by chance" if not self.reached(score) and not self.ruled_out(score) else ""
        where = "" if self.rule in (PROCEDURE, FIRST_NIGHTS) else "gains lost again: "
        return f"{answer}  {where}{self.name}: {self.value(score):.3g}{between}, {how} {self.limit:g}{unsure}"

    def reached(self, score: Score) -> bool:
        """NaN, where nothing was replayed, is never reached."""
        value = self.value(score)
        return value <= self.limit if self.at_most else value >= self.limit

    def ruled_out(self, score: Score) -> bool:
        """Whether the whole interval misses the goal; so it does where nothing was replayed."""
        low, high = self.interval(score)
        return not (low <= self.limit if self.at_most else high >= self.limit)


def _found(percent: float, within: bool = False) -> dict[str, Callable[[Score], Any]]:
    def count(score: Score) -> tuple[int, int]:
        return (score.three_nights if within else score.first_night)[percent], score.injected[percent]

    return {"value": lambda score: _share(*count(score)), "interval": lambda score: share_95(*count(score))}


def _found_on(percent: float, cards: int) -> dict[str, Callable[[Score], Any]]:
    def count(score: Score) -> tuple[int, int]:
        return score.found_on[percent, cards], score.injected_on[percent, cards]

    return {"value": lambda score: _share(*count(score)), "interval": lambda score: share_95(*count(score))}


def _runs(rule: str, name: str, limit: float) -> Goal:
    return Goal(rule, name, lambda score: runs_a_case(score), lambda score: (runs_a_case(score),) * 2, limit, True)


def _goals(rule: str, first: str) -> tuple[Goal, ...]:
    """docs/verdicts.md, "What it gives, simulated"."""
    return (
        Goal(rule, "false alarms a night", lambda s: alarms_a_night(s), lambda s: alarms_interval(s), 0.005, True),
        Goal(rule, "INCONCLUSIVE a night", lambda s: unsure_a_night(s), lambda s: unsure_interval(s), 0.25, True),
        Goal(rule, "2% drops found on the first night", limit=0.75, at_most=False, **_found(2)),
        Goal(rule, "2% drops on 32 cards found on the first night", limit=0.60, at_most=False, **_found_on(2, 32)),
        Goal(rule, "3% drops found on the first night", limit=0.90, at_most=False, **_found(3)),
        Goal(rule, "3% drops found within three nights", limit=0.95, at_most=False, **_found(3, within=True)),
        _runs(rule, "runs a case and night", 2.2),
        _runs(first, "runs a case in its first 15 nights", 3.0),
    )


def _never_faster(score: Score) -> float:
    return score.called_faster if score.injected else math.nan


GOALS = (
    *_goals(PROCEDURE, FIRST_NIGHTS),
    *_goals(LOST, LOST_FIRST),
    Goal(LOST, "losses called an improvement", _never_faster, lambda score: (_never_faster(score),) * 2, 0, True),
)


_MINE = (PROCEDURE, FIRST_NIGHTS, LOST, LOST_FIRST)


def alarms_a_night(score: Score) -> float:
    return _share(score.alarms, score.nights)


def runs_a_case(score: Score) -> float:
    return _share(score.runs, score.case_nights)


def power(score: Score, within: bool = False) -> dict[float, float]:
    """Share of the drops found, by percent, on the first night or within three."""
    found = score.three_nights if within else score.first_night
    return {percent: _share(found[percent], score.injected[percent]) for percent in DROPS_PERCENT}


def unsure_a_night(score: Score) -> float:
    return _share(score.unsure, score.nights)


def alarms_interval(score: Score) -> tuple[float, float]:
    return _interval(score.alarms, score.nights, [(alarms, nights) for alarms, _, nights in score.by_world])


def unsure_interval(score: Score) -> tuple[float, float]:
    return _interval(score.unsure, score.nights, [(unsure, nights) for _, unsure, nights in score.by_world])


def _interval(count: int, nights: int, by_world: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """95% interval of ``count`` a night: Poisson's, or Student's over worlds where that is wider.

    A rule that is wrong about a case is wrong about it night after night, which Poisson does not know.
    """
    if not nights:
        return math.nan, math.nan
    low, high = (bound / nights for bound in poisson_95(count))
    rates = [_share(*each) for each in by_world]
    if len(rates) > 1:
        half = student_t_95(len(rates) - 1) * statistics.stdev(rates) / math.sqrt(len(rates))
        rate = count / nights
        low, high = min(low, max(rate - half, 0.0)), max(high, rate + half)
    return low, high


def share_95(count: int, of: int) -> tuple[float, float]:
    """95% interval of a share (Wilson); NaN of nothing."""
    if not of:
        return math.nan, math.nan
    z, share = 1.96, count / of
    middle = (share + z**2 / (2 * of)) / (1 + z**2 / of)
    half = z / (1 + z**2 / of) * math.sqrt(share * (1 - share) / of + z**2 / (4 * of**2))
    return middle - half, middle + half


def poisson_95(count: int) -> tuple[float, float]:
    """Exact 95% interval of the mean of a Poisson count (Garwood)."""
    return float(gammaincinv(count, 0.025)) if count else 0.0, float(gammaincinv(count + 1, 0.975))


def table_text(scores: Scores) -> str:
    """A Markdown table, the procedure last."""
    sizes = "/".join(f"{percent:g}" for percent in DROPS_PERCENT)
    lines = [
        "| rule | runs a case | false alarms a night (95%; nights) | on a slow-machine night (nights) "
        f"| found on night 1: {sizes}% | within 3 nights |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    rules = [rule for rule in scores if rule not in _MINE]
    lines += [_row(rule, scores[rule]) for rule in (*rules, PROCEDURE, LOST) if rule in scores]
    return "\n".join(lines)


def _row(rule: str, score: Score) -> str:
    low, high = alarms_interval(score)
    slow = f"{_share(score.slow_alarms, score.slow_nights):.2g} ({score.slow_nights})" if score.slow_nights else "-"
    alarms = f"{alarms_a_night(score):.2g} ({low:.2g} to {high:.2g}; {score.nights})"
    found = (" ".join(_short(share) for share in power(score, within).values()) for within in (False, True))
    return f"| {rule} | {runs_a_case(score):.3g} | {alarms} | {slow} | {' | '.join(found)} |"


def _short(share: float) -> str:
    """``.42``, ``1``, ``0``; only all and none are written as 1 and 0."""
    if math.isnan(share) or share in (0.0, 1.0):
        return f"{share:g}"
    return f"{min(max(share, 0.005), 0.994):.2f}".lstrip("0")


def more_text(scores: Scores) -> str:
    """What the table has no column for, of the procedure."""
    told = [_more(scores[PROCEDURE], scores.get(FIRST_NIGHTS, Score()))]
    if LOST in scores:
        told.append(f"gains lost again: {_more(scores[LOST], scores.get(LOST_FIRST, Score()))}")
    return "\n".join(told)


def _more(score: Score, first: Score) -> str:
    injected = min(score.injected.values(), default=0)
    lines = [
        f"{injected} drops of each size; on quiet nights a night: "
        f"{unsure_a_night(score):.3g} INCONCLUSIVE, "
        f"{_share(score.better, score.nights):.3g} IMPROVEMENT, "
        f"{_share(score.not_passed, score.nights):.3g} nights not PASS as a whole",
        f"a case's first 15 nights: {runs_a_case(first):.3g} runs a case, {alarms_a_night(first):.3g} false "
        f"alarms and {unsure_a_night(first):.3g} INCONCLUSIVE a night ({first.nights} nights)",
        "drops found on the first night by cards: " + (_by_cards(score) or "none injected"),
        "drops that passed on the first night: "
        + " ".join(_short(_share(score.passed[percent], score.injected[percent])) for percent in score.injected)
        + f"; answered by IMPROVEMENT: {score.called_faster}",
    ]
    if score.slow_nights:
        lines.append(
            f"on slow-machine nights a night: {score.slow_unsure / score.slow_nights:.3g} INCONCLUSIVE, "
            f"{score.slow_not_passed / score.slow_nights:.3g} nights not PASS as a whole"
        )
    return "\n".join(lines)


def _by_cards(score: Score, shown: Sequence[float] = (1, 2, 3)) -> str:
    """``2% on 32 cards .65 (80)``, for what was injected."""
    return ", ".join(
        f"{percent:g}% on {cards} cards {_short(_share(score.found_on[percent, cards], many))} ({many})"
        for (percent, cards), many in sorted(score.injected_on.items())
        if percent in shown
    )


def progress_text(score: Score) -> str:
    """``0 false alarms on 66 quiet nights, 79% of 24 drops of 2% found at once``."""
    return (
        f"{score.alarms} false alarms on {score.nights} quiet nights, "
        f"{power(score)[2]:.0%} of {score.injected[2]} drops of 2% found at once"
    )


def goals_text(scores: Scores) -> str:
    return "\n".join(goal.text(scores.get(goal.rule, Score())) for goal in GOALS)


def missed(scores: Scores, clearly: bool = False) -> bool:
    """Whether any goal is missed; ``clearly``: only where its whole interval lies beyond it (few nights)."""
    asked = [(goal, scores.get(goal.rule, Score())) for goal in GOALS]
    return any(goal.ruled_out(score) if clearly else not goal.reached(score) for goal, score in asked)


def scores_json(scores: Scores, about: Mapping[str, Any]) -> dict[str, Any]:
    """Rule -> its numbers; drops by percent as text, null for what was not replayed. ``_about``: what they rest on."""
    rules = {
        rule: {
            "false_alarms_per_night": _plain(alarms_a_night(score)),
            "false_alarms_95": [_plain(bound) for bound in alarms_interval(score)],
            "nights": score.nights,
            "runs_per_case": _plain(runs_a_case(score)),
            "inconclusive_per_night": _plain(unsure_a_night(score)),
            "power_first_night": {f"{percent:g}": _plain(share) for percent, share in power(score).items()},
            "power_three_nights": {f"{percent:g}": _plain(share) for percent, share in power(score, True).items()},
        }
        for rule, score in scores.items()
        if rule not in (FIRST_NIGHTS, LOST_FIRST)
    }
    goals = {
        f"{goal.rule}: {goal.name}": {"limit": goal.limit, "reached": goal.reached(scores.get(goal.rule, Score()))}
        for goal in GOALS
    }
    return {"_about": {**about, "goals": goals}, **rules}


def _plain(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else value


def _share(count: float, of: float) -> float:
    return count / of if of else math.nan
