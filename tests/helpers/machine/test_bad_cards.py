"""Machines with a card that cannot be used, seen through a libnvidia-ml.so.1 of their own and the real nvidia-ml-py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.machine.devices import Machine, discover, why_not_run
from helpers.machine.host import Host
from helpers.machine.nvml import Gpu
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import DeviceError
from tests.nvml_stub import (
    A100,
    DRIVER_NOT_LOADED,
    EXCLUSIVE_PROCESS,
    H100,
    LOST,
    LOST_LATER,
    PROHIBITED,
    V100_16,
    StubMachine,
    loaded,
    machine_of,
    needs_compiler,
    nvml_library,
    uuid_of,
)

pytestmark = needs_compiler
HOST = Host("node7", "0123456789abcdef", "Debian 12", "6.1", "AMD EPYC", 2, 25 * 1024**3)
ONE_LOST = machine_of(V100_16, 8, {3: {"failures": LOST}})
LOST_ERROR = "GPU3 (NVML nvmlDeviceGetHandleByIndex: GPU is lost)"


def found(folder: Path, stub: StubMachine, **variables: str) -> Machine:
    with loaded(nvml_library(folder, stub)):
        return discover(variables=variables, host=HOST)


def case(cards: str = "1x1", precision: str = "fp32", batch: int = 64) -> Case:
    return Case.parse(f"paddle-resnet50v1.5-{precision}-bs{batch}-{cards}-dali-static")


def indices(machine: Machine) -> list[int]:
    return [gpu.index for gpu in machine.gpus]


@pytest.mark.parametrize("failures", [LOST, LOST_LATER], ids=["at its handle", "later"])
def test_one_lost_card_of_eight_costs_that_card_alone_and_is_named(failures: dict[str, int], tmp_path: Path) -> None:
    machine = found(tmp_path, machine_of(V100_16, 8, {3: {"failures": failures}}))
    assert indices(machine) == [0, 1, 2, 4, 5, 6, 7]
    assert "7 x Tesla V100-SXM2-16GB; left out: GPU3 (NVML nvmlDeviceGet" in machine.describe()
    assert why_not_run(case("1x7"), "v100", machine) is None
    why = str(why_not_run(case("1x8"), "v100", machine))
    assert why.startswith("needs 8 cards of v100, this machine has 7 x Tesla V100-SXM2-16GB; left out: GPU3 (NVML ")
    assert "GPU is lost" in why
    # The baselines of the other cards keep their name.
    assert machine.machine_key("gpu") == found(tmp_path / "all", machine_of(V100_16, 8)).machine_key("gpu")


@pytest.mark.parametrize(
    ("visible", "cards", "left_out"),
    [
        ("0,1", [0, 1], ""),
        ("3,4", [4], f"; left out: {LOST_ERROR}"),
        (f"{uuid_of(0)},{uuid_of(3)},{uuid_of(5)}", [0, 5], f"; left out: {LOST_ERROR}"),
        ("GPU-00000006", [6], ""),
        ("5,0,99,1", [0, 5], "; CUDA_VISIBLE_DEVICES=5,0,99,1: CUDA stops at '99', which names no card"),
    ],
    ids=["without it", "with it", "by UUID", "by a UUID's beginning", "with a card that is not there"],
)
def test_a_lost_card_counts_only_where_it_is_visible(
    visible: str, cards: list[int], left_out: str, tmp_path: Path
) -> None:
    machine = found(tmp_path, ONE_LOST, CUDA_VISIBLE_DEVICES=visible)
    assert (indices(machine), machine.left_out) == (cards, left_out)


@pytest.mark.parametrize(
    ("changed", "told"),
    [({"failures": LOST}, r"GPU is lost.*--gpu-reset"), ({"mig": True}, r"split by MIG.*nvidia-smi -i 1 -mig 0")],
)
def test_cards_that_all_have_a_fault_are_an_error_whose_remedies_work(
    tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    # A V100 knows no MIG.
    stub = machine_of(A100, 2, {1: changed})
    with pytest.raises(DeviceError, match=rf"GPU1: .*{told}.*CUDA_VISIBLE_DEVICES"):
        found(tmp_path, stub, CUDA_VISIBLE_DEVICES="1")
    assert indices(found(tmp_path, stub, CUDA_VISIBLE_DEVICES="0")) == [0]
    hidden = found(tmp_path, stub, CUDA_VISIBLE_DEVICES="")
    assert (hidden.gpus, hidden.gpu_note) == ((), "CUDA_VISIBLE_DEVICES is empty")


def test_a_driver_that_fails_once_it_is_open_is_an_error_that_the_empty_variable_avoids(tmp_path: Path) -> None:
    class Failing:
        def gpus(self) -> tuple[Gpu, ...]:
            raise DeviceError(
                "NVML nvmlDeviceGetCount", got=DRIVER_NOT_LOADED, expected="an answer", remedy="Repair it"
            )

    failing: Any = Failing()
    with pytest.raises(DeviceError, match="nvmlDeviceGetCount"):
        discover(failing, variables={}, root=tmp_path, host=HOST)
    assert discover(failing, variables={"CUDA_VISIBLE_DEVICES": ""}, host=HOST).gpus == ()


def test_a_prohibited_card_and_one_split_by_mig_are_left_out_and_an_exclusive_one_is_used(tmp_path: Path) -> None:
    modes = {0: {"compute_mode": PROHIBITED}, 1: {"mig": True}, 2: {"compute_mode": EXCLUSIVE_PROCESS}}
    machine = found(tmp_path, machine_of(A100, 8, modes))
    assert [card.index for card in machine.cards_of("a100")] == [2, 3, 4, 5, 6, 7]
    assert machine.faulty[0].remedy == "sudo nvidia-smi -i 0 -c 0"
    assert machine.left_out == "; left out: GPU0 (its compute mode is PROHIBITED), GPU1 (split by MIG)"


@pytest.mark.parametrize(
    ("precision", "batch", "why"),
    [
        ("bf16", 64, "bf16 needs compute capability 8.0, Tesla V100-SXM2-16GB has 7.0"),
        ("tf32", 64, "tf32 needs compute capability 8.0, Tesla V100-SXM2-16GB has 7.0"),
        ("amp_o2", 256, None),
        ("fp32", 128, None),
        ("fp32", 256, "256 images in fp32 need more than 21.2 GiB for what the backward pass reads, "
                      "Tesla V100-SXM2-16GB has 16.0 GiB"),
    ],
)  # fmt: skip
def test_what_a_v100_cannot_run_is_said_before_anything_is_started(
    precision: str, batch: int, why: str | None, tmp_path: Path
) -> None:
    assert why_not_run(case("1x1", precision, batch), "gpu", found(tmp_path, machine_of(V100_16, 8))) == why
    newer = found(tmp_path / "newer", replace(machine_of(H100, 1)))
    assert why_not_run(case("1x1", precision, batch), "gpu", newer) is None
