"""The lives of verdict_lives as a table, and the goals that they are held against."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.goals import Goal, share, share_goal
from benchmarks.verdict_lives import OF_SLOW_DAY, PERCENTS, PERIODS
from benchmarks.verdict_replay import Score, Scores
from benchmarks.verdict_report import (
    alarms_a_night,
    alarms_interval,
    poisson_95,
    runs_a_case,
    unsure_a_night,
    unsure_interval,
)

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
    lines += [_row(name, score) for name, score in {**rows, f"**{ALL_NIGHTS}**": total_of(scores)}.items()]
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


def _row(name: str, score: Score) -> str:
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
