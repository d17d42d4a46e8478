"""Reads paddle.profiler: what the host ran in each step, by operator, and by layer in dynamic execution.

The profiler's record is a tree for each thread: the parts of a step, the layers in them, operators, and what an
operator calls. On a CPU the call of a kernel is its computation. The backward operators of a layer are found by marks:
a hook on a layer's output runs at the beginning of the operator that computes the gradient of what made it.

Without worker processes Paddle's loader reads images on a thread of the training's process, beside the step. While it
reads, the step waits for Python's lock and for the core. That wait is counted as DATA_WAIT (``_beside_loader``).
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import paddle
from paddle import profiler as paddle_profiler

from helpers.trainers.common.device_time import Operation, ProfileError, busy_seconds
from helpers.trainers.common.step_profile import (
    Call,
    Nested,
    Recording,
    Span,
    computing_threads,
    keep_trace,
    nested,
    rows_of,
)
from helpers.trainers.contract.frameworks import LAYERS
from helpers.trainers.contract.step_profile import HOST, Phase
from helpers.trainers.paddle.data import LOADING

_PART, _LAYER, _MARK = "perfgate part ", "perfgate layer ", "perfgate gradient of "
_OPERATOR = "Operator"
# A kernel, as Paddle 3 and 2.6 name its call.
_LAUNCH = re.compile(r" (?:kernel launch|compute)$")
# conv2d dygraph; Global_Conv2dGradNodeFinal; pd_op.batch_norm_
_AROUND_NAME = re.compile(r"^(?:Global_|pd_op\.)|(?:_? dygraph|_)$")
_GRADIENT = "_grad"
_ACCUMULATION, _BUFFER = "GradNodeAccumulation", "empty"
# The parts whose scopes only dynamic execution has.
_STEPS_OWN = (Phase.FORWARD.value, Phase.BACKWARD.value, Phase.OPTIMIZER.value)
# The operators of an optimizer begin with its name.
_OPTIMIZERS = ("momentum", "merged_momentum", "sgd", "adam", "lars_momentum")

NOT_TOLD = "Paddle's profiler tells neither the kernels of a CPU nor the data types of operators"
NO_LAYERS = "the layers are not known: the step is a compiled program"


class PaddleProfiler:
    """A StepProfiler of ``common.step_profile``."""

    name = "paddle.profiler: operators, by the host's clock"

    def __init__(self, device: str, model: Optional[Any], without: Sequence[str] = ()) -> None:
        """``model`` is the network of dynamic execution; None for a program. ``without`` is what is not recorded:
        LAYERS. Raises ProfileError on a GPU."""
        if device != "cpu":
            raise ProfileError("the suite reads Paddle's profile on CPUs only so far")
        self._left_out = LAYERS in without
        named = [] if model is None or self._left_out else model.named_sublayers()
        self._layers = [each for each in named if each[0]]
        self._undo = ExitStack()
        # How long the training's thread did not compute within each part.
        self._off_core: Dict[Phase, float] = defaultdict(float)
        self._profiler = paddle_profiler.Profiler(
            targets=[paddle_profiler.ProfilerTarget.CPU], on_trace_ready=lambda profiler: None
        )

    def start(self) -> None:
        for name, layer in self._layers:
            self._name(layer, name)
        self._profiler.start()

    @contextmanager
    def part(self, phase: Phase) -> Iterator[None]:
        began = time.perf_counter() - time.thread_time()
        try:
            with paddle_profiler.RecordEvent(_PART + phase.value):
                yield
        finally:
            self._off_core[phase] += time.perf_counter() - time.thread_time() - began

    def stop(self, steps: int, trace: Path) -> Recording:
        self._undo.close()
        self._profiler.stop()
        result = self._profiler.profiler_result
        if result is None:
            raise ProfileError("paddle.profiler returned no result")
        notes = keep_trace(trace, lambda path: result.save(str(path), "json"))
        recording = recording_of(list(_spans(result.get_data())), steps, self._off_core)
        told = tuple(note for note in recording.notes if not (self._left_out and note == NO_LAYERS))
        return replace(recording, notes=(*told, *notes), threads=computing_threads())

    def _name(self, layer: Any, name: str) -> None:
        """Record a scope around each call of the layer, and a mark where its gradients begin."""
        scopes: List[Any] = []

        def before(_layer: Any, _inputs: Any) -> None:
            scopes.append(paddle_profiler.RecordEvent(_LAYER + name))
            scopes[-1].begin()

        def after(_layer: Any, _inputs: Any, output: Any) -> None:
            scopes.pop().end()
            if isinstance(output, paddle.Tensor) and not output.stop_gradient:
                output.register_hook(mark)

        def mark(_gradient: Any) -> None:
            with paddle_profiler.RecordEvent(_MARK + name):
                pass

        for hook in (layer.register_forward_pre_hook(before), layer.register_forward_post_hook(after)):
            self._undo.callback(hook.remove)


def _spans(threads: Mapping[Any, Any]) -> Iterator[Span]:
    """The spans of the profiler's trees, one for each thread, whose roots stand for no span."""
    for thread, root in threads.items():
        waiting = list(root.children_node)
        while waiting:
            node = waiting.pop()
            waiting += node.children_node
            kind = str(node.type).rpartition(".")[2]
            yield Span(str(thread), node.name, node.start_ns * 1e-9, node.end_ns * 1e-9, kind)


