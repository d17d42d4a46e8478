"""``perfgate prove-gpu``: shows the suite at work on this machine's GPU, step by step; Paddle's probes come first.

It runs the steps of ``proof/plan.py`` in order, the probes in processes of their own and the rest through sessions of
the suite. Finished steps are kept in the output folder, so that a second call continues. Without a GPU it does the same
on the CPU with the smallest batches. ``docs/evidence/gpu-proof.md`` says which results are right, and which files are
left.
"""

from __future__ import annotations

import argparse
import io
import os
import signal
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from helpers.builds.cache import cache_of
from helpers.builds.making import prepare
from helpers.builds.naming import parse_build
from helpers.commands.proof import Proof, ProofStep
from helpers.commands.proof.bench import ProofBench, write_config
from helpers.commands.proof.plan import Here, proof_here
from helpers.commands.proof.steps import ProofState, StepRecord, StepRunner, failed, read_state
from helpers.commands.proof.summary import ProofReport, not_reached, summary
from helpers.common.files import write_whole
from helpers.common.own_folder import own_folder
from helpers.common.wall_clock import utc_now
from helpers.judging.rules.rates import rate_unit
from helpers.launch.launchers import CHOICES
from helpers.machine.devices import Machine, discover
from helpers.machine.environment import CPU
from helpers.machine.frameworks import BuildFinder
from helpers.machine.kernels import why_build_runs_on_none
from helpers.plan.perf_yaml import load_config
from helpers.trainers.contract.errors import ConfigError, SuiteError, printable
from helpers.trainers.contract.frameworks import Framework

NAME = "prove-gpu"
HELP = "Try the whole suite on this machine's GPU, and write down what it measured and whether each step was right"
EXITS = {
    0: "all steps of this machine's plan were done and were right; with --plan: the plan is shown",
    1: "a step was wrong (the summary says which, docs/evidence/gpu-proof.md what is right); 1 outranks 7",
    7: "no step was wrong, but steps remain: not reached (call again to go on), or not run for want of software",
}

OUT = own_folder() / "runs" / "gpu-proof"
SUMMARY = "summary.md"
BUNDLE = "gpu-proof.tar.gz"
EXIT_RIGHT, EXIT_WRONG, EXIT_REMAIN = 0, 1, 7
# Names that are not packed: the images, and files that a second call makes again.
_NOT_BROUGHT_BACK = ("images", BUNDLE, "good-python")

