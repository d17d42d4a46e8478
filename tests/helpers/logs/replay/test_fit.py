"""Which case a log is of, and what is said of a case without a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.history.results import REPLAYED
from helpers.logs.replay.fit import fit
from helpers.logs.replay.logs import LogFolder, LoggedRun
from helpers.plan.case_plan import SuiteCase
from helpers.plan.matrix import MeasuringProtocol
from helpers.trainers.contract.case import Case
from tests.helpers.importing_double import MXNET, PADDLE, imported, write_log
from tests.helpers.logs.replay.bench import (
    CPU_CASE,
    GATE,
    PUBLISHED,
    SHOWN,
    Bench,
)


def test_it_is_not_run_and_tells_what_came_closest(bench: Bench) -> None:
    bench.log("a.log", PADDLE, PUBLISHED, cards="8")
    bench.log("b.log", PADDLE, PUBLISHED, cards="8", precision="amp_o2")
    row = bench.row(GATE)
    assert (row.status, row.effect, row.origin) == ("not run", "skip", REPLAYED)
    assert row.reason == "no log of this case; closest: V100-LOG/a.log (cards 8, not 1)"
    assert row.samples_per_s is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"framework": "mxnet"}, "no log of paddle resnet50v1.5 on V100 cards"),
        ({"gpu": "A100"}, "no log of paddle resnet50v1.5 on V100 cards"),
        ({"model": "vgg16"}, "no log of paddle resnet50v1.5 on V100 cards"),
        ({"precision": "tf32"}, "precision tf32, not fp32"),
        ({"batch_size_per_card": "128"}, "batch size a card 128, not 256"),
        ({"data": "dali"}, "data dali, not native"),
        ({"execution": "dynamic"}, "execution dynamic, not static"),
        ({"xla": "true"}, "XLA true, not off"),
        ({"cards": "1", "nodes": "2"}, "nodes 2, not 1"),
    ],
)
def test_everything_that_a_log_tells_has_to_agree(bench: Bench, changes: dict[str, str], told: str) -> None:
    write_log(bench.logs / "a.log", {**PADDLE, "gpu": "V100", **changes}, {"paddleclas-trimmed": PUBLISHED})
    row = bench.row(GATE)
    assert row.status == "not run"
    assert told in row.reason


def test_a_log_that_does_not_say_its_card_fits_no_card(bench: Bench) -> None:
    write_log(bench.logs / "a.log", PADDLE, {"paddleclas-trimmed": PUBLISHED})
    row = bench.row(GATE)
    assert row.status == "not run"
    assert "does not say its GPU: --replay-gpu NAME" in row.reason
    assert bench.row(GATE, replay_gpu="V100").status == "PASS"
    assert bench.row(GATE, replay_gpu="A100", session="again").status == "not run"


def test_what_a_log_leaves_open_is_told(bench: Bench) -> None:
    settings = {name: value for name, value in PADDLE.items() if name not in ("data", "execution")}
    bench.log("a.log", settings, PUBLISHED)
    row = bench.row(GATE)
    assert row.status == "PASS"
    assert any("does not state its data, execution: taken from the case" in each for each in row.warnings)


def test_a_log_that_may_be_of_several_cases_is_of_none(bench: Bench) -> None:
    settings = {**MXNET, "framework": "tensorflow", "batch_size_per_card": "224"}
    bench.log("a.log", settings, 900.0)
    row = bench.row("tensorflow-resnet50v1.5-amp-bs224-1x1-dali")
    assert row.status == "not run"
    assert "may also be of tensorflow-resnet50v1.5-amp-bs224-1x1-dali-xla" in row.reason
    assert "give its data and execution and xla and nodes in INDEX.csv" in row.reason


def test_a_log_that_may_be_of_a_case_is_told_beside_the_ones_that_are(bench: Bench) -> None:
    settings = {**MXNET, "framework": "tensorflow", "batch_size_per_card": "224"}
    bench.log("a.log", settings, 900.0, data="dali", xla="false")
    bench.log("b.log", settings, 450.0, data="dali")
    row = bench.row("tensorflow-resnet50v1.5-amp-bs224-1x1-dali")
    assert row.run_samples_per_s == (900.0,)
    assert (
        "V100-LOG/b.log does not state enough: it may also be of tensorflow-resnet50v1.5-amp-bs224-1x1-dali-xla"
        in row.reason
    )


def test_logs_of_two_versions_are_told(bench: Bench) -> None:
    bench.log("a.log", PADDLE, PUBLISHED, framework_version="2.3.0")
    bench.log("b.log", PADDLE, PUBLISHED, framework_version="2.3.0")
    assert "versions of the framework" not in bench.row(GATE).reason
    bench.log("c.log", PADDLE, PUBLISHED, framework_version="2.5.0")
    assert "of 2 versions of the framework: 2.3.0, 2.5.0" in bench.row(GATE, session="again").reason


def test_a_case_that_states_its_data_comes_before_one_that_does_not(bench: Bench) -> None:
    bench.log("a.log", MXNET, 1400.0, data="dali")
    assert bench.row(SHOWN).status == "NO_BASELINE"
    other = bench.row("mxnet-resnet50v1.5-amp-bs256-1x1-unstated")
    assert other.reason == f"no log of this case; closest: V100-LOG/a.log (it is judged as {SHOWN})"


def test_only_step_logs_of_ours_are_of_a_cpu(bench: Bench) -> None:
    write_log(bench.logs / "a.log", {**PADDLE, "batch_size_per_card": "4", "data": "dali", "execution": "dynamic"})
    assert bench.row(CPU_CASE, "cpu").reason == "no log of paddle resnet50v1.5"


def test_what_another_program_never_tells_is_not_assumed() -> None:
    protocol = MeasuringProtocol("p", 1, 1, 1)
    run = LoggedRun("a.log", imported(), imported({**MXNET, "framework": "pytorch", "gpu": "V100"}).settings)
    plain = "pytorch-resnet50v1.5-amp-bs256-1x1-synthetic"
    for feature in ("-compile", "-graphs"):
        case = SuiteCase(Case.parse(plain + feature), "v100", protocol)
        assert fit([case], LogFolder(Path(), (run,))).found == {}
    assert fit([SuiteCase(Case.parse(plain), "v100", protocol)], LogFolder(Path(), (run,))).found


def test_a_card_with_the_case_of_its_own_is_not_any_card() -> None:
    protocol = MeasuringProtocol("p", 1, 1, 1)
    case = SuiteCase(Case.parse("pytorch-resnet50v1.5-amp-bs256-1x1-synthetic"), "gpu", protocol, models=("v100",))
    settings = {**MXNET, "framework": "pytorch"}
    runs = [LoggedRun(gpu, imported(), imported({**settings, "gpu": gpu}).settings) for gpu in ("V100", "H200")]
    fits = fit([case], LogFolder(Path(), tuple(runs)))
    assert [run.name for run in fits.found[case.key].runs] == ["H200"]
