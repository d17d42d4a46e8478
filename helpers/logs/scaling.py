"""Speed-up and efficiency by cards, over the runs of several logs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from helpers.judging.rules.own import case_figure
from helpers.logs.record import Imported
from helpers.logs.settings import LogSetting

# Runs that agree in these, in the card's name and in the rule differ only in their number of cards.
_ALIKE = (LogSetting.FRAMEWORK, LogSetting.MODEL, LogSetting.PRECISION, LogSetting.BATCH_SIZE_PER_CARD, LogSetting.GPU)


@dataclass(frozen=True)
class CardCount:
    """The runs of one configuration on one number of cards."""

    # Framework, model, precision, batch size a card and card, as the logs state them.
    configuration: tuple[str, ...]
    rule: str
    cards: int
    runs: int
    # Of all cards; the median over the runs.
    samples_per_s: float
    # The largest distance of a run from the median, as a fraction of the median; None for a single run.
    spread: float | None
    # ``samples_per_s`` / that of one card; None if no run is on one card.
    speedup: float | None
    # Why the runs do not meet the publisher's rule for repeated runs; empty if they do.
    shortfall: str

    @property
    def efficiency(self) -> float | None:
        """The speed-up as a fraction of the number of cards."""
        return None if self.speedup is None else self.speedup / self.cards


def by_cards(runs: Sequence[Imported]) -> tuple[CardCount, ...]:
    """One entry for each number of cards of each configuration that has runs on several numbers of cards, by their
    usual rules."""
    rates: dict[tuple[tuple[str, ...], str], dict[int, list[float]]] = {}
    for each in runs:
        figure, cards = each.usual_figure, each.settings.get(LogSetting.CARDS)
        if figure is None or figure.samples_per_s is None or cards is None:
            continue
        alike = tuple(each.settings[name].value if name in each.settings else "" for name in _ALIKE)
        of_cards = rates.setdefault((alike, figure.rule), {})
        of_cards.setdefault(int(cards.value), []).append(figure.samples_per_s)
    return tuple(
        _counted(configuration, rule, cards, of_cards)
        for (configuration, rule), of_cards in rates.items()
        if len(of_cards) > 1
        for cards in sorted(of_cards)
    )


def _counted(configuration: tuple[str, ...], rule: str, cards: int, of_cards: dict[int, list[float]]) -> CardCount:
    rates = of_cards[cards]
    median = statistics.median(rates)
    return CardCount(
        configuration,
        rule,
        cards,
        len(rates),
        median,
        max(abs(each - median) for each in rates) / median if len(rates) > 1 else None,
        median / statistics.median(of_cards[1]) if 1 in of_cards else None,
        case_figure(rule, [{rule: each} for each in rates]).reason,
    )
