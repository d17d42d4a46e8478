"""``perfgate calibrate`` with a runner that answers instead of training, and a real history."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.commands import calibrate
from helpers.commands.calibrate import render_noise
from helpers.commands.main import commands, main, parser_of
from helpers.history import default_url, open_history
from helpers.history.stored import Calibration, StoredNight
from helpers.judging.case.calibrate import CaseNoise, Deviation
from helpers.judging.case.evidence import Budget, Build, Stage
from helpers.machine.devices import Machine
from helpers.session.measuring.examination import ExaminationIO
from helpers.session.suite import Suite, SuiteOptions
from tests.helpers.commands.conftest import MACHINE
from tests.helpers.commands.drawn_runner import DrawnRunner, MakeRun
from tests.helpers.session.measuring.test_disturbance import looking

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("machine")]

SYNTHETIC = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"
OTHER = "paddle-resnet50v1.5-fp32-bs4-1x1-native-dynamic"
NOT_JUDGED, INTERRUPTED = 6, 130


@dataclass
class Bench:
    runner: DrawnRunner
    runs: Path
    baselines: Path
    io: ExaminationIO | None = None

    def calibrate(self, *argv: str) -> tuple[int, str]:
        given = ["calibrate", *argv, "--runs-dir", str(self.runs), "--baselines", str(self.baselines)]
        out = io.StringIO()
        arguments = parser_of(commands()).parse_args(given)
        return calibrate.run(arguments, out, load=self._load), out.getvalue()

    def _load(self, options: SuiteOptions) -> Suite:
        self.runner.session, self.runner.record = options.session, options.record
        suite = Suite.load(options, runner=self.runner, machine=MACHINE)
        suite.io = self.io
        return suite

    def kept(self, case_id: str = SYNTHETIC) -> tuple[Calibration | None, tuple[StoredNight, ...]]:
        with open_history(default_url(self.runs)) as history:
            nights = history.series(case_id)
            return history.calibration(case_id, "cpu", nights[-1].record.segment), nights


@pytest.fixture
def bench(machine: Machine, make_run: MakeRun, tmp_path: Path, empty_baselines: Path) -> Bench:
    runs = tmp_path / "runs"
    runs.mkdir()
    return Bench(DrawnRunner(make_run, runs, 0.002, 3), runs, empty_baselines)


def test_ten_restarts_are_measured_stored_and_told(bench: Bench) -> None:
    status, text = bench.calibrate(SYNTHETIC)
    assert status == 0, text
    assert [each[2:] for each in bench.runner.made] == [(n, Build.CANDIDATE, Stage.SCREEN) for n in range(10)]
    flat = " ".join(text.split())
    for part in (
        "10 runs",
        "9 degrees of freedom",
        "one night so far",
        "80% power",
        f"{Budget().pairs}:",
        "tolerance: 0.5% in use",
    ):
        assert part in flat
    stored, nights = bench.kept()
    assert stored is not None
    assert (stored.runs, stored.degrees_of_freedom, stored.sigma_night, stored.tolerance) == (10, 9, None, 0.005)
    assert stored.sigma_run_low < stored.sigma_run < stored.sigma_run_high
    assert stored.sigma_run == pytest.approx(0.002, rel=0.6)
    assert [night.record.code for night in nights] == ["calibrated"]


def test_a_busy_machine_is_told_before_ten_runs_are_made_for_nothing(bench: Bench, tmp_path: Path) -> None:
    bench.io = looking(tmp_path, 1.0, 1.0, machine=MACHINE).io
    status, text = bench.calibrate(SYNTHETIC)
    assert (status, bench.runner.made) == (NOT_JUDGED, [])
    assert text.startswith("not calibrated: The machine is busy, nothing was measured: ")
    assert "cc1 (pid 4711" in text and "--allow-contention" in text
    bench.io = looking(tmp_path, 1.0, 1.0, machine=MACHINE).io
    assert json.loads(bench.calibrate(SYNTHETIC, "--json")[1])["problems"][0].startswith("The machine is busy")
    assert bench.calibrate(SYNTHETIC, "--runs", "4", "--allow-contention")[0] == 0
    assert len(bench.runner.made) == 4


def test_the_runs_judge_no_later_night(bench: Bench) -> None:
    """They are kept and shown, and no night is held against them."""
    bench.calibrate(SYNTHETIC)
    _, (night,) = bench.kept()
    with open_history(default_url(bench.runs)) as history:
        past = history.past(SYNTHETIC, "cpu", night.record.segment, 1, "tonight")
        assert len(history.results_of(case_id=SYNTHETIC)) == 10
    assert past.nights == ()
    stored, _ = bench.kept()
    # What --update-baselines takes for usual.
    assert stored is not None and past.calibrated == stored.sigma_run
    out = io.StringIO()
    main(["history", SYNTHETIC, "--runs-dir", str(bench.runs)], out)
    assert "calibrated" in out.getvalue()


def test_noise_beyond_the_tolerance_is_warned_of(bench: Bench) -> None:
    bench.runner.sigma = 0.03
    status, text = bench.calibrate(SYNTHETIC, "--runs", "12")
    assert status == 0
    assert "WARNING: the tolerance in use, 0.5%, is finer than the noise allows" in " ".join(text.split())
    stored, _ = bench.kept()
    assert stored is not None and stored.tolerance is not None and stored.tolerance > 0.005
    assert f"{stored.tolerance:.1%} recommended" in text


def test_a_case_that_could_not_be_measured_is_exit_6_and_the_others_are_done(bench: Bench) -> None:
    bench.runner.answers = {1: {"failure": "exit 137: out of memory", "figures": {}}}
    status, text = bench.calibrate(OTHER, SYNTHETIC, "--runs", "4")
    assert status == NOT_JUDGED
    assert "not calibrated:" in text and "INFRA_ERROR: exit 137: out of memory" in text
    assert text.count("between runs:") == 1


def test_an_invalid_run_is_made_again(bench: Bench) -> None:
    bench.runner.answers = {1: {"invalid": "contended: 40%"}}
    assert bench.calibrate(SYNTHETIC, "--runs", "4")[0] == 0
    assert len(bench.runner.made) == 5
    bench.runner.answers = {number: {"invalid": "contended: 40%"} for number in range(99)}
    status, text = bench.calibrate(SYNTHETIC, "--runs", "4")
    assert (status, "INVALID" in text) == (NOT_JUDGED, True)


def test_an_interruption_keeps_what_was_made_and_says_how_to_go_on(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.runner.answers = {9: KeyboardInterrupt()}
    status, text = bench.calibrate(SYNTHETIC, OTHER, "--runs", "6")
    assert status == INTERRUPTED
    assert text.count("between runs:") == 1
    session = bench.runner.session
    told = capsys.readouterr().err
    assert f"--resume {session}" in told and "are kept" in told
    assert len(list((bench.runs / session).rglob("result.json"))) == 9
    bench.runner.answers = {}
    before = len(bench.runner.made)
    status, text = bench.calibrate(SYNTHETIC, OTHER, "--runs", "6", "--resume", session)
    assert (status, text.count("between runs:")) == (0, 2)
    assert len(bench.runner.made) - before == 3


def test_an_interruption_before_the_first_run_promises_no_resume(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.runner.answers = {0: KeyboardInterrupt()}
    assert bench.calibrate(SYNTHETIC)[0] == INTERRUPTED
    told = capsys.readouterr().err
    assert "interrupted: nothing was measured" in told and "--resume" not in told


def test_disturbed_runs_are_calibrated_on_demand_and_not_stored(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.runner.sigma = 0.05
    bench.runner.answers = {number: {"marks": ("contended",)} for number in range(4)}
    status, text = bench.calibrate(SYNTHETIC, "--runs", "4", "--allow-contention")
    assert (status, "between runs:" in text) == (0, True)
    assert "not stored" in capsys.readouterr().err
    assert bench.kept()[0] is None


# ---- what is printed

NOISE = CaseNoise(
    "c", "cpu", (4.6, 4.61, 4.59), Deviation(0.01, 0.006, 0.02, 9), None, 1, 0.005, 0.007, ((2, 0.5), (16, 0.021)),
    0.03, 1200.0,
)  # fmt: skip


def test_noise_beyond_a_tolerance_is_shown() -> None:
    text = " ".join(render_noise(NOISE, 100).split())
    for part in (
        "1.00% [0.60%, 2.00%]",
        "up to 2: none below 45%, 16: 2.1%",
        "screens first: 3.0%",
        "0.7% recommended",
    ):
        assert part in text
