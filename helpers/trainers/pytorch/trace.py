"""Reads the trace that torch.profiler exports: operators with their layers and phases, kernels and copies of a card.

Imports no framework, so that it can be tried on a trace that was recorded elsewhere or written by hand.

A row stands for an operator with all that it calls, down to where it calls several things that do work: the operator
is the outermost name, its kernel the innermost one (``aten::conv2d``, ``aten::mkldnn_convolution``). What only
allocates, or looks at memory in another way, belongs to its caller; copies and fills have rows of their own. On a GPU
the kernels' own times count, and what the host took to launch them is part of HOST_GAP where the card waited for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from helpers.trainers.common.card_times import UNKNOWN_OPERATOR, CardWork, recording_on_card
from helpers.trainers.common.phase_times import Claim, divided
from helpers.trainers.common.step_profiler import Nested, ProfileError, Recording, Span, call_of, nested, rows_of
from helpers.trainers.contract.step_profile import HOST, OperatorRow, Phase

# The names of the scopes around the parts of a step and around layers begin so.
PART, LAYER = "perfgate.part:", "perfgate.layer:"

_OPERATOR, _SCOPE = "cpu_op", "user_annotation"
_ON_CARD = ("kernel", "gpu_memcpy", "gpu_memset")
_COLLECTIVE = re.compile(r"^(gloo|nccl|mpi|ucc):")
_TO_CARD = "Memcpy HtoD"
_COPIES = ("aten::copy_", "aten::to", "aten::_to_copy", "aten::clone")
_NODE = "autograd::engine::evaluate_function: "
# The node of autograd inside of the scope above; the operators that it calls have names of their own.
_BACKWARD_NODE = re.compile(r"^\w+Backward\d*$")
# What does no work on a tensor's numbers.
_VIEWS = re.compile(
    r"^(aten::)?(empty\w*|new_empty\w*|as_strided_?|resize_|resize_as_|view|view_as|_unsafe_view|_reshape_alias|reshape"
    r"|t|transpose|permute|expand|expand_as|detach_?|alias|select|slice|narrow|unsqueeze_?|squeeze_?|flatten|unflatten"
    r"|resolve_conj|resolve_neg|result_type|set_|size|stride|item|_local_scalar_dense|is_nonzero|to|lift_fresh"
    r"|_nnpack_available)$"
)
# Copies and fills have rows of their own, also if an operator that computes calls nothing else.
_MOVES = re.compile(r"^aten::(copy_|fill_|zero_|clone|contiguous|_to_copy)$")
_MOVERS = re.compile(r"^aten::(to|_to_copy|clone|contiguous|zero_|zeros|zeros_like|ones|ones_like|full|full_like)$")
# PyTorch's names of the types in a trace.
_TYPES = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16", "int": "int32",
    "long int": "int64", "short int": "int16", "signed char": "int8", "unsigned char": "uint8", "bool": "bool",
}  # fmt: skip
_NO_TENSORS = ("", "Scalar", "ScalarList", "TensorList", "GenericList")
_MICROSECOND = 1e-6
NO_LAYERS = "the layers are not known: the model is compiled, or replayed as a graph"


@dataclass(frozen=True)
class _Event(Span):
    """One event of the trace; its kind is the trace's category."""

    details: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def is_operator(self) -> bool:
        return self.kind == _OPERATOR

    @property
    def is_wrapper(self) -> bool:
        """Whether it only stands around the operators of a backward node."""
        return self.name.startswith(_NODE) or _BACKWARD_NODE.match(self.name) is not None

    @property
    def shown(self) -> str:
        return self.name[len(_NODE) :] if self.name.startswith(_NODE) else self.name

    @property
    def dtypes(self) -> str:
        types = [each for each in self.details.get("Input type", ()) if each not in _NO_TENSORS]
        return ",".join(dict.fromkeys(_TYPES.get(each, each) for each in types))


@dataclass(frozen=True)
class _Place:
    """The row of an operator, without its kernel."""

    phase: Phase
    layer: str
    operator: str


