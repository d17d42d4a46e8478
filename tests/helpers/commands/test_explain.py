"""``perfgate explain`` with a runner that answers instead of training: what it prints, keeps, and leaves alone."""

from __future__ import annotations

import gzip
import io
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import helpers.judging.parts.explanation
import helpers.plan.installed
import helpers.session.explain.case
import helpers.session.explain.runs
from helpers.commands import explain
from helpers.commands.main import commands, parser_of
from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.case.evidence import Build, Stage
from helpers.judging.case.verdict import Reason, Status, Verdict
from helpers.machine.devices import Machine
from helpers.plan.case_plan import CasePlan
from helpers.plan.perf_yaml import ExplainConfig
from helpers.session.explain.case import explain_case, explain_night
from helpers.session.explain.runs import FOLDER, PAIRS_FILE, ExplainRequest
from helpers.session.outcome import CaseEffect, CaseOutcome, Gating
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError, ResultError
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.step_profile import NoProfile, OperatorRow, Phase, StepProfile
from tests.helpers.commands.conftest import MACHINE, Builds
from tests.helpers.session_double import named_build, roles

pytestmark = pytest.mark.slow

CASE = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"
OTHER = "paddle-resnet50v1.5-fp32-bs4-1x1-native-dynamic"
MakeRun = Callable[..., RunResult]


@dataclass
class Runner:
    """Answers with runs whose profiles have five operators; that of the build under test takes ``longer`` (seconds) in
    the gradient of one layer. ``answers`` replaces what it says of single runs."""

    make_run: MakeRun
    longer: float = 0.009
    # Why there is no profile; empty if there is one.
    reason: str = ""
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)
    made: list[Build] = field(default_factory=list)
    store: ResultStore = field(default_factory=lambda: ResultStore(Path(), "unset"))
    source: random.Random = field(default_factory=lambda: random.Random(3))

    def run(self, plan: CasePlan, replicate: int, build: Build, stage: Stage) -> RunResult:
        answer = dict(self.answers.get(len(self.made), {}))
        self.made.append(build)
        if interrupt := answer.pop("raises", None):
            raise interrupt
        folder = self.store.new_run_folder(plan.case.id, replicate)
        spec = JobSpec("job", Case.parse(CASE), replicate, str(folder), "cpu", 1, 2, explained_steps=5)
        spec.spec_path.write_text(spec.to_json())
        profile = self._profile(build)
        answer = {"step_seconds": (profile.step_seconds_unprofiled,) * 2, **answer}
        said = NoProfile("paddle", 0, "a profiler", self.reason) if self.reason else profile
        spec.step_profile_path(0).write_text(said.to_json())
        spec.trace_path(0).write_text("trace")
        result = self.make_run(plan, replicate, **{**roles(plan, build, stage), **answer})
        result = replace(result, environment={**result.environment, **plan.environment})
        self.store.write(result)
        return result

    def _profile(self, build: Build) -> StepProfile:
        rows = []
        for number in range(5):
            seconds = 0.02 * self.source.gauss(1, 0.01)
            if number == 3 and build is Build.CANDIDATE:
                seconds += self.longer
            rows.append(OperatorRow(Phase.BACKWARD, f"blocks.{number}", "conv2d_grad", "", "", "cpu", 1.0, seconds))
        taken = sum(row.seconds_per_step for row in rows)
        phases = {Phase.BACKWARD: taken, Phase.HOST_GAP: 0.01}
        return StepProfile("paddle", 0, 5, taken + 0.01, taken + 0.005, phases, 0.0, tuple(rows), 1, "a profiler")


@dataclass
class Bench:
    runner: Runner
    runs: Path
    baselines: Path

    def explain(
        self, *argv: str, clock: Callable[[], float] = lambda: 0.0, named: str = "--session"
    ) -> tuple[int, str]:
        given = ["explain", *argv, "--runs-dir", str(self.runs), "--baselines", str(self.baselines), named, "s"]
        out = io.StringIO()
        arguments = parser_of(commands()).parse_args(given)
        return explain.run(arguments, out, load=self.load, clock=clock), out.getvalue()

    def load(self, options: SuiteOptions) -> Suite:
        self.runner.store = ResultStore(self.runs / options.session, FOLDER)
        # An interpreter that is there, in place of a build that would have to be made.
        given = replace(options, builds={"reference": named_build(sys.executable)}, pinned_reference=False)
        return Suite.load(given, runner=self.runner, machine=MACHINE)


@pytest.fixture
def bench(
    machine: Machine, make_run: MakeRun, tmp_path: Path, empty_baselines: Path, monkeypatch: pytest.MonkeyPatch
) -> Bench:
    monkeypatch.setattr(helpers.plan.installed, "BuildFinder", lambda named_in: Builds())
    runs = tmp_path / "runs"
    runs.mkdir()
    return Bench(Runner(make_run), runs, empty_baselines)


