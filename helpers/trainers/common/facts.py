"""What a step log's header says of a job's configuration, in words, for any framework."""

from __future__ import annotations

from typing import Dict

from helpers.trainers.common.settings import Settings

# A scale that is to rise after so many steps is a static one, in the terms of a dynamic one.
_NEVER_STEPS = 10**9


def common_facts(settings: Settings) -> Dict[str, str]:
    """Of a job in float32; a framework says what mixed precision makes of ``precision`` and ``weights``."""
    facts = {
        "feed": f"{settings.feed_layout}, {settings.input_channels} channels, {settings.input_dtype}",
        "layout": settings.layout,
        "learning_rate": str(settings.learning_rate),
        "optimizer": f"{settings.optimizer} {settings.momentum}, L2 {settings.weight_decay}",
        "precision": "float32",
        "weights": "float32",
        "loss_scaling": "none",
    }
    if settings.loss_scaling is not None:
        rule = ", ".join(f"{name} {value}" for name, value in sorted(settings.loss_scaling_rule.items()))
        rises = settings.loss_scaling_rule["incr_every_n_steps"] < _NEVER_STEPS
        first = settings.loss_scaling
        facts["loss_scaling"] = f"dynamic from {first}" if rises else f"static {first}, less after overflows"
        facts["loss_scaling"] += f" ({rule})"
    return facts


def on(state: bool) -> str:
    return "on" if state else "off"
