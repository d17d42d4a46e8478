import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.machine.devices import (
    CpuCard,
    Machine,
    discover,
    environment_of,
    split_cores,
    visible_gpus,
    why_not_run,
)
from helpers.machine.host import Host, physical_cores
from helpers.machine.nvml import Gpu
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import DeviceError
from tests.helpers.machines import StandInNvml

HOST = Host("node7", "0123456789abcdef", "Debian 12", "6.1", "AMD EPYC", 2, 25 * 1024**3)
A100 = [Gpu(index, f"GPU-{index}{index}", "NVIDIA A100-SXM4-40GB", 40 * 1024**3, (8, 0), 400) for index in range(8)]
CPU_MACHINE = Machine(HOST, (CpuCard(0, (0,)), CpuCard(1, (1,))), gpu_note="no libnvidia-ml.so.1")
GPU_MACHINE = replace(CPU_MACHINE, gpus=tuple(A100), driver="525.60.11", cuda_driver="12.0", gpu_note="")


def case(cards: str, batch: int = 256) -> Case:
    return Case.parse(f"paddle-resnet50v1.5-fp32-bs{batch}-{cards}-dali-static")


def found(nvml: StandInNvml | str, root: Path, **variables: str) -> Machine:
    (root / "dev/shm").mkdir(parents=True, exist_ok=True)
    return discover(nvml, variables=variables, root=root, allowed_cores=lambda: {0, 1}, host=HOST)


def test_a_machine_without_nvml_has_cpu_cards_and_says_why_no_gpus(tmp_path: Path) -> None:
    assert found("no libnvidia-ml.so.1", tmp_path) == CPU_MACHINE


def test_a_machine_with_gpus_knows_their_driver(tmp_path: Path) -> None:
    assert found(StandInNvml(tuple(A100), {}), tmp_path) == replace(
        GPU_MACHINE, card_ids=tuple(gpu.uuid for gpu in A100)
    )


def test_cuda_visible_devices_bounds_what_is_used(tmp_path: Path) -> None:
    machine = found(StandInNvml(tuple(A100), {}), tmp_path, CUDA_VISIBLE_DEVICES="3,1")
    assert [gpu.index for gpu in machine.gpus] == [1, 3]
    hidden = found(StandInNvml(tuple(A100), {}), tmp_path, CUDA_VISIBLE_DEVICES="")
    assert hidden.gpus == () and "CUDA_VISIBLE_DEVICES is empty" in hidden.describe()


@pytest.mark.parametrize(
    ("visible", "indices"),
    [(None, list(range(8))), ("GPU-44", [4]), ("0,-1,2", [0]), ("-1", []), ("0,9", [0]), ("GPU-", []), ("2,2", [2])],
)
def test_visible_devices_are_read_as_cuda_reads_them(visible: str | None, indices: list[int]) -> None:
    assert [gpu.index for gpu in visible_gpus(A100, visible)[0]] == indices


def test_hyper_threads_are_not_cores(tmp_path: Path) -> None:
    for cpu in range(4):
        topology = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{cpu % 2},{cpu % 2 + 2}\n")
    assert physical_cores({0, 1, 2, 3}, tmp_path) == (0, 1)
    assert physical_cores({2, 3}, tmp_path) == (2, 3)


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1)])
def test_a_containers_cpu_quota_bounds_the_cores(tmp_path: Path, quota: str, cores: int) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text(quota + "\n")
    assert len(physical_cores(range(8), tmp_path)) == cores


@given(cores=st.sets(st.integers(0, 500), min_size=1, max_size=64), cards=st.integers(1, 64))
def test_cpu_cards_never_share_a_core_and_are_equally_large(cores: set[int], cards: int) -> None:
    if cards > len(cores):
        with pytest.raises(DeviceError, match="CPU cards"):
            split_cores(sorted(cores), cards)
        return
    split = split_cores(sorted(cores), cards)
    used = [core for card in split for core in card.cores]
    assert len(split) == cards and len({len(card.cores) for card in split}) == 1
    assert len(used) == len(set(used)) > len(cores) - cards and set(used) <= cores


def test_two_cpu_cards_are_the_default_and_one_on_a_single_core() -> None:
    assert [card.cores for card in split_cores((0, 1, 2, 3), None)] == [(0, 1), (2, 3)]
    assert [card.cores for card in split_cores((5,), None)] == [(5,)]
    with pytest.raises(DeviceError):
        split_cores((0, 1), 0)