Clock = Callable[[], float]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plan", action="store_true", help="Print this machine's steps and what is left out; run none")
    parser.add_argument(
        "--cpu", action="store_true", help="Try it on the CPU, even if there is a GPU. Default: only without a GPU"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="S",
        help="Begin no step after S seconds; the next call goes on. Default: no limit",
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
    parser.add_argument("--build", metavar="BUILD", help="Train with this build of Paddle, named as for pytest --build")
    parser.add_argument(
        "--pytorch",
        metavar="PYTHON",
        help="Train with the PyTorch of this Python. Default: the Python that perf.yaml names for PyTorch",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="Read images from FOLDER (as ImageNet has them: a folder for each class). Default: a few that it makes",
    )


def run(arguments: argparse.Namespace, out: TextIO) -> int:
    """Run the steps that are not finished. Exit status 1 if a step is wrong, 7 if steps remain.

    Raises SuiteError if it cannot begin.
    """
    machine = discover()

    def report(line: str) -> None:
        print(printable(line), file=out, flush=True)

    interpreters = _interpreters(arguments, report)
    here = here_of(machine, arguments, interpreters)
    proof = proof_here(here)
    wanted = wanted_steps(proof, arguments.step)
    if proof.device == CPU:
        report(f"Nothing here runs on a GPU: {machine.gpu_note or '--cpu'}. The same parts on the CPU:")
    if arguments.plan:
        for line in plan_lines(proof, wanted):
            report(line)
        return EXIT_RIGHT
    folder: Path = arguments.out.expanduser().absolute()
    (folder / "baselines" / "recorded").mkdir(parents=True, exist_ok=True)
    arguments.config = write_config(folder, arguments.config.expanduser(), interpreters)
    state = read_state(folder, {"device": proof.device, "machine": machine.machine_key(proof.device)})
    bench = ProofBench(folder, proof, machine, _folder(arguments.data), arguments.baselines, report)
    proving = ProofRun(bench, StepRunner(bench).run, wanted, report)
    state = proving.go_on(state, Deadline(arguments.seconds))
    found = proving.report_of(state)
    write_whole(folder / SUMMARY, summary(found).encode())
    for line in () if arguments.step else not_reached(found):
        report(f"not run: {line}")
    report(f"summary in {folder / SUMMARY}; all of it in {pack(folder)}")
    return exit_status(state.records.values(), len(wanted - state.records.keys()))


def _folder(path: Path | None) -> Path | None:
    return path.expanduser().absolute() if path else None


def _interpreters(arguments: argparse.Namespace, report: Callable[[str], None]) -> dict[Framework, str]:
    """The interpreters that the options name. A named build is in use until the proof ends. Raises SuiteError."""
    named = {} if arguments.pytorch is None else {Framework.PYTORCH: str(arguments.pytorch)}
    if arguments.build is not None:
        config = load_config(arguments.config, CHOICES)
        cache = cache_of(config.path.parent, config.builds.most_gigabytes)
        source = parse_build(arguments.build, Path.cwd(), config)
        build = prepare(source, cache=cache, framework=Framework.PADDLE, progress=report, settings=config.builds)
        named[Framework.PADDLE] = str(build.interpreter)
    return named


def here_of(machine: Machine, arguments: argparse.Namespace, interpreters: Mapping[Framework, str]) -> Here:
    """What the plan depends on. No framework is imported. Raises ConfigError if perf.yaml is wrong."""
    gpus = () if arguments.cpu else machine.gpus
    configured, finder = load_config(arguments.config, CHOICES).frameworks, BuildFinder()
    unable = {}
    for framework in (Framework.PADDLE, Framework.PYTORCH) if gpus else ():
        build = finder.find_build(framework, interpreters.get(framework) or configured[framework].interpreter)
        if isinstance(build, str):
            continue
        stated = finder.find_libraries(build)
        if why := why_build_runs_on_none(build, stated, machine.driver, gpus, machine.cuda_driver):
            unable[framework] = why
    return Here(gpus, len(machine.cpu_cards), unable)


def plan_lines(proof: Proof, wanted: frozenset[str]) -> list[str]:
    """The wanted steps in order, then what is left out."""
    chosen = [step for step in proof.steps if step.key in wanted]
    cases = [f" ({step.case.id})" if step.case and step.case.id not in step.key else "" for step in chosen]
    lines = [f"[{number}/{len(chosen)}] {step.part}: {step.key}{case}"
             for number, (step, case) in enumerate(zip(chosen, cases, strict=True), start=1)]  # fmt: skip
    return [*lines, *(f"not run: {line}" for line in proof.left_out)]


def wanted_steps(proof: Proof, keys: Sequence[str] | None) -> frozenset[str]:
    """The keys of the steps that the user named, or of all. Raises ConfigError if the proof has no such step."""
    known = [step.key for step in proof.steps]
    if unknown := sorted(set(keys or ()) - set(known)):
        raise ConfigError(NAME, field="--step", got=unknown[0], expected=f"one of {', '.join(known)}")
    return frozenset(keys or known)


@dataclass
class Deadline:
    """Ends the present step when the time is over, in the way of Ctrl-C: the suite ends the job and keeps the finished
    runs."""

    seconds: float | None
    clock: Clock = time.monotonic

    def __post_init__(self) -> None:
        self._started = self.clock()
        self._timer: threading.Timer | None = None

    @property
    def over(self) -> bool:
        return self.seconds is not None and self.clock() - self._started >= self.seconds

    def __enter__(self) -> Deadline:
        # A shell starts its background jobs with SIGINT ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if self.seconds is not None:
            self._timer = threading.Timer(self.seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()


@dataclass(frozen=True)
class ProofRun:
    """One call of the command."""

    bench: ProofBench
    run_step: Callable[[ProofStep], StepRecord]
    # The keys of the steps to run.
    wanted: frozenset[str]
    # Called with a line for the user.
    report: Callable[[str], None] = print
    clock: Clock = time.monotonic

    def go_on(self, state: ProofState, deadline: Deadline) -> ProofState:
        """Run the steps that are not settled, until the deadline. Each result is on disk before the next step
        begins."""
        try:
            with deadline:
                steps = self.bench.proof.steps
                for number, step in enumerate(steps, start=1):
                    if deadline.over:
                        break
                    if state.settled(step.key) or step.key not in self.wanted:
                        continue
                    record = self._timed(step)
                    state = state.with_record(record)
                    state.write(self.bench.folder)
                    self.report(f"[{number}/{len(steps)}] {step.key}, {record.seconds:.0f} s: {_line(record)}")
        except KeyboardInterrupt:
            self.report(f"{'the time is over' if deadline.over else 'interrupted'} - a second call goes on")
        return state

    def _timed(self, step: ProofStep) -> StepRecord:
        started = self.clock()
        try:
            record = self.run_step(step)
        except (SuiteError, OSError) as error:
            record = failed(step, error)
        return replace(record, seconds=self.clock() - started)

    def report_of(self, state: ProofState) -> ProofReport:
        bench = self.bench
        runs = [run for record in state.records.values() for run in bench.runs_of(record.run_folders)]
        date = f"{utc_now():%Y-%m-%d %H:%M} UTC"
        return ProofReport(bench.machine, bench.proof, state.records, runs, date)


def _line(record: StepRecord) -> str:
    mark = "WRONG: " if record.wrong else ""
    figure = "" if record.samples_per_s is None else f"{record.samples_per_s:.5g} {rate_unit(record.case_id)}; "
    return printable(f"{mark}{record.status}: {figure}{record.message}")[:400]


def pack(folder: Path) -> Path:
    """Pack everything to be brought back from the machine into one file."""
    bundle = folder / BUNDLE
    content = io.BytesIO()
    with tarfile.TarFile.gzopen(bundle.name, "w", fileobj=content) as archive:
        for path in sorted(folder.iterdir()):
            if path.name not in _NOT_BROUGHT_BACK and not path.name.startswith("."):
                archive.add(path, arcname=f"{folder.name}/{path.name}")
    write_whole(bundle, content.getvalue())
    return bundle


def exit_status(records: Iterable[StepRecord], missing: int) -> int:
    """1 if a step is wrong; else 7 if a step is missing or could not be run; else 0."""
    every = list(records)
    if any(record.wrong for record in every):
        return EXIT_WRONG
    return EXIT_REMAIN if missing or not all(record.ran for record in every) else EXIT_RIGHT
