import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Generator
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.launch.launchers.launcher import LaunchCommand
from helpers.launch.nodes.others import OtherNodes
from helpers.launch.outcome import JobOutcome, OutcomeKind
from helpers.launch.supervisor import JobLimits, SupervisorIO, free_segments, run_job
from helpers.launch.tail import Progress
from helpers.machine.watch.contention import ContentionSample, CpuMeter
from helpers.machine.watch.processes import JOB_VARIABLE, Process, Processes
from helpers.plan.perf_yaml import TimeLimits, load_config
from helpers.trainers.contract import ROOT
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


# Run by every Python that starts with its folder on the path.
SET_BACK = """
import itertools, time
now = itertools.count(2_000_000_000, -3600)
time.time = lambda: float(next(now))
time.time_ns = lambda: next(now) * 10**9
"""


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


def test_a_job_that_goes_well_gives_its_logs_in_rank_order(tmp_path: Path) -> None:
    outcome = run(tmp_path, "trains", "trains", limits=PATIENT)
    assert (outcome.kind, outcome.reason, outcome.exit_code) == (OutcomeKind.COMPLETE, "", 0)
    assert [log.header.rank for log in outcome.logs] == [0, 1]
    assert all(len(log.window) == 5 for log in outcome.logs)
    assert outcome.start_up_seconds is not None and outcome.start_up_seconds < outcome.wall_seconds
    assert outcome.log_tail == "" and outcome.guilty_rank is None


def test_progress_is_told_to_the_last_step(tmp_path: Path) -> None:
    told: list[Progress] = []
    spec = job(tmp_path)
    run_job(spec, command(spec, "trains"), PATIENT, QuietMeter(), on_progress=told.append)
    assert (told[0].phase, told[0].step, told[0].steps) == ("start", 0, 7)
    assert told[-1].step == 7 and told[-1].seconds_left == 0.0
    assert 0 < (told[-1].samples_per_s or 0) <= 8 / 0.02
    assert [each.step for each in told] == sorted(each.step for each in told)


def test_the_meter_sees_the_jobs_processes_and_the_window_of_all_ranks(tmp_path: Path) -> None:
    meter, spec = QuietMeter(), job(tmp_path, 2)
    outcome = run_job(spec, command(spec, "trains", "trains"), PATIENT, meter)
    assert {log.header.pid for log in outcome.logs} <= meter.own
    steps = [step for log in outcome.logs for step in log.window]
    assert meter.windows == [(min(step.start for step in steps), max(step.end for step in steps))]


def test_a_real_meter_encloses_the_window(tmp_path: Path) -> None:
    spec = job(tmp_path)
    outcome = run_job(spec, command(spec, "trains"), PATIENT, CpuMeter(()))
    assert outcome.contention.foreign_share is not None
    assert outcome.contention.window_seconds == pytest.approx(
        outcome.logs[0].window[-1].end - outcome.logs[0].window[0].start
    )


def test_a_refusal_is_no_crash(tmp_path: Path) -> None:
    outcome = run(tmp_path, "refuses")
    assert (outcome.kind, outcome.reason) == (OutcomeKind.REFUSED, "bf16 needs AVX512_BF16")
    assert outcome.logs == ()


@pytest.mark.parametrize(
    ("behaviour", "kind", "told"),
    [
        ("killed", OutcomeKind.CRASHED, "rank 0 ended without a footer at step 3: ended by SIGKILL"),
        ("raises", OutcomeKind.CRASHED, "rank 0 failed: ValueError: labels out of range"),
        ("out-of-disk", OutcomeKind.CRASHED, "No space left on device"),
        ("crashes-at-exit", OutcomeKind.CRASHED, "SIGSEGV"),
        ("no-module", OutcomeKind.START_UP_FAILED, "No module named 'paddle'"),
        ("no-footer", OutcomeKind.BAD_LOG, "without its log's footer"),
        ("truncates", OutcomeKind.BAD_LOG, "without its log's footer"),
        ("foreign", OutcomeKind.BAD_LOG, "'another-job'"),
        ("short", OutcomeKind.BAD_LOG, "field 'window steps': got 4, expected 5"),
        ("hangs", OutcomeKind.HUNG, "rank 0 gave no sign of life for 0.6 s: rank 0 at step 3 of 7"),
        ("stubborn", OutcomeKind.HUNG, "rank 0 gave no sign of life"),
        ("hangs-at-exit", OutcomeKind.HUNG, "all ranks finished, but the job did not exit"),
    ],
)
def test_each_fault_of_a_rank_is_named(tmp_path: Path, behaviour: str, kind: OutcomeKind, told: str) -> None:
    outcome = run(tmp_path, behaviour)
    assert outcome.kind is kind
    assert told in outcome.reason
    assert outcome.logs == () and outcome.contention.foreign_share == 0.0


