"""Jobs: what the suite writes is what a trainer in another process reads, or a ConfigError."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.job import JOB_SCHEMA_VERSION, JobSpec
from helpers.trainers.contract.records import finite

CASE = Case.parse("paddle-resnet50v1.5-fp32-bs8-1x2-dali-static")

SPEC = JobSpec(
    job_id="j1",
    case=CASE,
    replicate=2,
    run_folder="runs/s/c/r2",
    device="cpu",
    warmup_steps=3,
    window_steps=5,
    data_root="data",
    settings={"learning_rate": 0.1, "layers": [1, 2], "nested": {"addto": True}},
    overrides={"learning_rate": 0.1},
    environment={"OMP_NUM_THREADS": "1"},
    cores=((0, 1), (2, 3)),
    cards=("0", "1"),
    explained_without=("layers",),
)


def changed(**values: Any) -> str:
    return json.dumps({**json.loads(SPEC.to_json()), **values})


def without(key: str) -> str:
    record = json.loads(SPEC.to_json())
    del record[key]
    return json.dumps(record)


def test_reads_back_what_was_written() -> None:
    assert JobSpec.from_json(SPEC.to_json()) == SPEC


@pytest.mark.parametrize(
    ("cards", "each", "ranks", "ranks_per_node"),
    [("1x1", 1, 1, 1), ("1x8", 8, 1, 1), ("1x8", 1, 8, 8), ("4x8", 8, 4, 1), ("4x8", 1, 32, 8), ("2x1", 1, 2, 1)],
)
def test_a_rank_is_a_process_whatever_number_of_cards_it_drives(
    cards: str, each: int, ranks: int, ranks_per_node: int
) -> None:
    case = Case.parse(f"mxnet-resnet50v1.5-fp32-bs8-{cards}-dali")
    spec = replace(SPEC, case=case, settings={"cards_per_process": each})
    assert (spec.cards_per_process, spec.ranks, spec.ranks_per_node) == (each, ranks, ranks_per_node)


@pytest.mark.parametrize("each", [0, 2, 3, 16, "8", 8.0, True, None])
def test_a_process_drives_one_card_or_all_of_its_node(each: Any) -> None:
    case = Case.parse("mxnet-resnet50v1.5-fp32-bs8-1x8-dali")
    with pytest.raises(ConfigError, match=r"expected 1 or 8\. One process a card, or one that drives all") as caught:
        replace(SPEC, case=case, settings={"cards_per_process": each})
    assert caught.value.field == "cards_per_process"


def test_a_framework_whose_processes_drive_one_card_has_no_other_number() -> None:
    with pytest.raises(ConfigError, match=r"got 2, expected 1\. One process of Paddle drives one card"):
        replace(SPEC, settings={"cards_per_process": 2})


def test_refuses_an_unknown_key_by_name() -> None:
    with pytest.raises(ConfigError) as caught:
        JobSpec.from_json(changed(sped=1), "spec.json")
    assert (caught.value.about, caught.value.field) == ("spec.json", "sped")


@pytest.mark.parametrize("key", ["job_id", "case", "replicate", "run_folder", "device", "warmup_steps", "window_steps"])
def test_refuses_a_missing_key_by_name(key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        JobSpec.from_json(without(key))
    assert str(caught.value.field).startswith(key)


@pytest.mark.parametrize("schema", [JOB_SCHEMA_VERSION + 1, None, "1"])
def test_refuses_another_schema(schema: Any) -> None:
    with pytest.raises(ConfigError, match="one checkout") as caught:
        JobSpec.from_json(changed(schema=schema))
    assert caught.value.field == "schema"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("steady_window_steps", -1), ("steady_window_steps", True), ("steady_window_steps", "3"),
        ("most_warmup_steps", -1), ("most_warmup_steps", 1.5), ("most_warmup_steps", None),
        ("warmup_steps", -1), ("warmup_steps", 1.5), ("warmup_steps", True), ("warmup_steps", "3"),
        ("window_steps", 0), ("window_steps", None), ("record_every_steps", 0), ("replicate", -1),
        ("seed", -1), ("seed", 1.0), ("seed", "1234"),
        ("device", "tpu"), ("device", 1), ("job_id", 5), ("run_folder", None), ("case", 7), ("case", None),
        ("data_root", 1), ("settings", []), ("overrides", "a"), ("environment", {"A": 1}), ("environment", []),
        ("cores", [1]), ("cores", [[1.5]]), ("cores", "12"), ("cores", [["0"]]), ("cards", "01"), ("cards", [0]),
        ("explained_without", "layers"),
    ],
)  # fmt: skip
def test_refuses_a_value_of_the_wrong_kind_by_name(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        JobSpec.from_json(changed(**{key: value}))
    assert str(caught.value.field).startswith(key)


@pytest.mark.parametrize(
    ("values", "field", "expected"),
    [
        ({"steady_window_steps": 1, "most_warmup_steps": 9}, "steady_window_steps", "at least 2"),
        ({"steady_window_steps": 2, "most_warmup_steps": 9}, "warmup_steps", "at least 6"),
        ({"steady_window_steps": 2, "warmup_steps": 7, "most_warmup_steps": 6}, "most_warmup_steps", "at least 7"),
        ({"steady_window_steps": 2, "warmup_steps": 6}, "most_warmup_steps", "at least 6"),
        ({"most_warmup_steps": 9}, "most_warmup_steps", "0 without steady_window_steps"),
    ],
)
def test_refuses_a_warm_up_that_could_not_be_judged(values: dict[str, int], field: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected) as caught:
        replace(SPEC, **values)
    assert caught.value.field == field


def test_the_longest_warm_up_is_the_budget_or_without_one_the_warm_up_itself() -> None:
    assert SPEC.longest_warmup_steps == 3
    assert replace(SPEC, warmup_steps=6, steady_window_steps=2, most_warmup_steps=16).longest_warmup_steps == 16


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "1", "null", "[" * 100_000, '{"schema": NaN}'])
def test_refuses_text_that_is_no_job(text: str) -> None:
    with pytest.raises(ConfigError):
        JobSpec.from_json(text)


def test_refuses_nan_among_the_settings_both_ways() -> None:
    with pytest.raises(ConfigError, match="j1"):
        replace(SPEC, settings={"lr": float("nan")}).to_json()
    with pytest.raises(ConfigError, match="NaN"):
        JobSpec.from_json(changed(settings={"lr": float("nan")}))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), True, "1", None, 10**400, 1j])
def test_what_no_instrument_reads_is_not_finite(value: object) -> None:
    assert not finite(value)
