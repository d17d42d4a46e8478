"""What the recipe of a case takes from which publisher, and what is refused."""

from __future__ import annotations

import dataclasses
import enum
import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.plan.overrides import settings_segment
from helpers.plan.published import load_published
from helpers.plan.recipes import plain_values
from helpers.plan.recipes.common import cpu_environment, read_processor
from helpers.plan.recipes.departures import departures_of
from helpers.plan.recipes.recipe import fixed_of, settings_for, sourced_settings
from helpers.trainers.common.settings import Settings
from helpers.trainers.contract.case import Case, Precision
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.models import MODELS, Model, Publisher
from tests.for_each import for_each
from tests.helpers.plan.recipes.rows import settings

PUBLISHED = Path(__file__).parents[4] / "baselines" / "published"


# Keys of an equal meaning, which the trainers of all frameworks read.
SHARED = (
    "optimizer", "learning_rate", "learning_rate_boundaries", "learning_rate_decay", "momentum", "weight_decay",
    "layout", "feed_layout", "input_channels", "input_dtype", "augmentation", "dali", "native", "amp_level",
    "amp_dtype", "loss_scaling", "loss_scaling_rule",
)  # fmt: skip


@for_each("device", ["cpu", "gpu"])
@for_each(
    ("framework", "precision", "model", "data"),
    [
        *itertools.product(
            ["pytorch"],
            ["fp32", "tf32", "amp_o1", "amp_o2"],
            ["resnet50v1.5", "vgg16"],
            ["dali", "native", "synthetic"],
        ),
        *itertools.product(["tensorflow", "mxnet"], ["fp32"], ["resnet50v1.5"], ["native", "synthetic"]),
        *itertools.product(["tensorflow", "mxnet"], ["fp32"], ["vgg16"], ["dali", "native"]),
    ],
)
def test_a_case_that_nobody_published_is_trained_as_paddle_s(
    framework: str, precision: str, model: str, data: str, device: str
) -> None:
    rest = f"{model}-{precision}-bs8-1x2-{data}"
    paddle, ours = settings(f"paddle-{rest}-dynamic", device), settings(f"{framework}-{rest}", device)
    # A CPU's convolutions of TensorFlow know no layout but their own.
    alike = [key for key in SHARED if framework != "tensorflow" or "layout" not in key]
    assert {key: ours[key] for key in alike} == {key: paddle[key] for key in alike}
    plain = {"decay_norms": True, "learning_rate_schedule": "step", "learning_rate_warmup_steps": 0}
    assert ours.get("label_smoothing", 0.0) == 0.0
    assert {key: ours.get(key, value) for key, value in plain.items()} == plain


def test_on_a_cpu_amp_means_bfloat16_without_loss_scaling() -> None:
    written = settings("paddle-resnet50v1.5-amp_o1-bs4-1x2-dali-to_static", "cpu")
    assert (written["amp_level"], written["amp_dtype"], written["loss_scaling"]) == ("O1", "bfloat16", None)
    assert written["environment"] == cpu_environment(read_processor())


def test_on_a_cpu_pure_half_precision_is_bfloat16_in_the_published_layout() -> None:
    written = settings("paddle-resnet50v1.5-amp_o2-bs4-1x1-dali-static", "cpu")
    assert (written["amp_level"], written["amp_dtype"], written["amp_through"]) == ("O2", "bfloat16", "auto_cast")
    assert (written["layout"], written["feed_layout"], written["input_channels"]) == ("NHWC", "NCHW", 4)
    assert (written["input_dtype"], written["loss_scaling"], written["loss_scaling_rule"]) == ("float32", None, {})


@pytest.mark.parametrize("card", ["v100", "a100"])
def test_every_published_case_has_settings_that_its_trainer_takes_and_its_departures(card: str) -> None:
    cases = load_published(PUBLISHED / f"{card}.json").cases()
    for case in cases:
        settings = json.loads(json.dumps(settings_for(case, "gpu"), allow_nan=False))
        assert Settings.of(JobSpec("j", case, 0, "r", "gpu", 0, 1, settings=settings)).optimizer == "momentum"
        abouts = [each.about for each in departures_of(case)]
        assert len(abouts) == len(set(abouts)) > 0
        assert all(each.told_by.where for each in departures_of(case))


