"""``perfgate import-log`` over hand-made logs: what is printed, as text and JSON, and every exit status."""

from __future__ import annotations

import gzip
import io
import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from helpers.commands.import_log import EXIT_UNREAD
from helpers.commands.main import EXIT_USAGE, main
from helpers.history import default_url, open_history
from helpers.logs.figures.rules import RULES
from helpers.logs.results import SESSION
from helpers.session.gate import EXIT_NOT_JUDGED, EXIT_OK
from tests.helpers.logs.made_logs import paddleclas_lines, tensorflow_lines, time_history_lines, write

RATES = [500.0 + each for each in range(30)]
ROOT = Path(__file__).parents[3]
PUBLISHED = (ROOT / "docs/published.md").read_text(encoding="utf-8")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path / "tf_gpu2.txt", tensorflow_lines(RATES, 520.0))


def asked(*argv: object) -> tuple[int, str]:
    out = io.StringIO()
    status = main(["import-log", *map(str, argv)], out)
    return status, out.getvalue()


def record(*argv: object) -> tuple[int, dict[str, Any]]:
    status, text = asked(*argv, "--json")
    return status, json.loads(text)


def test_the_text_has_the_configuration_with_its_places_and_every_figure(log: Path) -> None:
    status, text = asked(log)
    assert status == EXIT_OK
    lines = text.splitlines()
    assert lines[0].split(":")[0] == str(log)
    assert "  precision          amp           line 1: amp : True" in lines
    assert "  cards              2             file name" in lines
    figures = [line.split()[:4] for line in lines if line.startswith(("  ngc-tf-", "  honest"))]
    assert figures[0] == ["ngc-tf-summary", "520.000", "1"]
    assert figures[1] == ["ngc-tf-mean:skip=5", "517.000", "-0.58%", "25"]
    assert figures[2][0] == "honest"
    assert figures[3][:3] == ["ngc-tf-average:", "not", "computed:"]
    assert any(line.startswith("  spread: 25 records after warm-up, median 517 images/s") for line in lines)
    assert "  data: the records of nvidia-tensorflow do not state the waits for data" in lines
    assert max(map(len, lines)) <= max(100, len(str(log)) + 1)


def test_json_says_the_same(log: Path) -> None:
    status, told = record(log)
    assert (status, told["schema_version"]) == (EXIT_OK, 1)
    (run,) = told["runs"]
    assert (run["usual"], run["images_per_s"], run["format"]) == ("ngc-tf-summary", 520.0, "nvidia-tensorflow")
    assert run["settings"]["cards"] == {"value": "2", "where": "file name"}
    mean = next(each for each in run["figures"] if each["rule"] == "ngc-tf-mean:skip=5")
    assert (mean["images_per_s"], mean["used"], mean["unused"]) == (517.0, 25, ["5 of warm-up"])
    assert run["sha256"] and run["spread"]["records"] == 25


def test_a_rule_that_is_asked_for_is_the_figure_and_its_lack_is_status_6(log: Path, tmp_path: Path) -> None:
    status, told = record(log, "--rule", "ngc-tf-mean:skip=0")
    assert (status, told["runs"][0]["images_per_s"]) == (EXIT_OK, 514.5)
    status, text = asked(log, "--rule", "ngc-mxnet-epochs")
    assert status == EXIT_NOT_JUDGED
    assert "ngc-mxnet-epochs: not computed" in text
    assert record(log, "--rule", "ngc-tf-average")[1]["runs"][0]["images_per_s"] is None


def test_a_log_that_no_rule_applies_to_is_status_6(tmp_path: Path) -> None:
    short = write(tmp_path / "tf_gpu2.txt", tensorflow_lines(RATES[:2]))
    status, text = asked(short)
    assert status == EXIT_NOT_JUDGED
    assert "no figure can be computed" in text


