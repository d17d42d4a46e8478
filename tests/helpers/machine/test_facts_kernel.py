from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.common.unknown import Unknown
from helpers.machine.facts import (
    UNKNOWN,
    Adapter,
    Storage,
    Topology,
    adapter_at,
    cpu_list,
    infiniband_adapters,
    interconnect,
    nvidia_cards_on_bus,
    pci_relation,
    storage_of,
    topology_of,
)
from helpers.machine.libraries import library_versions
from helpers.machine.nvml import TO_UNKNOWN, Link
from tests.helpers.machines import StandInNvml, a100s, mesh_details, switch_details, v100s, write

# The FleetX source document's `nvidia-smi topo -m` of its V100 machine.
PUBLISHED = """\
GPU0     X      NV2     NV2     NV1     NV1     NODE    NODE    NODE    NODE    0-23
GPU1    NV2      X      NV1     NV1     NODE    NV2     NODE    NODE    NODE    0-23
GPU2    NV2     NV1      X      NV2     NODE    NODE    NV1     NODE    NODE    0-23
GPU3    NV1     NV1     NV2      X      NODE    NODE    NODE    NV2     NODE    0-23
GPU4    NV1     NODE    NODE    NODE     X      NV2     NV2     NV1     NODE    0-23
GPU5    NODE    NV2     NODE    NODE    NV2      X      NV1     NV1     NODE    0-23
GPU6    NODE    NODE    NV1     NODE    NV2     NV1      X      NV2     NODE    0-23
GPU7    NODE    NODE    NODE    NV2     NV1     NV1     NV2      X      NODE    0-23
mlx5_0  NODE    NODE    NODE    NODE    NODE    NODE    NODE    NODE     X
"""


def bridge(number: int, *below: str, node: int = 0, name: str = "") -> Adapter:
    """A device under host bridge ``number``, behind the bridges ``below``."""
    return Adapter(name, Path("/sys/devices", f"pci0000:{number:02x}", *below, f"0000:{number:02x}:0f.0"), node)


def published_machine() -> Topology:
    nvml = StandInNvml(v100s(), mesh_details())
    places = {f"GPU-{n}": bridge(0x10 + n) for n in range(8)}
    adapters = (bridge(0x50, name="mlx5_0"),)
    return topology_of(v100s(), mesh_details(), nvml.common_ancestor, places=places, adapters=adapters)


def test_the_cube_mesh_of_eight_v100_is_the_published_matrix() -> None:
    topology = published_machine()
    ours = [[name, *cells, *topology.affinity.get(name, ())[:1]]
            for name, cells in zip(topology.names, topology.cells, strict=True)]  # fmt: skip
    assert ours == [line.split() for line in PUBLISHED.splitlines()]


def test_the_legend_is_nvidia_smis_and_explains_every_symbol() -> None:
    legend = published_machine().legend()
    assert list(legend) == ["X", "SYS", "NODE", "PHB", "PXB", "PIX", "NV#"]
    assert legend["NV#"] == "Connection traversing a bonded set of # NVLinks"
    # Without the cards' places in the device tree their NUMA nodes are not known.
    bare = topology_of(v100s(), mesh_details(), StandInNvml(v100s(), mesh_details()).common_ancestor)
    assert bare.affinity["GPU0"] == ("0-23", UNKNOWN)
    assert UNKNOWN in bare.legend()


def test_sys_is_what_two_sockets_put_between_cards_without_a_link() -> None:
    nvml = StandInNvml(v100s(), mesh_details(), level=50)
    cells = topology_of(v100s(), mesh_details(), nvml.common_ancestor).cells
    assert cells[0] == ("X", "NV2", "NV2", "NV1", "NV1", "SYS", "SYS", "SYS")


def test_eight_a100_on_a_switch_are_all_joined_by_twelve_links() -> None:
    nvml = StandInNvml(a100s(), switch_details())
    cells = topology_of(a100s(), switch_details(), nvml.common_ancestor).cells
    assert {cell for row in cells for cell in row} == {"X", "NV12"}


