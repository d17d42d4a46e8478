"""Reads the trees that paddle.profiler makes: operators with their layers and phases, kernels and copies of a card.

Imports no framework. There is a tree for each thread: the parts of a step, the layers in them, operators, and what an
operator calls. On a CPU the call of a kernel is its computation. On a GPU the kernels' own times count; a tree holds
them under the host's calls of CUDA that launched them, and what the host took for these is part of HOST_GAP where the
card waited for it. The backward operators of a layer are found by marks, which stand where its gradients begin.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from helpers.trainers.common.card_times import NOT_TRIED, UNKNOWN_OPERATOR, CardWork, recording_on_card
from helpers.trainers.common.phase_times import Claim, divided
from helpers.trainers.common.step_profiler import Nested, ProfileError, Recording, Span, call_of, nested, rows_of
from helpers.trainers.contract.step_profile import HOST, OperatorRow, Phase

# The names of the scopes around the parts of a step, of those around layers, and of the marks begin so.
PART, LAYER, MARK = "perfgate part ", "perfgate layer ", "perfgate gradient of "
_OPERATOR = "Operator"
# A kernel, as Paddle 3 and 2.6 name its call.
_LAUNCH = re.compile(r" (?:kernel launch|compute)$")
# conv2d dygraph; Global_Conv2dGradNodeFinal; pd_op.batch_norm_
_AROUND_NAME = re.compile(r"^(?:Global_|pd_op\.)|(?:_? dygraph|_)$")
_GRADIENT = "_grad"
_ACCUMULATION, _BUFFER = "GradNodeAccumulation", "empty"
# The parts whose scopes only dynamic execution has.
_STEPS_OWN = (Phase.FORWARD.value, Phase.BACKWARD.value, Phase.OPTIMIZER.value)
# The operators of an optimizer begin with its name; before it the gradients are taken back from the loss's scale.
_OPTIMIZERS = (
    "momentum", "merged_momentum", "sgd", "adam", "lars_momentum", "check_finite_and_unscale", "update_loss_scaling",
)  # fmt: skip

# A program hands out its results at any time after its loss, and computes what it tells of the step.
_HANDED_OUT = ("fetch", "fetch_v2")
_TOLD_OF_THE_STEP = ("mean", "accuracy", "top_k")
# As Paddle names a copy from the host's memory.
_TO_CARD = "MEMCPY_HtoD"

NO_TYPES = "Paddle's profiler does not tell the data types of operators"
NOT_TOLD = "Paddle's profiler tells neither the kernels of a CPU nor the data types of operators"
NO_LAYERS = "the layers are not known: the step is a compiled program"


@dataclass(frozen=True)
class Launched:
    """A kernel, a copy or a fill on the card, and the innermost span of the host that launched it; None if the thread
    had no span then."""

    name: str
    start: float
    end: float
    launcher: Optional[Span]


def spans_of(threads: Mapping[Any, Any]) -> Tuple[List[Span], List[Launched]]:
    """The spans of the profiler's trees, and what they launched on a card. There is a tree for each thread, whose root
    stands for no span. Times begin with the first span: a float holds a date only to a quarter of a microsecond."""
    nodes = [(str(thread), root, True) for thread, root in threads.items()]
    for lane, node, _ in nodes:
        nodes += [(lane, child, False) for child in node.children_node]
    began = min((node.start_ns for _, node, is_root in nodes if not is_root), default=0)
    spans: List[Span] = []
    launched: List[Launched] = []
    for lane, node, is_root in nodes:
        span = None if is_root else Span(lane, node.name, *_seconds(node, began), str(node.type).rpartition(".")[2])
        if span is not None:
            spans.append(span)
        for call in node.runtime_node:
            launched += [Launched(each.name, *_seconds(each, began), span) for each in call.device_node]
    return spans, launched


def _seconds(node: Any, began: int) -> Tuple[float, float]:
    return (node.start_ns - began) * 1e-9, (node.end_ns - began) * 1e-9


def recording_of(
    spans: Sequence[Span],
    steps: int,
    launched: Optional[Sequence[Launched]] = None,
) -> Recording:
    """What the spans of ``steps`` steps say. ``launched`` is None on a CPU. Raises ProfileError if no span is an
    operator, and on a GPU if none launched anything."""
    if not any(span.kind == _OPERATOR for span in spans):
        raise ProfileError("paddle.profiler recorded no operator")
    found = sorted(nested(spans), key=lambda each: each.span.start)
    in_parts = any(_value(each.span, PART) in _STEPS_OWN for each in found)
    operators, host = _owners(found, launched or (), in_parts)
    if launched is not None:
        return _on_card(operators, host, launched, found, steps)
    # In a compiled program the host only waits for the threads that compute.
    rows = rows_of([*_calls(operators), *(each.call for each in host if in_parts and each.seconds)], steps)
    notes = (NOT_TOLD,) if any(row.layer for row in rows) else (NOT_TOLD, NO_LAYERS)
    phases = _parts(operators, found) if in_parts else _phases(operators, found)
    return Recording(rows, {phase: seconds / steps for phase, seconds in phases.items()}, notes=notes)


def _on_card(
    operators: Sequence[_Owner],
    host: Sequence[_HostCode],
    launched: Sequence[Launched],
    found: Sequence[Nested],
    steps: int,
) -> Recording:
    works = [
        _work(one, each.phase, layer, each.operator) for each, layer in _in_layers(operators) for one in each.launched
    ]
    for code in host:
        # The card then computes, and nothing waits.
        phase = Phase.OTHER if code.phase in (Phase.HOST_GAP, Phase.DATA_WAIT) else code.phase
        works += [_work(one, phase, code.layer) for one in code.launched]
    known = {id(each.span) for each in found}
    # By other libraries, such as DALI.
    works += [_work(one, Phase.OTHER) for one in launched if id(one.launcher) not in known]
    named = [(_value(each.span, PART), each.span) for each in found]
    parts = [Claim(Phase(part), span.start, span.end) for part, span in named if part]
    recording = recording_on_card(works, parts, steps, "paddle.profiler")
    notes = (NO_TYPES,) if any(row.layer for row in recording.operators) else (NO_TYPES, NO_LAYERS)
    return replace(recording, notes=(*notes, NOT_TRIED))


def _work(each: Launched, phase: Phase, layer: str = "", operator: str = UNKNOWN_OPERATOR) -> CardWork:
    return CardWork(each.name, each.start, each.end, phase, layer, operator, each.name == _TO_CARD)


@dataclass
class _HostCode:
    """The host's code in one span, without what the span holds."""

    phase: Phase
    layer: str
    seconds: float
    launched: Sequence[Launched] = ()

    @property
    def call(self) -> OperatorRow:
        return call_of(self.phase, self.layer, HOST, self.seconds)


