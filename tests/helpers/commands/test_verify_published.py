"""``perfgate verify-published``: an index of hand-made logs that agrees, and every way in which one does not."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from pathlib import Path

import pytest

from helpers.commands.main import EXIT_USAGE, main
from helpers.commands.verify_published import EXIT_DIFFERS
from helpers.logs.published import NEEDED_COLUMNS, unit_of
from helpers.session.gate import EXIT_OK
from tests.helpers.hostile_files import UNREADABLE, in_time
from tests.helpers.logs.made_logs import TENSORFLOW, tensorflow_lines, write

RATES = [500.0 + each for each in range(30)]
LOG = "a/tf_gpu2.txt"
ROW = {
    **TENSORFLOW, "file": LOG, "gpu": "V100", "cards": "2", "published_images_per_s": "517.00",
    "computed_images_per_s": "517.0", "rule": "ngc-tf-mean:skip=5", "reproduces": "yes",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / LOG, tensorflow_lines(RATES, 520.004))
    return tmp_path


def verified(folder: Path, *rows: dict[str, str], argv: tuple[str, ...] = ()) -> tuple[int, str]:
    with (folder / "INDEX.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    out = io.StringIO()
    status = main(["verify-published", str(folder), *argv], out)
    return status, out.getvalue()


def problem(folder: Path, **changes: str) -> str:
    """Of a row that is wrong, beside one that is right and must be checked all the same."""
    status, text = verified(folder, {**ROW, **changes}, ROW, argv=("--json",))
    assert status == EXIT_DIFFERS
    wrong, right = json.loads(text)["rows"]
    assert (wrong["agrees"], right["agrees"]) == (False, True)
    return str(wrong["problem"])


def test_a_row_that_agrees_is_status_0_with_its_four_figures(folder: Path) -> None:
    status, text = verified(folder, ROW)
    assert status == EXIT_OK
    lines = text.splitlines()
    assert lines[0].split() == ["published", "computed", "difference", "rule"]
    assert lines[2] == "a/tf_gpu2.txt: tensorflow resnet50v1.5 amp bs96, 2 V100"
    assert lines[3].split() == ["517.00", "517.000", "+0.000", "agrees", "ngc-tf-mean:skip=5"]
    assert lines[-1] == "1 of 1 agree with the published figure"


@pytest.mark.parametrize(
    ("published", "agrees"),
    [("520.00", True), ("520.01", True), ("519.99", False), ("520.02", False), ("520.0", True), ("519.9", False),
     ("521", True), ("519", False), ("522", False), ("520.004", True), ("520.005", True), ("520.006", False)],
)  # fmt: skip
def test_one_unit_in_the_last_printed_digit_is_allowed_and_no_more(folder: Path, published: str, agrees: bool) -> None:
    row = {**ROW, "published_images_per_s": published, "computed_images_per_s": "", "rule": "ngc-tf-summary"}
    status, text = verified(folder, row)
    assert status == (EXIT_OK if agrees else EXIT_DIFFERS)
    assert ("DIFFERS" in text) is not agrees


def test_the_index_own_computed_figure_is_held_too(folder: Path) -> None:
    assert "computed in the index, 517.3, by 0.3" in problem(folder, computed_images_per_s="517.3")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"file": "a/none.txt"}, "none.txt"),
        ({"rule": "mean"}, "rule: got 'mean', expected one of"),
        ({"rule": "ngc-tf-average"}, "no such line in the log"),
        ({"batch_size_per_card": "128"}, "batch_size_per_card 96 (line 1"),
        ({"precision": "fp32"}, "precision amp (line 1"),
        ({"framework": "mxnet"}, "framework tensorflow"),
        ({"model": "vgg16"}, "model resnet50v1.5"),
        ({"cards": "8"}, "cards 2 (file name), not 8 (INDEX.csv line 2)"),
        ({"file": "../tf_gpu2.txt"}, "a path that leaves the folder"),
        ({"file": "/etc/hostname"}, "a path that leaves the folder"),
        ({"file": "a/../../x.txt"}, "a path that leaves the folder"),
        ({"file": "out/tf_gpu2.txt"}, "a path that leaves the folder"),
        ({"file": "ring/tf_gpu2.txt"}, "ring/tf_gpu2.txt"),
    ],
)
def test_what_is_wrong_with_a_row_is_told_and_the_next_is_checked(
    folder: Path, changes: dict[str, str], told: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    write(outside / "tf_gpu2.txt", tensorflow_lines(RATES))
    (folder / "out").symlink_to(outside)
    (folder / "ring").symlink_to(folder / "ring")
    assert told in problem(folder, **changes)


def test_two_runs_of_as_many_cards_are_ambiguous(tmp_path: Path) -> None:
    two = [*tensorflow_lines(RATES), *tensorflow_lines([2 * each for each in RATES])]
    write(tmp_path / LOG, two)
    status, text = verified(tmp_path, ROW, argv=("--json",))
    assert status == EXIT_DIFFERS
    assert "2 runs of 2 cards (lines 1 to 31, lines 32 to 62)" in json.loads(text)["rows"][0]["problem"]


def test_the_index_tells_what_the_log_leaves_open_and_overrules_nothing(tmp_path: Path) -> None:
    write(tmp_path / "tf.txt", tensorflow_lines(RATES))
    row = {**ROW, "file": "tf.txt"}
    assert verified(tmp_path, row)[0] == EXIT_OK
    status, text = verified(tmp_path, row, {**row, "precision": "amp_o1"}, {**row, "precision": "fp32"})
    assert status == EXIT_DIFFERS
    assert "2 of 3 agree" in text
    assert "precision amp (line 1: amp : True), not fp32" in " ".join(text.split())


def test_of_several_runs_the_one_with_the_rows_settings_is_taken(tmp_path: Path) -> None:
    lines = tensorflow_lines(RATES)
    slower = tensorflow_lines([each / 2 for each in RATES])
    write(tmp_path / LOG, [*lines, *[each.replace("batch_size : 96", "batch_size : 48") for each in slower]])
    half = {"batch_size_per_card": "48", "published_images_per_s": "258.50", "computed_images_per_s": ""}
    assert verified(tmp_path, ROW, {**ROW, **half})[0] == EXIT_OK


@pytest.mark.parametrize("column", NEEDED_COLUMNS)
def test_a_column_that_is_missing_or_empty_is_named(
    folder: Path, column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verified(folder, {name: value for name, value in ROW.items() if name != column})[0] == EXIT_USAGE
    assert f"expected columns {column}" in capsys.readouterr().err
    assert verified(folder, {**ROW, column: ""})[0] == EXIT_USAGE
    assert f"INDEX.csv:2: field '{column}'" in capsys.readouterr().err


def test_a_column_that_is_there_twice_and_a_value_without_a_column_are_errors(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verified(folder, ROW)
    index = folder / "INDEX.csv"
    heads, row = index.read_text().splitlines()
    for text, told in (
        (f"{heads},rule\n{row},ngc-tf-average\n", "the column rule twice"),
        (f"{heads}\n{row.replace('517.00', '1,517.00')}\n", "more values than columns"),
        (
            f"{heads}\n{row.replace(',2,', ',' + '9' * 5000 + ',')}\n",
            "'cards': got '5000 characters', expected at most 200",
        ),
    ):
        index.write_text(text)
        assert main(["verify-published", str(folder)], io.StringIO()) == EXIT_USAGE
        assert told in capsys.readouterr().err


def test_an_unknown_log_is_told_in_lines(folder: Path) -> None:
    write(folder / "poem.txt", ["a line"])
    status, text = verified(folder, {**ROW, "file": "poem.txt"})
    assert status == EXIT_DIFFERS
    assert f"{folder / 'poem.txt'}: no records of a format that is known" in " ".join(text.split())
    assert any(line.strip().startswith("tipc: a line") for line in text.splitlines())


def test_fp32_of_a_card_with_tf32_is_what_its_publisher_calls_it(folder: Path) -> None:
    lines = [each.replace("amp : True", "amp : False") for each in tensorflow_lines(RATES)]
    write(folder / "A100/tf_gpu2.txt", lines)
    row = {**ROW, "file": "A100/tf_gpu2.txt", "gpu": "A100-SXM4-40GB"}
    assert verified(folder, {**row, "precision": "fp32"}, {**row, "precision": "tf32"})[0] == EXIT_OK
    assert verified(folder, {**row, "precision": "amp"})[0] == EXIT_DIFFERS


@pytest.mark.parametrize("published", ["nan", "inf", "0", "-5", "many", "5_17", "1,517.0", "５１７"])
def test_a_published_figure_that_is_none_is_an_error(
    folder: Path, published: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert verified(folder, {**ROW, "published_images_per_s": published})[0] == EXIT_USAGE
    assert "expected images/s above 0" in capsys.readouterr().err


def test_columns_beyond_the_known_ones_are_nobodys_business_and_the_index_may_lie_elsewhere(folder: Path) -> None:
    verified(folder, {**ROW, "repo_path": "x", "note": "y"})
    (folder / "INDEX.csv").rename(folder / "other.csv")
    assert main(["verify-published", str(folder), "--index", str(folder / "other.csv")], io.StringIO()) == EXIT_OK
    assert main(["verify-published", str(folder)], io.StringIO()) == EXIT_USAGE


@pytest.mark.parametrize(("text", "unit"), [("1323.10", "0.01"), ("10336", "1"), ("323.9", "0.1"), ("1.2e3", "1e2")])
def test_the_unit_of_a_printed_figure(text: str, unit: str) -> None:
    assert unit_of(Decimal(text)) == Decimal(unit)


@pytest.mark.parametrize("kind", [kind for kind in UNREADABLE if not kind.startswith(("a link", "a dangling"))])
def test_an_index_that_never_ends_is_refused_at_once(
    folder: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    make, told = UNREADABLE[kind]
    make(folder / "INDEX.csv")
    with in_time():
        assert main(["verify-published", str(folder)], io.StringIO()) == EXIT_USAGE
    assert told in capsys.readouterr().err


def test_an_index_that_links_to_a_device_is_refused_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "INDEX.csv").symlink_to("/dev/zero")
    with in_time():
        assert main(["verify-published", str(folder)], io.StringIO()) == EXIT_USAGE
    assert "a device" in capsys.readouterr().err
