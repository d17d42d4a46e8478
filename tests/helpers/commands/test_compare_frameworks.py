"""``perfgate compare-frameworks`` with a runner that answers instead of training, and a real history."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import helpers.session.measuring
import helpers.session.suite
from helpers.commands import compare_frameworks
from helpers.commands.main import EXIT_USAGE, commands, main, parser_of
from helpers.history import default_url, open_history
from helpers.machine.devices import Machine
from helpers.session.examination import ExaminationIO
from helpers.session.frameworks import configurations
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract.errors import ConfigError, SuiteError
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.commands.conftest import MACHINE
from tests.helpers.frameworks_double import (
    CONFIG,
    NAME,
    NOT_INSTALLED,
    PADDLE,
    PYTORCH,
    TurnsRunner,
    TwoFrameworks,
    is_one_of_two,
)
from tests.helpers.session.test_disturbance import looking

NOT_JUDGED, INTERRUPTED = 6, 130
VGG = "pytorch-vgg16-fp32-bs4-1x1-synthetic"


@dataclass
class Bench:
    runner: TurnsRunner
    folder: Path
    baselines: Path
    io: ExaminationIO | None = None

    def compare(self, *argv: str) -> tuple[int, str]:
        given = ["compare-frameworks", *argv, "--runs-dir", str(self.runs), "--baselines", str(self.baselines)]
        out = io.StringIO()
        arguments = parser_of(commands()).parse_args([*given, "--config", str(self.folder / "perf.yaml")])
        return compare_frameworks.run(arguments, out, load=self._load), out.getvalue()

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    def _load(self, options: SuiteOptions) -> Suite:
        self.runner.session, self.runner.record = options.session, options.record
        suite = Suite.load(options, runner=self.runner, machine=MACHINE)
        suite._io = self.io
        return suite


@pytest.fixture
def bench(
    machine: Machine,
    tmp_path: Path,
    empty_baselines: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Bench:
    monkeypatch.setattr(helpers.session.suite, "BuildFinder", TwoFrameworks)
    monkeypatch.setattr(configurations, "has_trainer", is_one_of_two)
    monkeypatch.setattr(helpers.session.measuring, "settings_for", lambda case, *_, **__: {"optimizer": "momentum"})
    (tmp_path / "perf.yaml").write_text(CONFIG)
    (tmp_path / "runs").mkdir()
    return Bench(TurnsRunner(tmp_path / "runs"), tmp_path, empty_baselines)


def absent(monkeypatch: pytest.MonkeyPatch, **reasons: str) -> None:
    told = {Framework(name): reason for name, reason in reasons.items()}
    monkeypatch.setattr(TwoFrameworks, "absent", told)


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_busy_machine_is_told_before_anything_is_run(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.io = looking(bench.folder, 1.0, 1.0, machine=MACHINE).io
    status, text = bench.compare(PADDLE, "--pairs", "2")
    assert (status, text, bench.runner.made) == (NOT_JUDGED, "", [])
    assert "The machine is busy, nothing was measured: " in capsys.readouterr().err
    assert bench.compare(PADDLE, "--pairs", "2", "--allow-contention")[0] == 0


def test_two_frameworks_take_turns_and_their_table_is_printed(bench: Bench) -> None:
    status, text = bench.compare(PYTORCH, "--pairs", "4")
    assert status == 0, text
    assert bench.runner.made == ["paddle", "pytorch", "pytorch", "paddle"] * 2
    head, row = text.splitlines()[1], text.splitlines()[3]
    assert head.split() == ["parameters", "Paddle", "PyTorch", "PyTorch", "/", "Paddle", "published"]
    assert flat(row) == ("CPU=1,BS=4 synthetic 100 [100, 100] 125 [125, 125] 1.250 [1.250, 1.250] 0.941 (1)")
    assert "(Paddle: dynamic)" in text.splitlines()[0]
    assert (
        "(1) V100-FP32 comparison, GPU=1,BS=256, V100-SXM2-32GB (Paddle ResNet50 v1.5 performance test): Paddle 393.6, "
        "PyTorch 370.2; unlike CPU=1,BS=4 synthetic: card V100-SXM2-32GB, here cpu, batch size 256 a card, here 4, "
        "data native and dali_cpu, here synthetic, Paddle static, here dynamic"
    ) in flat(text)


def test_a_drift_of_the_machine_is_in_the_figures_and_not_in_the_ratio(bench: Bench) -> None:
    """In turn, A B B A: a ratio of means of all A before all B would be exp(4 x 0.01) off."""
    bench.runner.drift = 0.01
    _, _ = bench.compare(PADDLE, "--pairs", "4", "--json", str(bench.folder / "frameworks.json"))
    (row,) = json.loads((bench.folder / "frameworks.json").read_text())["configurations"]
    ratio = row["cells"][1]["ratio"]
    assert ratio["pairs"] == 4
    assert ratio["centre"] == pytest.approx(1.25, rel=1e-9)
    assert ratio["low"] < 1.25 < ratio["high"]
    assert row["cells"][0]["low"] < 102 < row["cells"][0]["high"]


def test_without_a_name_it_compares_what_the_target_has_twice(bench: Bench) -> None:
    status, text = bench.compare("--pairs", "2")
    assert status == 0
    assert [line for line in text.splitlines() if line.startswith("cpu,")] == [
        "cpu, resnet50v1.5, fp32: images/s (Paddle: dynamic)",
        "cpu, vgg16, fp32: images/s (Paddle: to_static)",
    ]
    assert "PyTorch: no published ratio, vgg16 fp32 CPU=1,BS=4 synthetic: no document has vgg16" in flat(text)
    assert len(bench.runner.made) == 8


def test_a_keyword_chooses_among_them(bench: Bench) -> None:
    status, _ = bench.compare("--pairs", "2", "-k", "VGG16")
    assert (status, len(bench.runner.made)) == (0, 4)


def test_a_framework_that_is_not_installed_is_an_empty_cell_with_the_command(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent(monkeypatch, pytorch=NOT_INSTALLED)
    status, text = bench.compare(PADDLE, "--pairs", "2")
    assert status == NOT_JUDGED, "nothing was compared"
    assert f"PyTorch: not measured, resnet50v1.5 fp32 CPU=1,BS=4 synthetic: {NOT_INSTALLED}" in flat(text)
    assert "Paddle: not measured, resnet50v1.5 fp32 CPU=1,BS=4 synthetic: no other framework can run it here" in flat(
        text
    )
    assert bench.runner.made == [], "no time is spent on what compares nothing"
    told = capsys.readouterr().err
    assert f"{NAME} is not measured: paddle: no other framework can run it here; pytorch: {NOT_INSTALLED}" in told


def test_what_will_not_be_measured_is_said_before_anything_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        compare_frameworks,
        "why_not_compared",
        lambda suite, row: "pytorch: not for VGG16" if "vgg16" in row.name else None,
    )
    status, _ = bench.compare("--pairs", "2")
    first, second = capsys.readouterr().err.splitlines()[:2]
    assert first == f"{NAME.replace('resnet50v1.5', 'vgg16')} is not measured: pytorch: not for VGG16"
    assert second == f"1 of 2: {NAME}, 4 runs"
    assert (status, len(bench.runner.made)) == (0, 4), "each cell that could be compared was"


def test_what_is_left_out_for_one_reason_is_said_in_one_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent(monkeypatch, pytorch=NOT_INSTALLED)
    assert bench.compare("--pairs", "2")[0] == NOT_JUDGED
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{NAME}, {NAME.replace('resnet50v1.5', 'vgg16')} are not measured: ")
    assert line.endswith(NOT_INSTALLED)


def test_where_no_framework_is_installed_nothing_was_measured(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    absent(monkeypatch, pytorch=NOT_INSTALLED, paddle="no paddle")
    assert bench.compare(PADDLE)[0] == NOT_JUDGED
    assert bench.runner.made == []


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({1: {"refusal": "cuda graphs need a GPU"}}, "PyTorch: not measured, {}: cuda graphs need a GPU"),
        ({n: {"invalid": "contended: 9%"} for n in (1, 2, 3)}, "INVALID: 3 invalid runs in a row: contended: 9%"),
        ({1: {"failure": "out of memory"}}, "INFRA_ERROR: out of memory"),
        ({1: SuiteError("result", got="disk full", expected="room")}, "INFRA_ERROR: result: got 'disk full'"),
    ],
)
def test_an_installed_framework_without_a_figure_is_an_empty_cell_and_status_6(
    bench: Bench, answers: dict[int, Any], told: str
) -> None:
    bench.runner.answers = answers
    status, text = bench.compare(PADDLE, "--pairs", "2")
    assert status == NOT_JUDGED
    assert told.format("resnet50v1.5 fp32 CPU=1,BS=4 synthetic") in flat(text)
    assert " / Paddle" in text and "1.250" not in text


def test_one_framework_that_fails_does_not_take_the_others_figure(bench: Bench) -> None:
    bench.runner.answers = {1: {"failure": "out of memory"}}
    _, text = bench.compare(PADDLE, "--pairs", "3")
    assert bench.runner.made == ["paddle", "pytorch", "paddle", "paddle"]
    assert "100 [100, 100]" in text


def test_an_invalid_run_is_made_again_in_its_pair(bench: Bench) -> None:
    bench.runner.answers = {1: {"invalid": "contended"}, 4: {"invalid": "hot"}}
    status, text = bench.compare(PADDLE, "--pairs", "2")
    assert status == 0
    assert bench.runner.made == ["paddle", "pytorch", "pytorch", "pytorch", "paddle", "paddle"]
    assert "1.250" in text


def test_disturbed_runs_are_shown_on_demand_and_marked(bench: Bench) -> None:
    bench.runner.answers = {0: {"marks": ("contended",)}}
    status, text = bench.compare(PADDLE, "--pairs", "2", "--allow-contention")
    assert status == 0
    assert "100* [100, 100]" in text and "* measured nevertheless" in text


def test_the_runs_are_kept_and_judge_no_later_night(bench: Bench) -> None:
    bench.compare(PADDLE, "--pairs", "2")
    with open_history(default_url(bench.runs)) as history:
        for case_id in (PADDLE, PYTORCH):
            (night,) = history.series(case_id)
            past = history.past(case_id, "cpu", night.record.segment, 1, "tonight")
            assert (night.record.status, night.record.code) == ("NO_BASELINE", "compared")
            assert (past.nights, past.siblings) == ((), ())
            assert [each.result.replicate for each in history.results_of(case_id=case_id)] == [0, 1]
    out = io.StringIO()
    main(["history", PADDLE, "--runs-dir", str(bench.runs), "--config", str(bench.folder / "perf.yaml")], out)
    assert "NO_BASELINE not learned from" in flat(out.getvalue())


def test_an_interrupted_comparison_keeps_its_runs_and_goes_on(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.runner.answers = {6: KeyboardInterrupt()}
    status, text = bench.compare("--pairs", "2")
    assert status == INTERRUPTED
    assert "1.250" in text and "interrupted before it was measured" in text
    session = bench.runner.session
    assert f"--resume {session} goes on" in capsys.readouterr().err
    bench.runner.answers, made = {}, len(bench.runner.made)
    status, text = bench.compare("--pairs", "2", "--resume", session)
    assert (status, text.count("1.250 [")) == (0, 2)
    # VGG16's first pair was complete: the second one alone is made.
    assert bench.runner.made[made:] == ["pytorch", "paddle"]


def test_half_a_pair_is_made_again_with_its_other_half(bench: Bench) -> None:
    bench.runner.answers = {3: KeyboardInterrupt()}
    bench.compare(PADDLE, "--pairs", "2")
    assert bench.runner.made == ["paddle", "pytorch", "pytorch", "paddle"]
    bench.compare(PADDLE, "--pairs", "2", "--resume", bench.runner.session)
    assert bench.runner.made[4:] == ["pytorch", "paddle"]


def test_one_format_may_go_to_standard_output_and_two_are_refused_before_measuring(bench: Bench) -> None:
    with pytest.raises(ConfigError, match="expected one of them"):
        bench.compare(PADDLE, "--pairs", "2", "--json", "-", "--markdown", "-")
    assert bench.runner.made == []
    status, told = bench.compare(PADDLE, "--pairs", "2", "--json", "-")
    assert (status, json.loads(told)["exit_code"]) == (0, 0)


def test_markdown_and_json_hold_the_same_table(bench: Bench) -> None:
    bench.runner.answers = {1: {"refusal": "a|b is refused"}}
    markdown, record = bench.folder / "frameworks.md", bench.folder / "frameworks.json"
    bench.compare(PADDLE, "--pairs", "2", "--markdown", str(markdown), "--json", str(record))
    told = markdown.read_text()
    assert (
        "| parameters | Paddle | PyTorch | PyTorch / Paddle | published |\n| --- | ---: | ---: | ---: | ---: |\n"
        in told
    )
    assert "| CPU=1,BS=4 synthetic | 100 [100, 100] |  |  | 0.941 (1) |" in told
    assert "a\\|b is refused" in told
    found = json.loads(record.read_text())
    assert (found["schema_version"], found["pairs"], found["exit_code"]) == (1, 2, 6)
    (row,) = found["configurations"]
    assert (row["name"], row["execution"], row["published"][0]["differs"][0]) == (
        NAME, "dynamic", "card V100-SXM2-32GB, here cpu",
    )  # fmt: skip
    paddle, pytorch = row["cells"]
    assert (paddle["run_images_per_s"], len(paddle["run_folders"])) == ([100.0, 100.0], 2)
    assert (pytorch["images_per_s"], pytorch["reason"]) == (None, "a|b is refused")


def test_a_case_that_the_matrix_lacks_is_its_twins(bench: Bench) -> None:
    status, _ = bench.compare("pytorch-resnet50v1.5-fp32-bs8-1x1-synthetic", "--pairs", "2")
    assert (status, sorted(bench.runner.made)) == (0, ["paddle", "paddle", "pytorch", "pytorch"])


def test_a_named_execution_is_the_one_that_is_run(bench: Bench) -> None:
    _, text = bench.compare(PADDLE.replace("dynamic", "static"), "--pairs", "2")
    assert "(Paddle: static)" in text


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["paddle-nothing-*"], "a pattern that a case matches"),
        (["paddle-resnet50v1.5-fp99"], "Nearest"),
        ([PADDLE.replace("bs4", "bs5")], "Nearest"),
        ([PADDLE, PADDLE.replace("dynamic", "static")], "one execution"),
        (["-k", "nosuch"], "nothing to compare"),
        ([PADDLE, "--resume", "nosuch"], "a session of compare-frameworks in"),
        ([PADDLE, "--resume", ""], "a session of compare-frameworks in"),
        ([PADDLE, "--resume", "."], "a session of compare-frameworks in"),
        ([PADDLE, "--json", "/"], "--json: got '/ .not a regular file"),
        ([PADDLE, "--markdown", "/nosuch/frameworks.md"], "--markdown: got '/nosuch/frameworks.md'"),
    ],
)
def test_what_is_not_there_is_refused(bench: Bench, argv: list[str], told: str) -> None:
    with pytest.raises(SuiteError, match=told):
        bench.compare(*argv)
    assert bench.runner.made == []


@pytest.mark.parametrize("pairs", ["1", "0", "x", "51", "٣"])
def test_too_few_pairs_are_a_usage_error(pairs: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compare-frameworks", PADDLE, "--pairs", pairs], io.StringIO())
    assert ended.value.code == EXIT_USAGE
