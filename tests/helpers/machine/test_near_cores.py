from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.machine.near_cores import EVENLY, NEAR, TOO_FEW, cores_of, divided
from helpers.machine.nvml import Gpu
from tests.helpers.machine.watch.test_gpu_health import StandInNvml
from tests.helpers.machines import v100s, write


def node(first: int, cores: int, all_cores: int) -> frozenset[int]:
    """The CPUs of ``cores`` cores, each with the thread that Linux numbers ``all_cores`` higher."""
    return frozenset(cpu for core in range(first, first + cores) for cpu in (core, core + all_cores))


def physical(cpus: int, all_cores: int = 0) -> list[tuple[int, ...]]:
    return [(cpu, cpu + all_cores) if all_cores else (cpu,) for cpu in range(cpus)]


# Two sockets of 20 cores with two threads each, four V100 on each socket.
DGX1 = {f"GPU-{card}": node(20 * (card // 4), 20, 40) for card in range(8)}


def test_eight_cards_on_two_sockets_have_whole_cores_of_their_own_socket() -> None:
    shares, how = divided(DGX1, physical(40, 40))
    assert how == NEAR
    assert (shares["GPU-0"], shares["GPU-4"]) == (
        (0, 1, 2, 3, 4, 40, 41, 42, 43, 44), (20, 21, 22, 23, 24, 60, 61, 62, 63, 64),
    )  # fmt: skip
    for card, cpus in shares.items():
        assert set(cpus) <= DGX1[card]
    every = [cpu for cpus in shares.values() for cpu in cpus]
    assert sorted(every) == list(range(80))


def test_a_job_of_one_card_has_all_cores_near_it_and_none_that_is_far() -> None:
    # A DGX A100: eight nodes of 16 cores, each card beside one of four of them.
    near = node(48, 16, 128)
    assert divided({"GPU-0": near}, physical(128, 128))[0]["GPU-0"] == tuple(sorted(near))


def test_all_cards_have_as_many_where_their_sockets_carry_different_numbers_of_them() -> None:
    near = {card: DGX1[card] for card in ("GPU-0", "GPU-1", "GPU-2", "GPU-4")}
    assert {len(cpus) for cpus in divided(near, physical(40, 40))[0].values()} == {12}


@pytest.mark.parametrize("unknown", [{}, {"GPU-1": frozenset({0, 1})}], ids=["none known", "one known"])
def test_on_a_virtual_machine_whose_nvml_names_no_cores_they_are_divided_evenly(
    unknown: dict[str, frozenset[int]],
) -> None:
    near = {"GPU-0": frozenset[int](), "GPU-1": frozenset[int](), **unknown}
    assert divided(near, physical(4)) == ({"GPU-0": (0, 1), "GPU-1": (2, 3)}, EVENLY)


def test_two_cores_near_a_card_are_too_few_for_its_readers_where_others_are_free() -> None:
    # A container with all of one socket and two cores of the other.
    near = {"GPU-0": frozenset(range(30)), "GPU-1": frozenset({30, 31})}
    shares, how = divided(near, physical(32))
    assert how == EVENLY and {len(cpus) for cpus in shares.values()} == {16}


def test_cards_with_fewer_cores_than_cards_share_them_all() -> None:
    shares, how = divided({f"GPU-{card}": frozenset({0, 1}) for card in range(4)}, physical(2))
    assert (how, set(shares.values())) == (TOO_FEW, {(0, 1)})


@pytest.mark.parametrize(("quota", "each"), [(None, 10), (40.0, 5), (16.5, 2), (3.0, 1)])
def test_a_quota_is_divided_too_and_its_cores_first(quota: float | None, each: int) -> None:
    shares, _ = divided(DGX1, physical(40, 40), quota)
    assert {len(cpus) for cpus in shares.values()} == {each}
    # Cores before their second threads.
    assert each == 10 or shares["GPU-1"] == tuple(range(5, 5 + each))


@given(
    st.lists(st.frozensets(st.integers(0, 15), max_size=16), min_size=1, max_size=8),
    st.one_of(st.none(), st.floats(0.5, 20)),
)
def test_no_two_cards_share_a_core_whatever_nvml_says(near: list[frozenset[int]], quota: float | None) -> None:
    # The threads of a core have neighbouring numbers here.
    cores = [(cpu, cpu + 1) for cpu in range(0, 16, 2)]
    shares, _ = divided({str(card): cpus for card, cpus in enumerate(near)}, cores, quota)
    every = [cpu for cpus in shares.values() for cpu in cpus]
    assert len(every) == len(set(every)) and set(every) <= set(range(16))
    assert len({len(cpus) for cpus in shares.values()}) == 1
    on_core = [cpu // 2 for cpus in shares.values() for cpu in {each - each % 2 for each in cpus}]
    assert len(on_core) == len(set(on_core))


class Near(StandInNvml):
    def near_cpus(self, gpu: Gpu) -> frozenset[int]:
        assert not gpu.fault, "a lost card does not answer"
        return frozenset({0, 1, 4, 5}) if gpu.index == 0 else frozenset({2, 3, 6, 7})


def test_only_cores_that_this_process_may_use_are_divided_with_both_threads(tmp_path: Path) -> None:
    pairs = {
        f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": f"{cpu % 4},{cpu % 4 + 4}\n"
        for cpu in range(8)
    }
    root = write(tmp_path, {**pairs, "sys/fs/cgroup/cpu.max": "max 100000\n"})
    gpus = v100s()[:2]
    cores = cores_of(gpus, Near, allowed=lambda: {0, 1, 2, 4, 5, 6}, root=root)
    assert (cores.each, cores.how) == (((0, 1), (2, 6)), NEAR)
    (root / "sys/fs/cgroup/cpu.max").write_text("200000 100000\n")
    assert cores_of(gpus, Near, allowed=lambda: range(8), root=root).each == ((0,), (2,))


def test_on_a_shared_machine_a_lost_card_has_no_share(tmp_path: Path) -> None:
    gpus = v100s()[:2]
    lost = replace(v100s()[2], fault="NVML nvmlDeviceGetHandleByIndex: GPU is lost")
    library = Near()
    library.gpus = lambda: (*gpus, lost)  # type: ignore[method-assign]
    cores = cores_of(gpus, lambda: library, alone=False, allowed=lambda: range(8), root=tmp_path)
    assert (cores.each, cores.how) == (((0, 1, 4, 5), (2, 3, 6, 7)), NEAR)
