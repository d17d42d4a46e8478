"""Results on disk: written whole or not at all, read strictly, never outside their folder."""

from __future__ import annotations

import errno
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.history.results import RESULT_SCHEMA_VERSION, RunResult
from helpers.history.run_folders import ResultStore, read_result, sessions
from helpers.judging.case.verdict import Reason, Status, Verdict
from helpers.trainers.contract.errors import ResultError

CASE_ID = "paddle-vgg16-fp32-bs8-1x2-dali-static"

RESULT = RunResult(
    uuid="u",
    session="s",
    case_id=CASE_ID,
    target="cpu",
    replicate=0,
    created="2024-05-06T07:08:09+00:00",
    build={"version": "3.0"},
    settings={"lr": 0.1, "layers": [1]},
    overrides={"lr": 0.1},
    protocol={"warmup_steps": 1, "window_steps": 2},
    environment={"host": "h"},
    facts={"tf32": "off"},
    figures={"wall-clock": 12.5, "dlperf-log": "too short"},
    step_seconds=(0.5, 0.25),
    samples_per_step=(8, 8),
    wall_seconds=3.0,
    training_seconds=1.5,
    window_seconds=0.75,
    reader_share=0.25,
    foreign_share=None,
    peak_host_bytes=10,
    marks=("contention allowed",),
    verdict={"status": "PASS", "code": "c", "reason": "r"},
)


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    store = ResultStore(tmp_path, "s")
    store.new_run_folder(CASE_ID, 0)
    return store


def changed(path: Path, **values: Any) -> None:
    record = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({name: value for name, value in record.items() if value is not ...}))


def full_disk(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


# --- writing


def test_reads_back_what_was_written(store: ResultStore) -> None:
    path = store.write(RESULT)
    assert path == store.folder / CASE_ID / "r0" / "result.json"
    assert read_result(path) == RESULT
    assert store.results(CASE_ID) == (RESULT,)
    assert json.loads(path.read_text())["schema_version"] == RESULT_SCHEMA_VERSION


@pytest.mark.parametrize(("figure", "log_rate"), [(0.74, -0.3011), (12.5, 2.5257), ("too short", None), (0.0, None)])
def test_a_run_that_takes_more_than_a_second_an_image_has_a_log_rate_too(
    figure: float | str, log_rate: float | None
) -> None:
    found = replace(RESULT, figures={"median-step": figure}).log_rate
    assert found == (None if log_rate is None else pytest.approx(log_rate, abs=1e-4))


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_keeps_the_old_result_and_tells_the_new_figure(
    store: ResultStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = store.write(RESULT)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, full_disk) if call == "fsync" else patch.setattr(Path, call, full_disk)
        with pytest.raises(ResultError) as caught:
            store.write(replace(RESULT, figures={"wall-clock": 77.125}))
    assert read_result(path) == RESULT
    assert [each.name for each in path.parent.iterdir()] == ["result.json"]
    for words in ("No space left", f"{CASE_ID} r0, 77.125 images/s by wall-clock", "--resume", str(path)):
        assert words in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("field", ["figures", "reader_share", "settings"])
def test_nan_is_never_written(store: ResultStore, field: str, value: float) -> None:
    broken: Any = value if field == "reader_share" else {"wall-clock": value}
    path = store.run_folder(CASE_ID, 0) / "result.json"
    with pytest.raises(ResultError, match="NaN"):
        store.write(replace(RESULT, **{field: broken}))
    assert not path.exists()


def test_a_verdict_goes_into_the_results_it_rests_on(store: ResultStore) -> None:
    store.write(replace(RESULT, verdict=None))
    foreign = replace(RESULT, session="other", replicate=1)
    store.add_verdict((RESULT, foreign), Verdict(Status.REGRESSION, Reason("slower", "by 9%")))
    (found,) = store.results(CASE_ID)
    assert found.verdict == {"status": "REGRESSION", "code": "slower", "reason": "by 9%"}


# --- folders


def test_what_a_killed_run_left_is_moved_aside(store: ResultStore) -> None:
    for _ in range(2):
        (store.run_folder(CASE_ID, 0) / "rank0.jsonl").write_text("half")
        assert list(store.new_run_folder(CASE_ID, 0).iterdir()) == []
    names = sorted(folder.name for folder in (store.folder / CASE_ID).iterdir())
    assert names == ["r0", "r0.aside1", "r0.aside2"]
    assert (store.folder / CASE_ID / "r0.aside1" / "rank0.jsonl").read_text() == "half"
    assert store.results(CASE_ID) == ()


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "a/b", "/etc", "a\\b", ".hidden", "-rf", "a\n", "a b", "ä", "a" * 101, "a\x00", "slurm"],
)
def test_a_session_name_cannot_leave_the_run_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ResultError, match="session name"):
        ResultStore(tmp_path, name)


