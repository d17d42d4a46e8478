"""How many images a published comparison needs, so that no epoch begins within the steps that its rule takes.

The publishers fed ImageNet, or its validation set many times over (docs/measuring-rules.md); on a few hundred images an
epoch has a few steps, and what the reader does between two epochs would be measured in the card's stead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from helpers.judging.rules import RULES
from helpers.plan.dataset import DatasetFacts
from helpers.trainers.contract.case import Case, DataSource


@dataclass(frozen=True)
class ImagesNeeded:
    """``images`` feed ``steps`` steps of all cards of ``case`` in one epoch: those that ``rule`` takes or skips."""

    case: Case
    steps: int
    rule: str

    @property
    def images(self) -> int:
        return self.steps * self.case.batch_size_per_card * self.case.cards

    def describe(self) -> str:
        cards = f"{self.case.cards} card{'s' if self.case.cards > 1 else ''}"
        batch = self.case.batch_size_per_card
        return f"{self.images:,} images an epoch ({self.steps} steps of {batch} on {cards}, by {self.rule})"

    def why_not(self, data: DatasetFacts) -> str | None:
        """Why ``data`` are too few, with what to do; None where they are enough."""
        if data.images >= self.images:
            return None
        return (
            f"too few images for its published figure: {data.images:,} in {data.root}, needs {self.describe()}. Name a "
            "folder with as many: --data FOLDER, ImageNet's training set or a train_list.txt that names its images "
            "several times, as the publishers' did"
        )


def images_needed(case: Case, rules: Iterable[str]) -> ImagesNeeded | None:
    """For figures by ``rules``, of which the longest counts; None where nothing is read, or nothing is computed."""
    if case.data is DataSource.SYNTHETIC:
        return None
    steps, rule = max(((RULES[rule].steps, rule) for rule in rules if rule in RULES), default=(0, ""))
    return ImagesNeeded(case, steps, rule) if steps else None
