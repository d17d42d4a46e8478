"""What the spans of TensorFlow's profiler say of a step. Imports no framework.

TensorFlow runs a step as a graph. The profiler names each operation by its node and type
(``blocks.0.reduce.convolution/Conv2D:Conv2D``): the node's path has the layer in whose scope it was made, and the phase
follows from the scopes that TensorFlow and the trainer's step give to gradients and to the optimizer. On a GPU each
kernel has the name of the operation that launched it, and its own time counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import AbstractSet, Iterator, List, Sequence, Tuple

from helpers.trainers.common.card_times import NOT_TRIED, UNKNOWN_OPERATOR, CardWork, recording_on_card
from helpers.trainers.common.device_time import ProfileError
from helpers.trainers.common.phase_times import Claim, divided
from helpers.trainers.common.step_profile import Call, Recording, Span, rows_of
from helpers.trainers.contract.step_profile import HOST, Phase

# The scope of the update in the trainer's step.
OPTIMIZER = "optimizer"
# The names of the scopes around the parts of a step begin so.
PART = "perfgate part "
NOT_TOLD = "TensorFlow's profiler does not tell the data types of operations"

_OPERATION = re.compile(r"^(?P<node>[^:\s]+):(?P<type>\w+)$")
# What TensorFlow puts before the name of an operation that oneDNN computes.
_ONEDNN = re.compile(r"^_Mkl(Native)?(?=[A-Z])")
_COLLECTIVE = re.compile(r"^_?(Collective|Nccl)")
_GRADIENT = re.compile(r"Backprop|Grad|^AddN$")
# What XLA has compiled into one operation.
_CLUSTER = re.compile(r"^_?Xla(Run|Launch|Compile)")
# If kernels of no known operation take this share of what a card computes, the profile tells no parts.
_MOST_UNKNOWN = 0.5
# As TensorFlow names a copy from the host's memory.
_TO_CARD = "MemcpyH2D"
_NO_OPERATION = "tf.profiler recorded no operation of TensorFlow's graph (XLA compiles it as a whole)"


@dataclass(frozen=True)
class Kernel(Span):
    """A kernel, a copy or a fill on a card; its lane is a stream."""

    # What launched it, as the profiler names operations; empty if it does not tell.
    operation: str = ""


def recording_of_kernels(
    kernels: Sequence[Kernel], spans: Sequence[Span], layers: AbstractSet[str], steps: int
) -> Recording:
    """What ``steps`` steps say on a GPU; ``spans`` are the host's. Raises ProfileError if there is no kernel, or if
    most of the card's time is of no operation."""
    works = [_work(each, layers) for each in kernels]
    computing = [each for each in works if each.computes]
    unknown = sum(each.end - each.start for each in computing if each.operator == UNKNOWN_OPERATOR)
    if works and unknown >= _MOST_UNKNOWN * sum(each.end - each.start for each in computing):
        raise ProfileError(_NO_OPERATION)
    recording = recording_on_card(works, _parts(spans), steps, "tf.profiler")
    return replace(recording, notes=(NOT_TOLD, NOT_TRIED))


def _work(kernel: Kernel, layers: AbstractSet[str]) -> CardWork:
    found, to_card = _OPERATION.match(kernel.operation), kernel.name == _TO_CARD
    if not found or _CLUSTER.match(found["type"]):
        return CardWork(kernel.name, kernel.start, kernel.end, Phase.OTHER, is_copy_to_card=to_card)
    node, kind = found["node"], found["type"]
    phase, layer = _phase_of(node, kind), _layer_of(node, layers)
    return CardWork(kernel.name, kernel.start, kernel.end, phase, layer, kind, to_card)


def recording_of(spans: Sequence[Span], layers: AbstractSet[str], steps: int) -> Recording:
    """What ``steps`` steps say; ``layers`` are the names of the scopes of layers. Raises ProfileError if no operation
    was recorded."""
    calls: List[Call] = []
    computing: List[Claim[Phase]] = []
    reducing: List[Claim[Phase]] = []
    for span, node, kind in _operations(spans):
        phase = _phase_of(node, kind)
        operator = _ONEDNN.sub("", kind)
        kernel = "" if operator == kind else kind
        calls.append(Call(phase, _layer_of(node, layers), operator, kernel, "", "cpu", span.end - span.start))
        (reducing if phase is Phase.ALL_REDUCE else computing).append(Claim(phase, span.start, span.end))
    if not calls:
        raise ProfileError(_NO_OPERATION)
    parts = _parts(spans)
    waiting = [part for part in parts if part.what is Phase.DATA_WAIT]
    # The rest of a step: the executor between operations, and Python.
    others = [Claim(Phase.HOST_GAP, part.start, part.end) for part in parts if part.what is not Phase.DATA_WAIT]
    seconds = divided([computing, reducing, waiting, others])
    for phase in (Phase.HOST_GAP, Phase.DATA_WAIT):
        calls.append(Call(phase, "", HOST, "", "", "cpu", seconds.pop(phase, 0.0)))
    seconds[Phase.DATA_WAIT] = calls[-1].seconds
    overlapped = divided([reducing]).get(Phase.ALL_REDUCE, 0.0) - seconds.get(Phase.ALL_REDUCE, 0.0)
    phases = {phase: each / steps for phase, each in seconds.items()}
    return Recording(rows_of(calls, steps), phases, max(0.0, overlapped) / steps, (NOT_TOLD,))


def _operations(spans: Sequence[Span]) -> Iterator[Tuple[Span, str, str]]:
    for span in spans:
        found = _OPERATION.match(span.name)
        if found:
            yield span, found["node"], found["type"]


def _parts(spans: Sequence[Span]) -> List[Claim[Phase]]:
    named = [span for span in spans if span.name.startswith(PART)]
    return [Claim(Phase(span.name[len(PART) :]), span.start, span.end) for span in named]


def _phase_of(node: str, kind: str) -> Phase:
    path = node.split("/")
    if _COLLECTIVE.match(kind):
        return Phase.ALL_REDUCE
    if OPTIMIZER in path or kind.startswith("ResourceApply"):
        return Phase.OPTIMIZER
    return Phase.BACKWARD if "gradient_tape" in path or _GRADIENT.search(kind) else Phase.FORWARD


def _layer_of(node: str, layers: AbstractSet[str]) -> str:
    return next((part for part in reversed(node.split("/")) if part in layers), "")