def test_the_part_that_is_longer_is_named_in_the_first_sentence(bench: Bench) -> None:
    status, text = bench.explain(CASE, "--pairs", "6")
    first = text.splitlines()[0]
    assert (status, first.split(",")[0]) == (0, "probably conv2d_grad of blocks.3 (backward)")
    assert "(slower at the same count), explains 8." in first
    assert "not explained:" in text and "the phases of a step" in text
    found = json.loads((bench.runs / "s" / "explain.json").read_text())
    assert (found["line"], found["explanation"]["pairs"]) == (first, 6)
    assert found["explanation"]["named"][0]["part"]["layer"] == "blocks.3"
    assert (bench.runs / "s" / "explain.md").read_text().startswith(f"# Why {CASE} is slower\n")
    assert (bench.runs / "s" / "explain.svg").exists()


def test_the_builds_run_in_turn_and_nothing_of_it_enters_history(bench: Bench) -> None:
    bench.explain(CASE, "--pairs", "6")
    reference, candidate = Build.REFERENCE, Build.CANDIDATE
    assert bench.runner.made == [reference, candidate, candidate, reference] * 3
    assert sorted(path.name for path in bench.runs.iterdir()) == ["s"]
    # perfgate reindex looks for runs one folder higher.
    assert not list((bench.runs / "s").glob("*/r*/result.json"))
    # Of the first pair the traces are kept.
    kept = sorted(path for path in bench.runs.rglob("trace-rank*"))
    assert [(path.parent.name, path.name) for path in kept] == [(each, "trace-rank0.json.gz") for each in ("r0", "r1")]
    assert gzip.decompress(kept[0].read_bytes()) == b"trace"


def test_builds_that_do_not_differ_are_not_explained(bench: Bench) -> None:
    bench.runner.longer = 0.0
    status, text = bench.explain(CASE, "--pairs", "6")
    assert (status, text[:11]) == (8, "NOT SLOWER:")


def test_a_profiler_that_gives_nothing_is_said_after_a_few_runs(bench: Bench) -> None:
    bench.runner.reason = "No space left on device"
    status, text = bench.explain(CASE)
    first = text.splitlines()[0]
    assert (status, first[:41]) == (6, "NOT EXPLAINED: the profiler, in 4 runs; t")
    assert "No space left on device" in first and f"output is in {bench.runs}/s/explained/{CASE}/r3:" in first
    assert len(bench.runner.made) == 4


def test_what_stops_it_after_enough_pairs_is_a_note(bench: Bench) -> None:
    bench.runner.answers = {number: {"failure": "exit 137: out of memory"} for number in range(13, 40)}
    status, text = bench.explain(CASE)
    assert (status, text.split(",")[0]) == (0, "probably conv2d_grad of blocks.3 (backward)")
    assert "note: stopped after 6 of 8 pairs: run " in " ".join(text.split())


def test_when_the_time_is_over_too_few_pairs_name_nothing(bench: Bench) -> None:
    times = iter([0.0, *[1800.0] * 2, *[7200.0] * 9])
    status, text = bench.explain(CASE, "--hours", "1", clock=lambda: next(times))
    assert (status, text.split("\n")[0]) == (
        6,
        "NOT EXPLAINED: the time is over after 2 of 8 pairs, and 6 or more can show what is beyond chance",
    )


REFERENCE, CANDIDATE = Build.REFERENCE, Build.CANDIDATE


