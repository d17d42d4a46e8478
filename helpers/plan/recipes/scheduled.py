"""What the recipes of other frameworks share: what they refuse, and Paddle's settings, to compare them; and for
TensorFlow and MXNet a schedule by steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from helpers.plan.recipes import OWN, Fixed, Setting, Source, group, own
from helpers.plan.recipes.common import FOR_EVERY_CASE, common_settings
from helpers.plan.recipes.publishers import network_recipe, published_recipe
from helpers.trainers.contract.case import FEATURES, Case, Precision
from helpers.trainers.contract.errors import ConfigError

AS_PADDLE = own("as Paddle's trainer, to compare the frameworks")
NOT_STATED = own("not stated: as Paddle's trainer")
_TOO_SHORT = own("a run on a CPU is shorter than the published warm-up: the rate of Paddle's CPU cases, at once")
# A scale that is never moved, in the terms of a dynamic one.
_NEVER = 10**9
STATIC_RULE = {"incr_every_n_steps": _NEVER, "decr_every_n_nan_or_inf": _NEVER, "incr_ratio": 2.0, "decr_ratio": 0.5}


def refuse_others(case: Case, precisions: tuple[Precision, ...], features: tuple[str, ...] = ()) -> None:
    """Raise ConfigError on what the framework's trainer has nothing for: other precisions, other features of a case,
    an execution."""
    title = case.framework.spec.title
    if case.precision not in precisions:
        known = ", ".join(each.value for each in precisions)
        raise ConfigError(
            f"case {case.id}", field="precision", got=case.precision.value, expected=f"one of {known}",
            remedy=f"{title}'s trainer has no other",
        )  # fmt: skip
    for name in FEATURES:
        if getattr(case, name) and name not in features:
            raise ConfigError(
                f"case {case.id}", field=name, got="true", expected=f"false: {title}'s trainer has none",
                remedy="Its switches: " + (", ".join(features) or "none"),
            )  # fmt: skip
    if case.execution is not None:
        raise ConfigError(
            f"case {case.id}", field="execution", got=case.execution.value, expected=f"none in a case of {title}",
            remedy="Leave it out",
        )  # fmt: skip


def scheduled_settings(case: Case, on_gpu: bool, published: Mapping[str, Setting]) -> dict[str, Setting]:
    """The settings of optimizer, schedule, labels, batch norm and input of a case.

    ``published`` has those that a document or a script states for the case, empty for a case that nobody published: it
    is trained as Paddle's. On a CPU the rate is that of Paddle's cases there, without a warm-up.
    """
    settings = {**as_paddle(case, on_gpu, bool(published)), **_without_schedule(bool(published)), **published}
    return settings if on_gpu else {**settings, **_on_a_cpu(settings, case)}


def scheduled_fixed(case: Case, smoothing: Setting, model: Source) -> tuple[Fixed, ...]:
    """What both trainers do for every case, whatever its settings say."""
    loss = f"mean cross-entropy, label smoothing {smoothing.value}" if smoothing.value else "mean cross-entropy"
    return (
        Fixed("model", network_recipe(case).description, model),
        Fixed("image size", "224 x 224, 1000 classes", FOR_EVERY_CASE),
        Fixed("loss", loss, smoothing.source),
        Fixed("seed", "1234", FOR_EVERY_CASE),
    )


def scaled_rate(rate: float, case: Case, source: Source) -> Setting:
    """A rate for 256 images a step, in proportion to the case's."""
    return Setting(rate * case.batch_size_per_card * case.cards / 256, source)


def without_mixed_precision(source: Source) -> dict[str, Setting]:
    return {
        "amp_level": Setting(None, source),
        "amp_dtype": Setting(None, source),
        "loss_scaling": Setting(None, source),
        **group("loss_scaling_rule", {}, source),
    }


def as_paddle(case: Case, on_gpu: bool, published: bool) -> dict[str, Setting]:
    """Paddle's settings; if the suite decided one there, it is the suite's here too."""
    settings = common_settings(case, on_gpu)
    other = NOT_STATED if published else AS_PADDLE
    sources = {key: each.source for key, each in settings.items() if not on_gpu and each.source.where == OWN}
    rate = published_recipe(case).learning_rate
    if on_gpu and rate.where == OWN:
        sources["learning_rate"] = rate
    return {key: replace(each, source=sources.get(key, other)) for key, each in settings.items()}


def _without_schedule(published: bool) -> dict[str, Setting]:
    other = NOT_STATED if published else AS_PADDLE
    return {
        "learning_rate_schedule": Setting("step", other),
        "learning_rate_warmup_steps": Setting(0, other),
        "learning_rate_decay_steps": Setting(None, other),
        "label_smoothing": Setting(0.0, other),
        "decay_norms": Setting(True, own("Paddle's L2 decay has no exception for batch norm, as the same case there")),
        "batch_norm_momentum": Setting(0.9, other),
        "batch_norm_epsilon": Setting(1e-5, other),
    }


def _on_a_cpu(settings: Mapping[str, Setting], case: Case) -> dict[str, Setting]:
    rate = common_settings(case, on_gpu=False)["learning_rate"]
    found = {
        "learning_rate": rate,
        "learning_rate_schedule": Setting("step", _TOO_SHORT),
        "learning_rate_warmup_steps": Setting(0, _TOO_SHORT),
        "learning_rate_decay_steps": Setting(None, _TOO_SHORT),
    }
    # A case without a schedule keeps its own reasons.
    return {key: each for key, each in found.items() if settings[key].value != each.value}
