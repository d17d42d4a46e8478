"""Trains ResNet50 v1.5. The cases are those of perf.yaml and of baselines/published."""

import pytest

from fixtures.measuring import Judged


@pytest.mark.perf_matrix(model="resnet50v1.5", target="v100")
def test_v100(verdict: Judged) -> None:
    """A V100 delivers the published throughput, and what this machine recorded before."""
    assert verdict.passes, verdict.reason


@pytest.mark.perf_matrix(model="resnet50v1.5", target="a100")
def test_a100(verdict: Judged) -> None:
    """An A100 delivers the published throughput, and what this machine recorded before."""
    assert verdict.passes, verdict.reason


@pytest.mark.perf_matrix(model="resnet50v1.5", target="gpu")
def test_gpu(verdict: Judged) -> None:
    """This machine's NVIDIA card, of any model, is as fast as when its baseline was recorded."""
    assert verdict.passes, verdict.reason


@pytest.mark.perf_matrix(model="resnet50v1.5", target="cpu")
def test_cpu(verdict: Judged) -> None:
    """This machine's processor is as fast as when its baseline was recorded."""
    assert verdict.passes, verdict.reason
