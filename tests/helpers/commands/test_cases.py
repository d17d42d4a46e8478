"""``perfgate cases``: the table of what is configured, runs and builds; builds by a stand-in for an interpreter."""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import helpers.session.programs
from helpers.commands.main import EXIT_USAGE, main
from helpers.launch.programs import BuildReport, BuildState
from helpers.plan.recipes.recipe import settings_for
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.job import JobSpec

pytestmark = pytest.mark.usefixtures("machine")

# Answers as an interpreter with Paddle would: it builds ResNet50's rows but for one that fails, and refuses VGG16's.
STAND_IN = f"""#!{sys.executable}
import json, pathlib, sys
words = sys.argv[1:]
if "helpers.machine.framework_probe" in words:
    print(json.dumps({{"distribution": "paddlepaddle-gpu", "version": "2.6.2", "commit": "", "no_dali": ""}}))
    sys.exit(0)
assert words[:3] == ["-u", "-m", "helpers.trainers.paddle.build"], words
spec = json.loads(pathlib.Path(words[3]).read_text())
assert spec["device"] == "gpu" and spec["settings"]["optimizer"] == "momentum"
if "vgg16" in spec["case"]:
    print(json.dumps(dict(built=False, reason="no VGG16 here", facts={{}}, operators=None, parameters=None)))
    sys.exit(3)
if "4x8" in spec["case"]:
    print("Segmentation fault", file=sys.stderr)
    sys.exit(139)
facts = {{"FLAGS_a": "not applied: unknown", "FLAGS_b": "1", "program": "old"}}
print(json.dumps(dict(built=True, reason="", facts=facts, operators=512, parameters=25557032)))
"""


@pytest.fixture
def interpreter(tmp_path: Path) -> str:
    script = tmp_path / "python"
    script.write_text(STAND_IN, encoding="utf-8")
    script.chmod(0o755)
    return str(script)


def told(*argv: str, status: int = EXIT_OK) -> str:
    out = io.StringIO()
    assert main(["cases", *argv], out) == status
    return out.getvalue()


def record(*argv: str, status: int = EXIT_OK) -> dict[str, Any]:
    return dict(json.loads(told(*argv, "--json", status=status)))


def test_the_54_published_paddle_rows_are_listed_with_complete_configurations() -> None:
    document = record("--framework", "paddle", "--published")
    cases = document["cases"]
    assert sum(len(case["published"]) for case in cases) == 54
    assert sum("resnet50" in case["case_id"] for case in cases) == 10
    assert {case["configuration"] for case in cases} == {"complete"}
    assert {case["build"] for case in cases} == {"not tried"}
    assert all("found no NVIDIA GPU" in case["here"] for case in cases)
    assert document["summary"].startswith("54 cases, 54 with a complete configuration, 0 run here")


def test_cases_are_chosen_by_ids_and_patterns_and_printed_as_one_line_each() -> None:
    one = "paddle-resnet50v1.5-amp_o2-bs256-4x8-dali-static"
    lines = told("*vgg16*bs32*", one, "--target", "v100", "--format", "lines").splitlines()
    ids = {line.split()[0] for line in lines}
    assert {each["case_id"] for each in record("--target", "v100")["cases"]} > ids > {one}
    assert all("vgg16" in each and "bs32" in each for each in ids - {one})
    assert len(lines) == len(ids)
    (line,) = (each for each in lines if one in each)
    assert " ".join(line.split()).startswith(f"{one} v100 complete not tried no: looked for a V100")


@pytest.mark.parametrize("name", ["*resnet51*", "paddle-vgg17"])
def test_a_name_that_no_case_has_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    told(name, status=EXIT_USAGE)
    assert name in capsys.readouterr().err


def test_several_frameworks_are_listed_together() -> None:
    cases = record("--framework", "mxnet", "--framework", "pytorch", "--published")["cases"]
    assert {case["case_id"].partition("-")[0] for case in cases} == {"mxnet", "pytorch"}
    assert sum(len(case["published"]) for case in cases) == 22


