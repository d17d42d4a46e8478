"""AMP O1 and O2 in bfloat16 on a CPU: Paddle's own ``auto_cast``, where it works.

In dynamic execution on a CPU ``auto_cast`` has no effect (it warns and computes in float32), and Paddle's
own CPU kernels know no bfloat16. A compiled program is cast, and takes oneDNN's bfloat16 kernels where
Paddle has none; an operator that neither has is an error, not float32. So the operators beside
convolution and matrix product, for which neither has one, stay in float32 by name. Nor is there an
optimizer kernel for bfloat16 weights: at O2 they stay in float32, are cast where they are used, and so
are themselves what multi-precision training keeps as master copies.
"""

from __future__ import annotations

from typing import Any

import paddle
from paddle import nn

from helpers.trainers.paddle.models import Layers

FLOAT32_OPERATORS = frozenset({"add", "add_", "dropout", "pool2d", "relu", "relu_"})


class Float32BatchNorm(nn.BatchNorm2D):
    """Batch norm is in neither of O1's lists and takes whatever comes: here always float32."""

    def forward(self, images: Any) -> Any:
        # Not super(): Paddle 2.6's to_static cannot compile it.
        return nn.BatchNorm2D.forward(self, images.astype("float32"))


LAYERS = Layers(norm=Float32BatchNorm)


class AutoCast(nn.Layer):
    """A model under ``auto_cast``; within ``forward``, so that a compiler sees it."""

    def __init__(self, model: nn.Layer, level: str) -> None:
        super().__init__()
        self.model = model
        self.level = level

    def forward(self, images: Any) -> Any:
        with paddle.amp.auto_cast(level=self.level, dtype="bfloat16", custom_black_list=FLOAT32_OPERATORS):
            logits = self.model(images)
        return logits.astype("float32")