@pytest.mark.parametrize(
    ("behaviours", "limits"),
    [
        (("crashes-profiling",), PATIENT),
        # The others wait for the one that is gone.
        (("hangs-profiling", "crashes-profiling"), replace(LIMITS, no_progress_seconds=2.0)),
    ],
)
def test_what_becomes_of_the_steps_after_the_window_changes_no_measurement(
    tmp_path: Path, behaviours: tuple[str, ...], limits: JobLimits
) -> None:
    outcome = run(tmp_path, *behaviours, limits=limits)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.COMPLETE, "")
    assert [len(log.window) for log in outcome.logs] == [5] * len(behaviours)


@pytest.mark.parametrize("order", [("killed", "waits-for-peer"), ("waits-for-peer", "killed")])
def test_when_one_rank_dies_and_the_others_wait_the_dead_one_is_named(tmp_path: Path, order: tuple[str, str]) -> None:
    outcome = run(tmp_path, *order, limits=PATIENT)
    assert outcome.kind is OutcomeKind.CRASHED
    assert outcome.guilty_rank == order.index("killed")
    assert outcome.reason.startswith(f"rank {order.index('killed')} ended without a footer at step 3")


@pytest.mark.parametrize("cause", ["killed", "raises"])
def test_a_rank_that_only_lost_its_peer_is_not_blamed(tmp_path: Path, cause: str) -> None:
    outcome = run(tmp_path, "loses-peer", cause)
    assert outcome.guilty_rank == 1


def test_a_launcher_that_dies_leaves_no_rank_behind(tmp_path: Path) -> None:
    outcome = run(tmp_path, "hangs", "stubborn", "launcher=dies")
    assert outcome.kind in (OutcomeKind.CRASHED, OutcomeKind.START_UP_FAILED)
    assert outcome.exit_code == -signal.SIGKILL
    assert "SIGKILL" in outcome.reason


def test_a_rank_that_its_launcher_never_started_is_named(tmp_path: Path) -> None:
    limits = replace(PATIENT, rank_start_seconds=0.5)
    outcome = run(tmp_path, "waits-for-peer", "absent", limits=limits)
    assert outcome.kind is OutcomeKind.START_UP_FAILED and outcome.guilty_rank == 1
    assert outcome.reason.startswith("rank 1 never started: no sign of life 0.5 s after another rank's: rank 0 at step")
    assert outcome.wall_seconds < 5.0


@pytest.mark.parametrize("order", [("stops", "waits-for-peer"), ("waits-for-peer", "stops")])
def test_a_stopped_rank_is_named_and_not_the_one_that_waits_for_it(tmp_path: Path, order: tuple[str, str]) -> None:
    outcome = run(tmp_path, *order)
    assert outcome.kind is OutcomeKind.HUNG
    assert outcome.guilty_rank == order.index("stops")
    assert re.search(
        rf"rank {order.index('stops')} gave no sign of life for 0\.\d+ s, its process is stopped", outcome.reason
    )
    assert outcome.wall_seconds < 5.0


def test_by_default_a_job_is_ended_within_ten_seconds_of_a_ranks_death() -> None:
    for grace_seconds in (TimeLimits().stop_grace_seconds, load_config(ROOT / "perf.yaml").limits.stop_grace_seconds):
        limits = JobLimits(300.0, 300.0, 7200.0, grace_seconds)
        assert 2 * limits.poll_seconds + limits.rank_death_seconds + limits.grace_seconds <= 8.5


