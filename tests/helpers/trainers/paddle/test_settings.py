"""What a header says of programs; programs of both kinds are stand-ins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from helpers.trainers.common.settings import Settings
from helpers.trainers.contract.program import counts_of
from helpers.trainers.paddle.settings import amp_faults, convolutions, counts_in, program_facts
from tests.helpers.trainers.specs import spec_of


def _program(*operators: Any, types: dict[str, str] | None = None) -> Any:
    block = SimpleNamespace(ops=operators, var=lambda name: SimpleNamespace(dtype=(types or {})[name]))
    return SimpleNamespace(global_block=lambda: block)


def _pir(name: str, dtype: str = "paddle.float32", layout: str = "NCHW") -> Any:
    return SimpleNamespace(
        name=lambda: name,
        operand_source=lambda _: SimpleNamespace(dtype=dtype),
        attrs=lambda: {"data_format": layout},
    )


def _desc(kind: str, image: str = "image", layout: str = "NCHW") -> Any:
    return SimpleNamespace(type=kind, input={"Input": [image]}.__getitem__, attr={"data_format": layout}.__getitem__)


def test_convolutions_of_pir_programs_are_counted_by_type_and_layout() -> None:
    program = _program(
        _pir("pd_op.conv2d", "paddle.bfloat16", "NHWC"),
        _pir("pd_op.conv2d", "paddle.float32", "NHWC"),
        _pir("pd_op.relu", "paddle.bfloat16"),
    )
    assert convolutions(program, dtype="bfloat16") == 1
    assert convolutions(program, layout="NHWC") == 2
    assert convolutions(program, dtype="bfloat16", layout="NCHW") == 0


@pytest.mark.parametrize("spelling", ["paddle.float16", "VarType.FP16"])
def test_convolutions_of_program_descs_are_counted_by_type_and_layout(spelling: str) -> None:
    types = {"cast": spelling, "image": "paddle.bfloat16"}
    program = _program(_desc("conv2d", "cast"), _desc("conv2d"), _desc("relu", "cast"), types=types)
    assert convolutions(program, dtype="float16") == 1
    assert convolutions(program, layout="NCHW") == 2


@pytest.mark.parametrize("all_reduce", ["c_allreduce_sum", "all_reduce"])
def test_a_program_s_facts_count_what_was_fused_and_what_the_ranks_exchange(all_reduce: str) -> None:
    spec = spec_of("paddle-resnet50v1.5-amp_o2-bs256-1x8-dali-static", "gpu")
    operators = [_desc("conv2d", "cast", "NHWC"), _desc("fused_batch_norm_act"), *[_desc(all_reduce)] * 2]
    facts = program_facts(_program(*operators, types={"cast": "paddle.float16"}), Settings.of(spec))
    counts = counts_of(facts)
    assert counts is not None
    assert {name: count for name, count in counts.items() if count} == {
        "operators": 4, "conv2d": 1, "float16_conv2d": 1, "nhwc_conv2d": 1, "fused_batch_norm_act": 1, "all_reduce": 2,
    }  # fmt: skip
    del facts["program_counts"]
    assert facts == {
        "operators": "4",
        "float16_convolutions": "1",
        "NHWC_convolutions": "1",
    }


def test_operators_of_pir_count_by_the_names_of_old_programs() -> None:
    names = ("batch_norm_", "relu_", "add", "add_", "momentum_", "all_reduce_", "fused_bn_add_activation_", "add_n")
    counts = counts_in(_program(*(_pir(f"pd_op.{name}") for name in names)))
    assert {name: count for name, count in counts.items() if count} == {
        "operators": 8, "batch_norm": 1, "relu": 1, "elementwise_add": 2, "momentum": 1, "all_reduce": 1,
        "fused_bn_add_activation": 1,
    }  # fmt: skip


RULE = {"incr_every_n_steps": 1000, "decr_every_n_nan_or_inf": 2, "incr_ratio": 2.0, "decr_ratio": 0.800000011920929}


def _amp(*, halves: int = 2, copies: int = 2, first: float = 128.0, scaled: bool = True, **rule: Any) -> Any:
    """A program with ``halves`` float16 weights and one in float32, and its start-up program."""
    kept = [_operator("momentum", {"MasterParam": ["m"]})] * copies
    kept += [_operator("momentum", {"MasterParam": []}), _operator("relu", {"X": ["x"]})]
    scaling = [_operator("update_loss_scaling", {"PrevLossScaling": ["scale"]}, {**RULE, **rule})] if scaled else []
    weights = [SimpleNamespace(dtype=f"paddle.float{bits}", trainable=True) for bits in [16] * halves + [32]]
    main = SimpleNamespace(
        global_block=lambda: SimpleNamespace(ops=[*kept, *scaling]),
        all_parameters=lambda: [*weights, SimpleNamespace(dtype="paddle.float16", trainable=False)],
    )
    fills = [
        _operator("fill_constant", {}, {"value": value}, (name,)) for name, value in {"w": 1.0, "scale": first}.items()
    ]
    return main, SimpleNamespace(global_block=lambda: SimpleNamespace(ops=fills))


def _operator(kind: str, inputs: Any, attributes: Any = None, outputs: Any = ()) -> Any:
    return SimpleNamespace(
        type=kind, input=inputs.__getitem__, input_names=list(inputs), attr=(attributes or {}).get,
        output_arg_names=list(outputs),
    )  # fmt: skip


def _amp_faults(
    program: Any, case: str = "resnet50v1.5-amp_o2-bs256-1x1-dali-static"
) -> tuple[list[str], dict[str, str]]:
    facts: dict[str, str] = {}
    return amp_faults(*program, Settings.of(spec_of(f"paddle-{case}", "gpu")), facts), facts


def test_a_program_with_master_copies_and_the_settings_loss_scaling_has_no_fault() -> None:
    assert _amp_faults(_amp()) == ([], {"master_copies": "2"})


def test_a_merged_operator_has_the_copies_of_all_its_weights() -> None:
    main, startup = _amp(copies=0)
    ops = [*main.global_block().ops, _operator("merged_momentum", {"MasterParam": ["m", "n"]})]
    main.global_block = lambda: SimpleNamespace(ops=ops)
    assert _amp_faults((main, startup)) == ([], {"master_copies": "2"})


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (_amp(copies=1), "1 float32 master copies of 2 weights"),
        (_amp(copies=0), "0 float32 master copies of 2 weights"),
        (_amp(halves=0, copies=0), "0 float32 master copies of 0 weights"),
        (_amp(first=32768.0), "'first scale': 32768.0"),
        (_amp(scaled=False), "no dynamic loss scaling"),
        (_amp(incr_every_n_steps=2000), "'incr_every_n_steps': 2000"),
    ],
)  # fmt: skip
def test_a_program_with_another_amp_than_the_settings_is_told(program: Any, told: str) -> None:
    (fault,) = _amp_faults(program)[0]
    assert told in fault


def test_at_o1_weights_that_are_not_float32_are_told() -> None:
    case = "resnet50v1.5-amp_o1-bs256-1x1-dali-static"
    assert _amp_faults(_amp(halves=0, copies=0), case) == ([], {})
    assert _amp_faults(_amp(), case)[0] == ["2 float32 master copies of 2 weights in float16"]


def test_a_program_that_scales_its_loss_against_the_settings_is_told() -> None:
    case = "resnet50v1.5-fp32-bs256-1x1-native-static"
    assert _amp_faults(_amp(scaled=False), case) == ([], {})
    (fault,) = _amp_faults(_amp(), case)[0]
    assert "not {'first scale': None}" in fault