def test_a_log_that_cannot_be_read_is_status_4_and_the_others_are_printed(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unread = (tmp_path / "missing.txt", write(tmp_path / "poem.txt", ["a line"]))
    status, told = record(*unread, log)
    assert status == EXIT_UNREAD
    assert (len(told["runs"]), [each["source"] for each in told["unread"]]) == (1, [*map(str, unread)])
    errors = capsys.readouterr().err.splitlines()
    assert errors == [f"perfgate import-log: error: {each['error']}" for each in told["unread"]]


@pytest.mark.parametrize(
    "argv",
    [["--rule", "mean"], ["--rule", "wall-clock"], ["--log-format", "pytorch"], ["--rule", "ngc-tf-mean:last=5"]],
)
def test_an_unknown_rule_or_format_is_an_error(argv: list[str], log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(log, *argv) == (EXIT_USAGE, "")
    assert "expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv", [["--cards", "0"], ["--cards", "two"], ["--batch-size", "-1"], ["--framework", "caffe"],
             ["--precision", "fp8"], []]
)  # fmt: skip
def test_a_wrong_option_is_status_4_with_the_usage(
    argv: list[str], log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["import-log", *argv, *([str(log)] if argv else [])])
    assert ended.value.code == EXIT_USAGE


def test_what_the_log_is_silent_on_is_given_and_what_it_says_is_not_overruled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = write(tmp_path / "tf.txt", tensorflow_lines(RATES))
    assert asked(bare)[0] == EXIT_UNREAD
    assert "--cards" in capsys.readouterr().err
    status, told = record(bare, "--cards", "4", "--gpu", "V100", "--data-source", "native")
    assert status == EXIT_OK
    assert told["runs"][0]["settings"]["cards"] == {"value": "4", "where": "--cards"}
    assert asked(bare, "--cards", "4", "--batch-size", "64")[0] == EXIT_UNREAD
    assert "96" in capsys.readouterr().err


def test_what_a_name_forges_is_escaped(tmp_path: Path) -> None:
    forged = write(tmp_path / "tf_gpu2\x1b[31m.txt", tensorflow_lines(RATES))
    _, text = asked(forged)
    assert "\x1b" not in text
    assert r"\x1b[31m" in text


def test_store_puts_a_file_into_history_once(log: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    argv = (log, "--store", "--runs-dir", runs, "--data-source", "native", "--gpu", "V100")
    status, text = asked(*argv)
    assert status == EXIT_OK, text
    assert "stored " in text
    assert asked(*argv)[0] == EXIT_OK
    with open_history(default_url(runs)) as history:
        assert len(history.results_of(session=SESSION)) == 1


def test_what_a_held_history_cannot_take_is_not_stored_and_said(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    (runs / "monday").mkdir(parents=True)
    url = default_url(runs)
    open_history(url).close()
    monkeypatch.setattr("helpers.history.open_history", lambda url, **_: open_history(url, wait_seconds=0.1))
    holder = sqlite3.connect(runs / "history.sqlite", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    status, text = asked(log, "--store", "--runs-dir", runs, "--data-source", "native", "--gpu", "V100")
    told = capsys.readouterr().err
    assert status == EXIT_UNREAD
    assert "images/s" in text
    assert "nothing was stored" in told
    holder.execute("ROLLBACK")
    holder.close()


def test_the_same_bytes_are_one_run_wherever_they_lie(log: Path, tmp_path: Path) -> None:
    copy, packed = tmp_path / "again_gpu2.txt", tmp_path / "tf_gpu2.txt.gz"
    shutil.copy(log, copy)
    packed.write_bytes(gzip.compress(log.read_bytes()))
    status, told = record(log, log, copy, packed)
    assert (status, len(told["runs"])) == (EXIT_OK, 1)
    assert told["notes"] == [f"{name}: the same bytes as {log}, one result" for name in (log, copy, packed)]


def test_the_table_has_every_rule_and_no_other() -> None:
    rows = re.findall(r"^\| (`.*?) \| ", PUBLISHED, re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`([^`]+)`", row)} == set(RULES)


@pytest.mark.usefixtures("models_of_sentences")
def test_the_unit_is_that_of_the_models_samples(log: Path) -> None:
    _, text = asked(log)
    assert any(line.split()[:2] == ["rule", "sentences/s"] for line in text.splitlines())
    assert "median 517 sentences/s" in text


# --- a folder

INDEX = (
    "file,framework,model,gpu,precision,batch_size_per_card,cards,published_images_per_s,rule,date\n"
    "a/paddle.txt,paddle,resnet50v1.5,V100,fp32,32,2,311.0,paddleclas-mean,\n"
    "a/history.log,tensorflow,resnet50v1.5,V100,fp32,64,4,500,dlperf-tf2,2020-08-26\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two logs that lack a part of their configuration, which the index has, and one that says all of it."""
    made = tmp_path / "logs"
    write(made / "a" / "paddle.txt", paddleclas_lines([0.1 + each / 1000 for each in range(30)]))
    write(made / "a" / "history.log", time_history_lines([500.0] * 8))
    write(made / "tf_gpu2.txt", tensorflow_lines(RATES, 520.0))
    (made / "INDEX.csv").write_text(INDEX)
    (made / "README.md").write_text("no log")
    return made


def test_a_folder_is_a_line_a_run_by_what_its_index_knows(folder: Path) -> None:
    status, text = asked(folder)
    lines = [re.split(r"  +", line) for line in text.splitlines()]
    assert status == EXIT_OK
    assert [line[0] for line in lines] == [
        "2020-08-26",
        "2031-02-03",
        "2022-03-04",
        "3 runs, 1 left out (--json names them)",
    ]
    assert lines[0][2:] == [
        "dlperf-tf2",
        "tensorflow resnet50v1.5 fp32 bs64, 4 V100",
        str(folder / "a" / "history.log"),
    ]
    assert lines[1][2:4] == ["paddleclas-mean", "paddle resnet50v1.5 fp32 bs32, 2 V100"]
    assert lines[2][1:3] == ["520.000 images/s", "ngc-tf-summary"]
    _, told = record(folder)
    assert told["runs"][0]["settings"]["cards"] == {"value": "4", "where": "INDEX.csv line 3"}
    assert told["notes"] == [f"{folder / 'README.md'}: left out, .md is no log"]
    assert len(asked(folder, "--format", "text")[1].splitlines()) > 20


def test_a_row_that_none_of_its_files_runs_is_as_is_an_error_of_that_log(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "INDEX.csv").write_text(INDEX + "tf_gpu2.txt,tensorflow,resnet50v1.5,V100,amp,64,2,520,ngc-tf-summary,\n")
    status, text = asked(folder)
    assert (status, text.splitlines()[-1]) == (EXIT_UNREAD, "2 runs, 1 log not read, 1 left out (--json names them)")
    error = capsys.readouterr().err
    assert "batch_size_per_card 96" in error and "not 64 (INDEX.csv line 4)" in error
    assert len(error.splitlines()) == 1


def test_an_index_that_leads_out_of_the_folder_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "INDEX.csv").write_text(INDEX.replace("a/paddle.txt", "../paddle.txt"))
    assert asked(folder) == (EXIT_USAGE, "")
    assert "leaves the folder" in capsys.readouterr().err


def test_a_link_in_a_folder_is_left_out(folder: Path, tmp_path: Path) -> None:
    outside = write(tmp_path / "tf_gpu8.txt", tensorflow_lines(RATES))
    (folder / "linked.txt").symlink_to(outside)
    _, told = record(folder)
    assert f"{folder / 'linked.txt'}: left out, a link" in told["notes"]
    assert len(told["runs"]) == 3


def test_stored_runs_have_the_date_of_their_log(folder: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    argv = (folder, "--store", "--runs-dir", runs)
    for kept in ("stored", "stored already"):
        lines = asked(*argv)[1].splitlines()
        assert any(line.startswith(f"3 runs, 3 {kept}, ") for line in lines)
        case_id = "tensorflow-resnet50v1.5-fp32-bs64-1x4-unstated"
        assert f"stored as {case_id}: perfgate history {case_id} shows it" in lines
    with open_history(default_url(runs)) as history:
        days = {each.result.created[:10] for each in history.results_of(session=SESSION)}
    assert days == {"2020-08-26", "2031-02-03", "2022-03-04"}
