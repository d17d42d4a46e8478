"""Reads torch.profiler: what each operator of a step takes, in which layer, and on a GPU its kernels and copies.

While the profiler runs, hooks put a scope around each module of the model. A backward operator has no module around it:
autograd gives it the sequence number of the forward operator whose gradient it computes, and so it has that operator's
layer. What is read is the trace that PyTorch exports for a viewer (Chrome's format), the same in all its releases.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, ContextManager, Dict, List, Mapping, Sequence

import torch

from helpers.trainers.common.card_times import RECORDED
from helpers.trainers.common.step_profiler import ProfileError, Recording, keep_trace
from helpers.trainers.contract.frameworks import DATA_TYPES, LAYERS
from helpers.trainers.contract.step_profile import Phase
from helpers.trainers.pytorch.trace import LAYER, PART, recording_of


class PytorchStepProfiler:
    """A StepProfiler of ``common.step_profiler``."""

    def __init__(self, model: Any, device: Any, without: Sequence[str] = ()) -> None:
        """``model`` is None if it is compiled or replayed as a graph: hooks would have it compiled anew. ``without`` is
        what is not recorded: DATA_TYPES, LAYERS."""
        activities = [torch.profiler.ProfilerActivity.CPU]
        self.name = "torch.profiler: operators as PyTorch's dispatcher called them"
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
            self.name = f"torch.profiler: {RECORDED}"
        # With shapes the trace has the types of the operators' inputs.
        self._profiler: Any = torch.profiler.profile(activities=activities, record_shapes=DATA_TYPES not in without)
        self._model = model
        self._named = model is not None and LAYERS not in without
        self._on_a_card = device.type == "cuda"
        self._hooks: List[Any] = []

    def start(self) -> None:
        for name, layer in self._model.named_modules() if self._named else ():
            if name:
                self._hooks += _scope_around(layer, name)
        self._profiler.start()

    def part(self, phase: Phase) -> ContextManager[Any]:
        scope: ContextManager[Any] = torch.profiler.record_function(PART + phase.value)
        return scope

    def stop(self, steps: int, trace: Path) -> Recording:
        self._profiler.stop()
        for hook in self._hooks:
            hook.remove()
        read: List[Mapping[str, Any]] = []

        def export(plain: Path) -> None:
            self._profiler.export_chrome_trace(str(plain))
            read.append(_read(plain))

        notes = keep_trace(trace, export)
        if not read:
            raise ProfileError(notes[0])
        recording = recording_of(read[0], steps, self._model is not None, self._on_a_card)
        notes = (*recording.notes, *notes)
        return replace(recording, notes=notes, threads=int(torch.get_num_threads()))


def _scope_around(layer: Any, name: str) -> List[Any]:
    """Hooks that enter and leave the layer's scope. A layer that calls itself has a scope for each call."""
    entered: List[Any] = []

    def enter(*_: Any) -> None:
        scope = torch.profiler.record_function(LAYER + name)
        scope.__enter__()
        entered.append(scope)

    def leave(*_: Any) -> None:
        entered.pop().__exit__(None, None, None)

    register: Callable[..., Any] = layer.register_forward_hook
    # ``always_call``, so that a layer that raises leaves its scope too.
    return [layer.register_forward_pre_hook(enter), register(leave, always_call=True)]


def _read(trace: Path) -> Mapping[str, Any]:
    """Raises ProfileError if the trace is not there or not whole. PyTorch only prints that it could not write it."""
    try:
        record: Dict[str, Any] = json.loads(trace.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError) as error:
        raise ProfileError(
            f"torch.profiler wrote no whole trace ({error}): is there room in {trace.parent}?"
        ) from error
    return record
