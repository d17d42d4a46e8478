"""Case ids: one spelling each, and nothing but a ConfigError for every other text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.trainers.contract.case import FEATURES, Case, DataSource, Execution, Precision
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.models import Model

DESIGN_EXAMPLE = "paddle-resnet50v1.5-amp_o2-bs256-4x8-dali-static"

SIZES = st.integers(1, 1_000_000)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    framework = draw(st.sampled_from(Framework))
    executions: list[Execution | None] = [*Execution]
    if framework is not Framework.PADDLE:
        executions.append(None)
    features = {name: draw(st.booleans()) for name in FEATURES}
    return Case(
        framework,
        draw(st.sampled_from(Model)),
        draw(st.sampled_from(Precision)),
        draw(SIZES),
        draw(SIZES),
        draw(SIZES),
        draw(st.sampled_from(DataSource)),
        draw(st.sampled_from(executions)),
        **features,
    )


@given(cases())
def test_every_id_parses_to_its_own_case(case: Case) -> None:
    assert Case.parse(case.id) == case
    assert str(case) == case.id


def test_the_id_is_the_one_the_house_plan_shows() -> None:
    case = Case(Framework.PADDLE, Model.RESNET50, Precision.AMP_O2, 256, 4, 8, DataSource.DALI, Execution.STATIC)
    assert case.id == DESIGN_EXAMPLE
    assert case.cards == 32


def test_features_stand_at_the_end_in_their_fixed_order() -> None:
    case = Case(
        Framework.PADDLE, Model.VGG16, Precision.UNSTATED, 32, 1, 8, DataSource.UNSTATED, Execution.DYNAMIC,
        auto=True, xla=True, graphs=True, compile=True,
    )  # fmt: skip
    assert case.id == "paddle-vgg16-unstated-bs32-1x8-unstated-dynamic-compile-graphs-xla-auto"


@pytest.mark.parametrize(
    "wrong",
    [
        DESIGN_EXAMPLE.upper(),
        DESIGN_EXAMPLE + " ",
        DESIGN_EXAMPLE + "\n",
        DESIGN_EXAMPLE.replace("bs256", "bs0256"),
        DESIGN_EXAMPLE.replace("4x8", "04x8"),
        DESIGN_EXAMPLE.replace("4x8", "4×8"),
        DESIGN_EXAMPLE.replace("bs256", "bs٢"),
        DESIGN_EXAMPLE + "-auto-xla",
        DESIGN_EXAMPLE + "-xla-xla",
        DESIGN_EXAMPLE + "-static",
        DESIGN_EXAMPLE.replace("256", "9" * 5000),
        "",
    ],
)
def test_a_case_has_one_spelling(wrong: str) -> None:
    with pytest.raises(ConfigError):
        Case.parse(wrong)


@pytest.mark.parametrize(
    ("old", "new", "field", "known"),
    [
        ("resnet50v1.5", "resnet51", "model", ", ".join(each.value for each in Model)),
        ("amp_o2", "fp8", "precision", "fp32, tf32, bf16, amp_o1, amp_o2, amp, unstated"),
        ("paddle", "caffe", "framework", ", ".join(each.value for each in Framework)),
        ("-dali-", "-floppy-", "data", "dali, dali_cpu, native, synthetic, unstated"),
        ("static", "lazy", "feature", "compile, graphs, xla, auto"),
    ],
)
def test_an_unknown_word_is_named_with_the_known_ones(old: str, new: str, field: str, known: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Case.parse(DESIGN_EXAMPLE.replace(old, new))
    assert caught.value.field == field
    assert known in str(caught.value)
    assert new.strip("-") in str(caught.value)


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "8", 1_000_001])
def test_a_batch_size_that_is_no_count_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="batch_size_per_card"):
        Case(Framework.PYTORCH, Model.VGG16, Precision.FP32, value, 1, 1, DataSource.NATIVE)


def test_a_paddle_case_names_its_execution_and_a_peer_need_not() -> None:
    with pytest.raises(ConfigError, match="execution"):
        Case.parse("paddle-vgg16-fp32-bs8-1x1-native")
    assert Case.parse("pytorch-vgg16-fp32-bs8-1x1-native").execution is None


def test_an_unstated_data_source_is_read_by_dali_and_stays_in_the_id() -> None:
    open_case = Case.parse("mxnet-resnet50v1.5-amp-bs256-1x1-unstated")
    assert (open_case.read_from, open_case.data) == (DataSource.DALI, DataSource.UNSTATED)
    assert Case.parse("mxnet-resnet50v1.5-amp-bs256-1x1-native").read_from is DataSource.NATIVE