def recording_of(
    spans: Sequence[Span], steps: int, off_core: Mapping[Phase, float] = MappingProxyType({})
) -> Recording:
    """What the spans of ``steps`` steps say. ``off_core`` is how many seconds the training's thread did not compute in
    each part of the steps. Raises ProfileError if no span is an operator."""
    if not any(span.kind == _OPERATOR for span in spans):
        raise ProfileError("paddle.profiler recorded no operator")
    # From the beginning of the profile: a float holds a date to a quarter of a microsecond.
    began = min(span.start for span in spans)
    spans = [replace(span, start=span.start - began, end=span.end - began) for span in spans]
    loading = [span for span in spans if span.name == LOADING]
    loaders = {span.lane for span in loading}
    found = nested(span for span in spans if span.lane not in loaders)
    operators, host = _owners(sorted(found, key=lambda each: each.span.start), _beside(found, loading))
    in_parts = any(_value(each.span, _PART) in _STEPS_OWN for each in found)
    waits = _without_waits(host, operators, off_core) if in_parts else {}
    waited = [Call(Phase.DATA_WAIT, "", HOST, "", "", "cpu", seconds) for seconds in waits.values()]
    # In a compiled program the host only waits for the threads that compute.
    rows = rows_of([*_calls(operators), *(each.call for each in host if in_parts and each.seconds), *waited], steps)
    # However often the host's code is left for an operator, it is one thing.
    rows = tuple(replace(row, calls_per_step=1.0) if row.operator == HOST else row for row in rows)
    notes = (NOT_TOLD,) if any(row.layer for row in rows) else (NOT_TOLD, NO_LAYERS)
    phases = _parts(operators, found) if in_parts else _phases(operators, found)
    for phase, seconds in waits.items():
        phases[phase] -= seconds
        phases[Phase.DATA_WAIT] = phases.get(Phase.DATA_WAIT, 0.0) + seconds
    return Recording(rows, {phase: seconds / steps for phase, seconds in phases.items()}, notes=notes)


@dataclass
class _HostCode:
    """The host's code in one span, without what the span holds."""

    phase: Phase
    layer: str
    seconds: float
    # For how long of that the loader's thread was reading.
    beside: float

    @property
    def call(self) -> Call:
        return Call(self.phase, self.layer, HOST, "", "", "cpu", self.seconds)


@dataclass
class _Owner:
    """One call of an operator, with the time of what it called and is no operator itself."""

    span: Span
    phase: Phase
    # The layer around the call; none in a backward pass.
    layer: str
    seconds: float = 0.0
    # For how long of that the loader's thread was reading.
    beside: float = 0.0
    # The kernels that it launched, and the layers whose gradients begin in it.
    kernels: List[str] = field(default_factory=list)
    marks: List[str] = field(default_factory=list)

    @property
    def reduces(self) -> bool:
        """Whether a group of gradients is reduced over the ranks: DataParallel does that in the accumulation of the
        group's last gradient, which alone makes a buffer first."""
        return _ACCUMULATION in self.span.name and _BUFFER in self.kernels

    @property
    def operator(self) -> str:
        """A node of the backward pass has the operator's name in its kernel only."""
        if self.reduces:
            return Phase.ALL_REDUCE.value
        name = self.kernels[0] if self.kernels and "GradNode" in self.span.name else self.span.name
        return _AROUND_NAME.sub("", _LAUNCH.sub("", name))


def _owners(found: Sequence[Nested], beside: Mapping[int, float]) -> Tuple[List[_Owner], List[_HostCode]]:
    """The calls of operators in the order of their beginnings, and the host's code outside of them."""
    owners: Dict[int, _Owner] = {}
    host: List[_HostCode] = []
    for each in found:
        span, around = each.span, (*each.around, each.span)
        owner = next((owners[id(outer)] for outer in reversed(each.around) if id(outer) in owners), None)
        if span.kind == _OPERATOR or (owner is None and _LAUNCH.search(span.name)):
            owner = owners[id(span)] = _Owner(span, _phase_of(around), _innermost(around, _LAYER))
        if owner is None:
            # Between the parts the host's clock counts it as HOST_GAP.
            phase = _phase_of(around) if _innermost(around, _PART) else Phase.HOST_GAP
            host.append(_HostCode(phase, _innermost(around, _LAYER), each.self_seconds, beside[id(span)]))
            continue
        owner.seconds += each.self_seconds
        owner.beside += beside[id(span)]
        if _LAUNCH.search(span.name):
            owner.kernels.append(_LAUNCH.sub("", span.name))
        if mark := _value(span, _MARK):
            owner.marks.append(mark)
    return list(owners.values()), host