@dataclass
class _Owner:
    """One call of an operator, with the time of what it called and is no operator itself."""

    span: Span
    phase: Phase
    # The layer around the call; none in a backward pass.
    layer: str
    seconds: float = 0.0
    # The kernels that it launched, and the layers whose gradients begin in it.
    kernels: List[str] = field(default_factory=list)
    marks: List[str] = field(default_factory=list)
    launched: List[Launched] = field(default_factory=list)

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


def _owners(
    found: Sequence[Nested], launched: Sequence[Launched], in_parts: bool
) -> Tuple[List[_Owner], List[_HostCode]]:
    """The calls of operators in the order of their beginnings, and the host's code outside of them."""
    launched_by: Dict[int, List[Launched]] = defaultdict(list)
    for one in launched:
        launched_by[id(one.launcher)].append(one)
    owners: Dict[int, _Owner] = {}
    host: List[_HostCode] = []
    # In a program: whether a gradient of the step has begun.
    has_gradients = False
    for each in found:
        span, around = each.span, (*each.around, each.span)
        owner = next((owners[id(outer)] for outer in reversed(each.around) if id(outer) in owners), None)
        if _value(span, PART):
            has_gradients = False
        if span.kind == _OPERATOR or (owner is None and _LAUNCH.search(span.name)):
            phase = _phase_of(around, in_parts, has_gradients)
            has_gradients = has_gradients or (phase is Phase.BACKWARD and not in_parts)
            owner = owners[id(span)] = _Owner(span, phase, _innermost(around, LAYER))
        if owner is None:
            # Between the parts the host's clock counts it as HOST_GAP.
            phase = _phase_of(around, in_parts, has_gradients) if _innermost(around, PART) else Phase.HOST_GAP
            layer = _innermost(around, LAYER)
            host.append(_HostCode(phase, layer, each.self_seconds, launched_by[id(span)]))
            continue
        owner.launched += launched_by[id(span)]
        owner.seconds += each.self_seconds
        if _LAUNCH.search(span.name):
            owner.kernels.append(_LAUNCH.sub("", span.name))
        if mark := _value(span, MARK):
            owner.marks.append(mark)
    return list(owners.values()), host


