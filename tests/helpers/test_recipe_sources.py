"""Every setting of every case has a source, and a choice of the suite has its reason."""

from __future__ import annotations

import pytest

from helpers.baseline import BASELINES, load_published
from helpers.case import Case
from helpers.config import load_config
from helpers.launch.launcher import ROOT
from helpers.overrides import leaves
from helpers.recipe import RECIPES, settings_for
from helpers.recipe_sources import FIXED, NOT_STATED, OWN, SOURCES, Source, fixed_of, source_of


def every_case() -> list[tuple[Case, str]]:
    """The published cases that have a recipe, and perf.yaml's."""
    published = [
        each for card in ("v100", "a100") for each in load_published(BASELINES / f"published/{card}.json").cases()
    ]
    own = load_config(ROOT / "perf.yaml").matrix
    found = [(case, "gpu") for case in published if case.framework in RECIPES]
    return found + [(each.case, "cpu" if each.target == "cpu" else "gpu") for each in own]


def variants() -> list[tuple[Case, str]]:
    """Cases of every framework with a recipe, model, precision, data source and execution, on both devices."""
    pytorch = [
        (Case.parse(f"pytorch-{model}-{precision}-bs4-{cards}-{data}{compiled}"), device)
        for model in ("resnet50v1.5", "vgg16")
        for precision in ("fp32", "tf32", "bf16", "amp_o1", "amp_o2", "amp")
        for cards in ("1x1", "1x2")
        for data in ("dali", "dali_cpu", "native", "synthetic")
        for compiled in ("", "-compile")
        for device in ("cpu", "gpu")
    ]
    return pytorch + [
        (Case.parse(f"paddle-{model}-{precision}-bs4-1x2-{data}-{execution}"), device)
        for model in ("resnet50v1.5", "vgg16")
        for precision in ("fp32", "tf32", "bf16", "amp_o1", "amp_o2", "unstated")
        for data in ("dali", "dali_cpu", "native", "synthetic")
        for execution in ("static", "dynamic", "to_static")
        for device in ("cpu", "gpu")
    ]


@pytest.mark.parametrize(
    ("case", "device"), [*every_case(), *variants()], ids=lambda value: value if isinstance(value, str) else value.id
)
def test_every_setting_has_a_source(case: Case, device: str) -> None:
    sources = {key: source_of(case, device, key) for key, _ in leaves(settings_for(case, device))}
    assert [key for key, source in sources.items() if source.where == NOT_STATED] == []
    assert [key for key, source in sources.items() if source.where == OWN and not source.reason] == []


def test_every_source_is_one_of_some_setting() -> None:
    # A row that another one hides would say something that nobody reads.
    used = {
        id(source)
        for case, device in [*every_case(), *variants()]
        for key, _ in leaves(settings_for(case, device))
        for source in [source_of(case, device, key)]
    }
    assert [row for rows in SOURCES.values() for row in rows if id(row[2]) not in used] == []
    fixed = {id(each) for case, device in variants() for each in fixed_of(case, device)}
    assert [each for rows in FIXED.values() for _, each in rows if id(each) not in fixed] == []


def test_a_framework_with_a_recipe_has_sources() -> None:
    assert set(SOURCES) == set(FIXED) == set(RECIPES)


@pytest.mark.parametrize(("model", "rate"), [("resnet50v1.5", 0.1), ("vgg16", 0.01)])
def test_a_cpu_s_learning_rate_is_told_from_the_rate_it_is_in_proportion_to(model: str, rate: float) -> None:
    case = Case.parse(f"paddle-{model}-fp32-bs1-1x1-dali-dynamic")
    assert f"{rate:g} " in source_of(case, "cpu", "learning_rate").reason
    assert settings_for(case, "cpu")["learning_rate"] == rate / 256


def test_what_is_not_listed_is_not_given_a_source() -> None:
    case = Case.parse("paddle-vgg16-fp32-bs1-1x1-dali-static")
    assert source_of(case, "gpu", "no_such").where == NOT_STATED


def test_a_source_reads_as_its_section_and_its_remark() -> None:
    assert str(Source("METHODS, x")) == "METHODS, x"
    assert str(Source(OWN, "because")) == "suite's choice: because"


def test_settings_are_listed_by_dotted_keys_and_an_empty_group_is_one() -> None:
    listed = list(leaves({"a": 1, "b": {"c": [1, 2], "d": {}}, "e": {}}))
    assert listed == [("a", 1), ("b.c", [1, 2]), ("b.d", {}), ("e", {})]
