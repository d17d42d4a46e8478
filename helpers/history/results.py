"""Results on disk: one folder a run, written the moment it exists.

``runs/<session>/<case>/r<n>/{spec.json, rank<k>.jsonl, result.json}``. A result is written whole
(temporary file, fsync, rename), so a kill at any point loses at most the run in progress.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from helpers.history.results_check import MEASURED, check_record
from helpers.judging.evidence import Build, RunEvidence, Stage
from helpers.judging.rules import MEDIAN_STEP
from helpers.judging.verdict import Verdict
from helpers.launch.failure import FAILURE_FACT, FailureClass
from helpers.machine.files import write_whole
from helpers.machine.opening import MOST_RESULT_BYTES, read_text_limited
from helpers.trainers.contract.errors import ResultError
from helpers.trainers.contract.job import finite

# 1: first format.
# 2: the machine's environment tables (system).
# 3: which build of an interleaved comparison (role, stage), the window's losses.
RESULT_SCHEMA_VERSION = 3

RESULT_FILE = "result.json"

# Marks of a run.
CONTENDED = "contended"
MACHINE_SHARED = "machine shared"
SLOWED = "slowed down for a test"

# Facts of a run that was read from a log: the log, in one line; what is to be doubted of it.
LOG_FACT, LOG_WARNINGS_FACT = "log", "log warnings"

_SESSION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


@dataclass(frozen=True)
class RunResult:
    """One run of one case, with everything its throughput depends on.

    - ``system``: the environment tables of the machine (system_report), by section.
    - ``origin``: ``measured`` here, ``replayed`` or ``imported`` from a log; only the first is a reference for others.
    - ``role``: ``candidate`` or ``reference``; ``stage``: ``screen`` or ``confirm`` (evidence.Build, evidence.Stage).
    - ``losses``: rank 0's losses in the window, where they were fetched.
    - ``figures``: each rule's images/s, or the reason why it does not apply.
    - ``step_seconds``: the window's steps, the maximum over ranks; ``samples_per_step`` of all ranks.
    - ``wall_seconds``: the whole run, process start to end; ``training_seconds`` its steps, warm-up and
      window; ``window_seconds`` the measured part.
    - ``foreign_share``: part of the leased cores' time that others used in the window, None if unknown.
    - ``contention``: that share in words, with who it was.
    - ``marks``: why the run is no reference for others (``contended``, ``machine shared``, slowed for a test).
    - ``failure``, ``invalid``, ``refusal``: see RunEvidence.
    - ``verdict``: the case's status and reason, filled in once there is one.
    """

    uuid: str
    session: str
    case_id: str
    target: str
    replicate: int
    created: str
    origin: str = MEASURED
    role: str = Build.CANDIDATE.value
    stage: str = Stage.SCREEN.value
    build: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    system: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    figures: Mapping[str, float | str] = field(default_factory=dict)
    step_seconds: tuple[float, ...] = ()
    samples_per_step: tuple[int, ...] = ()
    losses: tuple[float, ...] = ()
    wall_seconds: float = 0.0
    start_up_seconds: float = 0.0
    training_seconds: float = 0.0
    window_seconds: float = 0.0
    reader_share: float | None = None
    foreign_share: float | None = None
    contention: str = ""
    peak_host_bytes: int = 0
    peak_device_bytes: int = 0
    marks: tuple[str, ...] = ()
    failure: str | None = None
    invalid: str | None = None
    refusal: str | None = None
    log_tail: str = ""
    verdict: Mapping[str, str] | None = None

    @property
    def measured(self) -> bool:
        """Whether the run holds a throughput that may be used."""
        return self.failure is None and self.invalid is None and self.refusal is None

    @property
    def evidence(self) -> RunEvidence:
        return RunEvidence(
            self.figures,
            build=Build(self.role),
            stage=Stage(self.stage),
            log_rate=self.log_rate,
            stall_share=self.stall_share,
            loss=statistics.median(self.losses) if self.losses else None,
            failure=self.failure,
            invalid=self.invalid,
            refusal=self.refusal,
            retriable=self.failure_class is not None and self.failure_class.retriable,
        )

    @property
    def failure_class(self) -> FailureClass | None:
        """Which fault ended the run; None of one without a failure, and where another suite has named it."""
        named = self.facts.get(FAILURE_FACT) if self.failure is not None else None
        return next((each for each in FailureClass if each.value == named), None)

    @property
    def log_rate(self) -> float | None:
        """Natural logarithm of the images/s by the median step; None without such a figure."""
        figure = self.figures.get(MEDIAN_STEP)
        return math.log(figure) if isinstance(figure, float) and finite(figure) and figure > 0 else None

    @property
    def stall_share(self) -> float | None:
        """Mean over median step seconds, minus 1: what the median hides; None without steps."""
        if not self.step_seconds:
            return None
        return statistics.fmean(self.step_seconds) / statistics.median(self.step_seconds) - 1

    def to_record(self) -> dict[str, Any]:
        """Every field by its name, and the version of this format."""
        return {
            **{item.name: getattr(self, item.name) for item in fields(self)},
            "schema_version": RESULT_SCHEMA_VERSION,
        }

    def to_json(self) -> str:
        return json.dumps(self.to_record(), indent=1, sort_keys=True, allow_nan=False, default=dict) + "\n"


@dataclass(frozen=True)
class ResultStore:
    """The folders of one session. Raises ResultError when the disk refuses."""

    root: Path
    session: str

    def __post_init__(self) -> None:
        if _SESSION_NAME.fullmatch(self.session) is None:
            raise ResultError(
                "session name",
                got=self.session,
                expected="letters, digits, '.', '_' and '-', at most 100",
                remedy="It becomes a folder under the run folder",
            )

    @property
    def folder(self) -> Path:
        return self.root / self.session

    def run_folder(self, case_id: str, replicate: int) -> Path:
        return self.folder / case_id / f"r{replicate}"

    def new_run_folder(self, case_id: str, replicate: int) -> Path:
        """An empty folder for a run; what another run left there is moved aside, never overwritten."""
        folder = self.run_folder(case_id, replicate)
        try:
            if folder.exists():
                folder.rename(_free_name(folder))
            folder.mkdir(parents=True)
        except OSError as error:
            raise ResultError(
                f"run folder {folder}",
                got=str(error),
                expected="a new folder",
                remedy="Free the disk or set --runs-dir",
            ) from error
        return folder

    def write(self, result: RunResult) -> Path:
        """Write ``result.json`` whole, or raise ResultError with the figures that could not be written."""
        path = self.run_folder(result.case_id, result.replicate) / RESULT_FILE
        try:
            write_whole(path, result.to_json().encode())
        except (OSError, ValueError, TypeError) as error:
            rates = ", ".join(
                f"{value:.6g} images/s by {rule}"
                for rule, value in result.figures.items()
                if not isinstance(value, str)
            )
            # A run that broke off has no figures; its failure must not hide behind the disk's.
            kept = (
                f"Measured and not written: {result.case_id} r{result.replicate}, {rates}"
                if rates
                else (
                    f"Not written: {result.case_id} r{result.replicate}, which measured nothing"
                    f" ({result.failure or result.refusal or result.invalid or 'no figure'})"
                )
            )
            full = isinstance(error, OSError)
            raise ResultError(
                f"result {path}",
                got=str(error),
                expected="room for a few kilobytes" if full else "plain JSON values, none of them NaN or infinite",
                remedy=f"{kept}. "
                + ("Free the disk, and go on with --resume" if full else "Report this run; it is no measurement"),
            ) from error
        return path

    def add_verdict(self, results: tuple[RunResult, ...], verdict: Verdict) -> None:
        """Set the case's verdict into the results it rests on."""
        told = {"status": verdict.status.value, "code": verdict.reason.code, "reason": verdict.reason.message}
        for result in results:
            if result.session == self.session:
                self.write(replace(result, verdict=told))

    def results(self, case_id: str) -> tuple[RunResult, ...]:
        """The case's finished runs of this session, by replicate; half-finished ones have no result and are absent."""
        paths = (self.folder / case_id).glob(f"r*/{RESULT_FILE}")
        found = [self._read(path, case_id) for path in paths if re.fullmatch(r"r[0-9]+", path.parent.name)]
        return tuple(sorted(found, key=lambda result: result.replicate))

    def _read(self, path: Path, case_id: str) -> RunResult:
        result = read_result(path, within=self.root)
        for name, got, expected in (
            ("case_id", result.case_id, case_id),
            ("replicate", f"r{result.replicate}", path.parent.name),
        ):
            if got != expected:
                raise ResultError(
                    f"result {path}", field=name, got=got, expected=expected, remedy="It was moved: put it back"
                )
        return result


