"""Reads paddle.profiler: what each operator of a step takes, in dynamic execution by layer, and on a GPU its kernels.

While the profiler runs, hooks put a scope around each layer of the model, and a mark where the gradients of its output
begin: at the beginning of the operator that computes the gradient of what made it.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, ContextManager, List, Optional, Sequence

import paddle
from paddle import profiler as paddle_profiler

from helpers.trainers.common.card_times import RECORDED
from helpers.trainers.common.step_profiler import ProfileError, Recording, keep_trace
from helpers.trainers.contract.frameworks import LAYERS
from helpers.trainers.contract.step_profile import Phase
from helpers.trainers.paddle.tree import LAYER, MARK, NO_LAYERS, PART, recording_of, spans_of


class PaddleProfiler:
    """A StepProfiler of ``common.step_profiler``."""

    def __init__(self, device: str, model: Optional[Any], without: Sequence[str] = ()) -> None:
        """``model`` is the network of dynamic execution; None for a program. ``without`` is what is not recorded:
        LAYERS."""
        targets = [paddle_profiler.ProfilerTarget.CPU]
        self.name = "paddle.profiler: operators, by the host's clock"
        self._on_card = device != "cpu"
        if self._on_card:
            targets.append(paddle_profiler.ProfilerTarget.GPU)
            self.name = f"paddle.profiler: {RECORDED}"
        self._left_out = LAYERS in without
        named = [] if model is None or self._left_out else model.named_sublayers()
        self._layers = [each for each in named if each[0]]
        self._undo = ExitStack()
        self._profiler = paddle_profiler.Profiler(targets=targets, on_trace_ready=lambda profiler: None)

    def start(self) -> None:
        for name, layer in self._layers:
            self._name(layer, name)
        self._profiler.start()

    def part(self, phase: Phase) -> ContextManager[Any]:
        scope: ContextManager[Any] = paddle_profiler.RecordEvent(PART + phase.value)
        return scope

    def stop(self, steps: int, trace: Path) -> Recording:
        self._undo.close()
        self._profiler.stop()
        result = self._profiler.profiler_result
        if result is None:
            raise ProfileError("paddle.profiler returned no result")
        notes = keep_trace(trace, lambda path: result.save(str(path), "json"))
        spans, launched = spans_of(result.get_data())
        recording = recording_of(spans, steps, launched if self._on_card else None)
        told = tuple(note for note in recording.notes if not (self._left_out and note == NO_LAYERS))
        return replace(recording, notes=(*told, *notes))

    def _name(self, layer: Any, name: str) -> None:
        """Record a scope around each call of the layer, and a mark where its gradients begin."""
        scopes: List[Any] = []

        def before(_layer: Any, _inputs: Any) -> None:
            scopes.append(paddle_profiler.RecordEvent(LAYER + name))
            scopes[-1].begin()

        def after(_layer: Any, _inputs: Any, output: Any) -> None:
            scopes.pop().end()
            if isinstance(output, paddle.Tensor) and not output.stop_gradient:
                output.register_hook(mark)

        def mark(_gradient: Any) -> None:
            with paddle_profiler.RecordEvent(MARK + name):
                pass

        for hook in (layer.register_forward_pre_hook(before), layer.register_forward_post_hook(after)):
            self._undo.callback(hook.remove)