def _interrupted(bench: Bench, at: int, *argv: str) -> None:
    """Explain until the run of this number is interrupted."""
    bench.runner.answers[at] = {"raises": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        bench.explain(CASE, "--pairs", "6", *argv)
    assert bench.runner.made[at:] == [bench.runner.made[at]]


def _resumed(bench: Bench, *argv: str, **more: Any) -> tuple[int, str]:
    return bench.explain(CASE, "--pairs", "6", *argv, named="--resume", **more)


def _change(bench: Bench, name: str, number: int, **values: Any) -> None:
    """Change the result of a run."""
    path = bench.runs / "s" / FOLDER / CASE / f"r{number}" / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_an_interrupted_explanation_goes_on_with_its_whole_pairs(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    _interrupted(bench, 5)
    assert "the pairs made so far are kept: the same command with --resume s goes on" in capsys.readouterr().err
    status, text = _resumed(bench)
    said = capsys.readouterr().err
    assert "2 of 2 pairs are taken from the resumed session\n3 of 6 pairs\n" in said and "goes on" not in said
    # The run whose partner is missing is made again, and the turns go on behind the last whole pair.
    assert bench.runner.made[6:] == [REFERENCE, CANDIDATE, CANDIDATE, REFERENCE] * 2
    assert (status, text.split(",")[0]) == (0, "probably conv2d_grad of blocks.3 (backward)")
    assert "6 pairs of runs in turn, 13 runs; " in " ".join(text.split())
    assert sorted(path.parent.name for path in bench.runs.rglob("trace-rank*")) == ["r0", "r1"]
    assert "traces of the first pair" in text


def test_what_was_compared_is_said_again_and_not_extended(bench: Bench) -> None:
    first = bench.explain(CASE, "--pairs", "6")
    assert bench.explain(CASE, "--pairs", "8", named="--resume") == first
    assert len(bench.runner.made) == 12
    with pytest.raises(ConfigError, match=f"--resume s: got 'no pair of {OTHER}'"):
        bench.explain(OTHER, named="--resume")


@pytest.mark.parametrize(("number", "name"), [(0, "build"), (1, "settings")])
def test_a_pair_of_which_one_run_is_of_another_plan_is_made_again(
    bench: Bench, capsys: pytest.CaptureFixture[str], number: int, name: str
) -> None:
    _interrupted(bench, 9)
    _change(bench, "result.json", number, **{name: {"version": "another"}})
    assert _resumed(bench)[0] == 0
    assert "3 of 4 pairs are taken from the resumed session; the others are made again" in capsys.readouterr().err
    # Both builds begin equally many pairs, and the first pair that is made anew has its traces kept.
    assert bench.runner.made[10:] == [REFERENCE, CANDIDATE, REFERENCE, CANDIDATE, CANDIDATE, REFERENCE]
    assert sorted(path.parent.name for path in bench.runs.rglob("trace-rank*")) == ["r10", "r9"]


def test_pairs_that_cannot_be_read_are_said(bench: Bench) -> None:
    _interrupted(bench, 9)
    (bench.runs / "s" / FOLDER / CASE / PAIRS_FILE).write_text("[]")
    with pytest.raises(ResultError, match=f"{PAIRS_FILE}: got .*Without --resume the case is explained anew"):
        _resumed(bench)
    # A night's are made again.
    suite = bench.load(
        SuiteOptions(
            ROOT / "helpers/plan/defaults.yaml", bench.baselines, bench.runs, "s", resume=True, same_build=True
        )
    )
    (suite_case,) = [each for each in suite.cases if (each.case.id, each.target) == (CASE, "cpu")]
    said: list[str] = []
    assert explain_case(suite, suite_case, ExplainRequest(6, 10), said.append).explanation is not None
    assert said[0].startswith("the pairs are made again: ")
    assert len(bench.runner.made) == 10 + 12


def test_a_resumed_night_goes_on_with_the_pairs_of_its_regression(bench: Bench) -> None:
    bench.runner.answers = {9: {"raises": KeyboardInterrupt()}}
    suite = _suite_of_a_night(bench, 60)
    with pytest.raises(KeyboardInterrupt):
        list(explain_night(suite, _outcomes(suite), lambda line: None, lambda: 0.0))
    resumed = _suite_of_a_night(bench, 60, resume=True)
    (found,) = explain_night(resumed, _outcomes(resumed), lambda line: None, lambda: 0.0)
    assert found.explanation is not None
    assert len(bench.runner.made) == 10 + 4


def test_a_case_whose_profile_cannot_be_read_on_its_device_is_refused_before_anything_runs(bench: Bench) -> None:
    suite = _suite_of_a_night(bench, 60)
    on_gpus = replace(suite.cases[0], case=Case.parse("mxnet-resnet50v1.5-fp32-bs4-1x1-synthetic"), target="v100")
    with pytest.raises(ConfigError, match="MXNet's can on no device"):
        explain_case(suite, on_gpus, ExplainRequest(6, 5), lambda line: None)
    assert bench.runner.made == []


def test_a_case_without_a_reference_build_is_refused_with_the_reason(bench: Bench) -> None:
    suite = _suite_of_a_night(bench, 60)
    suite.options = replace(suite.options, builds={})
    with pytest.raises(ConfigError, match="no reference build: none is named"):
        explain_case(suite, suite.cases[0], ExplainRequest(6, 5), lambda line: None)


def _suite_of_a_night(bench: Bench, minutes: int, *, resume: bool = False) -> Suite:
    options = SuiteOptions(
        ROOT / "helpers/plan/defaults.yaml", bench.baselines, bench.runs, "night", resume=resume, same_build=True
    )
    suite = bench.load(options)
    suite.config = replace(suite.config, explain=ExplainConfig(minutes, pairs=6, steps=5))
    return suite


def _outcomes(suite: Suite) -> list[CaseOutcome]:
    """Of two cases that run here: the second one regressed."""
    cases = {each.case.id: each for each in suite.cases if each.target == "cpu"}
    status = {OTHER: Status.PASS, CASE: Status.REGRESSION}
    return [
        CaseOutcome(cases[name].case, "cpu", Verdict(each, Reason("made", "")), Gating(CaseEffect.PASS))
        for name, each in status.items()
    ]


def test_a_night_explains_what_regressed_and_nothing_if_it_has_no_time(bench: Bench) -> None:
    suite = _suite_of_a_night(bench, 60)
    (found,) = explain_night(suite, _outcomes(suite), lambda line: None, lambda: 0.0)
    assert (found.case_id, found.explanation is not None) == (CASE, True)
    silent = _suite_of_a_night(bench, 0)
    made = len(bench.runner.made)
    assert list(explain_night(silent, _outcomes(silent), lambda line: None, lambda: 0.0)) == []
    assert len(bench.runner.made) == made
