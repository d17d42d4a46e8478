"""The scores as a table for people and as JSON for programs, and the goals that they are held against."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scipy.special import gammaincinv

from benchmarks.goals import Goal, share, share_goal
from benchmarks.verdict_lives import OF_SLOW_DAY, PERCENTS, PERIODS
from benchmarks.verdict_replay import DROPS_PERCENT, FIRST_NIGHTS, LOST, LOST_FIRST, PROCEDURE, Score, Scores
from helpers.judging.statistics import student_t_95


def goals_of(scores: Scores) -> list[Goal]:
    """docs/accuracy.md, "How good it is"."""
    lost = scores.get(LOST, Score())
    faster = lost.called_faster if lost.injected else math.nan
    return [
        *_goals("", scores.get(PROCEDURE, Score()), scores.get(FIRST_NIGHTS, Score())),
        *_goals("gains lost again: ", lost, scores.get(LOST_FIRST, Score())),
        Goal("gains lost again: losses called an improvement", faster, (faster, faster), 0, at_most=True),
    ]


def _goals(where: str, score: Score, first: Score) -> Iterator[Goal]:
    yield Goal(f"{where}false alarms a night", alarms_a_night(score), alarms_interval(score), 0.005, at_most=True)
    yield Goal(f"{where}INCONCLUSIVE a night", unsure_a_night(score), unsure_interval(score), 0.25, at_most=True)
    for what, found, injected, limit in (
        ("2% drops found on the first night", score.first_night[2], score.injected[2], 0.75),
        ("2% drops on 32 cards found on the first night", score.found_on[2, 32], score.injected_on[2, 32], 0.60),
        ("3% drops found on the first night", score.first_night[3], score.injected[3], 0.90),
        ("3% drops found within three nights", score.three_nights[3], score.injected[3], 0.95),
    ):
        yield share_goal(f"{where}{what}", found, injected, limit)
    for what, runs, limit in (
        ("runs a case and night", runs_a_case(score), 2.2),
        ("runs a case in its first 15 nights", runs_a_case(first), 3.0),
    ):
        yield Goal(f"{where}{what}", runs, (runs, runs), limit, at_most=True)


_MINE = (PROCEDURE, FIRST_NIGHTS, LOST, LOST_FIRST)


def alarms_a_night(score: Score) -> float:
    return share(score.alarms, score.nights)


def runs_a_case(score: Score) -> float:
    return share(score.runs, score.case_nights)


def power(score: Score, within: bool = False) -> dict[float, float]:
    """Share of the drops found, by percent, on the first night or within three."""
    found = score.three_nights if within else score.first_night
    return {percent: share(found[percent], score.injected[percent]) for percent in DROPS_PERCENT}


def unsure_a_night(score: Score) -> float:
    return share(score.unsure, score.nights)


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
    rates = [share(*each) for each in by_world]
    if len(rates) > 1:
        half = student_t_95(len(rates) - 1) * statistics.stdev(rates) / math.sqrt(len(rates))
        rate = count / nights
        low, high = min(low, max(rate - half, 0.0)), max(high, rate + half)
    return low, high


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
    slow = f"{share(score.slow_alarms, score.slow_nights):.2g} ({score.slow_nights})" if score.slow_nights else "-"
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
        f"{share(score.better, score.nights):.3g} IMPROVEMENT, "
        f"{share(score.not_passed, score.nights):.3g} nights not PASS as a whole",
        f"a case's first 15 nights: {runs_a_case(first):.3g} runs a case, {alarms_a_night(first):.3g} false "
        f"alarms and {unsure_a_night(first):.3g} INCONCLUSIVE a night ({first.nights} nights)",
        "drops found on the first night by cards: " + (_by_cards(score) or "none injected"),
        "drops that passed on the first night: "
        + " ".join(_short(share(score.passed[percent], score.injected[percent])) for percent in score.injected)
        + f"; answered by IMPROVEMENT: {score.called_faster}",
    ]
    if score.slow_nights:
        lines.append(
            f"on slow-machine nights a night: {score.slow_unsure / score.slow_nights:.3g} INCONCLUSIVE, "
            f"{score.slow_not_passed / score.slow_nights:.3g} nights not PASS as a whole"
        )
    return "\n".join(lines)


def _by_cards(score: Score) -> str:
    """``2% on 32 cards .65 (80)``, for what was injected."""
    return ", ".join(
        f"{percent:g}% on {cards} cards {_short(share(score.found_on[percent, cards], many))} ({many})"
        for (percent, cards), many in sorted(score.injected_on.items())
        if percent in (1, 2, 3)
    )


def progress_text(score: Score) -> str:
    """``0 false alarms on 66 quiet nights, 79% of 24 drops of 2% found at once``."""
    return (
        f"{score.alarms} false alarms on {score.nights} quiet nights, "
        f"{power(score)[2]:.0%} of {score.injected[2]} drops of 2% found at once"
    )


def scores_json(scores: Scores, about: Mapping[str, Any], goals: Sequence[Goal]) -> dict[str, Any]:
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
    told = {goal.name: {"limit": goal.limit, "reached": goal.reached} for goal in goals}
    return {"_about": {**about, "goals": told}, **rules}


def _plain(value: float) -> float | None:
    """JSON has no NaN."""
    return None if math.isnan(value) else value


# ---- lives of 120 nights (verdict_lives)

ALL_NIGHTS = "all 120 nights"


def lives_text(scores: Scores) -> str:
    """A Markdown table, one row for each part of the 120 nights."""
    sizes = "/".join(f"{percent:g}" for percent in PERCENTS)
    lines = [
        "| of 120 nights | runs a case | false alarms a night (95%; nights) | INCONCLUSIVE a night (95%) "
        "| not judged a night | false IMPROVEMENT a night | the world's own losses found at once, within 3 nights "
        f"| drops found on night 1: {sizes}% | 2% on 32 cards |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    rows = {period.name: scores[period.name] for period in PERIODS if period.name in scores}
    lines += [_lives_row(name, score) for name, score in {**rows, f"**{ALL_NIGHTS}**": total_of(scores)}.items()]
    for name, score in scores.items():
        if name.startswith(OF_SLOW_DAY):
            lines += ["", f"{name}: found at once {sum(score.first_night.values())} of {sum(score.injected.values())}"]
    return "\n".join(lines)


def total_of(scores: Scores) -> Score:
    """All parts of the 120 nights together."""
    total = Score()
    for period in PERIODS:
        total.add(scores.get(period.name, Score()))
    worlds = zip(*(scores[period.name].by_world for period in PERIODS if period.name in scores), strict=True)
    total.by_world = [
        (sum(part[0] for part in world), sum(part[1] for part in world), sum(part[2] for part in world))
        for world in worlds
    ]
    return total


def _lives_row(name: str, score: Score) -> str:
    low, high = alarms_interval(score)
    unsure_low, unsure_high = unsure_interval(score)
    losses = f"{score.losses_at_once}, {score.losses_in_three} of {score.losses}" if score.losses else "-"
    found = " ".join(
        f"{score.first_night[percent]}/{score.injected[percent]}" for percent in PERCENTS if score.injected[percent]
    )
    on_many = _on_many_cards(score)
    cells = (
        name,
        f"{runs_a_case(score):.3g}",
        f"{alarms_a_night(score):.2g} ({low:.2g} to {high:.2g}; {score.nights})",
        f"{unsure_a_night(score):.2g} ({unsure_low:.2g} to {unsure_high:.2g})",
        f"{share(score.unjudged, score.nights):.3g}",
        f"{share(score.better, score.nights):.2g}",
        losses,
        found or "-",
        f"{on_many[0]}/{on_many[1]}" if on_many[1] else "-",
    )
    return f"| {' | '.join(cells)} |"


def _on_many_cards(score: Score) -> tuple[int, int]:
    return score.found_on[2.0, 32], score.injected_on[2.0, 32]


def goals_of_lives(scores: Mapping[str, Score]) -> list[Goal]:
    """docs/accuracy.md, "How good it is"."""
    total = total_of(dict(scores))
    wrong = total.unjudged, total.better, total.called_faster
    named = ("cases not judged", "improvements without a gain", "losses and drops called an improvement")
    nothing = [
        Goal(f"120 nights: {name}", count, poisson_95(count) if total.nights else (count, count), 0, at_most=True)
        for name, count in zip(named, wrong, strict=True)
    ]
    slow = [score for name, score in scores.items() if name.startswith(OF_SLOW_DAY)]
    of_slow = (
        sum(sum(score.first_night.values()) for score in slow),
        sum(sum(score.injected.values()) for score in slow),
    )
    return [
        Goal("120 nights: false alarms a night", alarms_a_night(total), alarms_interval(total), 0.005, at_most=True),
        Goal("120 nights: INCONCLUSIVE a night", unsure_a_night(total), unsure_interval(total), 0.1, at_most=True),
        Goal("120 nights: runs a case and night", *_exactly(runs_a_case(total)), 2.2, at_most=True),
        *nothing,
        share_goal("120 nights: 2% drops found on the first night", total.first_night[2], total.injected[2], 0.75),
        share_goal("120 nights: 2% drops on 32 cards", *_on_many_cards(total), 0.60),
        share_goal(
            "120 nights: the world's own losses found in three nights", total.losses_in_three, total.losses, 0.9
        ),
        share_goal("120 nights: losses of entries of a slow day found on the first night", *of_slow, 0.9),
    ]


def _exactly(value: float) -> tuple[float, tuple[float, float]]:
    return value, (value, value)