def test_a_card_that_lost_links_to_the_switch_shows_fewer() -> None:
    details = switch_details()
    details["GPU-3"] = switch_details(10)["GPU-3"]
    cells = topology_of(a100s(), details, StandInNvml(a100s(), details).common_ancestor).cells
    assert cells[0][3] == "NV10" == cells[3][0]
    assert cells[0][1] == "NV12"


def test_links_whose_end_no_driver_tells_are_unknown_and_not_pci_express() -> None:
    details = switch_details()
    for uuid, each in details.items():
        details[uuid] = replace(each, links=(Link(TO_UNKNOWN, "0000:c0:00.0"),))
    topology = topology_of(a100s(), details, StandInNvml(a100s(), details).common_ancestor)
    assert topology.cells[0][1] == UNKNOWN
    assert topology.legend()[UNKNOWN].startswith("Not known")


def test_an_old_driver_still_tells_direct_links_by_their_address() -> None:
    details = {
        uuid: replace(each, links=tuple(Link(TO_UNKNOWN, link.bus_id) for link in each.links))  # type: ignore[union-attr]
        for uuid, each in mesh_details().items()
    }
    topology = topology_of(v100s(), details, StandInNvml(v100s(), details).common_ancestor)
    assert topology.cells[0][1:5] == ("NV2", "NV2", "NV1", "NV1")


@pytest.mark.parametrize("level", [Unknown("no permission"), 60])
def test_a_level_that_is_not_told_is_unknown(level: int | Unknown) -> None:
    details = {uuid: replace(each, links=()) for uuid, each in mesh_details().items()}
    cells = topology_of(v100s(), details, StandInNvml(v100s(), details, level).common_ancestor).cells
    assert cells[0][1] == UNKNOWN


def test_cards_that_hide_their_links_are_unknown() -> None:
    details = {uuid: replace(each, links=Unknown("lost")) for uuid, each in mesh_details().items()}
    assert topology_of(v100s(), details, lambda one, other: 50).cells[0][1] == UNKNOWN


@pytest.mark.parametrize(
    ("one", "other", "relation"),
    [
        (bridge(1, "r1", "up", "down1"), bridge(1, "r1", "up", "down2"), "PIX"),
        (bridge(1, "r1", "up", "d1", "up2", "d3"), bridge(1, "r1", "up", "d2"), "PXB"),
        (bridge(1, "r1", "up", "d1", "b"), bridge(1, "r1", "up", "d2"), "PXB"),
        (bridge(1, "r1"), bridge(1, "r2"), "PHB"),
        (bridge(1, "r1"), bridge(2, "r1"), "NODE"),
        (bridge(1, "r1"), bridge(2, "r1", node=1), "SYS"),
        (bridge(1, "r1"), Adapter("virtual", Path("/sys/devices/virtual/net/x")), UNKNOWN),
    ],
)
def test_the_way_between_two_devices_is_read_from_the_device_tree(one: Adapter, other: Adapter, relation: str) -> None:
    assert pci_relation(one, other) == relation == pci_relation(other, one)


@pytest.mark.parametrize(("cpus", "text"), [({0, 1, 2, 40, 42, 43}, "0-2,40,42-43"), ({7}, "7"), (set(), "")])
def test_cpus_are_written_as_the_kernel_does(cpus: set[int], text: str) -> None:
    assert cpu_list(frozenset(cpus)) == text


def mounted(root: Path, folder: Path, kind: str, device: str) -> Path:
    number = folder.stat().st_dev
    line = f"22 1 {os.major(number)}:{os.minor(number)} / / rw - {kind} {device} rw\n"
    return write(root, {"proc/self/mountinfo": f"21 1 0:99 / /x rw - tmpfs none rw\n{line}"})


