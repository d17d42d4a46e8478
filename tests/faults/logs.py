"""Row 8: a step log is cut, forged or of another run, or the loss is no number."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.faults.fault import Fault, Seen
from tests.faults.handled import infra_error, one_attempt
from tests.faults.ranks import no_launcher
from tests.faults.workshop import ONE_CARD, TWO_CARDS, Workshop

_START = """
import atexit, sys
from dataclasses import replace

from helpers.trainers.contract import steplog
from helpers.trainers.contract.steplog import StepLogWriter

def at_start(spec, rank):
    if rank != {rank}:
        return
    print("the last words of rank", rank, file=sys.stderr, flush=True)
    mark()
    log = spec.step_log_path(rank)
{does}
"""
_HEADER = """
begin = StepLogWriter.__init__

def forged(writer, path, header):
    begin(writer, path, replace(header, {fields}))

StepLogWriter.__init__ = forged
"""
# At this moment the trainer has written all and ends, and the suite has seen its footer.
_AT_EXIT = """
def spoil():
{spoils}

atexit.register(spoil)
"""
_NAN_LOSS = """
import sys

def at_step(spec, rank, phase, number):
    if phase == "window":
        print("the last words of rank", rank, file=sys.stderr, flush=True)
        mark()
        # The loop itself asks the stepper for its loss.
        sys._getframe(1).f_locals["run"]._stepper.loss = lambda handle: float("nan")
"""


@dataclass(frozen=True)
class _Way:
    """One broken log. ``does`` are lines that break the log of ``rank``; ``expected`` are the failure's class and other
    texts that the reason must have."""

    name: str
    what: str
    does: str
    expected: tuple[str, ...]
    rank: int = 0
    case: str = ONE_CARD


_WAYS = (
    _Way(
        "log cut in a record", "it is cut in the middle of a step",
        _AT_EXIT.format(spoils="    data = log.read_bytes()\n    log.write_bytes(data[:len(data) // 2])"),
        ("bad log", "rank0.jsonl", "cut"),
    ),
    _Way(
        "two logs with one rank", "rank 1 calls itself rank 0 in its log", _HEADER.format(fields="rank=0"),
        ("bad log", "rank1.jsonl:1", "rank"), rank=1, case=TWO_CARDS,
    ),
)  # fmt: skip


def _broken(way: _Way) -> Fault:
    def make(workshop: Workshop) -> Seen:
        lines = "\n".join(f"    {line}" for line in way.does.strip().splitlines())
        one_attempt(workshop)
        done = workshop.run(fault=_START.format(rank=way.rank, does=lines), case=way.case)
        seen = infra_error(workshop, done, *way.expected)
        # What is wrong with most logs is seen when the job has ended by itself: there is nothing left to end.
        return replace(seen, seconds=None)

    needs = no_launcher if way.case == TWO_CARDS else str
    return Fault(8, way.name, f"the step log of rank {way.rank} is broken: {way.what}", make, needs)


def _loss(workshop: Workshop) -> Seen:
    one_attempt(workshop)
    done = workshop.run(fault=_NAN_LOSS)
    return infra_error(workshop, done, "training diverged", "loss", "nan", rank=0)


FAULTS = [Fault(8, "NaN loss", "the training's loss becomes NaN in the window", _loss), *map(_broken, _WAYS)]
