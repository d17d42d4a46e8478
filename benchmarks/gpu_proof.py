"""The GPU path for real: ``python -m benchmarks.gpu_proof``; half an hour on a card, four minutes on a CPU.

Runs the steps of ``benchmarks.gpu_proof_plan`` in their order through the suite's own sessions, each finished one kept
in the output folder, so that a second call goes on; with ``--seconds`` it stops in order when they are over. Without a
GPU, or with ``--cpu``, it is the same on the CPU with the smallest batches. What it leaves behind is
docs/gpu-proof.md's to tell. Exit status: 0 all steps done and right, 1 a step was wrong, 3 steps were not reached.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.gpu_proof_bench import Bench, write_config
from benchmarks.gpu_proof_cuda import Seen
from benchmarks.gpu_proof_plan import CPU, GPU, Step, proof_on_cpu, proof_on_gpu
from benchmarks.gpu_proof_state import Record, State, read_state
from benchmarks.gpu_proof_steps import DOCTOR_JSON, Steps, doctor_argv, failed
from benchmarks.gpu_proof_summary import Story, not_reached, summary
from helpers.machine.devices import Machine, discover
from helpers.machine.files import write_whole
from helpers.machine.wall_clock import utc_now
from helpers.report.unforeseen import ended
from helpers.trainers.contract.errors import LaunchError, SuiteError, printable
from helpers.trainers.contract.paths import ROOT

OUT = ROOT / "runs" / "gpu-proof"
SUMMARY = "summary.md"
BUNDLE = "gpu-proof.tar.gz"
EXIT_RIGHT, EXIT_WRONG, EXIT_NOT_REACHED, EXIT_USAGE = 0, 1, 3, 4
# What the bundle leaves behind: images, and what a folder makes again.
_NOT_BROUGHT_BACK = ("images", BUNDLE, "good-python")

Clock = Callable[[], float]


@dataclass
class Deadline:
    """Ends the step in hand by Ctrl-C's way, which the suite knows: its job is ended, its finished runs are kept."""

    seconds: float | None
    clock: Clock = time.monotonic

    def __post_init__(self) -> None:
        self._started = self.clock()
        self._timer: threading.Timer | None = None

    @property
    def over(self) -> bool:
        return self.seconds is not None and self.clock() - self._started >= self.seconds

    def __enter__(self) -> Deadline:
        # A shell gives its background jobs a SIGINT that is ignored.
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
class Run:
    """One call: ``bench`` with its steps, those of ``state`` done before; ``run_step`` does one."""

    bench: Bench
    steps: Sequence[Step]
    run_step: Callable[[Step], Record]
    clock: Clock = time.monotonic

    def go_on(self, state: State, deadline: Deadline) -> State:
        """The steps that are not settled, one after another until the deadline; each is on disk before the next."""
        try:
            with deadline:
                for number, step in enumerate(self.steps, start=1):
                    if deadline.over:
                        break
                    if state.settled(step.key):
                        continue
                    record = self._timed(step)
                    state = state.with_record(record)
                    state.write(self.bench.folder)
                    mark = "" if record.right else "WRONG: "
                    told = printable(f"{mark}{record.status}: {_figure(record)}{record.told}")
                    print(f"[{number}/{len(self.steps)}] {step.key}, {record.seconds:.0f} s: {told[:400]}", flush=True)
        except KeyboardInterrupt:
            print("the time is over" if deadline.over else "interrupted", "- a second call goes on", flush=True)
        return state

    def _timed(self, step: Step) -> Record:
        started = self.clock()
        try:
            record = self.run_step(step)
        except (SuiteError, OSError) as error:
            record = failed(step, error)
        return replace(record, seconds=self.clock() - started)

    def story(self, state: State) -> Story:
        bench = self.bench
        folders = {record.key: record.run_folders for record in state.records.values()}
        runs = [run for found in folders.values() for run in bench.runs_of(found)]
        doctor = json.loads((bench.folder / DOCTOR_JSON).read_text(encoding="utf-8"))
        seen = Seen(bench.machine, bench.proof, state.records, runs)
        return Story(seen, self.steps, doctor, f"{utc_now():%Y-%m-%d %H:%M} UTC")


def _figure(record: Record) -> str:
    return "" if record.images_per_s is None else f"{record.images_per_s:.5g} images/s; "


def ask_doctor(folder: Path) -> None:
    """``doctor.txt`` and ``doctor.json`` in ``folder``; what it finds is told and stops nothing. Raises LaunchError."""
    for name, more in (("doctor.txt", ()), (DOCTOR_JSON, ("--json",))):
        argv = doctor_argv(sys.executable, folder, *more)
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 1) or not done.stdout:
            said = (done.stderr.strip().splitlines() or ["no word"])[-1]
            raise LaunchError("perfgate doctor", got=f"exit status {done.returncode}: {said}", expected="its findings")
        write_whole(folder / name, done.stdout.encode())


def pack(folder: Path) -> Path:
    """One file with everything that is to be brought back from the machine."""
    bundle = folder / BUNDLE
    with tarfile.open(bundle, "w:gz") as archive:
        for path in sorted(folder.iterdir()):
            if path.name not in _NOT_BROUGHT_BACK and not path.name.startswith("."):
                archive.add(path, arcname=f"{folder.name}/{path.name}")
    return bundle


def device_of(machine: Machine, cpu: bool) -> str:
    return GPU if machine.cards_of(GPU) and not cpu else CPU


def exit_status(records: Iterable[Record], missing: int) -> int:
    """A wrong step outranks those that were not reached."""
    if any(not record.right for record in records):
        return EXIT_WRONG
    return EXIT_NOT_REACHED if missing else EXIT_RIGHT


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    folder: Path = given.out.expanduser().absolute()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "baselines" / "recorded").mkdir(parents=True, exist_ok=True)
    machine = discover()
    proof = proof_on_gpu() if device_of(machine, given.cpu) == GPU else proof_on_cpu()
    if proof.device == CPU:
        print(f"Nothing here runs on a GPU: {machine.gpu_note or '--cpu'}. The same parts on the CPU:", flush=True)
    write_config(folder, given.pytorch)
    about = {"device": proof.device, "machine": machine.machine_key(proof.device)}
    state = read_state(folder, about)
    data = given.data.expanduser().absolute() if given.data else None
    bench = Bench(folder, proof, machine, data)
    run = Run(bench, proof.steps, Steps(bench).run)
    if reason := bench.why_not(proof.steps[0]):
        raise LaunchError("PyTorch", got=reason, expected="an interpreter that has it", remedy="make env-pytorch")
    ask_doctor(folder)
    state = run.go_on(state, Deadline(given.seconds))
    story = run.story(state)
    write_whole(folder / SUMMARY, summary(story).encode())
    for line in not_reached(story):
        print(printable(f"not reached: {line}"))
    print(f"summary in {folder / SUMMARY}; all of it in {pack(folder)}")
    missing = len([step for step in run.steps if step.key not in state.records])
    return exit_status(state.records.values(), missing)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Show the suite at work on this machine's GPU, or on its CPU.")
    parser.add_argument("--cpu", action="store_true", help="Take the CPU, also where there is a GPU")
    parser.add_argument("--seconds", type=float, metavar="S", help="Stop in order after S seconds; call again to go on")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="Keep everything in FOLDER")
    parser.add_argument("--pytorch", metavar="PYTHON", help="Train with this PYTHON. Default: perf.yaml's")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="Decode the ImageNet-layout FOLDER")
    return parser


if __name__ == "__main__":
    sys.exit(ended(main, "gpu-proof"))
