"""Profiles some steps after the measured window, and writes where their time went (contract/step_profile.py).

The phases of a step are timed by the host's clock around its parts, unless the framework's reader knows better from the
device's own times. A framework's ``profile.py`` reads its profiler; what all of them need is here.
"""

from __future__ import annotations

import math
import sys
import time
import traceback
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import (
    Any,
    Callable,
    ContextManager,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Protocol,
    Sequence,
    Tuple,
)

from helpers.trainers.common.loop import Clock, Training
from helpers.trainers.common.process import Trainer, one_line
from helpers.trainers.contract.step_profile import HOST, NoProfile, OperatorRow, Phase, StepProfile
from helpers.trainers.contract.steplog import PROFILE

# The methods of a stepper that are the parts of its step. One that lacks them tells no phases.
PARTS = (("forward", Phase.FORWARD), ("backward", Phase.BACKWARD), ("optimize", Phase.OPTIMIZER))


@dataclass(frozen=True)
class Recording:
    """What a framework's profiler recorded, per step."""

    operators: Sequence[OperatorRow]
    # The time of each phase, if the profiler knows it better than the host's clock around the parts of a step. What
    # they leave of the step becomes HOST_GAP.
    phases: Optional[Mapping[Phase, float]] = None
    all_reduce_overlapped_seconds: float = 0.0
    # As in StepProfile.
    notes: Tuple[str, ...] = ()
    # The framework's own number of threads; None if it does not tell.
    threads: Optional[int] = None


class ProfileError(Exception):
    """The profiler recorded nothing, or not everything."""


class StepProfiler(Protocol):
    """A framework's profiler, with every operator recorded."""

    # In words, the profiler and what it records.
    name: str

    def start(self) -> None: ...

    def part(self, phase: Phase) -> ContextManager[Any]:
        """Entered around a part of a step while the profiler runs, so that the profile has the part as a scope."""

    def stop(self, steps: int, trace: Path) -> Recording:
        """Stop, keep the profiler's own record in ``trace``, and return what it says of the ``steps`` steps. Raises
        ProfileError if it recorded nothing, or not everything."""


@dataclass(frozen=True)
class Span:
    """Something that a thread of the host, or a stream of a card, did from ``start`` to ``end`` (seconds)."""

    # The thread or stream. Spans of one lane are nested or apart.
    lane: str
    name: str
    start: float
    end: float
    # What the profiler calls this type of span; empty if it does not tell.
    kind: str = ""


@dataclass(frozen=True)
class Nested:
    """A span with those around it, from the outermost to the innermost."""

    span: Span
    around: Tuple[Span, ...]
    # Without the time of the spans in it.
    self_seconds: float


def nested(spans: Iterable[Span]) -> List[Nested]:
    """The self times of spans, lane by lane. A span that reaches beyond the one around it by a profiler's rounding
    counts as being within it."""
    lanes: Dict[str, List[Span]] = {}
    for span in spans:
        lanes.setdefault(span.lane, []).append(span)
    found: List[Nested] = []
    for lane in lanes.values():
        # Of spans that begin together the longest is around the others.
        found += _nested_in_lane(sorted(lane, key=lambda each: (each.start, -each.end)))
    return found


def _nested_in_lane(spans: Sequence[Span]) -> List[Nested]:
    open_spans: List[Span] = []
    around: List[Tuple[Span, ...]] = []
    inside: Dict[int, float] = {}
    places: List[int] = []
    for place, span in enumerate(spans):
        while open_spans and open_spans[-1].end <= span.start:
            open_spans.pop()
            places.pop()
        around.append(tuple(open_spans))
        if places:
            inside[places[-1]] = inside.get(places[-1], 0.0) + min(span.end, open_spans[-1].end) - span.start
        open_spans.append(span)
        places.append(place)
    return [
        Nested(span, around[place], max(0.0, span.end - span.start - inside.get(place, 0.0)))
        for place, span in enumerate(spans)
    ]


def call_of(
    phase: Phase, layer: str, operator: str, seconds: float, *, kernel: str = "", dtypes: str = "", device: str = "cpu"
) -> OperatorRow:
    """One call of an operator, for ``rows_of``: its ``seconds_per_step`` are the call's until they are added up."""
    return OperatorRow(phase, layer, operator, kernel, dtypes, device, 1.0, seconds)


def rows_of(calls: Iterable[OperatorRow], steps: int) -> Tuple[OperatorRow, ...]:
    """The calls of ``steps`` steps added up by their keys, the longest first."""
    alike: Dict[Tuple[str, ...], List[OperatorRow]] = {}
    for call in calls:
        alike.setdefault(call.key, []).append(call)
    rows = []
    for same in alike.values():
        # However often the host's code is left for an operator, it is one thing.
        number = 1.0 if same[0].operator == HOST else len(same) / steps
        seconds = math.fsum(call.seconds_per_step for call in same) / steps
        rows.append(replace(same[0], calls_per_step=number, seconds_per_step=seconds))
    return tuple(sorted(rows, key=lambda row: (-row.seconds_per_step, row.key)))


