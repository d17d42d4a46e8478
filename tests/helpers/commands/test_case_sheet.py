"""``perfgate cases CASE``: every published case in words, settings under their sources, commands that can be pasted."""

from __future__ import annotations

import argparse
import io
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import yaml

import helpers.commands.case_sheet
import helpers.session.suite
from helpers.commands.case_sheet import render, sheet_of, value_text
from helpers.commands.loading import load_suite
from helpers.commands.main import EXIT_USAGE, main
from helpers.plan.baseline_files import BASELINES
from helpers.plan.perf_yaml import SHIPPED
from helpers.plan.published import load_published
from helpers.plan.recipes.recipe import settings_for
from helpers.session.gate import EXIT_OK
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import ConfigError
from tests.helpers.commands.conftest import MACHINE, Builds

pytestmark = pytest.mark.slow

PURE = "paddle-resnet50v1.5-amp_o2-bs256-1x8-dali-static"
NODES = "paddle-vgg16-amp_o1-bs64-2x8-native-static"
CPU_CASE = "paddle-vgg16-fp32-bs1-1x1-dali-dynamic"
OTHER = "mxnet-resnet50v1.5-fp32-bs128-1x1-dali"
Sheet = Callable[..., Mapping[str, Any]]


@pytest.fixture(scope="module")
def suite() -> Iterator[Suite]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(helpers.session.suite, "discover", lambda **values: MACHINE)
        patch.setattr(helpers.session.suite, "BuildFinder", Builds)
        yield load_suite(argparse.Namespace(config=SHIPPED, baselines=BASELINES))


@pytest.fixture
def sheet(suite: Suite) -> Sheet:
    cases = {each.key: each for each in suite.cases}

    def made(case_id: str, target: str = "v100") -> Mapping[str, Any]:
        return sheet_of(suite, cases[target, case_id])

    return made


def test_every_published_case_shows_its_settings_with_sources_within_100_columns(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers.commands.case_sheet, "check_settings", lambda jobs: (None,) * len(jobs))
    cases = {each.key: each for each in suite.cases}
    for target in ("v100", "a100"):
        for case in load_published(BASELINES / "published" / f"{target}.json").cases():
            text = render(sheet_of(suite, cases[target, case.id]))
            assert text.startswith(f"{case.id} [{target}]\n")
            above, _, _ = text.partition("command of one run")
            assert [line for line in above.splitlines() if len(line) > 100] == []
            groups = ("optimizer", "learning_rate", "layout", "input_channels", "amp_level", "loss_scaling")
            names = (*groups, *(f"environment.{name}" for name in settings_for(case, "gpu")["environment"]))
            assert [name for name in names if f" {name} " not in text] == []


