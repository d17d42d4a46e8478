"""``perfgate show``: every published case in words, and what --set does to it."""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import helpers.commands.show
import helpers.report.program
from helpers.commands.loading import load_suite
from helpers.commands.main import EXIT_USAGE, main
from helpers.commands.show import render, sheet_of
from helpers.launch.programs import BuildReport, BuildState
from helpers.machine.devices import Machine
from helpers.plan.baseline_files import BASELINES
from helpers.plan.case_plan import SuiteCase
from helpers.plan.proposals import Proposal, ProposalKind, write_recorded
from helpers.plan.published import load_published
from helpers.plan.recipes.recipe import settings_for
from helpers.plan.recorded import Provenance, RecordedEntry
from helpers.session.gate import EXIT_OK
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.program import PROGRAM_COUNTS_FACT, PROGRAM_FACT, counts_text

pytestmark = pytest.mark.usefixtures("machine")

PURE = "paddle-resnet50v1.5-amp_o2-bs256-1x8-dali-static"
NODES = "paddle-vgg16-amp_o1-bs64-2x8-native-static"
CPU_CASE = "paddle-vgg16-fp32-bs1-1x1-dali-dynamic"
OTHER = "mxnet-resnet50v1.5-fp32-bs128-1x1-dali"
PUBLISHED = [
    (target, case)
    for target in ("v100", "a100")
    for case in load_published(BASELINES / "published" / f"{target}.json").cases()
]


