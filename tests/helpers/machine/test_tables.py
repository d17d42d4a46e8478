from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import helpers.machine.tables
from helpers.common.unknown import Unknown
from helpers.machine.facts import FrameworkFacts, gather
from helpers.machine.framework_builds import BuildFinder, FrameworkBuild
from helpers.machine.tables import session_tables, tables_of
from helpers.trainers.contract.errors import DeviceError
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.machine.doctor.context import BUILD, LIBRARIES, facts, without_gpus
from tests.helpers.machines import (
    TOPOLOGY,
    StandInNvml,
    a100s,
    details_of_all,
    gpu_machine,
    host_state,
    v100s,
    write,
)

NVIDIA_SMI = """#!/bin/sh
[ "$*" = "topo -m" ] && cat "${0%/bin/*}/topology"
"""


class Builds(BuildFinder):
    def find_build(self, framework: Framework, interpreter: str | None = None) -> FrameworkBuild | str:
        return BUILD if framework is Framework.PADDLE else "not installed"

    def find_libraries(self, build: FrameworkBuild) -> dict[str, str] | str:
        return LIBRARIES


def test_the_rows_of_the_source_documents_are_there_in_their_words() -> None:
    tables = tables_of(facts())
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
    tables = tables_of(facts())
    assert tables["topology"] == {
        "columns": "GPU0\tGPU1\tmlx5_0\tCPU Affinity", "GPU0": "X\tNV2\tNODE\t0-23", "GPU1": "NV2\tX\tNODE\t0-23",
        "mlx5_0": "NODE\tNODE\tX",
    }  # fmt: skip
    assert tables["legend"] == {"X": "Self", "NV#": "Connection traversing a bonded set of # NVLinks"}


def test_a_row_that_all_cards_share_is_told_once_another_card_by_card_and_the_unknown_says_so() -> None:
    details = {
        uuid: replace(each, nvlinks=Unknown("x"), ecc=Unknown("no right")) for uuid, each in details_of_all().items()
    }
    details["GPU-1"] = replace(details["GPU-1"], persistence=False)
    tables = tables_of(facts(details=details, host=host_state(governors=Unknown("hidden here"))))
    assert tables["GPU"]["driver CUDA"] == "12.0"
    assert tables["GPU"]["persistence mode"] == "GPU0,2-7: on; GPU1: off"
    assert (tables["GPU"]["ECC"], tables["CPU"]["governor"]) == ("unknown: no right", "unknown: hidden here")


def test_a_machine_without_cards_says_why_and_has_no_matrix() -> None:
    tables = tables_of(without_gpus().facts)
    assert tables["GPU"] == {"GPU": "none (no libnvidia-ml.so.1)"}
    assert "topology" not in tables and "legend" not in tables


def test_a_cpu_build_has_no_cuda_and_libraries_that_are_not_known_are_not_told_to_be_absent() -> None:
    build = replace(BUILD, distribution="paddlepaddle", commit="")
    tables = tables_of(facts(frameworks=(FrameworkFacts(build, {"python": "3.11"}),)))["paddle"]
    assert [tables[name] for name in ("CUDA", "cuDNN", "NCCL")] == ["none: a build for CPUs"] * 3
    assert (tables["DALI"], tables["commit"]) == ("not installed", "the build does not say")
    silent = tables_of(facts(frameworks=(FrameworkFacts(BUILD, "it does not answer"),)))["paddle"]
    names = ("CUDA", "cuDNN", "NCCL", "DALI", "Python")
    assert {silent[name] for name in names} == {"unknown: it does not answer"}


def test_gathering_asks_every_card_and_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"lib/libcudnn.so.8.9.7": "", "topology": f"\x1b[4m{TOPOLOGY}", "bin/nvidia-smi": NVIDIA_SMI})
    (tmp_path / "bin/nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/bin:/usr/bin")
    nvml = StandInNvml(a100s(), details_of_all())
    found = gather(
        gpu_machine(a100s()), nvml, Builds(), interpreters={Framework.PADDLE: None, Framework.MXNET: None},
        data="x", folders={"runs": tmp_path}, root=tmp_path, host=host_state(),
        variables={"LD_LIBRARY_PATH": f"{tmp_path}/lib"},
    )  # fmt: skip
    assert [each.build for each in found.frameworks] == [BUILD]
    assert (found.topology, len(found.details)) == (TOPOLOGY, 8)
    assert found.machine_libraries["cudnn"] == ("8.9.7",)
    (opened,) = [each.opened for each in found.frameworks]
    # Paddle 2.6 opens libcudnn.so, which is not there.
    assert (opened["cudnn"].path, opened["cudnn"].others) == (None, (tmp_path / "lib/libcudnn.so.8.9.7",))
    assert isinstance(found.storage["runs"], Unknown)


def test_an_nvml_that_fails_does_not_stop_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise DeviceError("NVML", got="gone")

    monkeypatch.setattr(helpers.machine.tables, "open_nvml", broken)
    tables = session_tables(gpu_machine(v100s()), Builds(), interpreters={}, data="x", folders={})
    assert tables["GPU"]["GPU"] == "Tesla V100-SXM2-32GB * 8"
    assert tables["GPU"]["ECC"] == "unknown"
