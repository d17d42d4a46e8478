"""The perf.yaml of this repository: which cases, protocols and numbers it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.judging.case.evidence import Budget
from helpers.judging.rules.own import RULES
from helpers.plan.baseline_files import BASELINES
from helpers.plan.case_plan import matrix
from helpers.plan.image_folder import images_needed
from helpers.plan.matrix import ByCase, Tolerances
from helpers.plan.perf_yaml import Config, load_config
from helpers.plan.published import load_published
from helpers.trainers.contract.case import DataSource, Execution, Precision
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.models import Model

SHIPPED = Path(__file__).parents[3] / "helpers/plan/defaults.yaml"
PUBLISHED_RULES = (
    "paddleclas-trimmed",
    "paddleclas-mean",
    "fleetx-20-100-median7",
    "dlperf-log",
    "dlperf-time",
    "dlperf-tf2",
    "ngc-tf-mean",
    "ngc-tf-average",
    "ngc-tf-summary",
    "ngc-pytorch-mean",
    "ngc-pytorch-summary",
    "ngc-pytorch-summary-compute",
    "ngc-mxnet-epochs",
    "unknown",
)


@pytest.fixture(scope="module")
def shipped() -> Config:
    return load_config(SHIPPED)


def test_the_shipped_matrix_has_both_models_precisions_batch_sizes_and_card_counts(shipped: Config) -> None:
    cases = [item.case for item in shipped.matrix if item.case.data is DataSource.DALI]
    cases = [case for case in cases if case.framework is Framework.PADDLE and case.nodes == 1 and not case.auto]
    cases = [case for case in cases if case.execution is not Execution.STATIC]
    for model in (Model.RESNET50, Model.VGG16):
        own = [case for case in cases if case.model is model]
        assert {case.precision for case in own} == {Precision.FP32, Precision.AMP_O1}
        assert {case.cards for case in own} == {1, 2}
        assert len({case.batch_size_per_card for case in own}) == 2
        assert len(own) == 8


def test_the_shipped_matrix_has_pytorch_on_a_cpu_in_every_precision_data_source_and_card_count(shipped: Config) -> None:
    cases = [each for each in shipped.matrix if each.case.framework is Framework.PYTORCH and each.target == "cpu"]
    assert not any(each.short for each in cases)
    for model in (Model.RESNET50, Model.VGG16):
        own = [each.case for each in cases if each.case.model is model]
        single = [case for case in own if case.precision is Precision.FP32]
        assert {case.precision for case in own} >= {Precision.FP32, Precision.BF16, Precision.AMP_O1}
        assert {case.data for case in single} >= {DataSource.DALI, DataSource.NATIVE}
        assert {case.cards for case in own} == {1, 2}
    data = {each.case.data for each in cases}
    assert data == {DataSource.DALI, DataSource.DALI_CPU, DataSource.NATIVE, DataSource.SYNTHETIC}
    assert [each.case.id for each in cases if each.case.compile] == [
        "pytorch-resnet50v1.5-fp32-bs4-1x1-synthetic-compile"
    ]


def test_the_shipped_short_selection_has_both_models_precisions_and_card_counts(shipped: Config) -> None:
    assert [item.case.id for item in shipped.matrix if item.short] == [
        "paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic",
        "paddle-vgg16-fp32-bs1-1x1-dali-dynamic",
        "paddle-resnet50v1.5-amp_o1-bs4-1x2-dali-to_static",
        "paddle-vgg16-amp_o1-bs1-1x2-dali-to_static",
    ]


@pytest.mark.parametrize("rule", PUBLISHED_RULES)
def test_the_shipped_file_has_a_protocol_for_every_published_rule(shipped: Config, rule: str) -> None:
    assert rule in shipped.protocol_for_rule(rule).rules


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


def test_the_shipped_numbers_are_those_of_the_decision_procedure(shipped: Config) -> None:
    assert (shipped.tolerances, shipped.budgets) == (
        ByCase(Tolerances(published=0.05, recorded=0.005, unconfirmed=0.05)),
        ByCase(Budget()),
    )
    assert shipped.budgets.general == Budget(screen_runs=6, first_runs=5, pairs=40, rotation=8, repeats=2, retries=1)


def test_every_shipped_protocol_has_its_warm_up_judged_and_may_extend_it(shipped: Config) -> None:
    for protocol in shipped.protocols.values():
        assert protocol.steady_window_steps >= 2
        assert protocol.most_warmup_steps >= protocol.warmup_steps + 3 * protocol.steady_window_steps
