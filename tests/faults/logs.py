"""Row 8: a step log is cut, forged, of another run or no log at all, or its losses and times are no numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.faults.fault import Fault, Seen
from tests.faults.handled import infra_error, one_attempt
from tests.faults.ranks import no_launcher
from tests.faults.workshop import ONE_CARD, TWO_CARDS, Workshop

_START = """
import atexit, os, random, sys
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
# Each step goes through ``change``, which gives the steps that are written in its place.
_STEPS = """
write = StepLogWriter.steps

def changed(writer, steps):
    write(writer, [other for step in steps for other in change(step)])

def change(step):
    if step.step != 5:
        return [step]
    return {steps}

StepLogWriter.steps = changed
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
    # A long traceback behind them pushes a rank's first words out of the tail.
    words: bool = True


def _steps(name: str, what: str, steps: str, *expected: str) -> _Way:
    return _Way(name, what, _STEPS.format(steps=steps), ("bad log", "rank0.jsonl:6", *expected))


def _at_exit(name: str, what: str, spoils: str, *expected: str) -> _Way:
    lines = "\n".join(f"    {line}" for line in spoils.splitlines())
    return _Way(name, what, _AT_EXIT.format(spoils=lines), ("bad log", "rank0.jsonl", *expected))


_CUT = "data = log.read_bytes()\nlog.write_bytes(data[:{}])"
_WAYS = (
    _at_exit(
        "log cut in a record", "it is cut in the middle of a step", _CUT.format("len(data) // 2"), "cut",
    ),
    _at_exit(
        "log without a footer", "its footer is cut off", _CUT.format("data.rindex(b'\\n', 0, -1) + 1"), "footer"
    ),
    _at_exit("log empty", "it is emptied", "log.write_bytes(b'')", "header"),
    _at_exit("log deleted", "it is deleted", "log.unlink()", "No such file"),
    _at_exit(
        "log of binary garbage", "64 KiB of random bytes are in its place",
        "log.write_bytes(random.Random(8).randbytes(2**16))", "rank0.jsonl:1",
    ),
    _at_exit(
        "log of brackets", "a line of 100,000 opening brackets is appended",
        "log.open('ab').write(b'[' * 100_000 + b'\\n')", "rank0.jsonl:17",
    ),
    _Way(
        "garbage while it trains", "random bytes are appended while it trains",
        "write = StepLogWriter.steps\n"
        "def noisy(writer, steps):\n"
        "    write(writer, steps)\n"
        "    writer._file.buffer.write(random.Random(8).randbytes(100) + b'\\n' + b'[' * 100_000 + b'\\n')\n"
        "StepLogWriter.steps = noisy",
        ("bad log", "rank0.jsonl:3"),
    ),
    _Way(
        "NaN loss in the log", "a step's loss is NaN", _STEPS.format(steps="[replace(step, loss=float('nan'))]"),
        ("training diverged", "rank0.jsonl:6", "loss", "nan"),
    ),
    _steps("NaN time", "a step's end is NaN", "[replace(step, end=float('nan'))]", "end", "nan"),
    _steps("infinite time", "a step ends never", "[replace(step, end=float('inf'))]", "end", "inf"),
    _steps("negative time", "a step begins at -1 s", "[replace(step, start=-1.0)]", "start"),
    _steps("a step that ends before its start", "a step takes -1 s", "[replace(step, end=step.start - 1)]", "end"),
    _steps("a time beyond any clock", "a step ends at 10^400", "[replace(step, end=10**400)]", "end"),
    _steps("a step missing", "step 5 is not there", "[]", "step"),
    _steps("a step out of its epoch", "step 5 is of epoch 2", "[replace(step, epoch=2)]", "step"),
    _Way(
        "a step twice", "step 5 is there twice", _STEPS.format(steps="[step, step]"),
        ("bad log", "rank0.jsonl:7", "step"),
    ),
    _Way(
        "a log of another job", "its header has another job's id", _HEADER.format(fields="job_id='somebody else'"),
        ("bad log", "rank0.jsonl:1", "job_id", "somebody else"),
    ),
    _Way(
        "a log of another case", "its header has another case's id",
        _HEADER.format(fields="case_id=header.case_id.replace('bs1', 'bs2')"), ("bad log", "rank0.jsonl", "case_id"),
    ),
    _Way(
        "a log of another replicate", "its header has another run's number", _HEADER.format(fields="replicate=7"),
        ("bad log", "rank0.jsonl", "replicate"),
    ),
    _Way(
        "two logs with one rank", "rank 1 calls itself rank 0 in its log", _HEADER.format(fields="rank=0"),
        ("bad log", "rank1.jsonl:1", "rank"), rank=1, case=TWO_CARDS,
    ),
    _Way(
        "a rank's log copied over the other's", "rank 1's log is a copy of rank 0's with the rank changed",
        _AT_EXIT.format(
            spoils="    text = ''\n"
            "    while '\"footer\"' not in text:\n"
            "        text = log.with_name('rank0.jsonl').read_text()\n"
            "    log.write_text(text.replace('\"rank\": 0', '\"rank\": 1', 1))"
        ),
        ("bad log", "rank1.jsonl:1", "pid"), rank=1, case=TWO_CARDS,
    ),
    _Way(
        "both processes are rank 0", "rank 1 is started with rank 0's number",
        "os.environ['PADDLE_TRAINER_ID'] = '0'", ("Python exception", "rank 1", "FileExistsError", "rank0.jsonl"),
        rank=1, case=TWO_CARDS, words=False,
    ),
)  # fmt: skip


def _broken(way: _Way) -> Fault:
    def make(workshop: Workshop) -> Seen:
        lines = "\n".join(f"    {line}" for line in way.does.strip().splitlines())
        one_attempt(workshop)
        done = workshop.run(fault=_START.format(rank=way.rank, does=lines), case=way.case)
        seen = infra_error(workshop, done, *way.expected, words=way.words)
        # What is wrong with most logs is seen when the job has ended by itself: there is nothing left to end.
        return replace(seen, seconds=None)

    needs = no_launcher if way.case == TWO_CARDS else str
    return Fault(8, way.name, f"the step log of rank {way.rank} is broken: {way.what}", make, needs)


def _loss(workshop: Workshop) -> Seen:
    one_attempt(workshop)
    done = workshop.run(fault=_NAN_LOSS)
    return infra_error(workshop, done, "training diverged", "loss", "nan", rank=0)


FAULTS = [Fault(8, "NaN loss", "the training's loss becomes NaN in the window", _loss), *map(_broken, _WAYS)]
