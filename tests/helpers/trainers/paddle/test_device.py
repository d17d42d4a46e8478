"""How TF32 is forced and recorded, with stand-ins for the build's switches and the card's arithmetic."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("paddle")

from helpers.trainers.common.float32 import PROBE
from helpers.trainers.common.process import Refused, set_environment
from helpers.trainers.common.settings import Settings
from helpers.trainers.contract.case import Precision
from helpers.trainers.paddle import device as paddle_device
from tests.helpers.trainers.specs import spec_of


@pytest.fixture
def switches(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """A build whose switches both stand on."""
    state = {"cublas": True, "cudnn": True}

    def setter(name: str) -> Any:
        return lambda wanted: state.update({name: wanted})

    def getter(name: str) -> Any:
        return lambda: state[name]

    core = SimpleNamespace(
        **{f"set_{name}_switch": setter(name) for name in state},
        **{f"get_{name}_switch": getter(name) for name in state},
    )
    monkeypatch.setattr(paddle_device, "core", core)
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    return state


def _arithmetic(monkeypatch: pytest.MonkeyPatch, matmul: bool, convolution: bool) -> None:
    shown = tuple(1.0 if rounds else PROBE for rounds in (matmul, convolution))
    monkeypatch.setattr(paddle_device, "_products", lambda: shown)


def test_fp32_switches_both_off_and_says_what_arithmetic_shows(
    switches: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    _arithmetic(monkeypatch, False, False)
    facts = paddle_device.force_tf32(Precision.FP32)
    assert switches == {"cublas": False, "cudnn": False}
    assert facts["tf32"] == "matmul off, convolution off"
    assert facts["tf32_switches"] == "cublas off, cudnn off, NVIDIA_TF32_OVERRIDE not set"


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("amp_o1-bs1-1x1-dali-dynamic", "auto_cast has no effect on a CPU"),
        ("amp_o2-bs1-1x1-dali-dynamic", "amp_o2 runs with to_static"),
        ("bf16-bs1-1x1-dali-dynamic", "bfloat16"),
        ("tf32-bs1-1x1-dali-dynamic", "TF32"),
        ("fp32-bs1-1x2-dali-static", "several GPUs"),
        ("fp32-bs1-1x1-unstated-dynamic", "data source unstated"),
        ("unstated-bs1-1x1-dali-static", "precision unstated"),
        ("amp-bs1-1x1-dali-static", "precision amp"),
        ("fp32-bs1-1x1-dali-static-xla", "the feature xla"),
    ],
)
def test_what_a_cpu_cannot_run_is_refused_with_its_reason(case: str, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        paddle_device.refuse_what_cannot_run(spec_of(f"paddle-resnet50v1.5-{case}"))


def test_mixed_precision_leaves_the_switches_as_the_build_has_them(
    switches: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    _arithmetic(monkeypatch, True, False)
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    facts = paddle_device.force_tf32(Precision.AMP_O2)
    assert facts["tf32_switches"] == "cublas on, cudnn on, NVIDIA_TF32_OVERRIDE 1"
    assert facts["tf32"] == "matmul on, convolution off"


@pytest.mark.parametrize(("precision", "override"), [("fp32", "0"), ("tf32", None), ("amp_o2", "1")])
def test_the_driver_s_own_override_is_set_for_fp32_and_taken_away_for_tf32(
    precision: str, override: str | None
) -> None:
    spec = spec_of(f"paddle-resnet50v1.5-{precision}-bs4-1x1-dali-static", "gpu")
    environment = {"NVIDIA_TF32_OVERRIDE": "1"}
    set_environment(spec, Settings.of(spec), environment)
    assert environment.get("NVIDIA_TF32_OVERRIDE") == override


@pytest.mark.parametrize(
    ("version", "found", "facts"),
    [
        (
            {"cuda": "11.8", "cudnn": "8.6.0", "nccl": "2.18.5"}, 8907,
            {"cuda": "11.8", "build_cudnn": "8.6.0", "build_nccl": "2.18.5", "cudnn": "8.9.7"},
        ),
        ({"cuda": "11.8", "cudnn": "8.6.0"}, None, {"cuda": "11.8", "build_cudnn": "8.6.0"}),
        ({"cuda": False, "cudnn": False, "nccl": 0}, None, {}),
    ],
    ids=["3.x", "2.6 before cuDNN is found", "for CPUs"],
)  # fmt: skip
def test_a_build_tells_what_it_was_made_with_and_the_cudnn_it_found(
    monkeypatch: pytest.MonkeyPatch, version: dict[str, Any], found: int | None, facts: dict[str, str]
) -> None:
    told = SimpleNamespace(**{name: lambda value=value: value for name, value in version.items()})
    monkeypatch.setattr(paddle_device, "paddle", SimpleNamespace(version=told, get_cudnn_version=lambda: found))
    assert paddle_device.build_facts() == facts
