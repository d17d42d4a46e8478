"""Every setting of every case has a source, and a choice of the suite has its reason."""

from __future__ import annotations

import pytest

from helpers.plan.baseline_files import BASELINES
from helpers.plan.overrides import leaves
from helpers.plan.perf_yaml import load_config
from helpers.plan.published import load_published
from helpers.plan.recipes import OWN, plain_values
from helpers.plan.recipes.recipe import RECIPES, fixed_of, settings_for, sourced_settings
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case


def every_case() -> list[tuple[Case, str]]:
    """The published cases that have a recipe, and perf.yaml's."""
    published = [
        each for card in ("v100", "a100") for each in load_published(BASELINES / f"published/{card}.json").cases()
    ]
    own = load_config(ROOT / "helpers/plan/defaults.yaml").matrix
    found = [(case, "gpu") for case in published if case.framework in RECIPES]
    return found + [(each.case, "cpu" if each.target == "cpu" else "gpu") for each in own]


@pytest.mark.slow
def test_every_setting_has_a_source_and_a_choice_its_reason() -> None:
    for case, device in every_case():
        table = sourced_settings(case, device)
        assert [key for key, _ in leaves(plain_values(table))] == list(table), case.id
        sources = [each.source for each in table.values()] + [each.source for each in fixed_of(case, device)]
        assert [source for source in sources if not source.where] == [], case.id
        assert [source for source in sources if source.where == OWN and not source.reason] == [], case.id


def test_a_value_that_a_case_changes_is_not_told_to_be_the_document_s() -> None:
    # The published script ran NCHW; pure half precision, which it had not, is channels_last.
    case = Case.parse("pytorch-resnet50v1.5-amp_o2-bs256-1x1-dali_cpu")
    assert sourced_settings(case, "gpu")["layout"].value == "NHWC"
    assert sourced_settings(case, "gpu")["layout"].source.where == OWN


@pytest.mark.parametrize(("model", "rate"), [("resnet50v1.5", 0.1), ("vgg16", 0.01)])
def test_a_cpu_s_learning_rate_is_told_from_the_rate_it_is_in_proportion_to(model: str, rate: float) -> None:
    case = Case.parse(f"paddle-{model}-fp32-bs1-1x1-dali-dynamic")
    assert f"{rate:g} " in sourced_settings(case, "cpu")["learning_rate"].source.reason
    assert settings_for(case, "cpu")["learning_rate"] == rate / 256
