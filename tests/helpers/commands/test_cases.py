"""``perfgate cases``: the table of what is configured, what runs here, and what a case needs."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import helpers.session.programs
import helpers.session.suite
from helpers.commands.main import EXIT_USAGE, main
from helpers.plan.recipes.recipe import settings_for
from helpers.session.gate import EXIT_OK
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError
from tests.helpers.commands.conftest import MACHINE, Builds

pytestmark = pytest.mark.slow

Cases = list[dict[str, Any]]
CASE = "paddle-vgg16-fp32-bs1-1x1-dali-dynamic"


def record(*argv: str) -> Cases:
    out = io.StringIO()
    assert main(["cases", *argv, "--json"], out) == EXIT_OK
    return list(json.loads(out.getvalue())["cases"])


@pytest.fixture(scope="module")
def listed() -> Iterator[Cases]:
    """All cases on a machine of two CPU cards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(helpers.session.suite, "discover", lambda **values: MACHINE)
        patch.setattr(helpers.session.suite, "BuildFinder", Builds)
        yield record()


def test_all_110_published_figures_are_of_cases_with_complete_configurations(listed: Cases) -> None:
    cases = [case for case in listed if case["published"]]
    assert {case["configuration"] for case in listed} == {"complete"}
    figures: Counter[str] = Counter()
    for case in cases:
        figures[case["case_id"].partition("-")[0]] += len(case["published"])
    assert figures == {"paddle": 54, "tensorflow": 34, "pytorch": 12, "mxnet": 10}
    # Each names the cards that it needs, and nothing but those is missing.
    assert all(" x V100" in case["needs"] or " x A100" in case["needs"] for case in cases)
    assert all("found no NVIDIA GPU" in case["here"] for case in cases)
    assert len({(case["target"], case["case_id"]) for case in listed}) == len(listed)


def test_cards_nodes_and_images_that_a_case_needs_are_told(listed: Cases) -> None:
    needs = {case["case_id"]: case["needs"] for case in listed if case["target"] == "v100"}
    assert needs["paddle-resnet50v1.5-fp32-bs256-1x1-native-static"] == "1 x V100, 79,360 images"
    assert needs["paddle-resnet50v1.5-fp32-bs256-4x8-native-static"] == "4 nodes of 8 x V100, 901,120 images"


def test_the_cases_of_cpus_run_here(listed: Cases) -> None:
    here = {case["case_id"] for case in listed if case["here"] is None}
    assert {case["target"] for case in listed if case["case_id"] in here} == {"cpu"}
    assert here and not any(case["published"] for case in listed if case["target"] == "cpu")


@pytest.mark.usefixtures("machine")
def test_cases_are_chosen_by_options_and_a_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    cases = record("*bs32*", "--target", "v100", "--framework", "paddle", "--published")
    chosen = {(case["target"], case["case_id"].split("-")[0], "bs32" in case["case_id"]) for case in cases}
    assert chosen == {("v100", "paddle", True)}
    for wrong in (["*resnet51*"], ["paddle-vgg17"], ["--published", "--target", "cpu"], [CASE, "--markdown"]):
        assert main(["cases", *wrong], io.StringIO()) == EXIT_USAGE
    assert "paddle-vgg17" in capsys.readouterr().err


@pytest.mark.usefixtures("machine")
def test_what_recipe_or_trainer_refuses_is_an_incomplete_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_layout(case: Case, device: str) -> dict[str, Any]:
        if case.batch_size_per_card == 128:
            raise ConfigError(f"case {case.id}", field="precision", got=case.precision.value, expected="another")
        return {key: value for key, value in settings_for(case, device).items() if key != "layout"}

    monkeypatch.setattr(helpers.session.programs, "settings_for", without_layout)
    cases = record("--target", "v100", "--framework", "mxnet")
    wrong = {case["case_id"]: case["configuration"] for case in cases}
    assert all(("'precision'" if "-bs128-" in case_id else "'layout'") in why for case_id, why in wrong.items())