def test_a_wall_clock_that_is_set_back_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the suite, in the ranks and in the guard's place: each look at the wall clock is an hour before the last."""
    (tmp_path / "sitecustomize.py").write_text(SET_BACK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    now = itertools.count(2_000_000_000, -3600)
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    monkeypatch.setattr(time, "time_ns", lambda: next(now) * 10**9)
    outcome = run(tmp_path, "trains", "trains", limits=PATIENT)
    assert (outcome.kind, outcome.reason) == (OutcomeKind.COMPLETE, "")
    assert 7 * 0.02 < outcome.wall_seconds < 20.0
    hung = run(tmp_path / "hung", "trains", "hangs")
    assert hung.kind is OutcomeKind.HUNG and hung.guilty_rank == 1
    assert 0.6 < hung.wall_seconds < 10.0


def test_a_launcher_that_does_not_end_is_hung(tmp_path: Path) -> None:
    assert run(tmp_path, "trains", "launcher=stays").kind is OutcomeKind.HUNG


def test_the_start_up_limit_names_the_phase(tmp_path: Path) -> None:
    outcome = run(tmp_path, "trains", "never-starts", limits=replace(LIMITS, start_up_seconds=1.0))
    assert outcome.kind is OutcomeKind.START_UP_FAILED
    assert outcome.guilty_rank == 1 and "rank 1 at 'import framework'" in outcome.reason
    assert outcome.start_up_seconds is None


def test_the_run_limit_says_where_the_job_was(tmp_path: Path) -> None:
    outcome = run(tmp_path, "hangs", limits=replace(PATIENT, run_seconds=0.7))
    assert outcome.kind is OutcomeKind.TIMED_OUT
    assert outcome.reason.startswith("not done after 0.7 s: rank 0 at ")


def test_what_a_crashed_job_printed_is_kept(tmp_path: Path) -> None:
    outcome = run(tmp_path, "raises")
    assert outcome.log_tail.endswith("ValueError: labels out of range")


def test_a_ranks_own_output_file_is_read_where_the_launcher_writes_one(tmp_path: Path) -> None:
    spec = job(tmp_path)
    (tmp_path / "worker").write_text("paddle said: out of luck\n")
    noisy = replace(command(spec, "killed"), rank_logs=(str(tmp_path / "worker"),))
    outcome = run_job(spec, noisy, LIMITS, QuietMeter())
    assert outcome.log_tail == "paddle said: out of luck"


def test_files_that_repeat_the_environment_are_removed(tmp_path: Path) -> None:
    spec = job(tmp_path)
    dump = Path(spec.run_folder) / "logs" / "envlog.0"
    dump.parent.mkdir(parents=True)
    dump.write_text("TOKEN=x")
    run_job(spec, replace(command(spec, "trains"), discard=("logs/envlog.*",)), PATIENT, QuietMeter())
    assert not dump.exists() and spec.step_log_path(0).exists()


@pytest.fixture
def sigint_interrupts() -> Generator[None, None, None]:
    """Ctrl-C as in a terminal: a background job starts with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint_interrupts")
def test_ctrl_c_ends_the_job_and_goes_on(tmp_path: Path) -> None:
    spec = job(tmp_path, 2)

    def press(progress: Progress) -> None:
        if progress.step == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run_job(spec, command(spec, "hangs", "stubborn"), LIMITS, QuietMeter(), on_progress=press)
    assert processes_of_job(spec.job_id) == []


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


def test_an_interrupt_is_not_lost_behind_another_nodes_failure_to_end(tmp_path: Path) -> None:
    class NeverEnds(OtherNodes):
        def wait_for_end(self, grace_seconds: float, at_once: Callable[[], bool]) -> str:
            raise OSError("connection lost")

    spec = job(tmp_path)

    def end(progress: Progress) -> None:
        if progress.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    # The session goes on after an OSError: it is the case's failure.
    with pytest.raises(KeyboardInterrupt):
        run_job(spec, command(spec, "hangs"), LIMITS, QuietMeter(), on_progress=end, others=NeverEnds())
    assert processes_of_job(spec.job_id) == []


def test_sigterm_ends_the_job_and_the_old_handler_comes_back(tmp_path: Path) -> None:
    spec, before = job(tmp_path), signal.getsignal(signal.SIGTERM)

    def end(progress: Progress) -> None:
        if progress.step == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        run_job(spec, command(spec, "stubborn"), LIMITS, QuietMeter(), on_progress=end)
    assert processes_of_job(spec.job_id) == []
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.usefixtures("sigint_interrupts")
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_the_job_without_grace(tmp_path: Path, second: int) -> None:
    spec, pressed = job(tmp_path, 2), []
    again = threading.Timer(0.3, os.kill, (os.getpid(), second))

    def press(progress: Progress) -> None:
        if progress.step == 3:
            again.start()
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

    limits = replace(LIMITS, grace_seconds=30.0)
    with pytest.raises(KeyboardInterrupt):
        run_job(spec, command(spec, "stubborn", "stubborn"), limits, QuietMeter(), on_progress=press)
    assert time.monotonic() - pressed[0] < 5.0
    assert processes_of_job(spec.job_id) == []


def test_a_first_signal_while_a_job_is_being_ended_waits_for_the_end(tmp_path: Path) -> None:
    class InterruptedAtTheEnd(OtherNodes):
        def ask_to_end(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    spec = job(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_job(spec, command(spec, "stubborn"), LIMITS, QuietMeter(), others=InterruptedAtTheEnd())
    assert processes_of_job(spec.job_id) == []


def test_a_fault_of_the_progress_line_ends_the_job_too(tmp_path: Path) -> None:
    spec = job(tmp_path)

    def fail(progress: Progress) -> None:
        if progress.step:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_job(spec, command(spec, "hangs"), LIMITS, QuietMeter(), on_progress=fail)
    assert processes_of_job(spec.job_id) == []


def test_outside_the_main_thread_a_job_still_runs(tmp_path: Path) -> None:
    outcomes: list[JobOutcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(run(tmp_path, "trains", limits=PATIENT)))
    thread.start()
    thread.join()
    assert [outcome.kind for outcome in outcomes] == [OutcomeKind.COMPLETE]


def test_a_program_that_does_not_exist_is_a_launch_error(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="/nowhere/python"):
        run_job(job(tmp_path), LaunchCommand(("/nowhere/python", "-m", "x")), LIMITS, QuietMeter())


def test_a_run_folder_is_used_once(tmp_path: Path) -> None:
    run(tmp_path, "trains", limits=PATIENT)
    with pytest.raises(LaunchError, match="a new, writable folder"):
        run(tmp_path, "trains", limits=PATIENT)


def test_an_orphan_of_a_killed_suite_is_ended_before_the_next_job_starts(tmp_path: Path) -> None:
    variable, spec = f"TEST_SUPERVISOR_{os.getpid()}", job(tmp_path)
    processes = Processes(supervisor_variable=variable)
    where, _, started = processes.marks("x")[variable].rsplit("/", 2)
    marks = {JOB_VARIABLE: "lost-job", variable: f"{where}/{2**22 + 5}/{started}"}
    lives = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
    orphan = subprocess.Popen(lives, env={**os.environ, **marks}, start_new_session=True, stdout=subprocess.PIPE)
    # Until its own program runs, a new process has no environment in /proc.
    assert orphan.stdout is not None
    assert orphan.stdout.readline() == b"up\n"
    outcome = run_job(spec, command(spec, "trains"), PATIENT, QuietMeter(), io=SupervisorIO(processes=processes))
    assert outcome.kind is OutcomeKind.COMPLETE
    orphan.communicate()
    assert orphan.returncode == -signal.SIGTERM


def test_the_jobs_environment_has_the_checkout_and_no_stranger(tmp_path: Path) -> None:
    spec = job(tmp_path)
    printing = LaunchCommand((sys.executable, "-c", "import os; print(dict(os.environ))"))
    io = SupervisorIO(inherited={"PATH": os.environ["PATH"], "PADDLE_TRAINER_ID": "7"})
    outcome = run_job(spec, printing, LIMITS, QuietMeter(), io=io)
    assert "PADDLE_TRAINER_ID" not in outcome.log_tail
    assert f"'PYTHONPATH': '{ROOT}'" in outcome.log_tail and spec.job_id in outcome.log_tail
    assert outcome.kind is OutcomeKind.BAD_LOG


@pytest.mark.parametrize("name", ["paddle_7_0_553796051", "torch_7_1703908341", "torch_7_1703908341_12"])
def test_a_dead_process_of_the_job_loses_its_segments(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert free_segments({7}, lambda pid: False, tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["paddle_8_0_1", "paddle_70_0_1", "xpaddle_7_0_1", "paddle_7", "sem.mp-7", "paddle_7_0_1.x"]
)
def test_what_is_not_surely_the_jobs_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert free_segments({7}, lambda pid: False, tmp_path) == 0
    assert (tmp_path / name).exists()


def test_who_lives_keeps_its_segments(tmp_path: Path) -> None:
    (tmp_path / "paddle_7_0_1").touch()
    assert free_segments({7}, lambda pid: pid == 7, tmp_path) == 0
    assert (tmp_path / "paddle_7_0_1").exists()


def test_a_machine_without_the_folder_has_none(tmp_path: Path) -> None:
    assert free_segments({7}, lambda pid: False, tmp_path / "shm") == 0
