"""Recorded entries: what is read, and that nothing damaged is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.judging.rules import RULES
from helpers.plan.baseline_files import FigureStatus
from helpers.plan.recorded import Provenance, RecordedEntry, RecordedSet, load_recorded
from helpers.trainers.contract.errors import BaselineError

CASE_ID = "paddle-resnet50v1.5-fp32-bs8-1x1-dali-static"
MACHINE = "host_cpux2"


def entry_data() -> dict[str, Any]:
    return {
        "images_per_s": 10.5,
        "rule": "wall-clock",
        "replicates": [10.4, 10.5, 10.6],
        "interval": [10.3, 10.7],
        "tolerance": None,
        "environment": {"host": "h"},
        "segment": {"driver": "none"},
        "provenance": {"commit": "abc", "date": "2024-05-06", "machine": "h, 2 cores", "reason": "first"},
        "status": "gate",
        "protocol": {"warmup_steps": 9, "window_steps": 5, "steady_window_steps": 3, "runs": 3},
    }


def recorded_data() -> dict[str, Any]:
    return {"schema_version": 2, "machine_key": MACHINE, "unit": "images/s", "entries": {CASE_ID: entry_data()}}


def saved(folder: Path, data: object) -> Path:
    path = folder / "recorded.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def refusal(path: Path, machine_key: str = MACHINE) -> BaselineError:
    with pytest.raises(BaselineError) as caught:
        load_recorded(path, machine_key)
    assert str(path) in str(caught.value)
    assert caught.value.field
    assert caught.value.remedy
    return caught.value


def test_a_recorded_file_is_read_with_every_value(tmp_path: Path) -> None:
    assert load_recorded(saved(tmp_path, recorded_data()), MACHINE) == RecordedSet(
        MACHINE,
        {
            CASE_ID: RecordedEntry(
                case_id=CASE_ID,
                samples_per_s=10.5,
                rule="wall-clock",
                replicates=(10.4, 10.5, 10.6),
                interval=(10.3, 10.7),
                tolerance=None,
                environment={"host": "h"},
                segment={"driver": "none"},
                provenance=Provenance("abc", "2024-05-06", "h, 2 cores", "first"),
                status=FigureStatus.GATE,
                protocol={"warmup_steps": 9, "window_steps": 5, "steady_window_steps": 3, "runs": 3},
            )
        },
    )


def test_runs_that_were_all_alike_have_an_interval_of_no_width(tmp_path: Path) -> None:
    data = recorded_data()
    for entry in data["entries"].values():
        entry["interval"] = [10.5, 10.5]
    entries = load_recorded(saved(tmp_path, data), MACHINE).entries.values()
    assert {entry.interval for entry in entries} == {(10.5, 10.5)}


def test_a_missing_recorded_file_is_an_empty_set(tmp_path: Path) -> None:
    assert load_recorded(tmp_path / "none.json", MACHINE) == RecordedSet(MACHINE, {})


def test_an_entry_of_a_case_the_suite_no_longer_knows_is_still_read(tmp_path: Path) -> None:
    data = recorded_data()
    data["entries"] = {"paddle-alexnet-fp32-bs8-1x1-dali-static": entry_data()}

    assert list(load_recorded(saved(tmp_path, data), MACHINE).entries) == ["paddle-alexnet-fp32-bs8-1x1-dali-static"]


@pytest.mark.parametrize("text", ["", "  \n", "{", '{"schema_version": 1', "[]", "null", "\x00\x00", "[" * 100_000])
def test_a_damaged_file_is_an_error(tmp_path: Path, text: str) -> None:
    assert refusal(saved(tmp_path, text)).field == "file"


def test_a_file_that_is_not_utf8_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "recorded.json"
    path.write_bytes(b'{"schema_version": 1, "machine_key": "\xff"}')

    assert "UTF-8" in str(refusal(path))


def test_a_merge_conflict_is_named_with_its_line(tmp_path: Path) -> None:
    text = json.dumps(recorded_data(), indent=2).replace("{", "{\n<<<<<<< HEAD", 1)
    error = refusal(saved(tmp_path, text))

    assert error.field == "line 2"
    assert "Resolve the conflict" in str(error)


def test_a_case_written_twice_is_an_error(tmp_path: Path) -> None:
    entry = json.dumps(entry_data())
    text = json.dumps(recorded_data()).replace(f'"{CASE_ID}"', f'"{CASE_ID}": {entry}, "{CASE_ID}"')
    error = refusal(saved(tmp_path, text))

    assert (error.field, error.got) == (CASE_ID, "the same key twice")


def test_a_key_written_twice_is_an_error(tmp_path: Path) -> None:
    text = json.dumps(recorded_data()).replace('"rule"', '"rule": "x", "rule"')

    assert refusal(saved(tmp_path, text)).field == "rule"


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_constants_that_are_no_json_are_an_error(tmp_path: Path, constant: str) -> None:
    text = json.dumps(recorded_data()).replace("10.4", constant)

    assert refusal(saved(tmp_path, text)).got == constant


@pytest.mark.parametrize("number", ["1e999", "1" * 400, "1" * 5000])
def test_numbers_beyond_every_measurement_are_an_error(tmp_path: Path, number: str) -> None:
    text = json.dumps(recorded_data()).replace("10.4", number)

    assert refusal(saved(tmp_path, text)).field in ("file", f"entries.{CASE_ID}.replicates[0]")


def test_a_future_version_says_which_version_is_read_and_to_update_the_suite(tmp_path: Path) -> None:
    error = refusal(saved(tmp_path, {**recorded_data(), "schema_version": 4, "of_the_future": True}))

    assert error.field == "schema_version"
    assert "got 4, expected 3, the version this suite reads" in str(error)
    assert "update the suite" in str(error)


def test_a_file_of_version_1_is_read_and_its_entries_tell_no_protocol(tmp_path: Path) -> None:
    data = {**recorded_data(), "schema_version": 1}
    del data["entries"][CASE_ID]["protocol"]
    found = load_recorded(saved(tmp_path, data), MACHINE).entries[CASE_ID]

    assert (found.protocol, found.replicates) == ({}, (10.4, 10.5, 10.6))
    assert found.other_protocol({"warmup_steps": 100}) == ()


def test_an_entry_tells_how_its_runs_were_measured(tmp_path: Path) -> None:
    found = load_recorded(saved(tmp_path, recorded_data()), MACHINE).entries[CASE_ID]

    assert found.other_protocol({"warmup_steps": 9, "window_steps": 5, "steady_window_steps": 3, "runs": 7}) == ()
    assert found.other_protocol({"warmup_steps": 60, "window_steps": 3, "most_warmup_steps": 1}) == (
        "protocol warmup_steps: 9 → 60",
        "protocol window_steps: 5 → 3",
    )


@pytest.mark.parametrize("entries", [None, [], {CASE_ID: None}, {CASE_ID: []}])
def test_damage_in_a_file_of_version_1_is_told_as_in_any_other(tmp_path: Path, entries: object) -> None:
    assert refusal(saved(tmp_path, {**recorded_data(), "schema_version": 1, "entries": entries})).field.startswith(
        "entries"
    )


@pytest.mark.parametrize("version", [0, -1, "1", 1.0, True, None])
def test_a_version_that_never_was_is_an_error(tmp_path: Path, version: object) -> None:
    assert refusal(saved(tmp_path, {**recorded_data(), "schema_version": version})).field == "schema_version"


def test_a_file_without_a_version_is_an_error(tmp_path: Path) -> None:
    data = recorded_data()
    del data["schema_version"]

    assert refusal(saved(tmp_path, data)).got == "nothing"


def test_the_file_of_another_machine_is_an_error(tmp_path: Path) -> None:
    error = refusal(saved(tmp_path, recorded_data()), "other_v100x8")

    assert (error.field, error.got) == ("machine_key", MACHINE)


def test_another_unit_is_an_error(tmp_path: Path) -> None:
    error = refusal(saved(tmp_path, {**recorded_data(), "unit": "images/min"}))

    assert (error.field, error.got, error.expected) == ("unit", "images/min", "'images/s'")


@pytest.mark.parametrize("name", ["file", "dangling"])
def test_a_link_is_an_error(tmp_path: Path, name: str) -> None:
    target = saved(tmp_path, recorded_data()) if name == "file" else tmp_path / "nowhere.json"
    link = tmp_path / "link.json"
    link.symlink_to(target)

    assert refusal(link).got == "a symbolic link"


def test_a_linked_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    saved(tmp_path / "real", recorded_data())
    (tmp_path / "linked").symlink_to(tmp_path / "real")

    with pytest.raises(BaselineError, match=r"linked: field 'file': got 'a symbolic link'"):
        load_recorded(tmp_path / "linked" / "recorded.json", MACHINE)


def test_a_device_in_place_of_the_file_is_an_error_and_not_read(tmp_path: Path) -> None:
    # /dev/zero has no end. A real one cannot be linked to, so it stands where it is.
    assert refusal(Path("/dev/zero")).got == "not a regular file but a device"


def test_a_byte_order_mark_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = saved(tmp_path, recorded_data())
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())

    assert "BOM" in str(refusal(path)) and "line 1" in str(refusal(path))


def test_broken_json_is_named_with_its_line(tmp_path: Path) -> None:
    lines = json.dumps(recorded_data(), indent=2).split("\n")
    text = "\n".join([*lines[:3], "=======", *lines[3:]])

    assert "line 4 column 1" in str(refusal(saved(tmp_path, text)))


def test_a_folder_in_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    assert refusal(tmp_path).got == "not a regular file but a folder"


def test_a_named_pipe_in_place_of_the_file_is_an_error_and_no_wait(tmp_path: Path) -> None:
    path = tmp_path / "recorded.json"
    os.mkfifo(path)

    assert refusal(path).got == "not a regular file but a FIFO"


Damage = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("field", "damage"),
    [
        ("images_per_s", lambda entry: entry.update(images_per_s=-1.0)),
        ("images_per_s", lambda entry: entry.update(images_per_s=0)),
        ("images_per_s", lambda entry: entry.update(images_per_s="10.5")),
        ("images_per_s", lambda entry: entry.update(images_per_s=True)),
        ("images_per_s", lambda entry: entry.update(images_per_s=None)),
        ("images_per_s", lambda entry: entry.pop("images_per_s")),
        ("images_per_sec", lambda entry: entry.update(images_per_sec=1.0)),
        ("rule", lambda entry: entry.update(rule="")),
        ("rule", lambda entry: entry.update(rule="wall-clok")),
        ("replicates", lambda entry: entry.update(replicates=[])),
        ("replicates[1]", lambda entry: entry["replicates"].__setitem__(1, -3)),
        ("interval", lambda entry: entry.update(interval=[10.7, 10.3])),
        ("interval", lambda entry: entry.update(interval=[1.0, 2.0, 3.0])),
        ("interval[0]", lambda entry: entry.update(interval=[0, 1.0])),
        ("tolerance", lambda entry: entry.update(tolerance=1.0)),
        ("tolerance", lambda entry: entry.update(tolerance=-0.1)),
        ("environment.host", lambda entry: entry["environment"].update(host=1)),
        ("segment", lambda entry: entry.update(segment={})),
        ("provenance.date", lambda entry: entry["provenance"].update(date="yesterday")),
        ("provenance.date", lambda entry: entry["provenance"].update(date="2024-13-01")),
        ("provenance.reason", lambda entry: entry["provenance"].update(reason=" ")),
        ("provenance.author", lambda entry: entry["provenance"].update(author="x")),
        ("status", lambda entry: entry.update(status="green")),
    ],
)
def test_an_entry_that_no_measurement_gives_is_an_error_with_its_field(
    tmp_path: Path, field: str, damage: Damage
) -> None:
    data = recorded_data()
    damage(data["entries"][CASE_ID])

    assert refusal(saved(tmp_path, data)).field == f"entries.{CASE_ID}.{field}"


def test_a_rule_that_nothing_is_measured_by_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    data = recorded_data()
    data["entries"][CASE_ID]["rule"] = "wall-clok"

    error = refusal(saved(tmp_path, data))
    assert error.got == "wall-clok"
    assert all(rule in str(error.expected) for rule in RULES)
    assert "take this entry out" in str(error.remedy)


def test_an_unknown_key_at_the_top_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    error = refusal(saved(tmp_path, {**recorded_data(), "comment": "hello"}))

    assert (error.field, error.got) == ("comment", "an unknown key")
    assert "machine_key" in str(error.expected)


@pytest.mark.parametrize("case_id", ["", "../../etc/passwd", "no_hyphen", "A-B", "a-b\n"])
def test_a_key_that_is_no_case_id_is_an_error(tmp_path: Path, case_id: str) -> None:
    assert refusal(saved(tmp_path, {**recorded_data(), "entries": {case_id: entry_data()}})).field == "entries"


@pytest.mark.parametrize("samples_per_s", [float("nan"), float("inf"), 0.0, -1.0, 2e9, "1", True])
def test_an_entry_cannot_be_made_of_an_implausible_figure(samples_per_s: Any) -> None:
    with pytest.raises(BaselineError, match="images_per_s"):
        replace(RecordedEntry.from_json(CASE_ID, entry_data()), samples_per_s=samples_per_s)


@pytest.mark.parametrize("date", ["2024-05-06", "2024-05-06T07:08:09Z", "2024-05-06T07:08:09.123456+02:00"])
def test_dates_with_and_without_time_are_read(tmp_path: Path, date: str) -> None:
    data = recorded_data()
    data["entries"][CASE_ID]["provenance"]["date"] = date

    assert load_recorded(saved(tmp_path, data), MACHINE).entries[CASE_ID].provenance.date == date