def test_a_target_names_cards() -> None:
    mixed = replace(GPU_MACHINE, gpus=(A100[0], replace(A100[1], name="NVIDIA RTX A1000")))
    assert [card.id for card in mixed.cards_of("a100")] == ["GPU-00"]
    assert [card.id for card in mixed.cards_of("gpu")] == ["GPU-00", "GPU-11"]
    assert [card.id for card in mixed.cards_of("cpu")] == ["cpu0", "cpu1"]
    assert mixed.cards_of("v100") == ()


def test_a_machine_key_is_a_file_name_that_tells_host_model_and_count() -> None:
    assert CPU_MACHINE.machine_key("cpu") == "01234567-amd-epyc-2c-x2"
    assert GPU_MACHINE.machine_key("gpu") == "01234567-nvidia-a100-sxm4-40gb-x8"
    odd = replace(CPU_MACHINE, facts=replace(HOST, cpu_model="Intel(R) Xeon(R) @ 2.00GHz/../x"))
    assert re.fullmatch(r"[a-z0-9._-]+", odd.machine_key("cpu"))


def test_a_missing_card_is_told_with_what_was_looked_for_and_found() -> None:
    assert why_not_run(case("1x1"), "v100", CPU_MACHINE) == (
        "looked for a V100 (NVML name with 'V100'), found no NVIDIA GPU (no libnvidia-ml.so.1); "
        "CPU: AMD EPYC, 2 cores, 2 cards of 1 core"
    )
    assert "found 8 x NVIDIA A100-SXM4-40GB" in str(why_not_run(case("1x1"), "v100", GPU_MACHINE))
    assert str(why_not_run(case("1x1"), "a100", CPU_MACHINE)).startswith("looked for an A100 (NVML name with 'A100')")


def test_too_few_cards_and_more_nodes_are_told() -> None:
    assert why_not_run(case("1x4"), "cpu", CPU_MACHINE) == "needs 4 cards of cpu, this machine has 2 (1 core each)"
    two = replace(GPU_MACHINE, gpus=tuple(A100[:2]))
    assert why_not_run(case("1x8"), "a100", two) == "needs 8 cards of a100, this machine has 2 x NVIDIA A100-SXM4-40GB"
    assert why_not_run(case("4x1"), "a100", GPU_MACHINE) == "needs 4 nodes of 1 card, and no others are known"
    named = "perf.yaml names 2 hosts"
    assert why_not_run(case("4x8"), "a100", GPU_MACHINE, 2, named) == f"needs 4 nodes of 8 cards, and {named}"
    assert why_not_run(case("2x1"), "a100", GPU_MACHINE, 2) is None
    assert "this machine has" in str(why_not_run(case("2x8"), "a100", two, 2))


def test_the_environment_of_a_gpu_result_holds_its_cards_and_of_a_cpu_result_its_threads() -> None:
    facts = {"threads": "1", "cuda": "11.8", "cudnn": "8.6"}
    gpu = environment_of(
        GPU_MACHINE,
        A100[:2],
        framework="paddle",
        framework_version="2.5.0",
        facts=facts,
        variables={"OMP_X": "1", "MXNET_X": "1"},
    )
    assert (gpu.cards, gpu.card_ids, gpu.driver) == ("2 x NVIDIA A100-SXM4-40GB", "GPU-00 GPU-11", "525.60.11")
    assert (gpu.cuda, gpu.cudnn, gpu.power_limit_watts, gpu.flags) == ("11.8", "8.6", "400", "OMP_X=1")
    cpu = environment_of(
        GPU_MACHINE, GPU_MACHINE.cpu_cards, framework="paddle", framework_version="3.3.1", facts=facts, variables={}
    )
    assert (cpu.device, cpu.cards, cpu.driver, cpu.cuda, cpu.threads) == ("cpu", "2 x 1 core", "", "", "1")
    assert (gpu.driver_cuda, cpu.driver_cuda) == (GPU_MACHINE.cuda_driver, "")


@pytest.mark.parametrize(
    ("facts", "cuda"),
    [
        ({}, ""),
        ({"cuda": "11.8"}, "11.8"),
        ({"cuda": "11.8", "cuda_runtime": "11.8"}, "11.8"),
        ({"cuda": "11.8", "cuda_runtime": "11.7"}, "11.8 (runtime 11.7)"),
        ({"cuda_runtime": "12.8"}, "unknown (runtime 12.8)"),
    ],
)
def test_cuda_is_the_build_s_and_the_loaded_one_and_never_what_the_driver_could_serve(
    facts: dict[str, str], cuda: str
) -> None:
    machine = replace(GPU_MACHINE, cuda_driver="12.9")
    found = environment_of(machine, A100[:1], framework="paddle", framework_version="2.6.2", facts=facts, variables={})
    assert (found.cuda, found.driver_cuda) == (cuda, "12.9")
