"""The perf.yaml of this repository: which cases, protocols and numbers it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.judging.rules.own import RULES
from helpers.plan.baseline_files import BASELINES
from helpers.plan.case_plan import matrix
from helpers.plan.image_folder import images_needed
from helpers.plan.perf_yaml import Config, load_config
from helpers.plan.published import load_published
from helpers.trainers.contract.case import DataSource

SHIPPED = Path(__file__).parents[3] / "helpers/plan/defaults.yaml"


@pytest.fixture(scope="module")
def shipped() -> Config:
    return load_config(SHIPPED)


def test_the_protocol_of_every_published_case_makes_the_steps_and_runs_of_its_rules(shipped: Config) -> None:
    published = {card: load_published(BASELINES / "published" / f"{card}.json").figures for card in ("v100", "a100")}
    cases = [each for each in matrix(shipped, published) if each.figures]
    assert sum(len(each.figures) for each in cases) == 110
    for each in cases:
        rules = [RULES[figure.rule] for figure in each.figures if figure.rule in RULES]
        protocol, case = each.protocol, each.case
        assert protocol.warmup_steps + protocol.window_steps >= max([rule.steps for rule in rules], default=0)
        assert protocol.runs >= max([rule.runs for rule in rules], default=1)
        needed = images_needed(case, [rule.name for rule in rules])
        if case.data is DataSource.SYNTHETIC or not rules:
            assert needed is None
        else:
            assert needed is not None
            longest = max(rule.steps for rule in rules)
            assert needed.images == longest * case.batch_size_per_card * case.cards


def test_every_shipped_protocol_has_its_warm_up_judged_and_may_extend_it(shipped: Config) -> None:
    for protocol in shipped.protocols.values():
        assert protocol.steady_window_steps >= 2
        assert protocol.most_warmup_steps >= protocol.warmup_steps + 3 * protocol.steady_window_steps
