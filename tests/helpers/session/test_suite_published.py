"""A whole session on a stand-in machine of the published card: what the published rows are compared with, and by what.

The runs' figures come from step logs through every rule, as a runner computes them; only the steps are made up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from helpers.judging.rules.own import RULES, figures
from helpers.machine.host import Space
from helpers.plan.baseline_files import FigureStatus
from helpers.plan.case_plan import SuiteCase
from helpers.plan.grown_dataset import GrownDataset, Say, images_for
from helpers.plan.image_folder import DatasetFacts, ImagesNeeded
from helpers.plan.published import PublishedSet
from helpers.report.row import CaseRow, row_of
from helpers.session.suite import Suite
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.judging.step_logs import logs_of
from tests.helpers.session.workshop import (
    A100,
    IMAGENET,
    ONE_RUN,
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
    return row_of(suite.measurer.measure(case))


@pytest.fixture
def both(builds: Builds) -> Builds:
    builds.frameworks = (Framework.PADDLE, Framework.PYTORCH)
    return builds


@pytest.mark.slow
@pytest.mark.parametrize(("share", "status"), [(0.96, "PASS"), (0.94, "BELOW_PUBLISHED")])
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


# --- as many images as a published comparison needs


def on(bench: Bench, card: str, data: DatasetFacts, case_id: str, **more: Any) -> CaseRow:
    """The row of a case on a V100 machine whose user named these images; the runner's answer is at the published
    rate."""
    suite = bench.suite(machine_with(*[card] * 8), data_root=str(data.root), **more)
    suite.data = data
    case = case_of(suite, case_id, "v100")
    bench.runner.usual = {"figures": figures_at(case, case.figures[0].samples_per_s if case.figures else 1000.0)}
    return row_of(suite.measurer.measure(case))


@pytest.mark.parametrize(("images", "runs"), [(79_359, False), (79_360, True), (1_281_167, True)])
def test_as_many_images_as_the_rule_s_steps_take_are_enough(bench: Bench, images: int, runs: bool) -> None:
    row = on(bench, SXM2, replace(IMAGENET, images=images), ONE_RUN)
    assert bool(bench.runner.asked) is runs
    assert (row.status == "not run") is not runs
    assert [each.status for each in row.published] == (["PASS"] if runs else [])


# --- images that the suite makes, where the user names none


@dataclass(frozen=True)
class GrownDouble(GrownDataset):
    """Makes no images: it notes what it was asked for, and answers with the facts of what would be there."""

    asked: list[int] = field(default_factory=list)

    def missing(self, count: int) -> list[int]:
        return list(range(count))

    def grow(self, count: int, say: Say) -> None:
        self.asked.append(count)
        say(f"making {count}")

    def feeding(self, needed: ImagesNeeded, say: Say) -> DatasetFacts:
        return replace(PHOTOGRAPHS, images=needed.images, made=images_for(needed))


def without_data(
    bench: Bench, card: str, free_gb: float = 100.0, cards: int = 8
) -> tuple[Suite, GrownDouble, list[str]]:
    """A suite on a machine of these cards whose user named no folder: its images, and what it says."""
    suite = bench.suite(machine_with(*[card] * cards))
    suite.data = replace(PHOTOGRAPHS, images=256)
    grown = GrownDouble(bench.folder / "grown", free=lambda path: Space(10**13, int(free_gb * 1e9)))
    said: list[str] = []
    suite.images = replace(suite.images, grown=grown, say=said.append)
    return suite, grown, said


def published_here(suite: Suite, card: str, target: str) -> list[SuiteCase]:
    """The Paddle cases of one node that are compared with a figure of this card."""
    return [
        case
        for case in suite.cases
        if case.target == target
        and case.case.framework is Framework.PADDLE
        and case.case.nodes == 1
        and any(figure.applies_to(card) and figure.rule in RULES for figure in case.figures)
    ]


@pytest.mark.parametrize(("target", "card"), [("a100", A100)])
def test_without_data_every_published_paddle_row_of_one_node_is_measured(bench: Bench, target: str, card: str) -> None:
    suite, grown, said = without_data(bench, card)
    cases = published_here(suite, card, target)
    assert len(cases) >= 4
    suite.measurer.prepare(cases, said.append)
    # As many as ImageNet's validation set has, which the publisher read again and again.
    assert grown.asked == [50_000]
    for case in cases:
        bench.runner.usual = {"figures": figures_at(case, case.figures[0].samples_per_s)}
        outcome = suite.measurer.measure(case)
        assert outcome.status.value == "PASS" or not any(each.sets_status for each in outcome.verdict.published), case
    assert len({case_id for case_id, _ in bench.runner.asked}) == len(cases)


def test_only_as_many_images_are_made_as_the_chosen_rows_need(bench: Bench) -> None:
    suite, grown, said = without_data(bench, SXM2, cards=1)
    small = case_of(suite, "paddle-vgg16-fp32-bs32-1x1-native-static", "v100")
    suite.measurer.prepare([small])
    assert grown.asked == [121 * 32]
    assert said[0].startswith("images: no folder is named (--data): making 3,872, 0.4 GB, once, in ")


def test_a_disk_that_is_too_small_costs_only_the_rows_that_need_more(bench: Bench) -> None:
    suite, grown, _ = without_data(bench, SXM2, free_gb=4.0)
    small = case_of(suite, "paddle-vgg16-fp32-bs32-1x1-native-static", "v100")
    suite.measurer.prepare([small, case_of(suite, ONE_RUN, "v100")])
    assert grown.asked == [121 * 32]
    bench.runner.usual = {"figures": figures_at(small, small.figures[0].samples_per_s)}
    assert suite.measurer.measure(small).status.value == "PASS"
    row = row_of(suite.measurer.measure(case_of(suite, ONE_RUN, "v100")))
    assert row.status == "not run"
    assert "need 7.8 GB (2 GB of them for the runs), 4.0 GB are free" in row.reason


def test_published_rows_of_this_card_come_first_fewer_cards_and_shorter_ones_before_others(
    bench: Bench, both: Builds
) -> None:
    suite, _, _ = without_data(bench, SXM2)
    here = [case for case in suite.cases if case.target == "v100" and suite.why_not(case) is None]
    ordered = suite.in_order(reversed(here))
    figures = [[figure for figure in case.figures if figure.applies_to(SXM2)] for case in ordered]
    gating = [any(figure.status is FigureStatus.GATE for figure in each) for each in figures]
    first, shown = gating.count(True), sum(1 for each in figures if each)
    assert gating == [True] * first + [False] * (len(ordered) - first)
    assert [bool(each) for each in figures] == [True] * shown + [False] * (len(ordered) - shown)
    assert 0 < first < shown < len(ordered)
    cards = [case.case.cards for case in ordered[:first]]
    assert cards == sorted(cards) and {1, 8} <= set(cards)
    # One run of 320 steps each comes before seven of 160, which also start seven times.
    assert [case.case.id for case in ordered[:2]] == [ONE_RUN, "paddle-resnet50v1.5-fp32-bs256-1x1-native-static"]
    # What is compared with nothing keeps its order.
    assert ordered[shown:] == [case for case in reversed(here) if case in ordered[shown:]]
