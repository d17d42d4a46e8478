from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import helpers.machine.tables
from helpers.common.unknown import Unknown
from helpers.machine.facts import FrameworkFacts, gather
from helpers.machine.frameworks import BuildFinder, FrameworkBuild
from helpers.machine.tables import SystemReport, report_of, session_tables
from helpers.trainers.contract.errors import DeviceError
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.machine.doctor.context import BUILD, LIBRARIES, facts, without_gpus
from tests.helpers.machines import (
    CPU_MACHINE,
    StandInNvml,
    a100s,
    bus_id,
    gpu_machine,
    host_state,
    mesh_details,
    switch_details,
    v100s,
    write,
)


class Builds(BuildFinder):
    def find_build(self, framework: Framework, interpreter: str | None = None) -> FrameworkBuild | str:
        return BUILD if framework is Framework.PADDLE else "not installed"

    def find_libraries(self, build: FrameworkBuild) -> dict[str, str] | str:
        return LIBRARIES


def test_the_rows_of_the_source_documents_are_there_in_their_words() -> None:
    tables = report_of(facts()).sections
    assert tables["GPU"]["GPU"] == "Tesla V100-SXM2-32GB * 8"
    assert tables["GPU"]["driver version"] == "525.60.11"
    assert tables["CPU"]["CPU"] == "Intel(R) Xeon(R) Gold 6271C CPU @ 2.60GHz * 48"
    assert tables["memory"]["memory"] == "502 GiB"
    assert tables["system"]["operating system"] == "Ubuntu 16.04"
    assert tables["paddle"] == {
        "version": "2.6.2 (paddlepaddle-gpu)",
        "commit": "8ce0de58",
        "CUDA": "11.8",
        "cuDNN": "built for 8.6.0; on this machine 8.9.7",
        "NCCL": "on this machine 2.18.5",
        "DALI": "nvidia-dali-cuda110 1.50.0",
        "Python": "3.11.7",
    }
    assert tables["interconnect and storage"]["interconnect"] == "InfiniBand 100 Gb/sec (4X EDR) (mlx5_0)"


def test_the_topology_is_a_row_of_cells_a_card_with_its_legend() -> None:
    tables = report_of(facts()).sections
    assert tables["topology"]["columns"].split("\t")[-2:] == ["CPU Affinity", "NUMA Affinity"]
    assert tables["topology"]["GPU0"] == "X\tNV2\tNV2\tNV1\tNV1\tNODE\tNODE\tNODE\t0-23\t?"
    assert "NV#" in tables["legend"]


def test_a_row_that_all_cards_share_is_told_once_and_another_card_by_card() -> None:
    details = mesh_details()
    details["GPU-1"] = replace(details["GPU-1"], persistence=False)
    tables = report_of(facts(details=details)).sections["GPU"]
    assert tables["ECC"] == "on"
    assert tables["persistence mode"] == "GPU0,2-7: on; GPU1: off"


def test_what_is_not_known_says_so_in_its_row() -> None:
    tables = report_of(facts(host=host_state(governors=Unknown("hidden here")))).sections
    assert tables["CPU"]["governor"] == "unknown: hidden here"
    details = {uuid: replace(each, ecc=Unknown("no right")) for uuid, each in mesh_details().items()}
    assert report_of(facts(details=details)).sections["GPU"]["ECC"] == "unknown: no right"


def test_a_machine_without_cards_says_why_and_has_no_matrix() -> None:
    tables = report_of(without_gpus().facts).sections
    assert tables["GPU"] == {"GPU": "none (no libnvidia-ml.so.1)"}
    assert "topology" not in tables and "legend" not in tables


def test_a_cpu_build_has_no_cuda_and_none_of_the_machines() -> None:
    build = replace(BUILD, distribution="paddlepaddle", commit="")
    tables = report_of(facts(frameworks=(FrameworkFacts(build, {"python": "3.11"}),))).sections["paddle"]
    assert [tables[name] for name in ("CUDA", "cuDNN", "NCCL")] == ["none: a build for CPUs"] * 3
    assert (tables["DALI"], tables["commit"]) == ("not installed", "the build does not say")


def test_libraries_that_are_not_known_are_not_told_to_be_absent() -> None:
    tables = report_of(facts(frameworks=(FrameworkFacts(BUILD, "it does not answer"),))).sections["paddle"]
    names = ("CUDA", "cuDNN", "NCCL", "DALI", "Python")
    assert {tables[name] for name in names} == {"unknown: it does not answer"}


def test_every_cell_is_text_as_a_result_wants_it() -> None:
    mapping = report_of(facts()).to_mapping()
    assert all(isinstance(value, str) and value for rows in mapping.values() for value in rows.values())


def test_a_stored_report_is_read_back_in_its_order() -> None:
    report = report_of(facts())
    stored = json.loads(json.dumps(report.to_mapping(), sort_keys=True))
    again = SystemReport.from_mapping(stored)
    assert list(again.sections) == list(report.sections)
    assert list(again.sections["topology"]) == list(report.sections["topology"])
    assert again.sections == report.sections
    assert SystemReport.from_mapping({}).sections == {}


def test_gathering_asks_every_card_and_the_device_tree(tmp_path: Path) -> None:
    device = tmp_path / "sys/devices/pci0000:10" / bus_id(0)
    write(tmp_path, {str(device.relative_to(tmp_path) / "numa_node"): "1\n", "lib/libcudnn.so.8.9.7": ""})
    link = tmp_path / "sys/bus/pci/devices" / bus_id(0)
    link.parent.mkdir(parents=True)
    link.symlink_to(device)
    nvml = StandInNvml(a100s(), switch_details())
    found = gather(
        gpu_machine(a100s()), nvml, Builds(), interpreters={Framework.PADDLE: None, Framework.MXNET: None},
        data="x", folders={"runs": tmp_path}, root=tmp_path, host=host_state(),
        variables={"LD_LIBRARY_PATH": f"{tmp_path}/lib"},
    )  # fmt: skip
    assert [each.build for each in found.frameworks] == [BUILD]
    assert found.topology.cells[0][7] == "NV12"
    assert found.topology.affinity["GPU0"] == ("0-23", "1")
    assert found.machine_libraries["cudnn"] == ("8.9.7",)
    (opened,) = [each.opened for each in found.frameworks]
    # Paddle 2.6 opens libcudnn.so, which is not there.
    assert (opened["cudnn"].path, opened["cudnn"].others) == (None, (tmp_path / "lib/libcudnn.so.8.9.7",))
    assert isinstance(found.storage["runs"], Unknown)


def test_a_session_on_a_machine_without_cards_does_not_open_nvml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> str:
        raise AssertionError("NVML was opened")

    monkeypatch.setattr(helpers.machine.tables, "open_nvml", refuse)
    tables = session_tables(CPU_MACHINE, Builds(), interpreters={Framework.PADDLE: None}, data="x", folders={})
    assert tables["GPU"]["GPU"] == "none (no libnvidia-ml.so.1)"


def test_an_nvml_that_fails_does_not_stop_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise DeviceError("NVML", got="gone")

    monkeypatch.setattr(helpers.machine.tables, "open_nvml", broken)
    tables = session_tables(gpu_machine(v100s()), Builds(), interpreters={}, data="x", folders={})
    assert tables["GPU"]["GPU"] == "Tesla V100-SXM2-32GB * 8"
    assert tables["GPU"]["ECC"] == "unknown"
