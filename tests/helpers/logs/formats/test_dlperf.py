"""DLPerf's logs as FormatSpecs: NVIDIA's TensorFlow script in training, tensorflow/models' TimeHistory."""

from __future__ import annotations

import pprint

import pytest

from helpers.logs.formats import FORMATS
from helpers.logs.record import FormatSpec
from tests.helpers.logs.made_runs import configured
from tests.helpers.logs.nvidia_lines import context

TENSORFLOW_1 = FORMATS["dlperf-tensorflow1"]
TENSORFLOW_2 = FORMATS["dlperf-tensorflow2"]
STEP = (
    "DLL 2021-05-06 07:08:09.123456 - (0, 21) imgs_per_sec : 391.5 cross_entropy : 6.9 l2_loss : 0.9 "
    "total_loss : 7.8 learning_rate : 0.001 "
)
HISTORY = (
    "I0506 07:08:09.123456 140000000000000 keras_utils.py:133] TimeHistory: 40.5 seconds, 316.05 examples/second "
    "between steps 100 and 200"
)
OLD_STEP = ":::NVLOGv0.2.3 resnet 1600000000.5 (training_hooks.py:88) imgs_per_sec: 391.5"


def parameters(**changes: object) -> list[str]:
    """The trainer's lines around its last dictionary."""
    runtime = {"distribution_strategy": "mirrored", "enable_xla": False, "num_gpus": 4, "worker_hosts": None}
    train = {"batch_size": 64, "builder": "records", "dtype": "float32", "use_per_replica_batch_size": True}
    model: dict[str, object] = {"name": "resnet", "loss": {"label_smoothing": 0.1}}
    sections: dict[str, dict[str, object]] = {"model": model, "runtime": {**runtime}, "train_dataset": {**train}}
    for key, value in changes.items():
        section, _, name = key.partition("__")
        sections[section][name] = value
    final = pprint.pformat({"evaluation": {"steps": None}, "mode": "train_and_eval", **sections}, width=60)
    defaults = pprint.pformat({"runtime": {"num_gpus": 0}}, width=60)
    return [
        *f"I0506 07:08:01.5 14 classifier_trainer.py:180] Base params: {defaults}".splitlines(),
        *f"I0506 07:08:02.5 14 classifier_trainer.py:189] Final model parameters: {final}".splitlines(),
        "I0506 07:08:02.5 14 classifier_trainer.py:294] Running train and eval.",
    ]


def settings(lines: list[str], name: str = "a.log") -> dict[str, str]:
    return {setting.value: said.value for setting, said in configured(TENSORFLOW_2, context(lines, name)).items()}


@pytest.mark.parametrize(
    ("spec", "line", "found"),
    [
        (TENSORFLOW_1, STEP, [b"2021-05-06 07:08:09.123456", b"0", b"21", b"391.5"]),
        (TENSORFLOW_1, OLD_STEP, [b"1600000000.5", None, None, b"391.5"]),
        (TENSORFLOW_2, HISTORY, [b"0506 07:08:09.123456", b"40.5", b"316.05", b"100", b"200"]),
        (TENSORFLOW_2, "words: " + HISTORY.partition("] ")[2], [None, b"40.5", b"316.05", b"100", b"200"]),
    ],
)
def test_a_record_is_found_in_its_own_format_only(spec: FormatSpec, line: str, found: list[bytes | None]) -> None:
    match = spec.record.search(line.encode())
    assert match is not None and list(match.groupdict().values()) == found
    assert spec.marker.decode() in line
    assert sum(1 for each in FORMATS.values() if each.record.search(line.encode())) == 1


def test_the_final_parameters_are_the_configuration() -> None:
    assert settings(parameters()) == {
        "framework": "tensorflow",
        "model": "resnet50v1.5",
        "precision": "fp32",
        "batch_size_per_card": "64",
        "cards": "4",
        "nodes": "1",
        "data": "native",
        "xla": "false",
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"train_dataset__dtype": "float16"}, {"precision": "amp"}),
        ({"runtime__mixed_precision_dtype": "mixed_float16"}, {"precision": "amp"}),
        ({"train_dataset__dtype": "bfloat16"}, {"precision": "bf16"}),
        ({"train_dataset__dtype": "float64"}, {"precision": None}),
        ({"train_dataset__builder": "synthetic"}, {"data": "synthetic"}),
        ({"model__name": "vgg16"}, {"model": "vgg16"}),
        ({"model__name": "efficientnet"}, {"model": "efficientnet"}),
        ({"runtime__enable_xla": True}, {"xla": "true"}),
        ({"runtime__distribution_strategy": "multi_worker_mirrored"}, {"cards": None, "nodes": None}),
        ({"runtime__distribution_strategy": "tpu"}, {"cards": None}),
        ({"train_dataset__use_per_replica_batch_size": False}, {"batch_size_per_card": "16"}),
        ({"runtime__num_gpus": 0}, {"cards": None}),
    ],
)
def test_single_parameters(changes: dict[str, object], expected: dict[str, str | None]) -> None:
    found = settings(parameters(**changes))
    assert {key: found.get(key) for key in expected} == expected


def test_a_damaged_dictionary_says_nothing_and_the_name_does() -> None:
    lines = parameters()
    broken = [line for line in lines if "'runtime'" not in line]
    assert settings(broken) == {"framework": "tensorflow"}
    assert settings(broken, "1n2g/rn50_b32_fp32_1.log") == {
        "framework": "tensorflow",
        "model": "resnet50v1.5",
        "precision": "fp32",
        "batch_size_per_card": "32",
        "cards": "2",
        "nodes": "1",
    }


def test_a_run_begins_with_the_default_parameters() -> None:
    assert [bool(TENSORFLOW_2.starts[0].search(line.encode())) for line in parameters()].count(True) == 1
