"""A whole session on a stand-in machine of the published card: what the published rows are compared with, and by what.

The runs' figures come from step logs through every rule, as a runner computes them; only the steps are made up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from helpers.judging.rules import RULES, figures
from helpers.plan.baseline_files import FigureStatus
from helpers.plan.case_plan import SuiteCase
from helpers.plan.image_folder import DatasetFacts, images_needed
from helpers.plan.published import PublishedSet
from helpers.report.row import CaseRow, row_of
from helpers.trainers.contract.case import DataSource
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.judging.step_logs import logs_of
from tests.helpers.session.workshop import (
    A100,
    IMAGENET,
    ONE_RUN,
    PCIE,
    PHOTOGRAPHS,
    SXM2,
    Bench,
    Builds,
    case_of,
    machine_with,
)

PYTORCH = "pytorch-resnet50v1.5-amp-bs256-1x1-dali_cpu"
CARDS = {"v100": SXM2, "a100": A100}


def pytorch_cases(sets: Mapping[str, PublishedSet]) -> list[tuple[str, str]]:
    """The published PyTorch rows whose source states a rule and a data source, and that fit one node."""
    return [
        (target, figure.case.id)
        for target, found in sorted(sets.items())
        for figure in found.figures
        if figure.case.framework is Framework.PYTORCH and figure.rule != "unknown" and figure.case.nodes == 1
    ]


def figures_at(case: SuiteCase, samples_per_s: float) -> dict[str, Any]:
    """What every rule gives for a run of the case's protocol at a constant rate of all cards."""
    steps = case.protocol.warmup_steps + case.protocol.window_steps
    batch, cards = case.case.batch_size_per_card, case.case.cards
    seconds = batch * cards / samples_per_s
    return figures(logs_of(*[[seconds] * steps] * cards, batch=batch, warmup=case.protocol.warmup_steps))


def measured(bench: Bench, target: str, case_id: str, share: float, **more: Any) -> CaseRow:
    """The row of a night in which the case ran at ``share`` of its published figure."""
    suite = bench.suite(machine_with(*[CARDS[target]] * 8), **more)
    case = case_of(suite, case_id, target)
    bench.runner.usual = {"figures": figures_at(case, share * case.figures[0].samples_per_s)}
    return row_of(suite.measure(case))


@pytest.fixture
def both(builds: Builds) -> Builds:
    builds.frameworks = (Framework.PADDLE, Framework.PYTORCH)
    return builds


@pytest.mark.parametrize(("share", "status"), [(1.0, "PASS"), (0.96, "PASS"), (0.94, "BELOW_PUBLISHED")])
def test_every_published_pytorch_row_of_one_node_is_compared_by_its_own_rule(
    bench: Bench, both: Builds, published: Mapping[str, PublishedSet], share: float, status: str
) -> None:
    cases = pytorch_cases(published)
    assert len(cases) == 8
    for target, case_id in cases:
        row = measured(bench, target, case_id, share)
        (compared,) = row.published
        assert (compared.rule, compared.status) == ("ngc-pytorch-mean", status), case_id
        assert compared.ratio == pytest.approx(share)
        # Another framework's row is a reference: it is shown with its ratio and sets no status.
        assert (compared.sets_status, row.status) == (False, "NO_BASELINE")


@pytest.mark.parametrize(("share", "status"), [(1.0, "PASS"), (0.94, "BELOW_PUBLISHED")])
def test_a_pytorch_row_that_gates_sets_the_case_s_status(bench: Bench, both: Builds, share: float, status: str) -> None:
    gating = {
        target: replace(found, figures=tuple(replace(each, status=FigureStatus.GATE) for each in found.figures))
        for target, found in bench.published.items()
    }
    bench.published = gating
    row = measured(bench, "v100", PYTORCH, share, gate=[{"cases": PYTORCH, "needs": "published", "target": "v100"}])
    assert row.published[0].sets_status
    assert row.published[0].status == status
    assert (row.status == "BELOW_PUBLISHED") is (status == "BELOW_PUBLISHED")
    assert row.effect == ("fail" if status == "BELOW_PUBLISHED" else "warn" if row.status == "NO_BASELINE" else "pass")


def test_no_published_row_names_a_rule_that_is_not_computed(published: Mapping[str, PublishedSet]) -> None:
    rules = {figure.rule for found in published.values() for figure in found.figures}
    assert rules - RULES.keys() == {"unknown"}


