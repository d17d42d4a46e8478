"""``perfgate prove-gpu``: shows the suite at work on this machine's GPU, step by step; Paddle's probes come first.

It runs the steps of ``proof/plan.py`` in order, the probes in processes of their own and the rest through sessions of
the suite. Finished steps are kept in the output folder, so that a second call continues. Without a GPU it does the same
on the CPU with the smallest batches. ``docs/evidence/gpu-proof.md`` says which results are right, and which files are
left.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from helpers.commands.loading import add_build, add_data, build_option
from helpers.commands.option_types import count_of
from helpers.commands.proof.bench import ProofBench
from helpers.commands.proof.plan import ProofStep, steps_here
from helpers.commands.proof.records import (
    ERROR,
    SUMMARY_FILE,
    StepRecord,
    not_reached,
    read_state,
    summary,
    write_state,
)
from helpers.commands.proof.steps import run_step
from helpers.common.files import write_whole
from helpers.common.own_folder import own_folder
from helpers.common.wall_clock import utc_now
from helpers.history.run_folders import RESULT_FILE, read_result
from helpers.launch.launchers import CHOICES
from helpers.machine.devices import discover
from helpers.machine.environment import CPU, GPU
from helpers.plan.perf_yaml import load_config
from helpers.trainers.contract.errors import ConfigError, SuiteError, printable

NAME = "prove-gpu"
HELP = "Try the whole suite on this machine's GPU, and write down what it measured and whether each step was right"
EXITS = {
    0: "all steps of this machine's plan were done and were right; with --plan: the plan is shown",
    1: "a step was wrong (the summary says which, docs/evidence/gpu-proof.md what is right); 1 outranks 7",
    7: "no step was wrong, but steps remain: not reached (call again to go on), or not run for want of software",
}

OUT = own_folder() / "runs" / "gpu-proof"
EXIT_RIGHT, EXIT_WRONG, EXIT_REMAIN = 0, 1, 7
_MOST_LINE = 400

Report = Callable[[str], None]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", action="store_true", help="Print this machine's steps; run none")
    parser.add_argument(
        "--cpu", action="store_true", help="Try it on the CPU, even if there is a GPU. Default: only without a GPU"
    )
    parser.add_argument(
        "--seconds",
        type=count_of("seconds", 1, 1_000_000),
        metavar="S",
        help="End after S seconds; the next call goes on. Default: no limit",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=OUT,
        metavar="FOLDER",
        help="Write summary, results and logs into FOLDER. Default: runs/gpu-proof",
    )
    parser.add_argument(
        "--step",
        action="append",
        metavar="KEY",
        help="Run only the step KEY, as the output calls it; may be given several times. Default: all steps in order",
    )
    add_build(parser)
    add_data(parser)


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Run the steps that are not finished. Exit status 1 if a step is wrong, 7 if steps remain.

    Raises SuiteError if it cannot begin.
    """
    machine = discover()

    def report(line: str) -> None:
        print(printable(line)[:_MOST_LINE], file=out, flush=True)

    gpus = () if arguments.cpu else machine.gpus
    device = GPU if gpus else CPU
    every = steps_here(gpus, len(machine.cpu_cards))
    steps = wanted_steps(every, arguments.step)
    if device == CPU:
        report(f"Nothing here runs on a GPU: {machine.gpu_note or '--cpu'}. The same parts on the CPU:")
    if arguments.plan:
        for number, step in enumerate(steps, start=1):
            report(f"[{number}/{len(steps)}] {step.key}: {step.kind.value} ({step.case})")
        return EXIT_RIGHT
    folder: Path = arguments.out.expanduser().absolute()
    (folder / "baselines" / "recorded").mkdir(parents=True, exist_ok=True)
    about = {"device": device, "machine": machine.machine_key(device)}
    config = load_config(arguments.config, CHOICES)
    data = None if arguments.data is None else Path(arguments.data).expanduser().absolute()
    bench = ProofBench(folder, every, device, machine, config, build_option(arguments.build), data, report)
    records = read_state(folder, about)
    with time_limit(arguments.seconds):
        go_on(
            steps,
            records,
            lambda step: run_step(bench, step),
            lambda: write_state(folder, about, records.values()),
            report,
        )
    runs = [read_result(folder / each / RESULT_FILE) for record in records.values() for each in record.run_folders]
    text = summary(machine, device, every, records, runs, f"{utc_now():%Y-%m-%d %H:%M} UTC")
    write_whole(folder / SUMMARY_FILE, text.encode())
    for line in () if arguments.step else not_reached(every, records):
        report(f"not run: {line}")
    report(f"summary in {folder / SUMMARY_FILE}")
    return exit_status(records.values(), sum(step.key not in records for step in steps))


def wanted_steps(steps: Sequence[ProofStep], keys: Sequence[str] | None) -> tuple[ProofStep, ...]:
    """The steps that the user named, or all. Raises ConfigError if there is no such step."""
    known = [step.key for step in steps]
    if unknown := sorted(set(keys or ()) - set(known)):
        raise ConfigError(f"perfgate {NAME}", field="--step", got=unknown[0], expected=f"one of {', '.join(known)}")
    return tuple(step for step in steps if step.key in (keys or known))


@contextmanager
def time_limit(seconds: int | None) -> Iterator[None]:
    """Interrupts the ``with`` block after so many seconds in the way of Ctrl-C: the suite ends the job and keeps the
    finished runs."""
    # A shell starts its background jobs with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    signal.setitimer(signal.ITIMER_REAL, seconds or 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def go_on(
    steps: Sequence[ProofStep],
    records: dict[str, StepRecord],
    run_one: Callable[[ProofStep], StepRecord],
    keep: Callable[[], None],
    report: Report,
) -> None:
    """Run the steps that were not right, and add their ``records``, until an interrupt. ``keep`` writes them to disk
    before the next step begins."""
    try:
        for number, step in enumerate(steps, start=1):
            if step.key in records and records[step.key].right:
                continue
            began = time.monotonic()
            try:
                record = run_one(step)
            except (SuiteError, OSError) as error:
                record = StepRecord(step.key, ERROR, False, f"{type(error).__name__}: {error}")
            records[step.key] = replace(record, seconds=time.monotonic() - began)
            keep()
            report(f"[{number}/{len(steps)}] {step.key}, {records[step.key].seconds:.0f} s: {_line(record)}")
    except KeyboardInterrupt:
        report("interrupted, or the time is over - a second call goes on")


def _line(record: StepRecord) -> str:
    mark = "WRONG: " if record.wrong else ""
    return f"{mark}{record.status}: {'; '.join(filter(None, (record.figure, record.message)))}"


def exit_status(records: Iterable[StepRecord], missing: int) -> int:
    """1 if a step is wrong; else 7 if a step is missing or could not be run; else 0."""
    every = list(records)
    if any(record.wrong for record in every):
        return EXIT_WRONG
    return EXIT_REMAIN if missing or not all(record.ran for record in every) else EXIT_RIGHT
