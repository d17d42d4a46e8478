from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.launch.launchers.launcher import LaunchCommand
from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.launch.supervisor import JobLimits, run_job
from helpers.launch.tail import Progress
from helpers.machine.watch.contention import ContentionSample
from helpers.machine.watch.processes import JOB_VARIABLE, Process
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import LaunchError
from helpers.trainers.contract.job import JobSpec
from tests.job_processes import processes_of_job

pytestmark = pytest.mark.slow

STAND_IN = Path(__file__).with_name("stand_in.py")
LIMITS = JobLimits(
    start_up_seconds=10.0,
    no_progress_seconds=0.6,
    run_seconds=20.0,
    rank_death_seconds=0.3,
    grace_seconds=0.3,
    poll_seconds=0.02,
    survey_seconds=0.2,
)
# For a job that must not be taken for one that hangs, on a busy machine either.
PATIENT = replace(LIMITS, no_progress_seconds=15.0)


class QuietMeter:
    """Answers that nobody disturbed; remembers what it was shown."""

    def __init__(self) -> None:
        self.windows: list[tuple[float, float] | None] = []
        self.own: set[int] = set()

    def sample(self, at: float, own: Collection[int], everyone: Collection[Process] | None) -> None:
        self.own |= set(own)

    def contention(self, window: tuple[float, float] | None) -> ContentionSample:
        self.windows.append(window)
        return ContentionSample(0.0)

    def unhealthy(self, window: tuple[float, float] | None) -> tuple[str, ...]:
        return ()


def job(folder: Path, ranks: int = 1) -> JobSpec:
    case = Case.parse(f"paddle-resnet50v1.5-fp32-bs8-1x{ranks}-synthetic-dynamic")
    return JobSpec(uuid.uuid4().hex, case, 0, str(folder / "run"), "cpu", warmup_steps=2, window_steps=5)


def command(spec: JobSpec, *behaviours: str) -> LaunchCommand:
    words = [word if "=" in word else f"{rank}={word}" for rank, word in enumerate(behaviours)]
    return LaunchCommand((sys.executable, str(STAND_IN), str(spec.spec_path), *words))


def run(folder: Path, *behaviours: str, limits: JobLimits = LIMITS) -> JobOutcome:
    """The outcome of real processes that behave so, after which none of them may live."""
    ranks = sum("=" not in word for word in behaviours)
    spec = job(folder, ranks)
    try:
        return run_job(spec, command(spec, *behaviours), limits, QuietMeter())
    finally:
        assert processes_of_job(spec.job_id) == []


def test_a_job_that_goes_well_gives_its_logs_in_rank_order_and_the_meter_sees_its_processes(tmp_path: Path) -> None:
    meter, spec = QuietMeter(), job(tmp_path, 2)
    outcome = run_job(spec, command(spec, "trains", "trains"), PATIENT, meter)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.COMPLETE, "")
    assert [log.header.rank for log in outcome.logs] == [0, 1]
    assert all(len(log.window) == 5 for log in outcome.logs)
    assert outcome.start_up_seconds is not None and outcome.start_up_seconds < outcome.wall_seconds
    assert outcome.log_tail == "" and outcome.guilty_rank is None
    assert {log.header.pid for log in outcome.logs} <= meter.own
    steps = [step for log in outcome.logs for step in log.window]
    assert meter.windows == [(min(step.start for step in steps), max(step.end for step in steps))]


def test_a_refusal_is_no_crash(tmp_path: Path) -> None:
    outcome = run(tmp_path, "refuses")
    assert (outcome.kind, outcome.reason) == (OutcomeKind.REFUSED, "bf16 needs AVX512_BF16")
    assert outcome.logs == ()


def test_what_becomes_of_the_steps_after_the_window_changes_no_measurement(tmp_path: Path) -> None:
    outcome = run(tmp_path, "crashes-profiling", limits=PATIENT)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.COMPLETE, "")
    assert [len(log.window) for log in outcome.logs] == [5]


def test_a_rank_that_only_lost_its_peer_is_not_blamed(tmp_path: Path) -> None:
    assert run(tmp_path, "loses-peer", "raises").guilty_rank == 1


@pytest.mark.parametrize("order", [("stops", "waits-for-peer"), ("waits-for-peer", "stops")])
def test_a_stopped_rank_is_named_and_not_the_one_that_waits_for_it(tmp_path: Path, order: tuple[str, str]) -> None:
    outcome = run(tmp_path, *order)
    assert outcome.what == "hung"
    assert outcome.guilty_rank == order.index("stops")
    assert outcome.wall_seconds < 5.0


