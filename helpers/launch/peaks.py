"""Measures the peaks of a session's cards: a framework's own program multiplies matrices on a leased card.

Each peak is measured once for a build, precision and card. It is kept in a file, which other processes of the session
and a later ``--resume`` find. A probe that failed is not tried again by the same process.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from helpers.judging.utilisation import PEAK_PRECISIONS, Peak
from helpers.machine.devices import Card, CpuCard
from helpers.machine.files import MOST_NOTE_BYTES, read_text_limited, write_whole
from helpers.machine.nvml import Gpu
from helpers.machine.watch.processes import JobProcesses, Processes, end_processes
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import LaunchError, ResultError, SuiteError

# A probe takes five seconds where nothing is wrong, but a cold wheel of several gigabytes is read first.
PROBE_SECONDS = 120.0
_REASON_LENGTH = 300


@dataclass(frozen=True)
class Probe:
    """The peak that is to be measured."""

    # As in a case's plan.
    build: Mapping[str, str]
    # The precision of the matrix product.
    precision: str
    device: str
    card: Card
    # The host of the card.
    host_id: str
    # The variables of the framework's jobs.
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def framework(self) -> str:
        return self.build["framework"]

    @property
    def module(self) -> str:
        return f"helpers.trainers.{self.framework}.peak"

    @property
    def name(self) -> str:
        """The name of the file that keeps the peak; it differs by build, host, card and variables."""
        cores = self.card.cores if isinstance(self.card, CpuCard) else ()
        parts = [dict(self.build), self.host_id, self.device, self.card.id, cores, dict(self.variables)]
        digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
        return f"peak-{self.framework}-{self.precision}-{digest[:16]}.json"


Measure = Callable[[Probe], Peak]


def measure_peak(probe: Probe, timeout_seconds: float = PROBE_SECONDS) -> Peak:
    """Run the probe on its card, which must be leased.

    Raises LaunchError where the probe takes too long (it is then ended), fails or saw another card, and ResultError on
    a record that is no peak.
    """
    about = f"{probe.module} {probe.precision} {probe.device}"
    argv = [probe.build["interpreter"], "-m", probe.module, probe.precision, probe.device]
    if isinstance(probe.card, CpuCard):
        argv += ["--cores", ",".join(map(str, probe.card.cores))]
    try:
        record = json.loads(_last_line(argv, {**card_environment(probe.card), **probe.variables}, timeout_seconds))
    except subprocess.TimeoutExpired as error:
        raise LaunchError(about, got=f"no answer within {timeout_seconds:g} s", expected="a measured peak") from error
    except (OSError, subprocess.SubprocessError, ValueError, RecursionError) as error:
        raise LaunchError(about, got=_reason_of(error), expected="a measured peak") from error
    peak = Peak.from_record(record, about)
    if peak.precision != probe.precision or peak.uuid not in ("", probe.card.id):
        got = f"{peak.precision} on {peak.uuid or peak.device_name}"
        raise LaunchError(about, got=got, expected=f"{probe.precision} on {probe.card.id}")
    return peak


class Peaks:
    """The peaks that are kept in ``folder``, which is made with the first one."""

    def __init__(self, folder: Path, measure: Measure = measure_peak) -> None:
        self._folder = folder
        self._measure = measure
        self._failed: dict[str, str] = {}

    def of(self, probe: Probe, on_probe: Callable[[], None] = lambda: None) -> Peak | str:
        """The peak, or a text that says why there is none. ``on_probe`` is called before a peak is measured."""
        if probe.precision not in PEAK_PRECISIONS:
            return f"no matrix product is known for precision {probe.precision}"
        if not (ROOT / f"{probe.module.replace('.', '/')}.py").exists():
            return f"{probe.framework} has no program that measures the peak ({probe.module})"
        if probe.name in self._failed:
            return self._failed[probe.name]
        path = self._folder / probe.name
        if (known := _read(path)) is not None:
            return known
        on_probe()
        try:
            peak = self._measure(probe)
        except (SuiteError, OSError) as error:
            reason = " ".join(str(error).split())
            self._failed[probe.name] = f"the peak could not be measured: {reason[:_REASON_LENGTH]}"
            return self._failed[probe.name]
        self._keep(path, peak)
        return peak

    def _keep(self, path: Path, peak: Peak) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, (json.dumps(asdict(peak), allow_nan=False) + "\n").encode())
        except OSError:
            # This case has the peak all the same; the next one measures it again.
            return


def _last_line(argv: Sequence[str], environment: Mapping[str, str], timeout_seconds: float) -> str:
    """The last line that a program prints which succeeds.

    All that the program started is ended, whatever happens, and nobody waits longer than the limit: not for a process
    that is inside the kernel, nor for one that holds the program's output open. The program is marked as a job, so that
    the next job ends it where this suite was killed meanwhile.
    """
    processes, job_id = Processes(), uuid.uuid4().hex
    process = subprocess.Popen(
        argv, env={**environment, **processes.marks(job_id)}, cwd=ROOT, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
    )  # fmt: skip
    try:
        stdout, stderr = process.communicate(timeout=timeout_seconds)
    finally:
        # A process that is left all the same is found later as an orphan, and until then as foreign on the card.
        with contextlib.suppress(LaunchError):
            end_processes(JobProcesses(processes, job_id).find, 0.0, about=f"peak {job_id}")
        process.poll()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, list(argv), stdout, stderr)
    return next(reversed(stdout.strip().splitlines()), "nothing")


def card_environment(card: Card, inherited: Mapping[str, str] | None = None) -> dict[str, str]:
    """The caller's variables, with which only this card is visible: a GPU by its UUID, for a CPU card no GPU."""
    inherited = os.environ if inherited is None else inherited
    path = inherited.get("PYTHONPATH")
    return {
        **inherited,
        "PYTHONPATH": f"{ROOT}:{path}" if path else str(ROOT),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": card.uuid if isinstance(card, Gpu) else "",
    }


def _read(path: Path) -> Peak | None:
    """The peak that an earlier process kept; None where there is none, or the file is damaged and will be replaced."""
    try:
        return Peak.from_record(json.loads(read_text_limited(path, MOST_NOTE_BYTES, within=path.parent)), str(path))
    except (OSError, ValueError, RecursionError, ResultError):
        return None


def _reason_of(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return "no JSON object in its output"
    lines = (getattr(error, "stderr", None) or str(error) or repr(error)).strip().splitlines()
    return lines[-1] if lines else repr(error)
