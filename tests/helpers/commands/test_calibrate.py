"""``perfgate calibrate`` with a runner that answers instead of training, and a real history."""

from __future__ import annotations

import io
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import helpers.plan.installed
from helpers.commands import calibrate
from helpers.commands.calibrate import render_noise, tolerance_lines
from helpers.commands.main import EXIT_USAGE, commands, main, parser_of
from helpers.history import default_url, open_history
from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.history.session_file import SessionRecord
from helpers.history.stored import Calibration, StoredNight
from helpers.judging.calibrate import CaseNoise, Deviation
from helpers.judging.evidence import Budget, Build, Stage
from helpers.judging.rules import MEDIAN_STEP
from helpers.judging.statistics import EffectSize
from helpers.machine.devices import Machine
from helpers.plan.case_plan import CasePlan
from helpers.session.examination import ExaminationIO
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract.errors import SuiteError
from tests.helpers.commands.conftest import MACHINE, Builds
from tests.helpers.session.test_disturbance import looking
from tests.helpers.session_double import roles

pytestmark = pytest.mark.usefixtures("machine")

SYNTHETIC = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"
OTHER = "paddle-resnet50v1.5-fp32-bs4-1x1-native-dynamic"
NOT_JUDGED, INTERRUPTED = 6, 130

MakeRun = Callable[..., RunResult]


@dataclass
class FakeRunner:
    """Scatters runs by ``sigma``; ``answers`` replaces what it says of single runs, or raises."""

    make_run: MakeRun
    runs_folder: Path
    sigma: float = 0.002
    answers: dict[int, dict[str, Any] | BaseException] = field(default_factory=dict)
    made: list[tuple[str, int, Build, Stage]] = field(default_factory=list)
    session: str = ""
    record: SessionRecord = field(default_factory=SessionRecord)
    source: random.Random = field(default_factory=lambda: random.Random(3))

    def run(self, plan: CasePlan, replicate: int, build: Build, stage: Stage) -> RunResult:
        answer = self.answers.get(len(self.made), {})
        self.made.append((plan.case.id, replicate, build, stage))
        if isinstance(answer, BaseException):
            raise answer
        rate = 100 * 2.718281828 ** self.source.gauss(0, self.sigma)
        given = {"figures": {plan.rule: rate, MEDIAN_STEP: rate}, "session": self.session}
        given |= {"uuid": f"{self.session} {plan.case.id} {len(self.made)}", **roles(plan, build, stage), **answer}
        result = self.make_run(plan, replicate, **given)
        result = replace(result, environment={**result.environment, **plan.environment})
        store = ResultStore(self.runs_folder, self.session, self.record)
        store.new_run_folder(plan.case.id, replicate)
        store.write(result)
        return result


@dataclass
class Bench:
    runner: FakeRunner
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
        suite._io = self.io
        return suite

    def kept(self, case_id: str = SYNTHETIC) -> tuple[Calibration | None, tuple[StoredNight, ...]]:
        with open_history(default_url(self.runs)) as history:
            nights = history.series(case_id)
            return history.calibration(case_id, "cpu", nights[-1].record.segment), nights


@pytest.fixture
def bench(machine: Machine, make_run: MakeRun, tmp_path: Path, empty_baselines: Path) -> Bench:
    runs = tmp_path / "runs"
    runs.mkdir()
    return Bench(FakeRunner(make_run, runs), runs, empty_baselines)


def test_ten_restarts_are_measured_stored_and_told(bench: Bench) -> None:
    status, text = bench.calibrate(SYNTHETIC)
    assert status == 0, text
    assert [each[1:] for each in bench.runner.made] == [(n, Build.CANDIDATE, Stage.SCREEN) for n in range(10)]
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


def test_noise_beyond_the_tolerance_is_warned_of_with_lines_to_paste(bench: Bench) -> None:
    bench.runner.sigma = 0.03
    status, text = bench.calibrate(SYNTHETIC, "--runs", "12")
    assert status == 0
    assert "WARNING: the tolerance in use, 0.5%, is finer than the noise allows" in " ".join(text.split())
    stored, _ = bench.kept()
    assert stored is not None and stored.tolerance is not None and stored.tolerance > 0.005
    assert f'    - pattern: "{SYNTHETIC}"\n      recorded: {stored.tolerance:.3f}\n' in text


def test_json_holds_it_all(bench: Bench) -> None:
    status, text = bench.calibrate(SYNTHETIC, "--runs", "6", "--json")
    record = json.loads(text)
    (case,) = record["cases"]
    assert (status, record["problems"], case["case_id"], len(case["log_rates"])) == (0, [], SYNTHETIC, 6)
    assert case["run"]["degrees_of_freedom"] == 5
    assert [pairs for pairs, _ in case["by_pairs"]][-1] == Budget().pairs


def test_two_interpreters_run_in_turn(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helpers.plan.installed, "BuildFinder", lambda named_in: Builds())
    status, text = bench.calibrate(SYNTHETIC, "--runs", "4", "--reference-env", sys.executable)
    assert status == 0, text
    assert [each[2] for each in bench.runner.made] == [
        Build.REFERENCE,
        Build.CANDIDATE,
        Build.CANDIDATE,
        Build.REFERENCE,
    ]
    assert "the two interpreters:" in text


