"""The PyTorch trainer as the suite starts it, in its own environment: two cards, and what they record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.launch.outcome import OutcomeKind
from helpers.trainers.contract.step_profile import Phase, StepProfile, from_json
from tests.helpers.trainers.colours import LEARNING_RATES, check_learnt
from tests.helpers.trainers.environments import PYTORCH
from tests.helpers.trainers.jobs import ADAPTIVE, CORES, TWO_CORES, job, run

pytestmark = [pytest.mark.training, pytest.mark.untimed, PYTORCH.needs, pytest.mark.usefixtures("small_images")]

FACTS = {
    "backend": "gloo",
    "bfloat16_convolutions": "53",
    "NHWC_convolutions": "53",
    "master_copies": "55",
    "threads": "1",
    "torch_threads": "1",
    "data": "native",
}


@TWO_CORES
def test_two_cards_learn_together_each_on_its_own_core_until_both_are_steady(tmp_path: Path, colours: Path) -> None:
    settings = {"learning_rate": LEARNING_RATES["resnet50v1.5"]}
    spec = job(
        tmp_path, "pytorch-resnet50v1.5-amp_o2-bs2-1x2-native", colours, 2, settings, explained_steps=2, **ADAPTIVE
    )
    outcome = run(spec, PYTORCH.interpreter)
    assert outcome.kind is OutcomeKind.COMPLETE, outcome.log_tail
    first, second = outcome.logs
    for log in outcome.logs:
        header = log.header
        assert (header.framework, header.device, len(header.framework_commit)) == ("pytorch", "cpu", 40)
        assert header.framework_version.startswith("2.")
        assert FACTS.items() <= header.facts.items()
        check_learnt(log)
    assert [log.header.facts["cores"] for log in outcome.logs] == [str(core) for core in CORES[:2]]
    assert len(first.warmup) == len(second.warmup)
    assert len(first.warmup) in (6, 8)
    assert [step.loss for step in first.steps] != [step.loss for step in second.steps]
    beats = [json.loads(line) for line in spec.heartbeat_path(0).read_text().splitlines()]
    phases = [beat["phase"] for beat in beats if "phase" in beat]
    assert phases[:6] == ["import torch", "connect ranks", "data", "build model", "first step", "warm-up"]
    for rank in (0, 1):
        profile = from_json(spec.step_profile_path(rank).read_text(encoding="utf-8"), f"rank {rank}")
        assert isinstance(profile, StepProfile), profile
        assert all(profile.phases[phase] > 0 for phase in (Phase.DATA_WAIT, Phase.FORWARD, Phase.BACKWARD))
        calls = {row.key[:3]: row.calls_per_step for row in profile.operators}
        assert calls["forward", "stem.convolution", "aten::conv2d"] == 1
        assert calls["backward", "stem.convolution", "aten::convolution_backward"] == 1
        assert calls["all_reduce", "", "gloo:all_reduce"] >= 1
        assert sum(row.seconds_per_step for row in profile.operators) > 0.9 * profile.step_seconds
        assert spec.trace_path(rank).stat().st_size > 10_000