@dataclass
class PartClock:
    """Times the parts of steps by the host's clock, and enters the profiler's scopes around them."""

    scope: Callable[[Phase], ContextManager[Any]]
    clock: Clock
    seconds: Dict[Phase, float] = field(default_factory=dict)

    @contextmanager
    def part(self, phase: Phase) -> Iterator[None]:
        began = self.clock()
        try:
            with self.scope(phase):
                yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + self.clock() - began

    @contextmanager
    def around(self, stepper: Any) -> Iterator[None]:
        """Time the methods of ``stepper`` that are parts of its step, as long as this is entered."""
        known = [(name, phase) for name, phase in PARTS if callable(getattr(stepper, name, None))]
        with ExitStack() as undo:
            for name, phase in known or [("step", Phase.OTHER)]:
                setattr(stepper, name, self._timed(getattr(stepper, name), phase))
                undo.callback(delattr, stepper, name)
            yield

    def _timed(self, method: Callable[..., Any], phase: Phase) -> Callable[..., Any]:
        def timed(*values: Any, **named: Any) -> Any:
            with self.part(phase):
                return method(*values, **named)

        return timed


def profile_steps(
    trainer: Trainer, profiler_of: Callable[[], StepProfiler], stepper: Any, more: Training, clock: Clock
) -> "StepProfile | NoProfile":
    """Train the job's explained steps under the profiler. On an error the answer has the reason."""
    spec, rank = trainer.spec, trainer.ranks.rank
    framework, name = spec.case.framework.value, "the framework's profiler"
    try:
        profiler = profiler_of()
        name = profiler.name
        profiler.start()
        parts = PartClock(profiler.part, clock)
        began = clock()
        try:
            with parts.around(stepper):
                more.in_parts(spec.explained_steps, parts.part)
        finally:
            step_seconds = (clock() - began) / spec.explained_steps
            recording = profiler.stop(spec.explained_steps, spec.trace_path(rank))
        if not recording.operators:
            raise ProfileError("the profiler named no operator")
        by_clock = {phase: seconds / spec.explained_steps for phase, seconds in parts.seconds.items()}
        profile = StepProfile(
            framework=framework,
            rank=rank,
            steps=spec.explained_steps,
            step_seconds=step_seconds,
            step_seconds_unprofiled=more.window_step_seconds,
            phases=_whole(by_clock if recording.phases is None else recording.phases, step_seconds),
            all_reduce_overlapped_seconds=recording.all_reduce_overlapped_seconds,
            operators=tuple(recording.operators),
            threads=recording.threads or int(trainer.device.facts.get("threads", "1")),
            profiler=name,
            notes=recording.notes,
        )
        # It checks every value.
        profile.to_json()
        return profile
    except ProfileError as error:
        return NoProfile(framework, rank, name, one_line(str(error)))
    except Exception as error:  # noqa: BLE001 - the run is measured and complete: no profiler may spoil it
        traceback.print_exc()
        return NoProfile(framework, rank, name, one_line(f"{type(error).__name__}: {error}"))


def _whole(phases: Mapping[Phase, float], step_seconds: float) -> Dict[Phase, float]:
    """The phases, with what they leave of the step as HOST_GAP. Raises ProfileError if they are longer than the
    step."""
    rest = step_seconds - math.fsum(phases.values())
    if rest < -0.005 * step_seconds:
        raise ProfileError(f"the phases take {step_seconds - rest:.4g} s, and a step took {step_seconds:.4g} s")
    return {**phases, Phase.HOST_GAP: phases.get(Phase.HOST_GAP, 0.0) + max(0.0, rest)}


def keep_trace(trace: Path, export: Callable[[Path], None]) -> Tuple[str, ...]:
    """Have ``export`` write the profiler's record into the file ``trace``. Returns the note that it was not kept, if
    the disk has no room; the profile does not need it.

    It is not compressed here: Paddle 2.6.2 brings a zlib with which Python's gzip crashes in its process.
    """
    try:
        export(trace)
    except OSError as error:
        # With what PyTorch leaves of one that it could not finish (trace-rank0.json.tmp).
        for path in trace.parent.glob(f"{trace.name}*"):
            path.unlink()
        return (one_line(f"the trace was not kept: {error}"),)
    return ()


def explain_at_the_end(trainer: Trainer, profiler_of: Callable[[], StepProfiler], stepper: Any, more: Training) -> None:
    """Arrange that the job's explained steps are trained and their profile is written after the step log is complete.
    Does nothing if the job has no such steps."""
    if not trainer.spec.explained_steps:
        return

    def afterwards() -> None:
        trainer.beat(PROFILE)
        answer = profile_steps(trainer, profiler_of, stepper, more, time.monotonic)
        try:
            trainer.spec.step_profile_path(trainer.ranks.rank).write_text(answer.to_json(), encoding="utf-8")
        except OSError as error:
            print(f"trainer: the profile of the step is not kept: {error}", file=sys.stderr)

    trainer.afterwards.append(afterwards)
