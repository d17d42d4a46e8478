"""Case ids: one spelling each, and nothing but a ConfigError for every other text."""

from __future__ import annotations

import re
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


@given(cases())
def test_every_id_is_a_safe_folder_name(case: Case) -> None:
    assert re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,199}", case.id, re.ASCII)
    assert ".." not in case.id


@given(cases(), cases())
def test_two_cases_never_share_an_id(one: Case, other: Case) -> None:
    assert (one.id == other.id) == (one == other)


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


@pytest.mark.parametrize("kind", [Framework, Model, Precision, DataSource, Execution])
def test_no_field_value_holds_a_hyphen(kind: Any) -> None:
    assert [member.value for member in kind if "-" in member.value] == []
    assert [name for name in FEATURES if "-" in name] == []


@given(st.text())
def test_any_text_is_a_case_or_a_config_error(text: str) -> None:
    try:
        case = Case.parse(text)
    except ConfigError:
        return
    assert case.id == text


# Half of the patches are one digit or nothing: a longer one hardly ever makes an id.
@given(
    st.text(alphabet="-0123456789xbs", max_size=12) | st.text(alphabet="0123456789", max_size=1),
    cases(),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_a_spliced_id_is_a_case_or_a_config_error(patch: str, case: Case, start: int, end: int) -> None:
    text = case.id[:start] + patch + case.id[end:]
    try:
        parsed = Case.parse(text)
    except ConfigError:
        return
    assert parsed.id == text


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


@pytest.mark.parametrize(
    ("text", "field"),
    [("bs0-4x8", "batch_size_per_card"), ("bs256-0x8", "nodes"), ("bs256-4x0", "cards_per_node")],
)
def test_zero_images_nodes_or_cards_is_refused(text: str, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Case.parse(DESIGN_EXAMPLE.replace("bs256-4x8", text))
    assert (caught.value.field, caught.value.got) == (field, 0)


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "8", 1_000_001])
def test_a_batch_size_that_is_no_count_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="batch_size_per_card"):
        Case(Framework.PYTORCH, Model.VGG16, Precision.FP32, value, 1, 1, DataSource.NATIVE)


def test_a_paddle_case_names_its_execution_and_a_peer_need_not() -> None:
    with pytest.raises(ConfigError, match="execution"):
        Case.parse("paddle-vgg16-fp32-bs8-1x1-native")
    assert Case.parse("pytorch-vgg16-fp32-bs8-1x1-native").execution is None


def test_amp_precisions_are_the_automatic_ones() -> None:
    assert [each.value for each in Precision if each.is_amp] == ["amp_o1", "amp_o2", "amp"]


def test_an_unstated_data_source_is_read_by_dali_and_stays_in_the_id() -> None:
    open_case = Case.parse("mxnet-resnet50v1.5-amp-bs256-1x1-unstated")
    assert (open_case.read_from, open_case.data) == (DataSource.DALI, DataSource.UNSTATED)
    assert Case.parse("mxnet-resnet50v1.5-amp-bs256-1x1-native").read_from is DataSource.NATIVE