def test_cards_nodes_and_images_that_a_case_needs_are_told() -> None:
    needs = {case["case_id"]: case["needs"] for case in record("--target", "v100", "--published")["cases"]}
    assert needs["paddle-resnet50v1.5-fp32-bs256-1x1-native-static"] == "1 x V100, 79,360 images"
    assert needs["paddle-resnet50v1.5-fp32-bs256-4x8-native-static"] == "4 nodes of 8 x V100, 901,120 images"


def test_a_cpu_case_runs_here_and_has_no_published_figure() -> None:
    cases = record("--target", "cpu", "--framework", "paddle")["cases"]
    assert cases
    one_card = [case for case in cases if "-1x1-" in case["case_id"]]
    assert {(case["here"], case["configuration"], case["twin"]) for case in one_card} == {(None, "complete", "")}
    assert {tuple(case["published"]) for case in cases} == {()}


def test_a_twin_is_a_case_that_runs_here() -> None:
    cases = record()["cases"]
    here = {case["case_id"] for case in cases if case["here"] is None}
    twins = {case["twin"] for case in cases if case["twin"]}
    assert twins <= here
    assert all(case["twin"] or case["twin_note"] for case in cases)


def test_every_pytorch_case_is_complete_and_the_published_ones_are_the_twelve() -> None:
    cases = record("--framework", "pytorch")["cases"]
    assert {case["configuration"] for case in cases} == {"complete"}
    published = [case for case in cases if case["published"]]
    assert len(published) == 12
    assert {case["target"] for case in cases} == {"cpu", "v100", "a100", "gpu"}


def test_all_110_published_figures_are_of_cases_with_complete_configurations() -> None:
    document = record("--published")
    cases = document["cases"]
    assert sum(len(case["published"]) for case in cases) == 110
    assert {case["configuration"] for case in cases} == {"complete"}
    figures = Counter({case["case_id"].partition("-")[0]: 0 for case in cases})
    for case in cases:
        figures[case["case_id"].partition("-")[0]] += len(case["published"])
    assert figures == {"paddle": 54, "tensorflow": 34, "pytorch": 12, "mxnet": 10}
    # Each names the cards that it needs, and nothing but those is missing.
    assert all(" x V100" in case["needs"] or " x A100" in case["needs"] for case in cases)
    assert all("found no NVIDIA GPU" in case["here"] for case in cases)


def test_a_case_that_its_recipe_refuses_is_incomplete_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(case: Case, device: str) -> dict[str, Any]:
        raise ConfigError(f"case {case.id}", field="precision", got=case.precision.value, expected="another")

    monkeypatch.setattr(helpers.session.programs, "settings_for", refuse)
    cases = record("--framework", "mxnet", "--published")["cases"]
    assert cases
    assert all(case["configuration"].startswith("field 'precision': got '") for case in cases)


def test_what_the_trainer_refuses_is_an_incomplete_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    def short(case: Any, device: str) -> dict[str, Any]:
        return {key: value for key, value in settings_for(case, device).items() if key != "layout"}

    monkeypatch.setattr(helpers.session.programs, "settings_for", short)
    cases = record("--target", "a100", "--framework", "paddle")["cases"]
    assert all("settings.layout" in case["configuration"] for case in cases)
    assert " 0 with a complete configuration" in told("--target", "a100", "--framework", "paddle")