def test_a_published_case_has_its_figures_protocol_program_and_command(sheet: Sheet) -> None:
    told = sheet(PURE)
    (figure,) = told["figures"]
    assert (figure["samples_per_s"], figure["status"], figure["rule"]) == (10936.815, "gate", "paddleclas-trimmed")
    assert (told["protocol"].warmup_steps, told["protocol"].window_steps, told["protocol"].runs) == (100, 220, 1)
    assert (told["published_tolerance"], told["recorded_tolerance"]) == (0.05, 0.005)
    assert (told["settings"]["loss_scaling"].value, told["settings"]["fleet.fuse_grad_size_in_MB"].value) == (128.0, 16)
    assert told["environment"]["FLAGS_conv_workspace_size_limit"] == "1500"
    assert told["environment"]["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    (command,) = told["commands"]
    assert command[:5] == ("PYTHON", "-u", "-m", "paddle.distributed.launch", "--nproc_per_node")
    assert told["operators"] is not None and told["operators"]["fused_bn_add_activation"] == 16
    assert told["images_needed"].startswith("634,880 images")
    assert told["problem"] == "" and "looked for a V100" in (told["here"] or "")
    assert sheet(OTHER)["operators"] is None


def test_a_case_of_several_nodes_has_a_command_for_each(sheet: Sheet) -> None:
    told = sheet(NODES)
    first, second = told["commands"]
    assert first != second and "--nnodes" in first and "--nnodes" in second


def test_a_case_that_runs_here_says_so_and_has_no_publisher(sheet: Sheet) -> None:
    told = sheet(CPU_CASE, "cpu")
    assert told["commands"] == (("PYTHON", "-u", "-m", "helpers.trainers.paddle.trainer", "RUN/spec.json"),)
    assert (told["here"], told["departures"], told["operators"], told["images_needed"]) == (None, (), None, "")


def test_what_recipe_or_trainer_refuses_is_a_problem(sheet: Sheet, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(helpers.commands.case_sheet, "check_settings", lambda jobs: ("layout CHW",))
        assert "layout CHW" in sheet(PURE)["problem"]

    def refuse(*_: Any, **__: Any) -> Any:
        raise ConfigError("case", field="precision", got="fp32", expected="another")

    monkeypatch.setattr(helpers.commands.case_sheet, "sourced_settings", refuse)
    told = sheet(OTHER)
    assert "'precision'" in told["problem"] and told["problem"] in " ".join(render(told).split()) and told["figures"]


def test_the_departures_from_the_publisher_s_program_are_data(sheet: Sheet) -> None:
    case = sheet("tensorflow-resnet50v1.5-amp-bs224-2x8-dali-xla")
    departures = {each["about"]: each for each in case["departures"]}
    assert departures["version"]["published"] == "TensorFlow 1.15.2 (NGC 20.03-tf1)"
    assert departures["exchange of gradients"]["published"].startswith("Horovod")
    # One card exchanges nothing.
    one_card = sheet("tensorflow-resnet50v1.5-amp-bs224-1x1-dali-xla")["departures"]
    assert "exchange of gradients" not in [each["about"] for each in one_card]


@pytest.mark.parametrize("width", [80, 100])
def test_no_line_is_longer_than_asked_but_a_command_which_can_be_pasted(sheet: Sheet, width: int) -> None:
    command = ("PYTHON", "-u", "-m", "launch", *(f"--option{n}" if n % 2 else f"value {n}" for n in range(1, 41)))
    told = {**sheet(PURE), "commands": (command,), "here": "x " * 200, "problem": "y " * 200}
    above, pasted = render(told, width).split("\n\ncommand of one run")
    assert [line for line in above.splitlines() if len(line) > width] == []
    variables = [f"{name}={value}" for name, value in told["environment"].items()]
    assert shlex.split(pasted.splitlines()[1]) == ["env", *variables, *command]


@pytest.mark.parametrize("value", [None, True, 3, 0.1, 1.3333333333333333, "NHWC", [0.08, 1.0], [], {"a": [1, None]}])
def test_a_value_reads_as_set_takes_it(value: object) -> None:
    assert yaml.safe_load(value_text(value)) == value


@pytest.mark.usefixtures("machine")
def test_a_case_of_two_targets_is_shown_for_each() -> None:
    out = io.StringIO()
    assert main(["cases", PURE, "--json"], out) == EXIT_OK
    cases = json.loads(out.getvalue())["cases"]
    assert [(each["target"], each["settings"]["momentum"]["value"]) for each in cases] == [("a100", 0.9), ("v100", 0.9)]


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["paddle-vgg16-fp32-bs1-1x1-dali-dynami"], "Nearest: paddle-vgg16-fp32-bs1-1x1-dali-dynamic"),
        (["vgg"], "Nearest: "),
        ([CPU_CASE, "--target", "v100"], "on v100"),
    ],
)
def test_what_does_not_exist_is_refused_with_what_does(
    capsys: pytest.CaptureFixture[str], argv: list[str], told: str
) -> None:
    assert main(["cases", *argv], io.StringIO()) == EXIT_USAGE
    assert told in capsys.readouterr().err
