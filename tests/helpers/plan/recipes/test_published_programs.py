"""The published programs' counts, and how a program is held against them."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.plan.published import load_all_published
from helpers.plan.recipes.published_programs import (
    AS_PUBLISHED,
    DIFFERS_FACT,
    differences_of,
    program_evidence,
    program_facts,
    published_program,
)
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.program import PROGRAM_COUNTS_FACT, PROGRAM_FACT, counts_text, pretended_text

O2 = Case.parse("paddle-resnet50v1.5-amp_o2-bs256-1x8-dali-static")
# As the probes counted them in PaddleClas's own program; the suite's has one cast more.
CLAS_1X8 = {
    "operators": 493, "conv2d": 53, "float16_conv2d": 53, "nhwc_conv2d": 53, "batch_norm": 4,
    "fused_batch_norm_act": 33, "fused_bn_add_activation": 16, "fused_elemwise_add_activation": 0, "relu": 0,
    "elementwise_add": 1, "momentum": 0, "merged_momentum": 2, "all_reduce": 21, "coalesce_tensor": 21, "cast": 2,
}  # fmt: skip


def facts(kind: str = "old", **changed: int) -> dict[str, str]:
    return {PROGRAM_FACT: kind, PROGRAM_COUNTS_FACT: counts_text({**CLAS_1X8, "cast": 3, **changed})}


def test_every_judged_published_row_has_its_program(tmp_path: Path) -> None:
    rows = load_all_published(ROOT / "baselines" / "published", ("a100", "v100"))
    cases = [each.case for found in rows.values() for each in found.figures]
    static = [each for each in cases if each.framework is Framework.PADDLE and not each.auto]
    assert len(static) == 38
    assert all(published_program(each, "gpu") is not None for each in static)
    assert not any(published_program(each, "gpu") for each in cases if each not in static)


def test_the_suite_s_program_as_published_differs_in_nothing() -> None:
    known = published_program(O2, "gpu")
    assert known is not None
    assert known.of(O2) == CLAS_1X8
    assert program_facts(O2, "gpu", facts(operators=488)) == {DIFFERS_FACT: AS_PUBLISHED}


def test_a_lost_fusion_and_a_split_optimizer_are_named_with_both_numbers() -> None:
    changed = {"fused_bn_add_activation": 0, "merged_momentum": 0, "momentum": 161}
    found = program_facts(O2, "gpu", facts(**changed))[DIFFERS_FACT]
    assert found == (
        "fused_bn_add_activation 0, published 16; momentum 161, published 0; merged_momentum 0, published 2"
    )


def test_what_a_build_for_cpus_leaves_out_is_no_difference_and_anything_else_is() -> None:
    left_out = {"pretended": pretended_text(float16=True, several_cards=True, fuses_batch_norm=True)}
    unfused = {
        "batch_norm": 53, "fused_batch_norm_act": 0, "fused_bn_add_activation": 0, "relu": 33,
        "fused_elemwise_add_activation": 16,
    }  # fmt: skip
    assert differences_of(O2, {**facts(**unfused), **left_out}) == ()
    assert len(differences_of(O2, facts(**unfused))) == 5
    split = facts(**{**unfused, "merged_momentum": 0, "momentum": 161})
    assert differences_of(O2, {**split, **left_out}) == ("momentum 161, published 0", "merged_momentum 0, published 2")


@pytest.mark.parametrize(
    ("case_id", "device"),
    [
        ("paddle-resnet50v1.5-amp_o2-bs256-1x8-dali-to_static", "gpu"),
        ("paddle-vgg16-unstated-bs32-1x8-unstated-static-auto", "gpu"),
        ("paddle-resnet50v1.5-fp32-bs8-1x1-native-static", "cpu"),
    ],
)
def test_a_case_without_a_known_program_is_compared_with_none(case_id: str, device: str) -> None:
    case = Case.parse(case_id)
    assert published_program(case, device) is None
    assert program_facts(case, device, facts()) == {}


def test_a_pir_program_is_not_the_published_one() -> None:
    found = program_evidence(O2, "gpu", facts("PIR", merged_momentum=0, momentum=161))
    assert found is not None
    assert (found.kind, found.is_published) == ("PIR", False)
    assert found.differences == ("momentum 161, published 0", "merged_momentum 0, published 2")


def test_a_program_whose_operators_nobody_counted_does_not_pass_for_the_published_one() -> None:
    found = program_facts(O2, "gpu", {PROGRAM_FACT: "old"})
    assert found == {DIFFERS_FACT: "its operators were not counted"}