def test_a_case_that_could_not_be_measured_is_exit_6_and_the_others_are_done(bench: Bench) -> None:
    bench.runner.answers = {1: {"failure": "exit 137: out of memory", "figures": {}}}
    status, text = bench.calibrate(OTHER, SYNTHETIC, "--runs", "4")
    assert status == NOT_JUDGED
    assert "not calibrated:" in text and "INFRA_ERROR: exit 137: out of memory" in text
    assert text.count("between runs:") == 1


def test_an_error_of_the_machinery_is_exit_6(bench: Bench) -> None:
    bench.runner.answers = {0: SuiteError("the disk", got="full", expected="room")}
    status, text = bench.calibrate(SYNTHETIC)
    assert (status, "the disk" in text) == (NOT_JUDGED, True)


def test_an_invalid_run_is_made_again(bench: Bench) -> None:
    bench.runner.answers = {1: {"invalid": "contended: 40%"}}
    assert bench.calibrate(SYNTHETIC, "--runs", "4")[0] == 0
    assert len(bench.runner.made) == 5
    bench.runner.answers = {number: {"invalid": "contended: 40%"} for number in range(99)}
    status, text = bench.calibrate(SYNTHETIC, "--runs", "4")
    assert (status, "INVALID" in text) == (NOT_JUDGED, True)


@pytest.mark.slow
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
    with open_history(default_url(bench.runs)) as history:
        assert len(history.results_of(session=session)) == 9
    bench.runner.answers = {}
    before = len(bench.runner.made)
    status, text = bench.calibrate(SYNTHETIC, OTHER, "--runs", "6", "--resume", session)
    assert (status, text.count("between runs:")) == (0, 2)
    assert len(bench.runner.made) - before == 3


def test_a_session_of_another_command_is_not_gone_on_with(bench: Bench) -> None:
    ResultStore(bench.runs, "night", SessionRecord()).begin()
    with pytest.raises(SuiteError, match=r"a session of night.*pytest perf_tests --resume=night"):
        bench.calibrate(SYNTHETIC, "--resume", "night")
    assert not bench.runner.made


def test_disturbed_runs_are_calibrated_on_demand_and_not_stored(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.runner.sigma = 0.05
    bench.runner.answers = {number: {"marks": ("contended",)} for number in range(4)}
    status, text = bench.calibrate(SYNTHETIC, "--runs", "4", "--allow-contention")
    assert (status, "between runs:" in text, "perf.yaml" in text) == (0, True, False)
    assert "not stored" in capsys.readouterr().err
    assert bench.kept()[0] is None


def test_patterns_choose_what_runs_here(bench: Bench) -> None:
    status, _ = bench.calibrate("paddle-resnet50v1.5-fp32-bs4-1x1-[sn]*-dynamic", "--runs", "4")
    assert status == 0
    assert {each[0] for each in bench.runner.made} == {SYNTHETIC, OTHER}


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["paddle-nothing-*"], "a pattern that a case matches"),
        (["paddle-resnet50v1.5-fp99"], "Nearest"),
        ([SYNTHETIC, "--resume", "nosuch"], "a session of calibrate in"),
        ([SYNTHETIC, "--resume", ""], "a session of calibrate in"),
    ],
)
def test_what_is_not_there_is_refused(bench: Bench, argv: list[str], told: str) -> None:
    with pytest.raises(SuiteError, match=told):
        bench.calibrate(*argv)
    assert bench.runner.made == []


@pytest.mark.parametrize("runs", ["3", "0", "x", "101"])
def test_too_few_runs_are_a_usage_error(runs: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["calibrate", SYNTHETIC, "--runs", runs], io.StringIO())
    assert ended.value.code == EXIT_USAGE


# ---- what is printed

NOISE = CaseNoise(
    "c", "cpu", (4.6, 4.61, 4.59), Deviation(0.01, 0.006, 0.02, 9), None, 1, 0.005, 0.007, ((2, 0.5), (16, 0.021)),
    0.03, 1200.0,
)  # fmt: skip


def test_noise_is_told_with_intervals_degrees_drops_and_tolerance() -> None:
    text = " ".join(render_noise(NOISE, 100).split())
    for part in (
        "3 runs, 98.49 … 100.5 images/s, median 99.48",
        "1.00% [0.60%, 2.00%], 9 degrees of freedom",
        "not known: one night so far",
        "at evidence 1200",
        "up to 2: none below 45%, 16: 2.1%",
        "screens first: 3.0%",
        "tolerance: 0.5% in use, 0.7% recommended",
    ):
        assert part in text


def test_nights_effect_and_warnings_are_told_where_there_are_any() -> None:
    noise = replace(
        NOISE,
        night=Deviation(0.004, 0.0, 0.01, 1),
        nights=2,
        effect=EffectSize(-0.03, -0.04, -0.02),
        warnings=("look",),
    )
    text = render_noise(noise, 100)
    assert "0.40% [0.00%, 1.00%], 1 degree of freedom, 2 nights" in text
    assert "which does NOT include no difference" in text
    assert text.splitlines()[-1] == "  WARNING: look"


def test_lines_for_perf_yaml_are_of_the_cases_that_need_them() -> None:
    assert tolerance_lines([replace(NOISE, recommended=0.005)]) == ""
    text = tolerance_lines([NOISE, replace(NOISE, case_id="d", recommended=0.005)])
    assert text.splitlines()[1:] == ["tolerances:", "  cases:", '    - pattern: "c"', "      recorded: 0.007"]


@pytest.mark.usefixtures("models_of_sentences")
def test_the_unit_is_that_of_the_models_samples() -> None:
    assert "100.5 sentences/s, median" in render_noise(replace(NOISE, case_id=SYNTHETIC), 100)