@pytest.mark.parametrize(
    ("rotational", "words"),
    [("1", "ext4 on /dev/sda1, hard disk"), ("0", "ext4 on /dev/sda1, no hard disk (SSD, or what the host calls one)")],
)
def test_a_folders_disk_is_told(tmp_path: Path, rotational: str, words: str) -> None:
    number = tmp_path.stat().st_dev
    name = f"sys/dev/block/{os.major(number)}:{os.minor(number)}/queue/rotational"
    root = mounted(write(tmp_path / "root", {name: rotational}), tmp_path, "ext4", "/dev/sda1")
    assert storage_of(tmp_path / "not" / "there" / "yet", root).describe() == words


def test_a_virtual_disk_tells_nothing_of_its_kind(tmp_path: Path) -> None:
    found = storage_of(tmp_path, mounted(tmp_path / "root", tmp_path, "xfs", "/dev/vda"))
    assert found.describe() == "xfs on /dev/vda (a virtual disk does not say)"


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "fuse.sshfs"])
def test_a_file_system_over_the_network_is_told(kind: str) -> None:
    assert Storage(kind, "server:/x", Unknown("none")).describe() == f"{kind} over the network"


def test_a_mount_that_is_not_listed_is_an_error_for_the_asker(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no mount"):
        storage_of(tmp_path, write(tmp_path, {"proc/self/mountinfo": ""}))


def test_infiniband_is_told_with_its_rate_and_place(tmp_path: Path) -> None:
    port = "sys/class/infiniband/mlx5_0/ports/1"
    write(tmp_path, {
        f"{port}/link_layer": "InfiniBand\n", f"{port}/rate": "100 Gb/sec (4X EDR)\n",
        "sys/class/infiniband/mlx5_0/device/numa_node": "1\n",
    })  # fmt: skip
    assert interconnect(tmp_path) == "InfiniBand 100 Gb/sec (4X EDR) (mlx5_0)"
    (adapter,) = infiniband_adapters(tmp_path)
    assert (adapter.name, adapter.numa_node) == ("mlx5_0", 1)


def test_without_infiniband_the_network_cards_are_named(tmp_path: Path) -> None:
    assert interconnect(tmp_path) == "no InfiniBand; no network card"
    write(tmp_path, {
        "sys/class/net/eth0/device/x": "", "sys/class/net/eth0/speed": "10000\n", "sys/class/net/eth1/device/x": "",
        "sys/class/net/eth1/speed": "-1\n", "sys/class/net/lo/mtu": "",
    })  # fmt: skip
    assert interconnect(tmp_path) == "no InfiniBand; eth0 10000 Mb/s, eth1"


def test_a_device_without_a_node_is_on_none(tmp_path: Path) -> None:
    assert adapter_at("x", tmp_path).numa_node == -1


def test_nvidia_cards_are_counted_without_a_driver(tmp_path: Path) -> None:
    assert nvidia_cards_on_bus(tmp_path) == 0
    devices = "sys/bus/pci/devices"
    write(tmp_path, {
        f"{devices}/a/vendor": "0x10de\n", f"{devices}/a/class": "0x030200\n",
        f"{devices}/b/vendor": "0x10de\n", f"{devices}/b/class": "0x068000\n",
        f"{devices}/c/vendor": "0x8086\n", f"{devices}/c/class": "0x030000\n",
    })  # fmt: skip
    assert nvidia_cards_on_bus(tmp_path) == 1


def test_a_librarys_version_is_its_file_names(tmp_path: Path) -> None:
    write(
        tmp_path, {"libcudnn.so.8.9.7": "", "libcudnn.so.8": "", "libcudnn_ops.so.8.9.7": "", "libnccl.so.2.18.5": ""}
    )
    variables = {"LD_LIBRARY_PATH": str(tmp_path)}
    assert library_versions("cudnn", variables, tmp_path) == ("8.9.7",)
    assert library_versions("nccl", variables, tmp_path) == ("2.18.5",)