@pytest.mark.slow
def test_builds_are_tried_and_told_apart(interpreter: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("--framework", "paddle", "--build-programs", "--interpreter", interpreter)
    document = record(*argv, status=EXIT_NOT_JUDGED)
    assert document["about"]["builds by"] == "paddlepaddle-gpu 2.6.2"
    by_state: dict[str, list[dict[str, Any]]] = {}
    for case in document["cases"]:
        by_state.setdefault(case["build"], []).append(case)
    assert {case["case_id"].split("-")[1] for case in by_state["built"]} == {"resnet50v1.5"}
    assert {tuple(case["not_applied"]) for case in by_state["built"]} == {("FLAGS_a",)}
    assert {(case["operators"], case["parameters"]) for case in by_state["built"]} == {(512, 25557032)}
    assert {case["program"] for case in by_state["built"]} == {"old"}
    assert {case["build_note"] for case in by_state["refused"]} == {"no VGG16 here"}
    assert {case["build_note"] for case in by_state["failed"]} == {"exit status 139: Segmentation fault"}
    tried = [case for state in ("built", "refused", "failed") for case in by_state[state]]
    assert sum(bool(case["published"]) for case in tried) == 54
    assert {case["target"] for case in tried} == {"v100", "a100", "gpu"}
    assert not any(case["published"] for case in by_state["not tried"])
    why = "only programs for a GPU are built ahead, Paddle's only where they are static"
    assert {case["build_note"] for case in by_state["not tried"]} == {why}
    progress = capsys.readouterr().err.splitlines()
    assert len(progress) == len(tried)
    assert progress[-1].startswith(f"{len(tried)} of {len(tried)} tried: paddle-")


def test_the_builds_of_two_sessions_have_no_job_in_common(interpreter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a build ends every process of its job."""
    jobs: list[set[str]] = []

    def note(specs: Sequence[JobSpec], *_: object, **__: object) -> tuple[BuildReport, ...]:
        jobs.append({spec.job_id for spec in specs})
        return tuple(BuildReport(BuildState.BUILT) for _ in specs)

    monkeypatch.setattr(helpers.session.programs, "check_builds", note)
    for _ in range(2):
        record("--framework", "paddle", "--target", "a100", "--build-programs", "--interpreter", interpreter)
    one, other = jobs
    assert len(one) == len(other) == 4
    assert not one & other


@pytest.mark.slow
@pytest.mark.parametrize("chosen", [("--target", "a100"), ("--target", "v100", "--published")])
def test_only_a_build_that_broke_is_a_failure(interpreter: str, chosen: tuple[str, ...]) -> None:
    """The A100's rows are built; of the V100's one breaks, which no table alone would tell a script."""
    broken = "v100" in chosen
    argv = ("--framework", "paddle", *chosen, "--build-programs", "--interpreter", interpreter)
    states = {case["build"] for case in record(*argv, status=EXIT_NOT_JUDGED if broken else EXIT_OK)["cases"]}
    assert ("failed" in states) == broken
    assert record("--framework", "paddle", *chosen)["cases"]


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_the_table_names_what_a_build_does_not_know_and_no_folder_of_this_machine(interpreter: str, form: str) -> None:
    argv = (
        "--framework",
        "paddle",
        "--target",
        "a100",
        "--build-programs",
        "--interpreter",
        interpreter,
        "--format",
        form,
    )
    text = told(*argv)
    assert "this build does not know: FLAGS_a" in text
    assert " 4 built" in " ".join(text.split())
    assert interpreter.rpartition("/")[0] not in text
    assert str(ROOT) not in text


def test_the_text_fits_100_columns() -> None:
    text = told()
    assert [line for line in text.splitlines() if len(line) > 100] == []


def test_markdown_has_a_row_of_equally_many_cells_for_each_case() -> None:
    lines = [line for line in told("--target", "a100", "--format", "markdown").splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1
    assert len(lines) == 2 + len(record("--target", "a100")["cases"])


def test_nothing_is_built_for_a_framework_without_a_build_check(
    interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helpers.commands.cases.why_no_build_check", lambda framework: "it has no build.py")
    document = record(
        "--framework", "pytorch", "--build-programs", "--interpreter", interpreter, status=EXIT_NOT_JUDGED
    )
    assert {case["build"] for case in document["cases"]} == {"not tried"}
    assert document["about"]["builds by"] == "nothing that is installed"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--interpreter", "python"], "--interpreter"),
        (["--published", "--target", "cpu"], "options that no case fits"),
    ],
)
def test_options_that_mean_nothing_are_refused(argv: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cases", *argv], io.StringIO()) == EXIT_USAGE
    assert words in capsys.readouterr().err


def test_an_interpreter_without_the_framework_is_told_for_each_case(tmp_path: Path) -> None:
    argv = ("--target", "a100", "--framework", "paddle", "--build-programs", "--interpreter", str(tmp_path / "none"))
    document = record(*argv, status=EXIT_NOT_JUDGED)
    assert all("does not exist" in case["build_note"] for case in document["cases"])


def test_every_case_of_the_suite_is_listed_once_a_target() -> None:
    keys = [(case["target"], case["case_id"]) for case in record()["cases"]]
    assert len(keys) == len(set(keys)) > 54
