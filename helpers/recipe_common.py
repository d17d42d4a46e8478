"""What the recipes of all frameworks share: optimizer, input, loss scaling, and their numbers."""

from __future__ import annotations

from typing import Any

from helpers.case import Case, Model

LEARNING_RATE = 0.1
VGG16_LEARNING_RATE = 0.01
# The batch that LEARNING_RATE belongs to: smaller global batches on a CPU scale it down in proportion.
REFERENCE_BATCH = 256
# The first loss scale: PaddleClas states 128 for pure float16; FleetX's strategy.amp has its own default.
DYNAMIC_LOSS_SCALING = 128.0
FLEET_LOSS_SCALING = 32768.0
# Both leave these to the defaults of paddle.static.amp.decorate for float16 and of strategy.amp_configs, which agree.
LOSS_SCALING_RULE = {"incr_every_n_steps": 1000, "decr_every_n_nan_or_inf": 2, "incr_ratio": 2.0, "decr_ratio": 0.8}


def common_settings(case: Case, on_gpu: bool) -> dict[str, Any]:
    """Optimizer and input of a case; a framework's recipe adds precision and what is its own."""
    return {
        "optimizer": "momentum",
        "learning_rate": _learning_rate(case, on_gpu),
        "learning_rate_boundaries": [30, 60, 90],
        "learning_rate_decay": 0.1,
        "momentum": 0.9,
        "weight_decay": 1e-4,
        "layout": "NCHW",
        "feed_layout": "NCHW",
        "input_channels": 3,
        "input_dtype": "float32",
        "augmentation": {"crop_area": [0.08, 1.0], "crop_aspect_ratio": [0.75, 4 / 3], "flip_probability": 0.5},
        "dali": _dali(on_gpu),
        "native": {"workers": 8 if on_gpu else 1, "prefetch_factor": 2, "shared_memory": True},
    }


def dynamic_loss_scaling(case: Case) -> dict[str, Any]:
    """First scale and rule of float16 with dynamic loss scaling."""
    first = FLEET_LOSS_SCALING if case.model is Model.VGG16 else DYNAMIC_LOSS_SCALING
    return {"loss_scaling": first, "loss_scaling_rule": dict(LOSS_SCALING_RULE)}


def _learning_rate(case: Case, on_gpu: bool) -> float:
    rate = LEARNING_RATE if case.model is Model.RESNET50 else VGG16_LEARNING_RATE
    if on_gpu:
        return rate
    return rate * min(1.0, case.batch_size_per_card * case.cards / REFERENCE_BATCH)


def _dali(on_gpu: bool) -> dict[str, Any]:
    # ``threads`` null: the cores a rank has. METHODS.md gives no thread count; 4 is PaddleClas's default.
    return {
        "threads": 4 if on_gpu else None,
        "prefetch_queue_depth": 2,
        "seed": 42,
        "device_memory_padding": 211025920 if on_gpu else 0,
        "host_memory_padding": 140544512 if on_gpu else 0,
    }
