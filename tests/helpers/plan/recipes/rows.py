"""The published rows of a framework, and the settings of a case."""

from __future__ import annotations

from typing import Any

from helpers.plan.baseline_files import PUBLISHED
from helpers.plan.published import PublishedFigure, load_published
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.frameworks import Framework


def figures_of(framework: Framework) -> list[PublishedFigure]:
    every = [each for card in ("v100", "a100") for each in load_published(PUBLISHED / f"{card}.json").figures]
    return [each for each in every if each.case.framework is framework]


def name_of(figure: PublishedFigure) -> str:
    return f"{figure.target}-{figure.case.id}-{figure.samples_per_s}"


def settings(case_id: str, device: str = "gpu") -> dict[str, Any]:
    return settings_for(Case.parse(case_id), device)