def _beside(found: Sequence[Nested], loading: Sequence[Span]) -> Dict[int, float]:
    """For how many seconds of each span's self time, by the span's id, the loader's thread was reading."""
    beside: Dict[int, float] = defaultdict(float)
    reading = sorted(loading, key=lambda each: each.start)
    ends = [each.end for each in reading]
    for each in found:
        span, seconds = each.span, 0.0
        for other in reading[bisect_right(ends, span.start) :]:
            if other.start >= span.end:
                break
            seconds += min(span.end, other.end) - max(span.start, other.start)
        beside[id(span)] += seconds
        if each.around:
            beside[id(each.around[-1])] -= seconds
    return beside


def _without_waits(
    host: Sequence[_HostCode], operators: Sequence[_Owner], off_core: Mapping[Phase, float]
) -> Dict[Phase, float]:
    """How long the step waits in each phase for the loader's thread: what is beside the reading of an image, as far as
    the training's thread did not compute in that phase. That time is taken from the host's code, which waits for
    Python's lock, and what is left of it from the operators, which only lose the core from time to time."""
    waits: Dict[Phase, float] = {}
    for phase in map(Phase, _STEPS_OWN):
        left = max(0.0, off_core.get(phase, 0.0))
        for rows in (host, operators):
            of_phase = [each for each in rows if each.phase is phase and each.beside > 0]
            beside = sum(min(each.beside, each.seconds) for each in of_phase)
            share = min(1.0, left / beside) if beside else 0.0
            for each in of_phase:
                each.seconds -= share * min(each.beside, each.seconds)
            left -= share * beside
            waits[phase] = waits.get(phase, 0.0) + share * beside
    return {phase: seconds for phase, seconds in waits.items() if seconds}


def _calls(operators: Sequence[_Owner]) -> Iterator[Call]:
    """The calls. Those of a backward pass get the layer whose gradient they compute: of the layers whose gradients have
    begun, the newest that called the operator and has no gradient of it yet. Without such a layer none is named."""
    pending: Dict[str, Counter[str]] = defaultdict(Counter)
    begun: List[str] = []
    for each in operators:
        layer = each.layer
        if each.phase is Phase.FORWARD:
            if begun:
                pending.clear()
                begun.clear()
            pending[layer][each.operator] += 1
        elif each.phase is Phase.BACKWARD and not each.reduces:
            begun += each.marks
            of = each.operator.removesuffix(_GRADIENT)
            layer = next((name for name in reversed(begun) if pending[name][of] > 0), "")
            pending[layer][of] -= 1
        phase = Phase.ALL_REDUCE if each.reduces else each.phase
        yield Call(phase, layer, each.operator, "", "", "cpu", each.seconds)


def _parts(operators: Sequence[_Owner], found: Sequence[Nested]) -> Dict[Phase, float]:
    """The seconds of each part of the steps. On a CPU the host waits while gradients are reduced, so no time of that is
    beside computation."""
    seconds: Dict[Phase, float] = defaultdict(float)
    for each in found:
        if part := _value(each.span, _PART):
            seconds[Phase(part)] += each.span.end - each.span.start
    reducing = sum(each.seconds for each in operators if each.reduces)
    if reducing:
        seconds[Phase.BACKWARD] -= reducing
        seconds[Phase.ALL_REDUCE] = reducing
    return seconds


def _phases(operators: Sequence[_Owner], found: Sequence[Nested]) -> Dict[Phase, float]:
    """The seconds of each phase of a compiled program, whose operators may run on several threads at once: a moment
    counts for the first phase that then computes. Only the wait for data is a part of its own."""
    waits = [each.span for each in found if _value(each.span, _PART) == Phase.DATA_WAIT.value]
    seconds = {Phase.DATA_WAIT: sum(span.end - span.start for span in waits)}
    spans: List[Operation] = []
    before = 0.0
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.OTHER):
        spans += [Operation("", each.span.start, each.span.end) for each in operators if each.phase is phase]
        busy = busy_seconds(spans)
        seconds[phase], before = busy - before, busy
    return seconds


def _phase_of(around: Sequence[Span]) -> Phase:
    """The part of the step; for an operator of a compiled program, which has no parts, by its name."""
    part = _innermost(around, _PART)
    if part in _STEPS_OWN or (part and part != Phase.OTHER.value):
        return Phase(part)
    operators = [span.name for span in around if span.kind == _OPERATOR]
    if not operators:
        return Phase.OTHER
    name = _AROUND_NAME.sub("", operators[-1])
    if name.startswith(_OPTIMIZERS):
        return Phase.OPTIMIZER
    if part:
        return Phase.OTHER
    return Phase.BACKWARD if name.endswith(_GRADIENT) else Phase.FORWARD


def _innermost(around: Sequence[Span], prefix: str) -> str:
    return next((value for span in reversed(around) if (value := _value(span, prefix))), "")


def _value(span: Span, prefix: str) -> str:
    return span.name[len(prefix) :] if span.name.startswith(prefix) else ""