# --- as many images as a published comparison needs

SYNTHETIC_PYTORCH = "pytorch-resnet50v1.5-amp_o2-bs256-1x1-synthetic"


def on(bench: Bench, card: str, data: DatasetFacts, case_id: str, **more: Any) -> CaseRow:
    """The row of a case on a V100 machine that has these images; the runner's answer is at the published rate."""
    suite = bench.suite(machine_with(*[card] * 8), **more)
    suite.data = data
    case = case_of(suite, case_id, "v100")
    bench.runner.usual = {"figures": figures_at(case, case.figures[0].samples_per_s if case.figures else 1000.0)}
    return row_of(suite.measure(case))


def test_a_published_case_with_too_few_images_is_not_run_and_says_how_many_it_needs(bench: Bench) -> None:
    row = on(bench, SXM2, PHOTOGRAPHS, ONE_RUN)
    assert (row.status, row.effect) == ("not run", "skip")
    assert row.reason.startswith(
        "too few images for its published figure: 8 in photographs, needs 79,360 images an epoch (310 steps of 256 on "
        "1 card, by paddleclas-trimmed). Name a folder with as many: --data FOLDER"
    )
    # Before any training.
    assert bench.runner.asked == []


def test_a_gate_fails_a_published_case_of_its_own_with_too_few_images(bench: Bench) -> None:
    row = on(bench, SXM2, PHOTOGRAPHS, ONE_RUN, gate=[{"cases": ONE_RUN, "needs": "published", "target": "v100"}])
    assert (row.status, row.effect) == ("not run", "fail")


@pytest.mark.parametrize(("images", "runs"), [(79_359, False), (79_360, True), (1_281_167, True)])
def test_as_many_images_as_the_rule_s_steps_take_are_enough(bench: Bench, images: int, runs: bool) -> None:
    row = on(bench, SXM2, replace(IMAGENET, images=images), ONE_RUN)
    assert bool(bench.runner.asked) is runs
    assert (row.status == "not run") is not runs
    assert [each.status for each in row.published] == (["PASS"] if runs else [])


def test_cases_that_nothing_published_is_held_against_run_on_few_images(bench: Bench, both: Builds) -> None:
    # Another card than the published one; a case that reads no images.
    assert on(bench, PCIE, PHOTOGRAPHS, ONE_RUN).status == "NO_BASELINE"
    assert on(bench, SXM2, PHOTOGRAPHS, SYNTHETIC_PYTORCH).status == "NO_BASELINE"


def test_a_reference_that_is_only_shown_is_not_compared_on_few_images_either(bench: Bench, both: Builds) -> None:
    row = on(bench, SXM2, PHOTOGRAPHS, PYTORCH)
    assert row.status == "not run" and "needs 25,600 images an epoch (100 steps of 256 on 1 card" in row.reason


def test_every_published_case_of_one_node_can_be_fed_by_imagenet(published: Mapping[str, PublishedSet]) -> None:
    needs = [
        images_needed(figure.case, [figure.rule])
        for found in published.values()
        for figure in found.figures
        if figure.case.nodes == 1 and figure.case.framework in (Framework.PADDLE, Framework.PYTORCH)
    ]
    assert max(need.images for need in needs if need) == 634_880 < IMAGENET.images


def test_without_data_no_published_paddle_row_of_one_node_is_run(
    bench: Bench, published: Mapping[str, PublishedSet]
) -> None:
    """256 images are a step or more of 18 of the 30, which would have run."""
    small = replace(PHOTOGRAPHS, images=256)
    told, filled = [], 0
    for target, card in (("v100", SXM2), ("a100", A100)):
        suite = bench.suite(machine_with(*[card] * 8))
        suite.data = small
        for case in suite.cases:
            rules = [figure.rule for figure in case.figures if figure.applies_to(card)]
            paddle = case.case.framework is Framework.PADDLE and case.case.data is not DataSource.SYNTHETIC
            if case.target == target and paddle and case.case.nodes == 1 and rules:
                told.append(suite.measure(case).reason)
                filled += case.case.batch_size_per_card * case.case.cards <= 256
    assert (len(told), filled) == (30, 18)
    assert all(reason.startswith("too few images for its published figure: 256 in") for reason in told)
    assert bench.runner.asked == []
