"""A folder in which the suite runs against a fault: its own matrix, baselines, runs, history, leases and interpreter.

Every process that the suite starts there carries the workshop's mark in its environment, by which it is found.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from helpers.history import open_history
from helpers.machine.watch.processes import Process, Processes
from tests.faults.inject import DOUBLE_VARIABLE, FAULT_VARIABLE, MARKS
from tests.job_processes import processes_of_job

ROOT = Path(__file__).parents[2]
ONE_CARD = "paddle-resnet50v1.5-fp32-bs1-1x1-synthetic-dynamic"
TWO_CARDS = "paddle-resnet50v1.5-fp32-bs1-1x2-synthetic-dynamic"
MARK_VARIABLE = "PERFGATE_WORKSHOP"
# Long enough for a busy machine. A row that waits for one of them shortens it.
LIMITS = {"start_up_seconds": 60, "no_progress_seconds": 15, "run_seconds": 180, "stop_grace_seconds": 2}
WARMUP_STEPS, WINDOW_STEPS = 9, 5
_LOOK_SECONDS = 0.05
_NO_FAULT = "# nothing is broken\n"
_NO_SUITE_SECONDS = 300.0


@dataclass(frozen=True)
class Mark:
    """A fault's own note that it is made: ``at`` in monotonic seconds, in which job, by which process."""

    at: float
    job_id: str
    pid: int


@dataclass(frozen=True)
class Finished:
    """One run of the suite. ``gone_at`` maps a job in which a fault was made to when its last process had ended."""

    folder: Path
    exit_code: int
    output: str
    seconds: float
    marks: tuple[Mark, ...]
    gone_at: Mapping[str, float]
    left: tuple[Process, ...]

    @cached_property
    def document(self) -> dict[str, Any]:
        """What ``--results`` wrote; empty without it."""
        path = self.folder / "results.json"
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}

    @property
    def cases(self) -> list[dict[str, Any]]:
        return list(self.document.get("cases", []))

    @property
    def status(self) -> str:
        """The status of the one case; of several cases all, separated by commas."""
        if len(self.cases) == 1:
            return str(self.cases[0]["status"])
        return "no case" if not self.cases else ", ".join(str(case["status"]) for case in self.cases)

    @property
    def reason(self) -> str:
        return str(self.cases[0]["reason"]) if self.cases else self.output.strip().splitlines()[-1]

    @property
    def end_seconds(self) -> float | None:
        """The seconds from the last fault to the end of its job's last process; None without a fault in a job."""
        if not self.marks or self.marks[-1].job_id not in self.gone_at:
            return None
        return self.gone_at[self.marks[-1].job_id] - self.marks[-1].at


@dataclass
class Running:
    """A suite that runs, for those who disturb it from outside."""

    folder: Path
    process: subprocess.Popen[str]

    def wait_for(self, what: Callable[[], Any], seconds: float = 60.0) -> Any:
        """The first true answer of ``what``; TimeoutError with the suite's state where there is none in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            if answer := what():
                return answer
            time.sleep(0.02)
        said = (self.folder / "output.txt").read_text(errors="replace")[-500:]
        raise TimeoutError(f"not seen within {seconds:g} s; the suite's exit code is {self.process.poll()}: {said}")

    def run_folders(self) -> list[Path]:
        """Folders of runs that have begun, oldest first."""
        return sorted(path.parent for path in (self.folder / "runs").glob("*/*/r*/spec.json"))

    def steps(self, run: int = -1, rank: int = 0) -> int:
        """Steps in the log of a run's rank so far; 0 before there is one."""
        folders = self.run_folders()
        log = folders[run] / f"rank{rank}.jsonl" if folders else None
        return max(0, len(log.read_text(errors="replace").splitlines()) - 1) if log and log.exists() else 0

    def send(self, number: int, group: bool = False) -> None:
        """Send a signal to the suite, with ``group`` to its whole process group, as a terminal sends Ctrl-C."""
        if group:
            os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)


