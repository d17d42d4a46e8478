"""Recorded entries: what is read, and that nothing damaged is."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.plan.baseline_files import FigureStatus
from helpers.plan.recorded import Provenance, RecordedEntry, RecordedSet, load_recorded
from helpers.session.recording import five_digits
from helpers.trainers.contract.errors import BaselineError

CASE_ID = "paddle-resnet50v1.5-fp32-bs8-1x1-dali-static"
MACHINE = "host_cpux2"


def entry_data() -> dict[str, Any]:
    return {
        "images_per_s": 10.5,
        "rule": "wall-clock",
        "replicates": [10.4, 10.5, 10.6],
        "tolerance": None,
        "environment": {"host": "h"},
        "segment": {"driver": "none"},
        "provenance": {"commit": "abc", "date": "2024-05-06", "machine": "h, 2 cores", "reason": "first", "begins": ""},
        "status": "gate",
        "protocol": {"warmup_steps": 9, "window_steps": 5, "steady_window_steps": 3, "runs": 3},
    }


def recorded_data() -> dict[str, Any]:
    return {
        "schema_version": 1,
        "machine_key": MACHINE,
        "unit": "images/s",
        "shared": {},
        "entries": {CASE_ID: entry_data()},
    }


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
                tolerance=None,
                environment={"host": "h"},
                segment={"driver": "none"},
                provenance=Provenance("abc", "2024-05-06", "h, 2 cores", "first"),
                status=FigureStatus.GATE,
                protocol={"warmup_steps": 9, "window_steps": 5, "steady_window_steps": 3, "runs": 3},
            )
        },
    )


@pytest.mark.parametrize(
    ("changes", "field", "expected"),
    [
        ({"images_per_s": 40.0}, "images_per_s", "10.5, the median"),
        ({"protocol": {"runs": 7}}, "protocol.runs", "3, one for each"),
    ],
)
def test_an_entry_that_disagrees_with_its_own_runs_is_refused(
    tmp_path: Path, changes: dict[str, Any], field: str, expected: str
) -> None:
    data = recorded_data()
    data["entries"][CASE_ID].update(changes)
    error = refusal(saved(tmp_path, data))
    assert error.field == f"entries.{CASE_ID}.{field}"
    assert expected in str(error)


@given(
    st.floats(0.01, 1e6),
    st.lists(st.floats(-1e-2, 1e-2) | st.floats(-1e-5, 1e-5), min_size=1, max_size=9),
)
def test_an_entry_as_the_suite_rounds_it_agrees_with_its_runs(usual: float, noise: list[float]) -> None:
    rates = [usual * (1 + each) for each in noise]
    figure, replicates = five_digits(statistics.median(rates)), list(map(five_digits, rates))
    changed = {"images_per_s": figure, "replicates": replicates, "protocol": {"runs": len(rates)}}
    assert RecordedEntry.from_json(CASE_ID, {**entry_data(), **changed}).samples_per_s == figure


@pytest.mark.parametrize(
    "text", ["", "{", "{\n<<<<<<< HEAD", '{"schema_version": 1', '{"schema_version": NaN}', "[" * 100_000]
)
def test_a_damaged_file_is_an_error(tmp_path: Path, text: str) -> None:
    assert refusal(saved(tmp_path, text)).field == "file"


def test_a_case_written_twice_is_an_error(tmp_path: Path) -> None:
    entry = json.dumps(entry_data())
    text = json.dumps(recorded_data()).replace(f'"{CASE_ID}"', f'"{CASE_ID}": {entry}, "{CASE_ID}"')
    error = refusal(saved(tmp_path, text))

    assert (error.field, error.got) == (CASE_ID, "the same key twice")


def test_an_entry_tells_how_its_runs_were_measured(tmp_path: Path) -> None:
    found = load_recorded(saved(tmp_path, recorded_data()), MACHINE).entries[CASE_ID]

    assert found.other_protocol({"warmup_steps": 9, "window_steps": 5, "steady_window_steps": 3, "runs": 7}) == ()
    assert found.other_protocol({"warmup_steps": 60, "window_steps": 3, "most_warmup_steps": 1}) == (
        "protocol warmup_steps: 9 → 60",
        "protocol window_steps: 5 → 3",
    )


@pytest.mark.parametrize(
    "version",
    [
        0,
        2,
        1.0,
        True,
    ],
)
def test_a_version_that_never_was_is_an_error(tmp_path: Path, version: object) -> None:
    assert refusal(saved(tmp_path, {**recorded_data(), "schema_version": version})).field == "schema_version"


def test_the_file_of_another_machine_is_an_error(tmp_path: Path) -> None:
    error = refusal(saved(tmp_path, recorded_data()), "other_v100x8")

    assert (error.field, error.got) == ("machine_key", MACHINE)


@pytest.mark.parametrize("name", ["file", "dangling"])
def test_a_link_is_an_error(tmp_path: Path, name: str) -> None:
    target = saved(tmp_path, recorded_data()) if name == "file" else tmp_path / "nowhere.json"
    link = tmp_path / "link.json"
    link.symlink_to(target)

    assert refusal(link).got == "a symbolic link"


Damage = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("field", "damage"),
    [
        ("images_per_s", lambda entry: entry.update(images_per_s=-1.0)),
        ("images_per_s", lambda entry: entry.pop("images_per_s")),
        ("images_per_sec", lambda entry: entry.update(images_per_sec=1.0)),
        ("rule", lambda entry: entry.update(rule="wall-clok")),
        ("replicates[1]", lambda entry: entry["replicates"].__setitem__(1, -3)),
        ("tolerance", lambda entry: entry.update(tolerance=1.0)),
        ("environment.host", lambda entry: entry["environment"].update(host=1)),
        ("segment", lambda entry: entry.update(segment={})),
        ("provenance.date", lambda entry: entry["provenance"].update(date="yesterday")),
        ("provenance.reason", lambda entry: entry["provenance"].update(reason=" ")),
        ("status", lambda entry: entry.update(status="green")),
    ],
)
def test_an_entry_that_no_measurement_gives_is_an_error_with_its_field(
    tmp_path: Path, field: str, damage: Damage
) -> None:
    data = recorded_data()
    damage(data["entries"][CASE_ID])

    assert refusal(saved(tmp_path, data)).field == f"entries.{CASE_ID}.{field}"


def test_an_unknown_key_at_the_top_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    error = refusal(saved(tmp_path, {**recorded_data(), "comment": "hello"}))

    assert (error.field, error.got) == ("comment", "an unknown key")
    assert "machine_key" in str(error.expected)