O2_COUNTS = {
    "operators": 285, "conv2d": 53, "float16_conv2d": 53, "nhwc_conv2d": 53, "batch_norm": 20,
    "fused_batch_norm_act": 33, "elementwise_add": 17, "relu": 16, "merged_momentum": 2, "all_reduce": 21,
    "coalesce_tensor": 21, "cast": 3,
}  # fmt: skip


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cases whose programs were built, by a build that does not fuse batch norm, addition and ReLU."""
    built: list[str] = []

    def build(cases: Sequence[SuiteCase], interpreter: str) -> tuple[BuildReport, ...]:
        built.extend(each.case.id for each in cases)
        facts = {PROGRAM_FACT: "old, with paddle.any shimmed", PROGRAM_COUNTS_FACT: counts_text(O2_COUNTS)}
        return tuple(BuildReport(BuildState.BUILT, facts=facts) for _ in cases)

    monkeypatch.setattr(helpers.report.program, "build_programs", build)
    return built


def shown(*argv: str) -> str:
    out = io.StringIO()
    assert main(["show", *argv], out) == EXIT_OK
    return out.getvalue()


def record(*argv: str) -> dict[str, Any]:
    (case,) = json.loads(shown(*argv, "--json"))["cases"]
    return dict(case)


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(["show", *argv], io.StringIO()) == EXIT_USAGE
    return capsys.readouterr().err


def settings_of(told: dict[str, Any]) -> dict[str, Any]:
    return {line["key"]: line["value"] for line in told["settings"]}


def test_every_published_case_shows_its_settings_with_sources_within_100_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(helpers.commands.show, "check_settings", lambda jobs: (None,) * len(jobs))
    suite = load_suite(argparse.Namespace(config=ROOT / "perf.yaml", baselines=BASELINES))
    cases = {each.key: each for each in suite.cases}
    for target, case in PUBLISHED:
        text = render(sheet_of(suite, cases[target, case.id], {}))
        assert text.startswith(f"{case.id} [{target}]\n")
        assert [line for line in text.splitlines() if len(line) > 100] == []
        for group in ("optimizer", "learning_rate", "layout", "input_channels", "amp_level", "loss_scaling"):
            assert f" {group} " in text
        for name in settings_for(case, "gpu")["environment"]:
            assert f" {name} " in text


def test_the_figure_its_table_rule_status_and_note_are_told() -> None:
    text = shown(PURE, "--target", "v100")
    assert "10936.815 images/s on V100-SXM2-32GB, paddle 2.5.0; status gate; by paddleclas-trimmed" in text
    assert 'printed as FP16 in "Paddle V100 training throughput"' in text
    assert "its published log gives 10942.775 (+0.05%)" in " ".join(text.split())
    assert "paddleclas: 100 to 300 (until steady) steps of warm-up, 220 measured, 1 run in fresh processes" in text
    assert "tolerance: -5.0% against a published figure; ±0.5% is the smallest change that counts" in text


def test_the_record_holds_what_the_text_tells() -> None:
    told = record(PURE, "--target", "v100")
    assert (told["case_id"], told["target"], told["device"]) == (PURE, "v100", "gpu")
    assert told["words"]["precision"] == "automatic mixed precision, level O2 (pure fp16)"
    assert told["words"]["batch"] == "256 images a card, 2048 a step"
    assert settings_of(told)["loss_scaling"] == 128.0
    assert settings_of(told)["fleet.fuse_grad_size_in_MB"] == 16
    assert told["environment"]["FLAGS_conv_workspace_size_limit"] == "1500"
    assert told["environment"]["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    assert (told["problem"], told["not_launched"], told["comparable"]) == (None, None, True)
    (command,) = told["commands"]
    assert command[:5] == ["PYTHON", "-u", "-m", "paddle.distributed.launch", "--nproc_per_node"]
    assert command[-1] == "RUN/spec.json"
    assert "looked for a V100" in told["here"]


def test_the_program_as_built_here_stands_beside_the_published_one(asked: list[str]) -> None:
    told = record(PURE, "--target", "v100")["program"]
    assert asked == [PURE]
    assert (told["state"], told["kind"]) == ("built", "old, with paddle.any shimmed")
    assert (told["built"]["fused_bn_add_activation"], told["published"]["fused_bn_add_activation"]) == (0, 16)
    assert "fused_bn_add_activation 0, published 16" in told["differences"]
    assert "commit 5bb2e8c" in told["source"]
    # The suite's own cast is none of them.
    assert not any(each.startswith("cast") for each in told["differences"])


def test_the_text_counts_what_is_published_and_builds_where_it_is_asked(asked: list[str]) -> None:
    text = shown(PURE, "--target", "v100")
    assert asked == []
    assert "fused_bn_add_activation         16\n" in text
    assert "here: not built (--build-program)" in text
    text = shown(PURE, "--build-program")
    # Once for both targets.
    assert asked == [PURE]
    assert "fused_bn_add_activation         16     0\n" in text
    assert "old, with paddle.any shimmed" in text
    assert "not the published program's operators: batch_norm 20, published 4" in text


def test_no_program_is_built_of_changed_settings_or_where_none_is_known(asked: list[str]) -> None:
    told = record(PURE, "--target", "v100", "--set", "build_strategy.fuse_bn_act_ops=false")["program"]
    assert (told["built"], told["note"]) == (None, "with changed settings (--set) no program is built")
    assert record(OTHER)["program"] is record(CPU_CASE)["program"] is None
    assert asked == []


def test_a_case_of_two_targets_is_shown_for_each() -> None:
    text = shown(PURE)
    assert f"{PURE} [a100]\n" in text
    assert f"{PURE} [v100]\n" in text
    assert len(json.loads(shown(PURE, "--json"))["cases"]) == 2


def test_a_case_of_several_nodes_has_a_command_for_each() -> None:
    told = record(NODES)
    assert told["words"]["cards"] == "2 nodes of 8 cards, 16 in all"
    assert len(told["commands"]) == 2
    assert told["commands"][0] != told["commands"][1]
    assert all("--nnodes" in command for command in told["commands"])


def test_a_case_that_runs_here_says_so() -> None:
    told = record(CPU_CASE)
    assert told["here"] is None
    assert told["commands"] == [["PYTHON", "-u", "-m", "helpers.trainers.paddle.trainer", "RUN/spec.json"]]
    assert "\n  runs\n" in shown(CPU_CASE)


def test_settings_can_be_shown_as_on_another_device() -> None:
    told = record(PURE, "--target", "v100", "--device", "cpu")
    assert settings_of(told)["amp_dtype"] == "bfloat16"
    assert told["environment"]["CUDA_VISIBLE_DEVICES"] == ""


def test_a_case_that_its_recipe_refuses_shows_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(case: Case, *_: Any, **__: Any) -> Any:
        raise ConfigError(f"case {case.id}", field="precision", got="fp32", expected="another")

    monkeypatch.setattr(helpers.commands.show, "sourced_settings", refuse)
    text = shown(OTHER, "--target", "v100")
    assert "'precision': got 'fp32', expected another" in text
    assert "images/s on" in text


def test_the_departures_from_the_publisher_s_program_are_data() -> None:
    case = record("tensorflow-resnet50v1.5-amp-bs224-2x8-dali-xla", "--target", "v100")
    departures = {each["about"]: each for each in case["departures"]}
    assert departures["version"]["published"] == "TensorFlow 1.15.2 (NGC 20.03-tf1)"
    assert departures["exchange of gradients"]["published"].startswith("Horovod")
    assert "MultiWorkerMirroredStrategy" in departures["exchange of gradients"]["here"]
    assert all("measuring-rules" in each["source"] for each in case["departures"] if each["about"] != "version")
    # One card exchanges nothing, and the case of a CPU has no publisher.
    one_card = record("tensorflow-resnet50v1.5-amp-bs224-1x1-dali-xla", "--target", "v100")["departures"]
    assert "exchange of gradients" not in [each["about"] for each in one_card]
    assert record(CPU_CASE)["departures"] == []


def record_figure(machine: Machine, baselines: Path) -> None:
    """Writes 0.3039 images/s of CPU_CASE as what the machine has recorded."""
    entry = RecordedEntry(
        CPU_CASE, 0.3039, "wall-clock", (0.3, 0.31), None, None, {}, {"host": "h"},
        Provenance("7688495538f4aaaa", "2026-11-21T10:00:00+00:00", "AMD EPYC", "r"),
    )  # fmt: skip
    key = machine.machine_key("cpu")
    proposals = [Proposal(CPU_CASE, ProposalKind.CREATED, None, entry, "new")]
    write_recorded(baselines / "recorded" / f"{key}.json", key, proposals)


def test_a_recorded_figure_is_told(empty_baselines: Path, machine: Machine) -> None:
    assert "recorded: nothing" in shown(CPU_CASE, "--baselines", str(empty_baselines))
    record_figure(machine, empty_baselines)
    text = shown(CPU_CASE, "--baselines", str(empty_baselines))
    assert "recorded: 0.3039 images/s by wall-clock, 2 runs, 2026-11-21, 7688495538f4" in text


# --- --set


def test_a_neutral_override_is_shown_old_and_new_and_leaves_the_result_comparable() -> None:
    text = shown(PURE, "--target", "v100", "--set", "learning_rate=0.2")
    assert "learning_rate: 0.1 → 0.2\n    does not matter: " in text
    assert "a result is still compared with the published figure" in text
    assert "a recorded figure is only for the case as it stands: a result enters no baseline\n" in text


def test_only_the_figures_that_there_are_are_spoken_of(machine: Machine, empty_baselines: Path) -> None:
    record_figure(machine, empty_baselines)
    text = shown(CPU_CASE, "--set", "learning_rate=0.2", "--baselines", str(empty_baselines))
    assert "the published figure" not in text
    assert "enters no baseline and is INCOMPARABLE with the recorded one" in " ".join(text.split())


@pytest.mark.parametrize(
    "override", ["momentum=0", "layout=NCHW", "dali.threads=8", "environment.FLAGS_max_inplace_grad_add=4"]
)
def test_an_override_that_may_matter_makes_the_result_incomparable(override: str) -> None:
    argv = (PURE, "--target", "v100", "--set", override, "--set", "learning_rate=0.2")
    assert record(*argv)["comparable"] is False
    text = shown(*argv)
    assert "may matter to the throughput" in text
    assert "a result is INCOMPARABLE with the published figure" in text


def test_an_override_of_the_environment_reaches_the_ranks() -> None:
    told = record(PURE, "--target", "v100", "--set", "environment.FLAGS_max_inplace_grad_add=4")
    assert told["environment"]["FLAGS_max_inplace_grad_add"] == "4"


def test_an_override_equal_to_the_value_is_none() -> None:
    text = shown(PURE, "--target", "v100", "--set", "learning_rate=0.1")
    assert "changed" not in text
    assert text == shown(PURE, "--target", "v100")


def test_a_whole_group_is_one_changed_setting() -> None:
    told = record(PURE, "--target", "v100", "--set", "fleet={nccl_comm_num: 2}")
    assert settings_of(told)["fleet"] == {"nccl_comm_num": 2}
    assert not [key for key in settings_of(told) if key.startswith("fleet.")]
    assert told["comparable"] is False


def test_settings_that_the_trainer_refuses_are_shown_with_its_words() -> None:
    assert "the trainer refuses them: training settings: field 'layout': got 'CHW'" in shown(
        PURE, "--target", "v100", "--set", "layout=CHW"
    )


# --- what is refused


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["paddle-vgg16-fp32-bs1-1x1-dali-dynami"], "got 'dynami'.*Nearest: paddle-vgg16-fp32-bs1-1x1-dali-dynamic"),
        (["paddle-vgg16-fp32-bs1-1x7-dali-dynamic"], "Nearest: paddle-vgg16-fp32-bs1-1x"),
        (["vgg"], "Nearest: "),
        ([CPU_CASE, "--target", "v100"], "'target'.*expected one of cpu"),
        ([CPU_CASE, "--set", "lr=1"], "'lr'.*learning_rate"),
        ([CPU_CASE, "--set", "learning_rate"], "KEY=VALUE"),
        ([CPU_CASE, "--set", "learning_rate=fast"], "'learning_rate'.*a value like"),
        ([OTHER, "--set", "momentum=fast"], "'momentum'.*a value like"),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(
    capsys: pytest.CaptureFixture[str], argv: list[str], told: str
) -> None:
    error = refused(capsys, *argv)
    before, _, after = told.partition(".*")
    assert before in error
    assert after in error.partition(before)[2]


def test_the_images_that_a_published_comparison_needs_are_told() -> None:
    needs = "needs 634,880 images an epoch (310 steps of 256 on 8 cards, by paddleclas-trimmed)"
    assert needs in shown("paddle-resnet50v1.5-amp_o2-bs256-1x8-dali-static", "--target", "v100")
    assert "images an epoch" not in shown("paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic")