def test_sessions_are_listed_oldest_first(tmp_path: Path) -> None:
    assert sessions(tmp_path / "none") == ()
    for age, name in enumerate(["new", "mid", "old"]):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    (tmp_path / ".locks").mkdir()
    (tmp_path / "file").touch()
    assert sessions(tmp_path) == ("old", "mid", "new")


# --- reading


def refused(store: ResultStore, **values: Any) -> ResultError:
    path = store.write(RESULT)
    changed(path, **values)
    with pytest.raises(ResultError) as caught:
        store.results(CASE_ID)
    assert str(path) in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"schema_version": 1, "reader_share": NaN}',
        '{"schema_version": 1, "reader_share": 1e999}',
        '{"schema_version": 1, "schema_version": 1}',
    ],
)
def test_text_that_is_no_result_is_refused_by_file(store: ResultStore, text: str) -> None:
    path = store.run_folder(CASE_ID, 0) / "result.json"
    path.write_text(text)
    with pytest.raises(ResultError, match=r"result\.json"):
        store.results(CASE_ID)


@pytest.mark.parametrize("version", [RESULT_SCHEMA_VERSION + 1, RESULT_SCHEMA_VERSION - 1, True, None, "1", ...])
def test_another_version_is_refused(store: ResultStore, version: Any) -> None:
    assert refused(store, schema_version=version).field == "schema_version"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("figures", []), ("figures", {"wall-clock": None}), ("figures", {"wall-clock": 0}),
        ("figures", {"wall-clock": 1e308}), ("figures", {"wall-clock": 1e-9}), ("figures", {"wall-clock": 10**400}),
        ("settings", {"a": [[[[[[[[[1]]]]]]]]]}), ("overrides", {"a": {"b": [[[[[[[[1]]]]]]]]}}),
        ("figures", {"wall-clock": -1.0}), ("figures", {"wall-clock": True}), ("figures", {"wall-clock": [1.0]}),
        ("failure", 1), ("failure", False), ("invalid", {}), ("refusal", []), ("origin", "guessed"), ("uuid", None),
        ("build", {"version": 3}), ("environment", []), ("facts", {"a": None}), ("settings", []),
        ("system", {"CPU": "x"}), ("system", {"CPU": {"cores": 2}}), ("system", []), ("overrides", None),
        ("protocol", {"warmup_steps": 1.5}), ("protocol", {"warmup_steps": True}), ("peak_host_bytes", -1),
        ("wall_seconds", -0.5), ("wall_seconds", "3"), ("reader_share", -0.1), ("foreign_share", "5%"),
        ("step_seconds", [0.0]), ("step_seconds", 0.5), ("samples_per_step", [1.5]), ("marks", "contended"),
        ("verdict", {"status": 1}), ("verdict", "PASS"), ("log_tail", None), ("replicate", -1),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_refused_by_name(store: ResultStore, name: str, value: Any) -> None:
    # The field is told down to the value inside it.
    field = refused(store, **{name: value}).field or ""
    assert re.split(r"[.\[]", field)[0] == name


@pytest.mark.parametrize(("name", "value"), [("case_id", "another"), ("replicate", 1)])
def test_a_result_in_a_foreign_folder_is_refused(store: ResultStore, name: str, value: Any) -> None:
    assert refused(store, **{name: value}).field == name