def _calls(operators: Sequence[_Owner]) -> Iterator[OperatorRow]:
    """The calls on the host."""
    for each, layer in _in_layers(operators):
        phase = Phase.ALL_REDUCE if each.reduces else each.phase
        yield call_of(phase, layer, each.operator, each.seconds)


def _in_layers(operators: Sequence[_Owner]) -> Iterator[Tuple[_Owner, str]]:
    """The calls with their layers. Those of a backward pass get the layer whose gradient they compute: of the layers
    whose gradients have begun, the newest that called the operator and has no gradient of it yet. Without such a layer
    none is named."""
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
            of = each.operator
            if of.endswith(_GRADIENT):
                of = of[: -len(_GRADIENT)]
            layer = next((name for name in reversed(begun) if pending[name][of] > 0), "")
            pending[layer][of] -= 1
        yield each, layer


def _parts(operators: Sequence[_Owner], found: Sequence[Nested]) -> Dict[Phase, float]:
    """The seconds of each part of the steps. On a CPU the host waits while gradients are reduced, so no time of that is
    beside computation."""
    seconds: Dict[Phase, float] = defaultdict(float)
    for each in found:
        if part := _value(each.span, PART):
            seconds[Phase(part)] += each.span.end - each.span.start
    reducing = sum(each.seconds for each in operators if each.reduces)
    if reducing:
        seconds[Phase.BACKWARD] -= reducing
        seconds[Phase.ALL_REDUCE] = reducing
    return seconds


def _phases(operators: Sequence[_Owner], found: Sequence[Nested]) -> Dict[Phase, float]:
    """The seconds of each phase of a compiled program, whose operators may run on several threads at once: a moment
    counts for the first phase that then computes. Only the wait for data is a part of its own."""
    waits = [each.span for each in found if _value(each.span, PART) == Phase.DATA_WAIT.value]
    seconds = {Phase.DATA_WAIT: sum(span.end - span.start for span in waits)}
    order = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.OTHER)
    claims = [[Claim(phase, each.span.start, each.span.end) for each in operators if each.phase is phase]
              for phase in order]  # fmt: skip
    return {**seconds, **dict.fromkeys(order, 0.0), **divided(claims)}


def _phase_of(around: Sequence[Span], in_parts: bool, has_gradients: bool) -> Phase:
    """The part of the step; for an operator of a compiled program, which has no parts, by its name, on whatever thread
    it is computed. A name that tells no phase, as of a cast or a sum, belongs to the backward pass if a gradient of the
    step has begun: only what is told of the step may still be left of the forward pass then."""
    part = _innermost(around, PART)
    if part in _STEPS_OWN or (part and part != Phase.OTHER.value):
        return Phase(part)
    operators = [span.name for span in around if span.kind == _OPERATOR]
    if not operators:
        return Phase.OTHER
    name = _AROUND_NAME.sub("", operators[-1])
    if name.startswith(_OPTIMIZERS):
        return Phase.OPTIMIZER
    if (part and in_parts) or name in _HANDED_OUT:
        return Phase.OTHER
    of_gradients = has_gradients and not name.startswith(_TOLD_OF_THE_STEP)
    return Phase.BACKWARD if name.endswith(_GRADIENT) or of_gradients else Phase.FORWARD


def _innermost(around: Sequence[Span], prefix: str) -> str:
    return next((value for span in reversed(around) if (value := _value(span, prefix))), "")


def _value(span: Span, prefix: str) -> str:
    return span.name[len(prefix) :] if span.name.startswith(prefix) else ""