def test_a_launcher_that_does_not_end_is_hung(tmp_path: Path) -> None:
    assert run(tmp_path, "trains", "launcher=stays").what == "hung"


def test_ranks_that_wait_for_the_rendezvous_beyond_the_limit_say_so(tmp_path: Path) -> None:
    limits = replace(LIMITS, start_up_seconds=4.0)
    assert run(tmp_path, "never-meets", "never-meets", limits=limits).what == "rendezvous unreachable"


def test_files_that_repeat_the_environment_are_removed(tmp_path: Path) -> None:
    spec = job(tmp_path)
    dump = Path(spec.run_folder) / "logs" / "envlog.0"
    dump.parent.mkdir(parents=True)
    dump.write_text("TOKEN=x")
    run_job(spec, replace(command(spec, "trains"), discard=("logs/envlog.*",)), PATIENT, QuietMeter())
    assert not dump.exists() and spec.step_log_path(0).exists()


def test_an_interrupt_that_somebody_swallows_ends_the_job_all_the_same(tmp_path: Path) -> None:
    spec, swallowed = job(tmp_path), []

    def careless(progress: Progress) -> None:
        if progress.step and not swallowed:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            except KeyboardInterrupt:
                swallowed.append(progress.step)

    with pytest.raises(KeyboardInterrupt):
        run_job(spec, command(spec, "trains"), PATIENT, QuietMeter(), on_progress=careless)
    assert swallowed and swallowed[0] < 7
    assert processes_of_job(spec.job_id) == []


def test_a_program_that_does_not_exist_is_a_launch_error(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="/nowhere/python"):
        run_job(job(tmp_path), LaunchCommand(("/nowhere/python", "-m", "x")), LIMITS, QuietMeter())


# As Paddle's launcher does; the files stay if everything is killed.
KEEPS_ENVIRONMENT = """
import os, pathlib
for name, pid in (("job", os.getpid()), ("guard", os.getppid())):
    pathlib.Path(f"backup_env.{name}").write_bytes(pathlib.Path(f"/proc/{pid}/environ").read_bytes())
"""


def test_neither_job_nor_guard_has_a_password_and_only_the_owner_sees_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PGPASSWORD", "HF_TOKEN", "PYTHONINSPECT"):
        monkeypatch.setenv(name, "5ecret")
    spec = replace(job(tmp_path), run_folder=str(tmp_path / "night" / "r0"))
    umask = os.umask(0)
    try:
        run_job(spec, LaunchCommand((sys.executable, "-c", KEEPS_ENVIRONMENT)), LIMITS, QuietMeter())
    finally:
        os.umask(umask)
    folder = Path(spec.run_folder)
    written = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert JOB_VARIABLE.encode() in written and b"PERFGATE_GUARD_OF=" in written
    assert b"5ecret" not in written
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("behaviour", "cause", "told"),
    [
        ("killed", "killed by a signal", "rank 0 ended without a footer at step 3: ended by SIGKILL"),
        ("out-of-memory", "out of host memory", "rank 0 failed: MemoryError"),
        ("exits-5", "non-zero exit", "exited with 5"),
        ("cuda-memory", "out of GPU memory", "Out of memory error on GPU 0"),
    ],
)
def test_each_fault_of_a_rank_has_its_class(tmp_path: Path, behaviour: str, cause: str, told: str) -> None:
    outcome = run(tmp_path, behaviour, limits=PATIENT)
    assert told in outcome.reason
    assert (outcome.what, outcome.guilty_rank, outcome.logs) == (cause, 0, ())


@pytest.mark.parametrize(
    ("behaviours", "limits", "cause", "guilty"),
    [
        (("waits-for-peer", "killed"), {}, "rank lost", 1),
        (("trains", "hangs"), {"no_progress_seconds": 0.5}, "hung", 1),
        (("trains", "hangs"), {"run_seconds": 1.0}, "over the time limit", None),
        (("hangs", "hangs", "launcher=dies"), {}, "launcher died", None),
    ],
)
def test_each_fault_of_a_job_has_its_class_and_the_guilty_rank(
    tmp_path: Path, behaviours: tuple[str, ...], limits: dict[str, float], cause: str, guilty: int | None
) -> None:
    outcome = run(tmp_path, *behaviours, limits=replace(PATIENT, **limits))
    assert (outcome.what, outcome.guilty_rank, outcome.logs) == (cause, guilty, ())
    if guilty is not None:
        assert f"rank {guilty}" in outcome.reason
    if cause == "over the time limit":
        assert outcome.reason.startswith("not done after 1 s: rank 0 at ")
    if cause == "launcher died":
        assert outcome.reason.startswith("the launcher ended by SIGKILL (killed from outside) before rank 0")
