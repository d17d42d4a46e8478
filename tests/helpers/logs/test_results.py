"""Imported runs in a history: once each, marked, with where every number stands, and no base for anything."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from helpers.commands.main import EXIT_USAGE, main
from helpers.history import default_url, open_history
from helpers.history.results import IMPORTED, RunResult
from helpers.logs.results import SESSION, case_of, imported_result, store, stored_of
from helpers.session.gate import EXIT_OK
from helpers.trainers.contract.errors import LogError
from tests.helpers.commands.known import CASE, add_night, history_in
from tests.helpers.importing_double import MXNET, PADDLE, imported

CASE_ID = "mxnet-resnet50v1.5-amp-bs256-1x1-unstated"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'history.sqlite'}"


def kept(url: str, **filters: Any) -> tuple[RunResult, ...]:
    with open_history(url) as history:
        return tuple(each.result for each in history.results_of(session=SESSION, **filters))


def settings(**changes: str) -> dict[str, str]:
    return {**MXNET, **changes}


# --- what is kept


def test_a_run_is_a_result_with_all_its_figures_and_where_they_stand(url: str) -> None:
    figures = {"ngc-mxnet-epochs": 1460.0, "ngc-tf-mean:skip=5": 1450.5, "honest": 1440.25, "summary": "no such line"}
    found = imported(settings(gpu="V100-SXM2-32GB", data="dali"), figures)
    (words,) = store([found], url)
    (result,) = kept(url)
    assert words == f"stored {result.case_id} [v100] {result.uuid[:12]}: folder/a.log"
    assert result.case_id == "mxnet-resnet50v1.5-amp-bs256-1x1-dali"
    assert (result.origin, result.target, result.measured) == (IMPORTED, "v100", True)
    assert result.figures == {**figures, "ngc-tf-mean": 1450.5, "median-step": "a record every 20 steps"}
    assert result.facts["sha256"] == found.sha256
    assert result.facts["source"] == "folder/a.log"
    assert result.facts["usual rule"] == "ngc-mxnet-epochs"
    assert result.facts["setting precision"] == "amp (line 7)"
    assert result.facts["rule ngc-mxnet-epochs"] == "80 used; 10 of warm-up; the mean"
    assert result.facts["log warnings"] == "few records: 80"
    assert result.log_rate is None


@pytest.mark.parametrize(
    ("changes", "case_id"),
    [
        ({}, CASE_ID),
        ({"data": "dali"}, "mxnet-resnet50v1.5-amp-bs256-1x1-dali"),
        ({"cards": "8"}, "mxnet-resnet50v1.5-amp-bs256-1x8-unstated"),
        ({"cards": "32", "nodes": "4"}, "mxnet-resnet50v1.5-amp-bs256-4x8-unstated"),
        ({"framework": "tensorflow", "xla": "True"}, "tensorflow-resnet50v1.5-amp-bs256-1x1-unstated-xla"),
        ({"framework": "tensorflow", "xla": "False"}, "tensorflow-resnet50v1.5-amp-bs256-1x1-unstated"),
        (PADDLE, "paddle-resnet50v1.5-fp32-bs256-1x1-native-static"),
    ],
)
def test_the_case_is_what_the_settings_say(changes: dict[str, str], case_id: str) -> None:
    found = imported(settings(**changes))
    assert case_of(found.settings, "a.log").id == case_id
    assert imported_result(found).case_id == case_id


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"framework": "paddle"}, r"execution.*--execution"),
        ({"cards": "32"}, r"nodes.*--nodes"),
        ({"cards": "9", "nodes": "2"}, "9 cards on 2 nodes"),
        ({"cards": "many"}, "many"),
        ({"batch_size_per_card": "0"}, "batch_size_per_card"),
    ],
)
def test_a_case_that_cannot_be_named_is_an_error_and_nothing_is_written(
    url: str, changes: dict[str, str], told: str
) -> None:
    with pytest.raises(LogError, match=told):
        store([imported(), imported(settings(**changes), content="another log")], url)
    with open_history(url) as history:
        assert history.results_of(session=SESSION) == ()


@pytest.mark.parametrize(
    ("gpu", "target"),
    [
        ("", "unstated"),
        ("V100", "v100"),
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("Tesla P100", "unstated"),
        ("cpu", "unstated"),
    ],
)
def test_the_target_is_the_cards_model_where_cases_are_for_it(gpu: str, target: str) -> None:
    assert imported_result(imported(settings(**({"gpu": gpu} if gpu else {})))).target == target


# --- once each


def test_the_same_file_twice_is_one_result(url: str) -> None:
    store([imported()], url)
    before = kept(url)
    (words,) = store([imported(source="moved/there.log")], url)
    assert words.startswith("stored already")
    assert kept(url) == before


def test_the_same_file_read_otherwise_replaces_what_was_kept_and_says_so(url: str) -> None:
    store([imported()], url)
    (words,) = store([imported(usual="honest")], url)
    assert words.startswith("replaced ")
    (words,) = store([imported(settings(data="dali"))], url)
    assert words.endswith(f"it was stored as {CASE_ID} [unstated]")
    (result,) = kept(url)
    assert result.case_id == "mxnet-resnet50v1.5-amp-bs256-1x1-dali"


# --- no base for anything


def test_a_measured_session_finds_no_past_in_it(url: str) -> None:
    store([imported()], url)
    with open_history(url) as history:
        assert history.past(CASE_ID, "unstated", {}, 1, "tonight").nights == ()
        assert history.past(CASE_ID, "unstated", {"host": ""}, 1, "tonight").siblings == ()
        assert history.cases() == ()
        (stored,) = history.results_of(session=SESSION)
        assert stored.unlearned == IMPORTED


def test_what_only_calls_itself_imported_is_not_shown(url: str) -> None:
    measured = imported_result(imported())
    with open_history(url) as history:
        history.add_result(measured)
        assert stored_of(history, CASE_ID) == (measured,)
        history.add_result(RunResult(**{**vars(measured), "origin": "measured"}))
        assert stored_of(history, CASE_ID) == ()


# --- perfgate history


def asked(runs: Path, *argv: str) -> str:
    out = io.StringIO()
    assert main(["history", *argv, "--runs-dir", str(runs)], out) == EXIT_OK
    return out.getvalue()


def test_history_shows_it_marked_with_figure_rule_and_log(tmp_path: Path) -> None:
    figures = {"ngc-mxnet-epochs": 1460.0, "honest": 1440.25}
    store([imported(figures=figures)], default_url(tmp_path))
    told = " ".join(asked(tmp_path, CASE_ID).split())
    assert "imported from logs; no night is compared with them: 1" in told
    assert f"{CASE_ID} [unstated] (imported) 1460 images/s by ngc-mxnet-epochs; 1440 images/s by honest" in told
    assert "folder/a.log, lines 1-90, nvidia-mxnet, sha256" in told


def test_the_ids_of_logs_are_among_those_that_an_unknown_one_is_near_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store([imported()], default_url(tmp_path))
    assert main(["history", "mxnet-resnet50", "--runs-dir", str(tmp_path)], io.StringIO()) == EXIT_USAGE
    assert f"Imported from logs: {CASE_ID}" in capsys.readouterr().err


def test_it_stands_beside_the_nights(tmp_path: Path) -> None:
    with history_in(tmp_path) as history:
        add_night(history, 1, [4.5])
        history.add_result(RunResult(**{**vars(imported_result(imported())), "case_id": CASE}))
    told = asked(tmp_path, CASE)
    assert told.index("night01") < told.index("imported from logs")
    assert "1 night" in told
