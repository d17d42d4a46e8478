"""The configuration of a PyTorch job in words, and what a CPU has for bfloat16; no framework needed."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.common.process import bfloat16_hardware
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.pytorch.settings import PytorchSettings, has_kernels, setting_facts


def _facts(case_id: str, device: str = "cpu", **overrides: Any) -> dict[str, str]:
    case = Case.parse(f"pytorch-{case_id}")
    spec = JobSpec("j", case, 0, "r", device, 0, 1, settings={**settings_for(case, device), **overrides})
    return setting_facts(spec, PytorchSettings.of(spec))


def test_a_plain_case_switches_nothing_on() -> None:
    facts = _facts("resnet50v1.5-fp32-bs4-1x1-dali")
    expected = {
        "precision": "float32", "weights": "float32", "compile": "off", "graphs": "off", "ddp": "none",
        "loss_scaling": "none", "decay_norms": "on", "layout": "NCHW", "optimizer": "momentum 0.9, L2 0.0001",
    }  # fmt: skip
    assert expected.items() <= facts.items()


def test_features_and_several_cards_are_named() -> None:
    facts = _facts("resnet50v1.5-bf16-bs4-1x2-synthetic-compile")
    assert (facts["compile"], facts["precision"]) == ("default", "AMP O1 in bfloat16: torch.autocast")
    assert facts["ddp"] == "bucket_cap_mb 25, gradient_as_bucket_view True, static_graph False"
    assert _facts("resnet50v1.5-bf16-bs256-1x1-synthetic-graphs", "gpu")["graphs"] == "on"


def test_pure_half_precision_keeps_master_copies() -> None:
    facts = _facts("resnet50v1.5-amp_o2-bs256-1x1-synthetic", "gpu")
    assert facts["weights"] == "float16, float32 master copies; batch norm's float32"
    assert facts["layout"] == "NHWC"
    assert facts["loss_scaling"].startswith("dynamic from 128.0")


def test_what_the_gradient_scaler_cannot_do_is_said() -> None:
    key = "loss_scaling_rule.decr_every_n_nan_or_inf"
    assert _facts("resnet50v1.5-amp_o1-bs256-1x1-synthetic", "gpu")[key].startswith("not applied")
    published = _facts("resnet50v1.5-amp-bs256-1x1-dali_cpu", "gpu")
    assert key not in published
    assert published["loss_scaling"].startswith("static 256.0, less after overflows (decr_every_n_nan_or_inf 1, decr")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"avx512f", "avx512_bf16"}, "AVX512_BF16"),
        ({"avx512f", "avx512_bf16", "amx_bf16"}, "AMX, AVX512_BF16"),
        ({"avx512f"}, "none: AVX-512 without"),
        ({"avx2"}, "none: without AVX-512"),
        (set(), "none: without AVX-512"),
    ],
)
def test_the_cpu_s_bfloat16_is_told(flags: set[str], told: str) -> None:
    assert bfloat16_hardware(flags).startswith(told)


@pytest.mark.parametrize(
    ("capability", "archs", "runs"),
    [
        ((9, 0), ["sm_80", "sm_90"], True),
        ((8, 6), ["sm_80", "sm_90"], True),
        ((7, 0), ["sm_75", "sm_80"], False),
        ((9, 0), ["sm_80"], False),
        ((9, 0), ["sm_80", "compute_80"], True),
        ((12, 0), ["sm_90", "sm_90a", "compute_90a"], False),
        ((9, 0), ["sm_90a"], True),
        ((10, 3), ["sm_100", "sm_120"], True),
        ((10, 0), ["sm_103"], False),
        ((9, 0), [], False),
    ],
)
def test_a_build_runs_where_it_has_code_for_the_card_or_code_to_compile(
    capability: tuple[int, int], archs: list[str], runs: bool
) -> None:
    assert has_kernels(capability, archs) is runs