def test_a_framework_without_an_entry_has_no_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helpers.plan.recipes.recipe.RECIPES", {})
    with pytest.raises(ConfigError, match=r"got 'no entry', expected an entry in RECIPES"):
        settings("mxnet-resnet50v1.5-fp32-bs256-1x1-dali")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"follows": enum.Enum("New", {"IT": "NewPublisher"}).IT}, "publisher NewPublisher of vgg16"),
        ({"network": SimpleNamespace()}, "network SimpleNamespace of vgg16"),
    ],
)
def test_a_publisher_or_a_network_without_an_entry_is_an_error_that_names_it(
    changed: dict[str, Any], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = SimpleNamespace(**{**vars(MODELS[Model.VGG16]), **changed})
    monkeypatch.setitem(MODELS, Model.VGG16, spec)
    for framework in ("paddle", "pytorch"):
        execution = "-static" if framework == "paddle" else ""
        with pytest.raises(ConfigError, match=f"{named}: got 'no entry'.*publishers.py"):
            settings(f"{framework}-vgg16-amp_o2-bs8-1x1-native{execution}")


def test_what_a_model_takes_from_the_documents_of_another_is_cited_as_that_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follower = dataclasses.replace(MODELS[Model.VGG16], follows=Publisher.PADDLECLAS)
    monkeypatch.setitem(MODELS, Model.VGG16, follower)
    case = Case.parse("paddle-vgg16-fp32-bs2-1x1-synthetic-dynamic")
    for device in ("cpu", "gpu"):
        sources = [str(each.source) for each in (*sourced_settings(case, device).values(), *fixed_of(case, device))]
        documented = [each for each in sources if each.startswith("docs/published.md")]
        assert documented
        assert all("as for ResNet50 v1.5" in each for each in documented)
        assert not any("the published 0." in each for each in sources)
    cited = str(sourced_settings(case, "cpu")["weight_decay"].source)
    assert cited == 'docs/published.md, "Paddle ResNet50 v1.5": Common, as for ResNet50 v1.5: L2'


def test_a_chosen_launcher_is_a_setting_with_its_source_and_keeps_results_apart() -> None:
    case = Case.parse("paddle-vgg16-fp32-bs8-1x2-dali-static")
    usual, chosen = sourced_settings(case, "cpu"), sourced_settings(case, "cpu", launcher="torchrun")
    assert "launcher" not in usual
    assert str(chosen["launcher"].source) == "perf.yaml, frameworks.paddle.launcher"
    before, after = settings_segment(plain_values(usual)), settings_segment(plain_values(chosen))
    assert after == {**before, "setting launcher": '"torchrun"'}
    job = JobSpec("j", case, 0, "r", "cpu", 0, 1, settings=plain_values(chosen))
    assert job.launcher == "torchrun"
    # How the ranks were started is no part of what the trainer reads.
    assert Settings.of(job) == Settings.of(JobSpec("j", case, 0, "r", "cpu", 0, 1, settings=plain_values(usual)))


PRECISIONS = {
    Framework.PADDLE: [each.value for each in Precision],
    Framework.PYTORCH: ["fp32", "tf32", "bf16", "amp_o1", "amp_o2", "amp"],
    Framework.TENSORFLOW: ["fp32", "tf32", "bf16", "amp"],
    Framework.MXNET: ["fp32", "tf32", "amp"],
}
SIZES = {Framework.MXNET: ("1x1", "1x2")}
WAYS = {
    Framework.PADDLE: ("-static", "-dynamic"),
    Framework.PYTORCH: ("", "-compile", "-graphs"),
    Framework.TENSORFLOW: ("", "-xla"),
}


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("framework", Framework)
def test_the_trainer_reads_what_the_recipe_writes(framework: Framework, device: str) -> None:
    for model, precision, size, data, way in itertools.product(
        ("resnet50v1.5", "vgg16"),
        PRECISIONS[framework],
        SIZES.get(framework, ("1x1", "4x8")),
        ("dali", "dali_cpu", "native", "synthetic", "unstated"),
        WAYS.get(framework, ("",)),
    ):
        case = Case.parse(f"{framework.value}-{model}-{precision}-bs8-{size}-{data}{way}")
        written = json.loads(json.dumps(settings_for(case, device), allow_nan=False))
        read: Any = Settings.of(JobSpec("j", case, 0, "r", device, 0, 1, settings=written))
        assert read.optimizer == "momentum"
        for name, switched_on in (("xla_mode", case.xla), ("compile_mode", case.compile)):
            assert (getattr(read, name, None) is not None) is switched_on
        for name in ("communication", "kvstore"):
            assert not hasattr(read, name) or (getattr(read, name) is not None) is (case.cards > 1)


@pytest.mark.parametrize(
    ("rest", "field"),
    [
        ("pytorch-vgg16-fp32-bs8-1x1-dali-static", "execution"),
        ("pytorch-vgg16-fp32-bs8-1x1-dali-auto", "auto"),
        ("pytorch-vgg16-fp32-bs8-1x1-dali-xla", "xla"),
        ("pytorch-vgg16-unstated-bs8-1x1-dali", "precision"),
        ("tensorflow-vgg16-fp32-bs8-1x1-dali-static", "execution"),
        ("tensorflow-vgg16-fp32-bs8-1x1-dali-graphs", "graphs"),
        ("tensorflow-vgg16-amp_o2-bs8-1x1-dali", "precision"),
        ("mxnet-vgg16-fp32-bs8-1x1-dali-static", "execution"),
        ("mxnet-vgg16-fp32-bs8-1x1-dali-xla", "xla"),
        ("mxnet-vgg16-fp32-bs8-2x1-dali", "nodes"),
        ("mxnet-vgg16-bf16-bs8-1x1-dali", "precision"),
    ],
)
def test_what_a_framework_s_trainer_has_nothing_for_is_refused(rest: str, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(rest)
    assert caught.value.field == field