def read_result(path: Path, within: Path | None = None) -> RunResult:
    """Read one ``result.json`` strictly; ResultError names the file and the key. It must lie in ``within``."""
    about = f"result {path}"
    try:
        record = json.loads(read_text_limited(path, MOST_RESULT_BYTES, within=within), parse_constant=_no_constant)
    except (OSError, ValueError, RecursionError) as error:
        raise ResultError(about, got=str(error), expected="a result as JSON") from error
    return result_of_record(record, about)


def result_of_record(record: Any, about: str) -> RunResult:
    """A result from what a file or the history keeps of it; ResultError names ``about`` and the key."""
    if not isinstance(record, dict):
        raise ResultError(about, got=type(record).__name__, expected="a JSON object")
    version = record.get("schema_version")
    if version != RESULT_SCHEMA_VERSION:
        older = isinstance(version, int) and version < RESULT_SCHEMA_VERSION
        raise ResultError(
            about,
            field="schema_version",
            got=version,
            expected=str(RESULT_SCHEMA_VERSION),
            remedy="An older suite wrote it: measure again" if older else "Update the suite",
        )
    values = {name: value for name, value in record.items() if name != "schema_version"}
    check_record(values, [item.name for item in fields(RunResult)], about)
    for name in ("step_seconds", "samples_per_step", "losses", "marks"):
        values[name] = tuple(values[name])
    return RunResult(**values)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def sessions(root: Path) -> tuple[str, ...]:
    """Sessions with a folder under ``root``, oldest first."""
    if not root.is_dir():
        return ()
    folders = [folder for folder in root.iterdir() if folder.is_dir() and _SESSION_NAME.fullmatch(folder.name)]
    return tuple(folder.name for folder in sorted(folders, key=lambda folder: (folder.stat().st_mtime, folder.name)))


def _free_name(folder: Path) -> Path:
    number = 1
    while (other := folder.with_name(f"{folder.name}.aside{number}")).exists():
        number += 1
    return other