def recording_of(trace: Mapping[str, Any], steps: int, layers: bool = True, on_a_card: bool = False) -> Recording:
    """What ``steps`` profiled steps say. ``layers`` is false if no layer had a scope. Raises ProfileError if the trace
    has no operators, is in another format, or has no kernels although the steps ran on a card."""
    try:
        events = list(_events(trace["traceEvents"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ProfileError(
            f"the trace of torch.profiler is not in its format ({type(error).__name__}: {error})"
        ) from error
    host = _Host(events)
    calls = list(host.calls())
    if not calls:
        raise ProfileError("torch.profiler recorded no operator")
    notes = () if layers else (NO_LAYERS,)
    if on_a_card:
        works = [_work(each, host) for each in events if each.kind in _ON_CARD]
        recording = recording_on_card(works, host.part_claims(), steps, "torch.profiler")
        return replace(recording, notes=notes)
    seconds, overlapped = host.phases()
    return Recording(
        rows_of([*calls, *host.code()], steps),
        {phase: each / steps for phase, each in seconds.items()},
        overlapped / steps,
        notes,
    )


def _events(records: Sequence[Mapping[str, Any]]) -> Iterator[_Event]:
    known = (_OPERATOR, _SCOPE, *_ON_CARD)
    mine = [each for each in records if each.get("ph") == "X" and each.get("cat") in known]
    # The dates are in microseconds since 1970 or since the trace's base, too large for sums of floats.
    began = min((float(each["ts"]) for each in mine), default=0.0)
    for each in mine:
        start = (float(each["ts"]) - began) * _MICROSECOND
        end = start + float(each["dur"]) * _MICROSECOND
        lane = f"{each['pid']}/{each['tid']}"
        yield _Event(lane, str(each["name"]), start, end, str(each["cat"]), each.get("args") or {})


class _Host:
    """The operators and scopes of the host's threads."""

    def __init__(self, events: Sequence[_Event]) -> None:
        spans = [each for each in events if each.kind in (_OPERATOR, _SCOPE)]
        self.collectives = [each for each in spans if _COLLECTIVE.match(each.name)]
        self.parts = [each for each in spans if each.name.startswith(PART)]
        self._all = nested(each for each in spans if not _COLLECTIVE.match(each.name))
        self._children: Dict[int, List[Nested]] = {}
        self._outermost: List[Nested] = []
        for each in self._all:
            if not _event(each).is_operator:
                continue
            callers = [span for span in each.around if isinstance(span, _Event) and span.is_operator]
            if callers:
                self._children.setdefault(id(callers[-1]), []).append(each)
            else:
                self._outermost.append(each)
        self._layer_of_number = self._forward_layers()
        # Of the operators that the trace's numbers ("External id") name.
        self.places: Dict[Any, _Place] = {}

    def calls(self) -> Iterator[OperatorRow]:
        """The calls of operators on the host, and how long gradients were reduced."""
        for each in self._outermost:
            yield from self._calls(each, self._phase(each), None, 0.0)
        for event in self.collectives:
            yield call_of(Phase.ALL_REDUCE, "", event.name, event.seconds, dtypes=event.dtypes)

    def phases(self) -> Tuple[Dict[Phase, float], float]:
        """The seconds of each phase if the host computes, and of all-reduce beside other phases."""
        operators = [Claim(self._phase(each), each.span.start, each.span.end) for each in self._outermost]
        reducing = [Claim(Phase.ALL_REDUCE, each.start, each.end) for each in self.collectives]
        seconds = divided([operators, reducing, self.part_claims()])
        whole = divided([reducing]).get(Phase.ALL_REDUCE, 0.0)
        return seconds, max(0.0, whole - seconds.get(Phase.ALL_REDUCE, 0.0))

    def code(self) -> Iterator[OperatorRow]:
        """What the host does between operators: Python, and PyTorch's own code around them."""
        others: List[Claim[Tuple[str, ...]]] = [
            Claim((), each.start, each.end) for each in [*self.collectives, *map(_event, self._outermost)]
        ]
        scopes: Dict[int, List[Claim[Tuple[str, ...]]]] = {}
        for each in self._all:
            if each.span.name.startswith((PART, LAYER)):
                place = (self._phase(each).value, self._layer(each))
                scopes.setdefault(len(each.around), []).append(Claim(place, each.span.start, each.span.end))
        # The innermost scope has the time that neither an operator nor the reducing of gradients has.
        ranked = [others, *(scopes[depth] for depth in sorted(scopes, reverse=True))]
        for found, seconds in divided(ranked).items():
            if found:
                yield call_of(Phase(found[0]), found[1], HOST, seconds)

    def part_claims(self) -> List[Claim[Phase]]:
        return [Claim(Phase(each.name[len(PART) :]), each.start, each.end) for each in self.parts]

    def _calls(self, each: Nested, phase: Phase, outermost: Optional[_Event], seconds: float) -> Iterator[OperatorRow]:
        """The rows of an operator: ``outermost`` is the first operator of the chain that it ends, which took
        ``seconds`` besides it."""
        event = _event(each)
        if outermost is None and not event.is_wrapper:
            outermost = event
        working = [child for child in self._children.get(id(event), ()) if self._works(child)]
        seconds += event.seconds - sum(_event(child).seconds for child in working)
        top = outermost or event
        # What autograd itself takes is small, and the same for all layers.
        place = _Place(phase, "" if top.is_wrapper else self._layer(each), top.shown)
        self._remember(each, place)
        computing = [child for child in working if not _MOVES.match(child.span.name)]
        if len(working) == 1 and (computing or _MOVERS.match(event.name)):
            yield from self._calls(working[0], phase, outermost, seconds)
            return
        # Where several things are called, none of them is the innermost one.
        kernel = event.shown if top is not event and not computing and not event.is_wrapper else ""
        seconds = max(0.0, seconds)
        yield call_of(place.phase, place.layer, place.operator, seconds, kernel=kernel, dtypes=event.dtypes)
        for child in working:
            yield from self._calls(child, phase, None, 0.0)

    def _remember(self, each: Nested, place: _Place) -> None:
        event = _event(each)
        self.places[event.details.get("External id")] = place
        for child in self._children.get(id(event), ()):
            if not self._works(child):
                self._remember(child, place)

    def _works(self, each: Nested) -> bool:
        if not _VIEWS.match(each.span.name):
            return True
        return any(self._works(child) for child in self._children.get(id(each.span), ()))

    def _phase(self, each: Nested) -> Phase:
        around = [span.name for span in (*each.around, each.span)]
        part = next((Phase(name[len(PART) :]) for name in reversed(around) if name.startswith(PART)), None)
        if part is Phase.DATA_WAIT and each.span.name in _COPIES:
            return Phase.TRANSFER
        if part is not None:
            return part
        # On a GPU autograd runs in a thread of its own, where no part has a scope.
        return Phase.BACKWARD if any(name.startswith(_NODE) for name in around) else Phase.OTHER

    def _layer(self, each: Nested) -> str:
        around = (*each.around, each.span)
        layer = next((span.name[len(LAYER) :] for span in reversed(around) if span.name.startswith(LAYER)), "")
        if layer:
            return layer
        for span in reversed(around):
            if isinstance(span, _Event) and span.is_wrapper and "Sequence number" in span.details:
                return self._layer_of_number.get(span.details["Sequence number"], "")
        return ""

    def _forward_layers(self) -> Dict[Any, str]:
        """The layer of each sequence number of autograd. Of several operators with the same number it is the last
        that makes the node."""
        found: Dict[Any, str] = {}
        for each in sorted(self._all, key=lambda each: each.span.start):
            number = _event(each).details.get("Sequence number")
            layer = next((span.name[len(LAYER) :] for span in reversed(each.around) if span.name.startswith(LAYER)), "")
            backward = any(span.name.startswith(_NODE) for span in (*each.around, each.span))
            if number is not None and not backward:
                found[number] = layer
        return found


def _event(each: Nested) -> _Event:
    assert isinstance(each.span, _Event)
    return each.span


def _work(each: _Event, host: _Host) -> CardWork:
    place = host.places.get(each.details.get("External id"), _Place(Phase.OTHER, "", UNKNOWN_OPERATOR))
    to_card = each.kind == "gpu_memcpy" and each.name.startswith(_TO_CARD)
    return CardWork(each.name, each.start, each.end, place.phase, place.layer, place.operator, to_card)
