"""Row 8: a step log is cut, or the loss is no number."""

from __future__ import annotations

from dataclasses import replace

from tests.faults.fault import Fault, Seen
from tests.faults.handled import infra_error, one_attempt
from tests.faults.workshop import Workshop

# When it is cut, the trainer has written all and ends, and the suite has seen its footer.
_CUT_LOG = """
import atexit, sys

def at_start(spec, rank):
    print("the last words of rank", rank, file=sys.stderr, flush=True)
    mark()
    log = spec.step_log_path(rank)

    def spoil():
        data = log.read_bytes()
        log.write_bytes(data[:len(data) // 2])

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


def _cut(workshop: Workshop) -> Seen:
    one_attempt(workshop)
    seen = infra_error(workshop, workshop.run(fault=_CUT_LOG), "bad log", "rank0.jsonl", "cut")
    # It is seen when the job has ended by itself: there is nothing left to end.
    return replace(seen, seconds=None)


def _loss(workshop: Workshop) -> Seen:
    one_attempt(workshop)
    done = workshop.run(fault=_NAN_LOSS)
    return infra_error(workshop, done, "training diverged", "loss", "nan", rank=0)


FAULTS = [
    Fault(8, "NaN loss", "the training's loss becomes NaN in the window", _loss),
    Fault(8, "log cut in a record", "the step log of rank 0 is cut in the middle of a step", _cut),
]