@dataclass
class Workshop:
    """The folder and everything in it. It is a context: at its end none of its processes lives.

    With ``real`` the framework itself trains, not the double. With ``allow_contention`` its suites measure although
    others use the machine.
    """

    folder: Path
    real: bool = False
    python: str = sys.executable
    allow_contention: bool = True
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __enter__(self) -> Workshop:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "inject").mkdir()
        (self.folder / "inject" / "sitecustomize.py").write_text(
            "from tests.faults.inject import arm\n\narm()\n", encoding="utf-8"
        )
        self._write_interpreter()
        recorded = self.folder / "baselines" / "recorded"
        recorded.mkdir(parents=True)
        shutil.copytree(ROOT / "baselines" / "published", self.folder / "baselines" / "published")
        self.configure(lambda config: None)
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.processes():
            os.kill(process.pid, signal.SIGKILL)

    @property
    def interpreter(self) -> Path:
        """The interpreter that perf.yaml names for Paddle: this Python, with the fault and the double in it."""
        return self.folder / "python"

    def configure(self, change: Callable[[dict[str, Any]], object]) -> None:
        """Write perf.yaml: the project's own with short limits and two small cases, then ``change``."""
        # By libyaml, which is ten times as quick: every session of the tests begins here.
        config = yaml.load((ROOT / "helpers/plan/defaults.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
        block = {
            "framework": "paddle", "model": "resnet50v1.5", "precision": "fp32", "batch_size_per_card": 1,
            "cards": [1, 2], "data": "synthetic", "execution": "dynamic", "protocol": "cpu",
        }  # fmt: skip
        config |= {"matrix": {"cpu": [block]}, "short": [ONE_CARD], "machines": {}, "limits": dict(LIMITS)}
        config["frameworks"] = {"paddle": {"interpreter": str(self.interpreter)}}
        config["contention"] = {"max_foreign_share": 0.9999}
        config["protocols"]["cpu"] |= {"warmup_steps": WARMUP_STEPS, "window_steps": WINDOW_STEPS, "runs": 1}
        change(config)
        (self.folder / "perf.yaml").write_text(yaml.dump(config, Dumper=yaml.CSafeDumper), encoding="utf-8")

    def argv(self, *options: str, case: str = ONE_CARD, session: str = "night") -> list[str]:
        """The suite's command line here; ``session`` empty leaves its name to ``options`` (--resume)."""
        words = [self.python, "-m", "pytest", "perf_tests", "-k", case, "-q", "-p", "no:cacheprovider"]
        words += ["--perf-config", str(self.folder / "perf.yaml"), "--baselines-dir", str(self.folder / "baselines")]
        words += ["--runs-dir", str(self.folder / "runs"), "--results", str(self.folder / "results.json")]
        words += ["--session", session] if session else []
        return [*words, *(["--allow-contention"] if self.allow_contention else []), *options]

    def run(
        self,
        *options: str,
        fault: str = _NO_FAULT,
        case: str = ONE_CARD,
        session: str = "night",
        environment: Mapping[str, str] | None = None,
        during: Callable[[Running], object] | None = None,
        prefix: Sequence[str] = (),
    ) -> Finished:
        """Run the suite to its end with ``fault`` (inject.py) in its jobs.

        ``during`` disturbs it from outside, in this thread; ``prefix`` are words before the command line.
        """
        (self.folder / "fault.py").write_text(fault, encoding="utf-8")
        (self.folder / MARKS).unlink(missing_ok=True)
        (self.folder / "results.json").unlink(missing_ok=True)
        gone: dict[str, float] = {}
        over = threading.Event()
        began = time.monotonic()
        with (self.folder / "output.txt").open("w+", encoding="utf-8") as output:
            process = subprocess.Popen(
                [*prefix, *self.argv(*options, case=case, session=session)],
                cwd=ROOT, env={**self.environment, **(environment or {})}, stdin=subprocess.DEVNULL,
                stdout=output, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            )  # fmt: skip
            watch = threading.Thread(target=self._watch, args=(gone, over), daemon=True)
            watch.start()
            try:
                if during is not None:
                    during(Running(self.folder, process))
                process.wait(_NO_SUITE_SECONDS)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            seconds = time.monotonic() - began
            # A guard may still be at its work when the suite itself was killed.
            left = self._settled()
            over.set()
            watch.join()
            output.seek(0)
            text = output.read()
        done = Finished(self.folder, process.returncode, text, seconds, self._marks(), gone, left)
        # Read now: the next session writes the same file.
        _ = done.document
        return done

    @property
    def environment(self) -> dict[str, str]:
        """The caller's variables without pytest's own, with the workshop's mark and caches."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PERFGATE_"))}
        return {**kept, MARK_VARIABLE: self.mark, "XDG_CACHE_HOME": str(self.folder / "cache")}

    def processes(self) -> list[Process]:
        """Every living process that was started here and kept its environment."""
        wanted = f"{MARK_VARIABLE}={self.mark}".encode()
        processes = Processes()
        found = []
        for path in Path("/proc").iterdir():
            try:
                marked = path.name.isdigit() and wanted in (path / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if marked and (process := processes.look(int(path.name))) is not None and process.alive:
                found.append(process)
        return found

    def lost(self, history: str | None = None) -> int:
        """Finished runs on disk that the history (its URL; None: the runs folder's own) does not have, and runs of
        the history that are not on disk."""
        on_disk = {path: self._uuid(path) for path in (self.folder / "runs").glob("*/*/r*/result.json")}
        database = self.folder / "runs" / "history.sqlite"
        if history is None and not database.exists():
            return len(on_disk)
        cases = {ONE_CARD, TWO_CARDS} | {path.parent.parent.name for path in on_disk}
        with open_history(history or f"sqlite:///{database}") as opened:
            kept = {each.result.uuid for case in cases for each in opened.results_of(case_id=case)}
        return len(set(on_disk.values()) ^ kept)

    def _uuid(self, path: Path) -> str:
        return str(json.loads(path.read_text(encoding="utf-8"))["uuid"])

    def _write_interpreter(self) -> None:
        double = "" if self.real else str(ROOT / "tests" / "faults" / "stand_in_trainer.py")
        lines = (
            "#!/bin/sh",
            f"export PYTHONPATH={shlex.quote(str(self.folder / 'inject'))}:$PYTHONPATH",
            f"export {FAULT_VARIABLE}={shlex.quote(str(self.folder / 'fault.py'))}",
            f"export {DOUBLE_VARIABLE}={shlex.quote(double)}",
            f'exec {shlex.quote(self.python)} "$@"',
        )
        self.interpreter.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.interpreter.chmod(0o755)

    def _watch(self, gone: dict[str, float], over: threading.Event) -> None:
        """Note the moment from which each job in which a fault was made has no process any more."""
        while not over.wait(_LOOK_SECONDS):
            for job_id in {mark.job_id for mark in self._marks() if mark.job_id} - set(gone):
                if not processes_of_job(job_id):
                    gone[job_id] = time.monotonic()

    def _settled(self, seconds: float = 10.0) -> tuple[Process, ...]:
        deadline = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        time.sleep(2 * _LOOK_SECONDS)
        return tuple(left)

    def _marks(self) -> tuple[Mark, ...]:
        path = self.folder / MARKS
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return tuple(Mark(**json.loads(line)) for line in lines)
